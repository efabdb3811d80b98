"""The scoring thread of a process: it loads the metrics, and scores the requests that wait together."""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import ServiceError
from reward.metrics.base import Scorer
from reward.samples import CaptionSample
from reward.score_table import ScoreTable
from reward.service.loading import load_metrics
from reward.service.settings import ServiceSettings
from reward.service.telemetry import Telemetry

__all__ = ["Deaths", "ScoringThread"]

logger = logging.getLogger(__name__)

_KEY = 64  # characters of a request's key
MOST_DEATHS = 3  # a request is given up when as many processes died while they scored it


class Deaths:
    """Which requests processes died of, in a folder that all processes of a service share.

    What is scored now stands in a file that is mapped to memory: it outlives the process, and writing costs nothing.

    Args:
        folder: of the service.
        name: of this process; one that takes the place of a dead one has the same.
        most: requests that are scored together.
    """

    def __init__(self, folder: Path, name: str, most: int) -> None:
        self._folder, size = folder, most * _KEY
        with (folder / f"scored-by-{name}").open("a+b") as file:
            file.truncate(size)
            self._now = mmap.mmap(file.fileno(), size)
        before = self._now[:].rstrip(b"\0").decode()  # the process before this one died while it scored them
        for start in range(0, len(before), _KEY):
            with (folder / before[start : start + _KEY]).open("a") as note:
                note.write("x")
        self.scoring([])

    def of(self, key: str) -> int:
        """How many processes died while they scored a request."""
        path = self._folder / key
        return path.stat().st_size if path.exists() else 0

    def scoring(self, keys: Sequence[str]) -> None:
        """Notes the requests that are scored from now on; a key is 64 characters long."""
        self._now[:] = "".join(keys).encode().ljust(len(self._now), b"\0")


@dataclass
class _Asked:
    metric: str
    samples: list[CaptionSample]
    key: str
    is_alone: bool  # to be scored apart from others, which it could take with it
    reply: asyncio.Future[ScoreTable]

    def answer(self, table: ScoreTable | Exception) -> None:
        self.reply.get_loop().call_soon_threadsafe(self._set, table)

    def _set(self, table: ScoreTable | Exception) -> None:
        if self.reply.done():  # nobody waits for it any more
            return
        if isinstance(table, Exception):
            self.reply.set_exception(table)
        else:
            self.reply.set_result(table)


class ScoringThread:
    """Scores requests in a thread of its own, those that wait at one time together, so that they share images.

    Args:
        settings: of the service.
        device: such as `cpu` or `cuda:1`.
        deaths: of requests before.
        give_up: is called, in the thread, with the reason why the metrics cannot be loaded.
    """

    def __init__(
        self, settings: ServiceSettings, device: str, deaths: Deaths, give_up: Callable[[Exception], None]
    ) -> None:
        self.settings, self.deaths, self.telemetry = settings, deaths, Telemetry()
        self.facts: dict[str, dict[str, Any]] = {}  # of each metric, once they are loaded
        self._device, self._give_up = device, give_up
        self._asked: queue.Queue[_Asked] = queue.Queue()
        self._next: _Asked | None = None  # was taken from the queue, but not into the batch before
        threading.Thread(target=self._run, name="scoring", daemon=True).start()

    async def ask(self, metric: str, samples: list[CaptionSample], key: str) -> ScoreTable:
        """Scores of captions; images are encoded bytes. `key` is the same when the request comes again.

        Raises:
            asyncio.TimeoutError: there are none in time.
            ServiceError: the request ended the processes that scored it.

        What the metric raises is raised, too.
        """
        deaths = self.deaths.of(key)
        if deaths >= MOST_DEATHS:
            raise ServiceError(f"{deaths} processes died, one after another, while they scored this request")
        reply = asyncio.get_running_loop().create_future()
        self._asked.put(_Asked(metric, samples, key, deaths > 0, reply))
        return await asyncio.wait_for(reply, self.settings.timeout)

    def _run(self) -> None:
        try:
            scorers, self.facts = load_metrics(self.settings, self._device)
        except Exception as error:
            self._give_up(error)
            return
        gc.freeze()  # walking through loaded networks would hold up requests for a quarter of a second
        while True:
            batch = self._batch()
            self.deaths.scoring([asked.key for asked in batch])
            for metric in dict.fromkeys(asked.metric for asked in batch):
                self._score(scorers[metric], [asked for asked in batch if asked.metric == metric])
            self.deaths.scoring([])

    def _batch(self) -> list[_Asked]:
        """The requests that are scored next, at least one."""
        batch: list[_Asked] = []
        end = float("inf")  # of the wait for company
        while len(batch) < self.settings.batch_requests:
            asked, self._next = self._next, None
            if asked is None:
                try:
                    asked = self._asked.get(timeout=max(0.0, end - time.monotonic()) if batch else None)
                except queue.Empty:
                    break
            if asked.reply.done():
                continue
            if asked.is_alone and batch:
                self._next = asked
                break
            if not batch:
                end = time.monotonic() + self.settings.batch_wait
            batch.append(asked)
            if asked.is_alone:
                break
        return batch

    def _score(self, scorer: Scorer, batch: list[_Asked]) -> None:
        samples = [sample for asked in batch for sample in asked.samples]
        try:
            table = scorer.score(samples, batch_size=self.settings.batch_size)
        except Exception as error:  # whatever it is, the service must go on, and no request may spoil another
            if len(batch) > 1:
                for asked in batch:
                    self._score(scorer, [asked])
                return
            logger.exception("%s: a request could not be scored", batch[0].metric)
            batch[0].answer(error)
            return
        self.telemetry.count_batch(batch[0].metric, len(batch), len(samples))
        start = 0
        for asked in batch:
            end = start + len(asked.samples)
            errors = {row - start: why for row, why in table.errors.items() if start <= row < end}
            asked.answer(ScoreTable(table.scores[start:end], table.aspects, errors, table.truncated[start:end]))
            start = end
