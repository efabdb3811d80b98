"""From the captions that a request names to their scores and rewards: images, the metric, weights."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from reward.aspect_weights import normalise_weights
from reward.data.held_data import HeldData
from reward.data.samples import CaptionSample, is_wordless
from reward.data.score_table import ScoreTable, weighted_mean
from reward.errors import ImageError, InvalidSampleError, WeightsError
from reward.service.batching import ScoringThread
from reward.service.images import ImageRefused, read_image
from reward.service.schemas import SampleScores, ScoreSample


class BadRequest(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.status = status


class Scoring:
    """Scores what requests ask for.

    Args:
        thread: has the metrics, and the settings of the service.
    """

    def __init__(self, thread: ScoringThread) -> None:
        self.thread, self.settings = thread, thread.settings
        # Not the event loop's own: what else waits there must not wait for a slow disk.
        self._image_threads = ThreadPoolExecutor(16, thread_name_prefix="image")

    def metric(self, name: str | None) -> str:
        """The metric of a name; None is the only one.

        Raises:
            BadRequest: there is no such metric, or several.
        """
        names = list(self.thread.facts)
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            raise BadRequest(f"metric must be one of {', '.join(names)}, got {name!r:.80}")
        return name

    async def score(
        self, metric: str, asked: Sequence[ScoreSample], weights: Mapping[str, float] | None
    ) -> list[SampleScores]:
        """The captions' scores, in one job, so that those of an image are scored together.

        Raises:
            BadRequest: too many captions, an image that the service refuses, unknown weights, or the metric fails.
            asyncio.TimeoutError: there are none in time.
        """
        most = self.settings.max_candidates
        if sum(len(each.candidates) for each in asked) > most:
            raise BadRequest(f"a request may hold {most} captions; send several requests")
        facts = self.thread.facts[metric]
        given = facts["default_weights"] if weights is None else weights
        try:
            vector = normalise_weights(given, facts["aspects"], facts["aliases"])
        except WeightsError as error:
            raise BadRequest(str(error)) from None
        images = await self._read_images(asked)
        rows = [_row(each, candidate, images) for each in asked for candidate in each.candidates]
        samples = [row for row in rows if isinstance(row, CaptionSample)]
        table = ScoreTable(np.empty((0, len(vector))), facts["aspects"])
        if samples:
            try:
                table = await self.thread.ask(metric, samples)
            except asyncio.TimeoutError:
                raise
            except Exception as error:
                raise BadRequest(f"{type(error).__name__}: {error}"[:500], status=500) from None
        table = HeldData(samples, {place: row for place, row in enumerate(rows) if isinstance(row, str)}).spread(table)
        self.thread.counts.captions(metric, len(table) - len(table.errors), len(table.errors))
        return _replies(asked, table, vector, facts["range"])

    async def _read_images(self, asked: Sequence[ScoreSample]) -> dict[Any, bytes | ImageError]:
        images = list(dict.fromkeys(each.image for each in asked if each.image is not None))
        loop = asyncio.get_running_loop()
        reading = [loop.run_in_executor(self._image_threads, read_image, image, self.settings) for image in images]
        read = dict(zip(images, await asyncio.gather(*reading, return_exceptions=True), strict=True))
        for each in read.values():
            if isinstance(each, ImageRefused):
                raise BadRequest(str(each))
            if isinstance(each, BaseException) and not isinstance(each, ImageError):
                raise each
        return read  # type: ignore[return-value]


def _row(asked: ScoreSample, candidate: str, images: Mapping[Any, bytes | ImageError]) -> CaptionSample | str:
    """A caption as a sample, or why it is none."""
    image = None if asked.image is None else images[asked.image]
    if isinstance(image, ImageError):
        return str(image)
    try:
        return CaptionSample(candidate, image, asked.references, columns=asked.columns)
    except InvalidSampleError as error:
        return str(error)


def _replies(
    asked: Sequence[ScoreSample], table: ScoreTable, weights: np.ndarray, bounds: list[float | None]
) -> list[SampleScores]:
    values, ends = table.scores.copy(), np.where(weights > 0, *np.array(bounds, float))  # NaN where there is no bound
    if np.isfinite(ends[weights != 0]).all():  # without a word the lowest value there is, as `MetricReward` has it
        values[[is_wordless(candidate) for each in asked for candidate in each.candidates]] = ends
    scores = [[_number(value) for value in row] for row in table.scores]
    rewards = [_number(value) for value in weighted_mean(values, weights)]
    errors, truncated = [table.errors.get(row) for row in range(len(table))], table.truncated.tolist()
    replies, start = [], 0
    for each in asked:
        own = slice(start, start := start + len(each.candidates))
        replies.append(
            SampleScores(scores=scores[own], rewards=rewards[own], errors=errors[own], truncated=truncated[own])
        )
    return replies


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
