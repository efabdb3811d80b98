"""From the captions that a request names to their scores and rewards: images, the metric, weights."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from reward.aspect_weights import normalise_weights
from reward.data.held_data import HeldData
from reward.data.samples import CaptionSample, is_wordless, read_references
from reward.data.score_table import ScoreTable, rewards_of_rows
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
        self, metric: str, requests: Sequence[ScoreSample], weights: Mapping[str, float] | None
    ) -> list[SampleScores]:
        """The captions' scores, in one job, so that those of an image are scored together.

        Raises:
            BadRequest: too many captions, an image that the service refuses, unknown weights, or the metric fails.
            asyncio.TimeoutError: there are none in time.
        """
        limit = self.settings.max_candidates
        if sum(len(request.candidates) for request in requests) > limit:
            raise BadRequest(f"a request may hold {limit} captions; send several requests")
        facts = self.thread.facts[metric]
        if weights is None:
            weights = facts["default_weights"]
        try:
            vector = normalise_weights(weights, facts["aspects"], facts["aliases"])
        except WeightsError as error:
            raise BadRequest(str(error)) from None
        images = await self._read_images(requests)
        rows = []
        for request in requests:
            image = images.get(request.image)
            for caption in request.candidates:
                rows.append(_read_row(caption, image, request, facts))
        table = await self._score_rows(metric, rows, facts["aspects"])
        self.thread.counts.captions(metric, len(table) - len(table.errors), len(table.errors))
        # One function decides what a row without a score gets, here and in MetricReward.
        rewards = rewards_of_rows(
            table.scores,
            vector,
            _bounds(facts["range"]),
            is_wordless=[is_wordless(row.caption) for row in rows],
            is_complete=[row.is_complete for row in rows],
        )
        replies = []
        first = 0
        for request in requests:
            last = first + len(request.candidates)
            replies.append(_reply(table, rewards, range(first, last)))
            first = last
        return replies

    async def _score_rows(self, metric: str, rows: Sequence[_Row], aspects: Sequence[str]) -> ScoreTable:
        """Scores (N, A), NaN and an error for a row that is no sample."""
        samples = [row.sample for row in rows if row.sample is not None]
        errors = {index: row.error for index, row in enumerate(rows) if row.sample is None}
        table = ScoreTable(np.empty((0, len(aspects))), tuple(aspects))
        if samples:
            try:
                table = await self.thread.ask(metric, samples)
            except asyncio.TimeoutError:
                raise
            except Exception as error:
                raise BadRequest(f"{type(error).__name__}: {error}"[:500], status=500) from None
        return HeldData(samples, errors).spread(table)

    async def _read_images(self, requests: Sequence[ScoreSample]) -> dict[Any, bytes | ImageError]:
        images = list(dict.fromkeys(request.image for request in requests if request.image is not None))
        loop = asyncio.get_running_loop()
        reading = [loop.run_in_executor(self._image_threads, read_image, image, self.settings) for image in images]
        # A broken image costs its own rows; one that is refused, the whole request, as the next would be refused, too.
        contents = await asyncio.gather(*reading, return_exceptions=True)
        for content in contents:
            if isinstance(content, ImageRefused):
                raise BadRequest(str(content))
            if isinstance(content, BaseException) and not isinstance(content, ImageError):
                raise content
        return dict(zip(images, contents, strict=True))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Row:
    """A caption of a request, as a sample or with the reason why it is none.

    `is_complete` says whether it has the image, the references and the columns that its metric needs.
    """

    caption: str
    sample: CaptionSample | None
    error: str
    is_complete: bool


def _read_row(caption: str, image: bytes | ImageError | None, request: ScoreSample, facts: Mapping[str, Any]) -> _Row:
    if isinstance(image, ImageError):
        if facts["reads_images"]:
            return _Row(caption, None, str(image), is_complete=False)
        image = None
    try:
        references = read_references(request.references)
    except InvalidSampleError as error:
        return _Row(caption, None, str(error), is_complete=False)
    is_complete = all(request.columns.get(name) is not None for name in facts["columns"])
    if facts["needs_image"] and image is None:
        is_complete = False
    if facts["needs_references"] and not references:
        is_complete = False
    try:
        sample = CaptionSample(caption, image, references, columns=request.columns)
    except InvalidSampleError as error:
        return _Row(caption, None, str(error), is_complete)
    return _Row(caption, sample, "", is_complete)


def _bounds(bounds: Sequence[float | None]) -> tuple[float, float]:
    """Lowest and highest score; JSON has None for infinity."""
    low, high = bounds
    if low is None:
        low = -math.inf
    if high is None:
        high = math.inf
    return low, high


def _reply(table: ScoreTable, rewards: np.ndarray, rows: range) -> SampleScores:
    """What a request for these rows is answered."""
    part = slice(rows.start, rows.stop)
    return SampleScores(
        scores=[_nullable(scores) for scores in table.scores[part]],
        rewards=_nullable(rewards[part]),
        errors=[table.errors.get(row) for row in rows],
        truncated=table.truncated[part].tolist(),
    )


def _nullable(numbers: np.ndarray) -> list[float | None]:
    """Numbers, with None for those that JSON does not have."""
    return [number if math.isfinite(number) else None for number in numbers.tolist()]
