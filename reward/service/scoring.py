"""From captions that a request names to their scores and rewards: limits, images, a worker, weights."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reward.errors import ImageError, InvalidSampleError, WeightsError
from reward.samples import CaptionSample, is_wordless
from reward.service.images import ImageReader, ImageRefused
from reward.service.schemas import SampleScores, ScoreSample
from reward.service.settings import ServiceSettings
from reward.service.telemetry import Telemetry
from reward.service.worker import Job, JobReply
from reward.weights import normalise_weights

__all__ = ["AsksWorkers", "BadRequest", "Scoring"]

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


class AsksWorkers(Protocol):
    """Who has jobs done; see `reward.service.workers.Workers.ask`."""

    async def ask(self, job: Job) -> JobReply: ...


class Scoring:
    """Scores what requests ask for.

    Args:
        settings: of the service.
        workers: have the jobs done.
        telemetry: counts captions.
    """

    def __init__(self, settings: ServiceSettings, workers: AsksWorkers, telemetry: Telemetry) -> None:
        self.settings, self.workers, self.telemetry = settings, workers, telemetry
        self.names = [metric.name for metric in settings.metrics]
        self._images = ImageReader(settings)
        self._errors = 0

    def metric(self, name: str | None) -> str:
        """The metric of a name; None is the only one.

        Raises:
            BadRequest: there is no such metric, or several.
        """
        if name is None and len(self.names) == 1:
            return self.names[0]
        if name not in self.names:
            raise BadRequest(f"metric must be one of {', '.join(self.names)}, got {name!r:.80}")
        return name

    async def score(
        self, metric: str, asked: Sequence[ScoreSample], weights: Mapping[str, float] | None
    ) -> tuple[dict[str, Any], list[SampleScores]]:
        """Facts of the metric, and the captions' scores, in one job, so that those of an image are scored together.

        Raises:
            BadRequest: too many captions, an image that the service refuses, unknown weights.
            asyncio.TimeoutError, ServiceError: see `Workers.ask`.
        """
        most = self.settings.max_candidates
        if sum(len(each.candidates) for each in asked) > most:
            raise BadRequest(f"a request may hold {most} captions; send several requests")
        images = list(dict.fromkeys(each.image for each in asked if each.image is not None))
        loaded = await asyncio.gather(*map(self._images.read, images), return_exceptions=True)
        read = dict(zip(images, loaded, strict=True))
        samples: list[CaptionSample] = []
        places: list[list[int | str]] = []  # of each caption: its row in the job, or why it has none
        for each in asked:
            image = None if each.image is None else read[each.image]
            if isinstance(image, ImageRefused):
                raise BadRequest(str(image))
            if isinstance(image, BaseException) and not isinstance(image, ImageError):
                raise image
            row: list[int | str] = []
            for candidate in each.candidates:
                try:
                    if isinstance(image, ImageError):
                        raise InvalidSampleError(str(image))
                    self._check_length(candidate, *each.references, json.dumps(each.columns))
                    samples.append(CaptionSample(candidate, image, each.references, columns=each.columns))
                    row.append(len(samples) - 1)
                except InvalidSampleError as error:
                    row.append(str(error))
            places.append(row)
        reply = await self.workers.ask(Job(metric, samples))
        if reply.problem is not None:
            raise BadRequest(reply.problem, status=500)
        self.telemetry.count(metric, reply, sum(isinstance(place, str) for row in places for place in row))
        try:
            vector = normalise_weights(
                reply.facts["default_weights"] if weights is None else weights,
                reply.facts["aspects"],
                reply.facts["aliases"],
            )
        except WeightsError as error:
            raise BadRequest(str(error)) from None
        scored = [_collect(each, row, reply, vector.tolist()) for each, row in zip(asked, places, strict=True)]
        self._log_errors(metric, [error for sample in scored for error in sample.errors if error is not None])
        return reply.facts, scored

    def _log_errors(self, metric: str, errors: list[str]) -> None:
        """Warns of the first, tenth, hundredth, ... caption without a score."""
        before, self._errors = self._errors, self._errors + len(errors)
        if errors and (before == 0 or len(str(before)) < len(str(self._errors))):
            logger.warning("%s: %d captions so far have no score; the last: %s", metric, self._errors, errors[0])

    def _check_length(self, *texts: str) -> None:
        most = self.settings.max_characters
        if any(len(text) > most for text in texts):
            raise InvalidSampleError(f"a text has more than {most} characters, which is the service's limit")


def _collect(asked: ScoreSample, row: list[int | str], reply: JobReply, weights: list[float]) -> SampleScores:
    found = SampleScores(scores=[], rewards=[], errors=[], truncated=[])
    for candidate, place in zip(asked.candidates, row, strict=True):
        scores = [None] * len(weights) if isinstance(place, str) else reply.scores[place]
        found.scores.append(list(scores))
        found.errors.append(place if isinstance(place, str) else reply.errors.get(place))
        found.truncated.append(not isinstance(place, str) and reply.truncated[place])
        found.rewards.append(_reward(candidate, scores, weights, reply.facts["range"]))
    return found


def _reward(
    candidate: str, scores: Sequence[float | None], weights: list[float], bounds: Sequence[float | None]
) -> float | None:
    """The weighted mean, as `MetricReward` has it: the lowest value there is for a caption without a word."""
    if is_wordless(candidate):
        ends = [bounds[0] if weight > 0 else bounds[1] for weight in weights]
        scores = ends if all(end is not None for end, weight in zip(ends, weights, strict=True) if weight) else scores
    used = [(weight, score) for weight, score in zip(weights, scores, strict=True) if weight]
    total = sum(weight * (math.nan if score is None else score) for weight, score in used)
    return total if math.isfinite(total) else None
