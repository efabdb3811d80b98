"""From captions that a request names to their scores and rewards: limits, images, the metric, weights."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from reward.aspect_weights import normalise_weights
from reward.errors import ImageError, InvalidSampleError, ServiceError, WeightsError
from reward.samples import CaptionSample, is_wordless
from reward.score_table import ScoreTable, weighted_mean
from reward.service.batching import ScoringThread
from reward.service.images import ImageReader, ImageRefused
from reward.service.schemas import SampleScores, ScoreSample
from reward.service.settings import ServiceSettings

__all__ = ["BadRequest", "Scoring"]

logger = logging.getLogger(__name__)


class BadRequest(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


class Scoring:
    """Scores what requests ask for.

    Args:
        settings: of the service.
        thread: has the metrics.
    """

    def __init__(self, settings: ServiceSettings, thread: ScoringThread) -> None:
        self.settings, self.thread = settings, thread
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
        self, metric: str, asked: Sequence[ScoreSample], weights: Mapping[str, float] | None, key: str
    ) -> list[SampleScores]:
        """The captions' scores, in one job, so that those of an image are scored together; `key` names the request.

        Raises:
            BadRequest: too many captions, an image that the service refuses, unknown weights.
            asyncio.TimeoutError, ServiceError: see `ScoringThread.ask`.
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
        facts = self.thread.facts[metric]
        try:
            vector = normalise_weights(
                facts["default_weights"] if weights is None else weights, facts["aspects"], facts["aliases"]
            )
        except WeightsError as error:
            raise BadRequest(str(error)) from None
        table = ScoreTable(np.empty((0, len(vector))), facts["aspects"])
        if samples:
            try:
                table = await self.thread.ask(metric, samples, key)
            except (ServiceError, asyncio.TimeoutError):
                raise
            except Exception as error:
                raise BadRequest(f"{type(error).__name__}: {error}"[:500], status=500) from None
        refused = sum(isinstance(place, str) for row in places for place in row)
        self.thread.telemetry.count(metric, len(table) - len(table.errors), len(table.errors) + refused)
        scored = [_collect(*each, table, vector, facts["range"]) for each in zip(asked, places, strict=True)]
        self._log_errors(metric, [error for sample in scored for error in sample.errors if error is not None])
        return scored

    def _log_errors(self, metric: str, errors: list[str]) -> None:
        """Warns of the first, tenth, hundredth, ... caption without a score."""
        before, self._errors = self._errors, self._errors + len(errors)
        if errors and (before == 0 or len(str(before)) < len(str(self._errors))):
            logger.warning("%s: %d captions so far have no score; the last: %s", metric, self._errors, errors[0])

    def _check_length(self, *texts: str) -> None:
        most = self.settings.max_characters
        if any(len(text) > most for text in texts):
            raise InvalidSampleError(f"a text has more than {most} characters, which is the service's limit")


def _collect(
    asked: ScoreSample, row: list[int | str], table: ScoreTable, weights: np.ndarray, bounds: list[float | None]
) -> SampleScores:
    found = SampleScores(scores=[], rewards=[], errors=[], truncated=[])
    error: str | None
    for candidate, place in zip(asked.candidates, row, strict=True):
        if isinstance(place, str):
            values, error, cut = np.full(len(weights), np.nan), place, False
        else:
            values, error, cut = table.scores[place], table.errors.get(place), bool(table.truncated[place])
        found.scores.append([_number(value) for value in values])
        found.errors.append(error)
        found.truncated.append(cut)
        if is_wordless(candidate):  # the lowest value there is, as `MetricReward` has it
            ends = np.where(weights > 0, *np.array(bounds, float))  # NaN where there is no bound
            values = ends if np.isfinite(ends[weights != 0]).all() else values
        found.rewards.append(_number(weighted_mean(values[None], weights)[0]))
    return found


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
