"""RemoteScorer: a metric behind a reward service, as a scorer like any other."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, ImageError, ServiceError
from reward.images import encoded_image
from reward.judges.background import BackgroundLoop
from reward.metrics.base import MetricSpec, TakesData, installed_specs
from reward.metrics.groups import Group, group_samples
from reward.metrics.remote import SPEC
from reward.metrics.remote.client import Refused, Replicas, Unreachable, checked_urls
from reward.samples import CaptionSample, ScoreTable, check_samples

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RemoteScorer"]


class RemoteScorer(TakesData):
    """Scores captions by a reward service (`capreward serve`); needs no GPU and no weights here.

    Captions of one image go in one request, which holds the image once. Requests that fail are sent again, to another
    replica if there is one. A caption that has no score when `patience` is over gets NaN and the reason. The service
    names its metric, checkpoint, precision and version by an `identity`; a scorer keeps to the one that it found first,
    also after it was pickled, and refuses all others. The service's token is read from the environment variable
    CAPREWARD_TOKEN when it is needed, and never stored.

    Args:
        url: address, such as `"http://127.0.0.1:8123"`; several replicas as a list, or separated by commas.
        metric: which of the service's metrics; None takes its only one.
        identity: what the service must say that it is; None takes what it says first.
        timeout: seconds for one try.
        patience: seconds until a request is given up, from its turn on.
        concurrency: most requests at a time.
        image_root: folder here that is the service's `--image-root`, perhaps on another machine: images below it are
            sent by path. None sends all images in full.

    Raises:
        ConfigError: a setting that cannot be.

    Example:
        >>> RemoteScorer("http://127.0.0.1:8123", "vela").spec.aspects
        ('descriptiveness', 'relevance', 'fluency')
    """

    _loop: BackgroundLoop | None
    _pid: int
    _replicas: Replicas
    _spec: MetricSpec

    def __init__(
        self,
        url: str | Sequence[str],
        metric: str | None = None,
        *,
        identity: str | None = None,
        timeout: float = 60.0,
        patience: float = 300.0,
        concurrency: int = 16,
        image_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.urls, named = checked_urls(url if isinstance(url, str) else ",".join(url))
        if concurrency < 1 or not timeout > 0 or not patience > 0:
            raise ConfigError(
                f"concurrency must be at least 1, and timeout and patience above 0, got {concurrency}, {timeout} and "
                f"{patience}"
            )
        self.metric = metric or named
        self.identity = identity
        self._settings = {"timeout": timeout, "patience": patience, "concurrency": concurrency}
        self._image_root = None if image_root is None else os.path.realpath(image_root)
        self._facts: dict[str, Any] | None = None
        self._start_empty()

    @property
    def spec(self) -> MetricSpec:  # type: ignore[override]  # elsewhere an attribute
        """Facts of the metric: those that this package knows by its name, and the service's own once it was asked."""
        if self._facts is None:
            known = installed_specs().get(self.metric or "")
            if known is not None:
                return replace(known, needs_corpus=False)  # a service has fitted its metrics
            self.connect()
        return self._spec

    @property
    def fingerprint(self) -> str:
        """Names the metric of the service; a resumed run continues only with the same."""
        self.connect()
        return f"remote {self.metric} {self.identity}"

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        **settings: Any,
    ) -> Self:
        """Connects to a service; `source` is its address, with `#vela` behind it where it has several metrics.

        Raises:
            ConfigError: not an address, or one of the arguments that only the service itself can follow.
            ServiceError: see `connect`.
        """
        if revision is not None or dtype is not None:
            raise ConfigError("revision and dtype belong to the service: give them to `capreward serve`")
        scorer = cls(os.fspath(source), **settings)
        scorer.connect()
        return scorer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Refuses: the weights are with the service."""
        raise ConfigError("a remote scorer has nothing to save; its weights are with the service")

    def connect(self) -> None:
        """Asks all replicas what they serve, once; later calls do nothing.

        Raises:
            ServiceError: no replica answers, the metric is not there, or they do not all serve the same.
        """
        if self._facts is None:
            self._run(self._connect())

    def _score(self, samples: list[CaptionSample], batch_size: int | None, progress: bool) -> ScoreTable:
        """Scores (N, A); `batch_size` and `progress` have no effect: the service batches.

        Raises:
            ServiceError: the service serves something else than at first, or refuses the token.
        """
        return self._run(self._ask(samples))

    async def ascore(self, samples: Sequence[CaptionSample]) -> ScoreTable:
        """`score` to be awaited, in any event loop, which goes on meanwhile."""
        check_samples(samples)
        loop = self._open()
        return await loop.arun(self._ask(list(samples)))

    async def _connect(self) -> None:
        try:
            replies = await self._replicas.get_all("/info")
        except (Unreachable, Refused) as error:
            raise ServiceError(f"no reward service at {', '.join(self.urls)}: {error}") from None
        for url, reply in replies.items():
            try:
                metrics = reply["metrics"]
                if self.metric is None and len(metrics) == 1:
                    self.metric = next(iter(metrics))
                if self.metric not in metrics:
                    first = next(iter(metrics))
                    raise ServiceError(
                        f"{url} serves {', '.join(metrics)}, and not {self.metric!r}: write {first}={url}, or "
                        f"metric={first!r}"
                    )
                facts = metrics[self.metric]
                self._check(facts["identity"], url)
                self.identity = facts["identity"]
                self._most_candidates = int(reply["limits"]["max_candidates"])
                self._most_bytes = int(reply["limits"]["max_body"])
                self._spec = _spec(facts)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, ServiceError):
                    raise
                raise ServiceError(f"{url} is no reward service of this version: its /info lacks {error}") from None
            self._facts = facts

    def _check(self, identity: Any, where: str) -> None:
        if self.identity is not None and identity != self.identity:
            raise ServiceError(
                f"{where} serves another {self.metric} than this run began with: {identity}, not {self.identity}. "
                "Scores of two metrics must not be mixed: start all replicas with the same checkpoint, precision and "
                "version, or begin a new run"
            )

    async def _ask(self, samples: list[CaptionSample]) -> ScoreTable:
        if self._facts is None:
            await self._connect()
        facts = self._facts or {}
        groups = await asyncio.to_thread(
            group_samples,
            samples,
            use_images=facts["reads_images"],
            use_references=facts["reads_references"],
            contexts=[_cells(sample, self._spec) for sample in samples],
        )
        aspects = self._spec.aspects
        scores = np.full((len(samples), len(aspects)), np.nan)
        truncated = np.zeros(len(samples), dtype=bool)
        errors: dict[int, str] = {}

        async def ask(group: Group, candidates: list[str]) -> None:
            try:
                body = partial(self._body, group, candidates)
                reply = await self._replicas.post("/score", body, key=group.image_key or "")
                part = self._read(reply, len(candidates))
            except (ImageError, Refused, Unreachable) as error:
                part = [([math.nan] * len(aspects), _reason(error), False)] * len(candidates)
            for candidate, (values, reason, cut) in zip(candidates, part, strict=True):
                rows = group.rows[candidate]
                scores[rows], truncated[rows] = values, cut
                errors.update(dict.fromkeys(rows, reason) if reason is not None else {})

        tasks = []
        for group in groups:
            candidates = list(group.rows)
            if group.error is not None:
                errors.update({row: group.error for rows in group.rows.values() for row in rows})
                continue
            for start in range(0, len(candidates), self._most_candidates):
                tasks.append(asyncio.ensure_future(ask(group, candidates[start : start + self._most_candidates])))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return ScoreTable(scores, aspects, dict(sorted(errors.items())), truncated, aliases=self._spec.aliases)

    def _body(self, group: Group, candidates: list[str]) -> bytes:
        sample: dict[str, Any] = {"candidates": candidates, "references": list(group.references)}
        if group.context is not None:
            sample["columns"] = json.loads(group.context)
        if group.image is not None and self._facts is not None and self._facts["reads_images"]:
            sample["image"] = self._image(group.image)
        body = json.dumps({"metric": self.metric, "samples": [sample]}).encode()
        if len(body) > self._most_bytes:  # it would cut us off while we send, which looks like a lost connection
            raise Refused(f"the request has {len(body)} bytes, over its limit of {self._most_bytes}: raise --max-body")
        return body

    def _image(self, image: Any) -> dict[str, str]:
        if self._image_root is not None and isinstance(image, (str, os.PathLike)):
            path = os.path.realpath(image)
            if path.startswith(self._image_root + os.sep):
                return {"path": os.path.relpath(path, self._image_root).replace(os.sep, "/")}
        return {"base64": base64.b64encode(encoded_image(image)).decode()}

    def _read(self, reply: Any, count: int) -> list[tuple[list[float], str | None, bool]]:
        """(scores, reason, truncated) of each candidate."""
        try:
            self._check(reply["identity"], "the service")
            sample = reply["samples"][0]
            rows = list(zip(sample["scores"], sample["errors"], sample["truncated"], strict=True))
            read = [
                ([math.nan if v is None else float(v) for v in values], why, bool(cut)) for values, why, cut in rows
            ]
            if len(read) != count or any(len(values) != len(self._spec.aspects) for values, *_ in read):
                raise ValueError("another number of scores than was asked for")
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            if isinstance(error, ServiceError):
                raise
            raise Refused(f"the reply cannot be read ({error})") from None
        return read

    def _run(self, coroutine: Any) -> Any:
        return self._open().run(coroutine)

    def _open(self) -> BackgroundLoop:
        """The event loop of this process with its connections."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():  # threads do not live on in a forked process
                self._loop, self._pid = BackgroundLoop(), os.getpid()
                self._replicas = self._loop.run(self._make_replicas())
            return self._loop

    async def _make_replicas(self) -> Replicas:
        return Replicas(self.urls, os.environ.get("CAPREWARD_TOKEN") or None, **self._settings)  # type: ignore[arg-type]

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._loop = None
        self._pid = 0

    def __getstate__(self) -> dict[str, Any]:
        return {
            key: value for key, value in self.__dict__.items() if key not in ("_lock", "_loop", "_pid", "_replicas")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_empty()

    def __repr__(self) -> str:
        return f"RemoteScorer({','.join(self.urls)!r}, metric={self.metric!r})"


def _spec(facts: dict[str, Any]) -> MetricSpec:
    low, high = facts["range"]
    return MetricSpec(
        name=str(facts["metric"]),
        scorer=SPEC.scorer,
        aspects=tuple(map(str, facts["aspects"])),
        aliases={str(short): str(aspect) for short, aspect in facts["aliases"].items()},
        needs_image=bool(facts["needs_image"]),
        needs_references=bool(facts["needs_references"]),
        columns=tuple(map(str, facts.get("columns", ()))),
        range=(-math.inf if low is None else float(low), math.inf if high is None else float(high)),
        paper=str(facts["paper"]),
        default_weights=facts["default_weights"],
    )


def _cells(sample: CaptionSample, spec: MetricSpec) -> str | None:
    """The cells that the metric needs, as JSON."""
    cells = {role: sample.columns.get(role) for role in spec.columns}
    return json.dumps(cells, default=lambda value: value.tolist()) if cells else None


def _reason(error: Exception) -> str:
    kind = {Refused: "the service refuses: ", Unreachable: "the service cannot be reached: "}.get(type(error), "")
    return f"{kind}{error}"
