"""RemoteScorer: a metric behind a reward service, as a scorer like any other."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reward.data.images import encoded_image, load_image
from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.errors import ConfigError, ImageError, ServiceError
from reward.metrics.base import MetricSpec, installed_specs
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group, windows
from reward.remote import REMOTE
from reward.remote.client import Replicas, RequestRefused, Unreachable, checked_key, checked_urls

if TYPE_CHECKING:
    from typing_extensions import Self

CandidateRow = tuple[list[float], str | None, bool]  # scores of a candidate, why it has none, whether it was cut


class RemoteScorer(CaptionScorer):
    """Scores captions by a reward service (`capreward serve`); needs no GPU and no weights here.

    Captions of one image go in one request, which holds the image once. Requests that fail are sent again, to another
    replica if there is one. A caption that has no score when `patience` is over gets NaN and the reason. The service
    names its metric, checkpoint, precision and version by an `identity`; a scorer keeps to the one that it found first,
    also after it was pickled, and refuses all others.

    Args:
        url: address, such as `"http://127.0.0.1:8123"`; several replicas as a list, or separated by commas.
        metric: which of the service's metrics; None takes its only one.
        identity: what the service must say that it is; None takes what it says first.
        timeout: seconds for one try.
        patience: seconds until a request is given up, from its turn on.
        concurrency: most requests at a time.
        api_key: the service's key, its CAPREWARD_TOKEN. None reads the environment variable of that name when the key
            is needed, and stores none. No message and no `repr` shows it; a pickle holds it.
        image_root: folder here that is the service's `--image-root`, perhaps on another machine: images below it are
            sent by path. None sends all images in full.

    Example:
        >>> RemoteScorer("http://127.0.0.1:8123", "vela").spec.aspects
        ('descriptiveness', 'relevance', 'fluency')
    """

    decodes_images = False
    window_size = sys.maxsize  # all requests wait at the service, which joins them
    takes_calls_together = True  # of several threads
    reads_images = reads_references = True  # as the service's metric does, once it was asked
    _replicas: Replicas
    _threads: ThreadPoolExecutor
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
        api_key: str | None = None,
        image_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.urls, metric_of_url = checked_urls(url if isinstance(url, str) else ",".join(url))
        self.metric = metric or metric_of_url
        self.identity = identity
        self.concurrency = concurrency
        self._timeout, self._patience = timeout, patience
        self._image_root = None if image_root is None else os.path.realpath(image_root)
        self._api_key = None if api_key is None else checked_key(api_key, "api_key=")
        self._facts: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def spec(self) -> MetricSpec:  # type: ignore[override]  # elsewhere an attribute
        """Facts of the metric: those that this package knows by its name, and the service's own once it was asked."""
        if not self._facts:
            spec = installed_specs().get(self.metric or "")
            if spec is not None:
                return replace(spec, needs_corpus=False)  # a service has fitted its metrics
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
        """Connects to a service; `source` is its address, with `#vela` behind it where it has several metrics."""
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
        with self._lock:
            # Connections and threads belong to this process: a pickle leaves them out, and they are made again.
            if not hasattr(self, "_replicas"):
                key = self._api_key or os.environ.get("CAPREWARD_TOKEN")
                if key:
                    key = checked_key(key, "CAPREWARD_TOKEN")
                self._replicas = Replicas(self.urls, key or None, timeout=self._timeout, patience=self._patience)
                self._threads = ThreadPoolExecutor(self.concurrency, thread_name_prefix="remote")
            if not self._facts:
                try:
                    replies = self._replicas.get_all("/info")
                except Unreachable as error:
                    raise ServiceError(f"no reward service at {', '.join(self.urls)}: {error}") from None
                for url, reply in replies.items():
                    self._facts = self._read_info(url, reply)

    def _read_info(self, url: str, reply: Any) -> dict[str, Any]:
        """The facts of the metric that a service says of itself."""
        try:
            specs = {name: _spec(facts) for name, facts in reply["metrics"].items()}
            identities = {name: str(facts["identity"]) for name, facts in reply["metrics"].items()}
            self._most_candidates = int(reply["limits"]["max_candidates"])
            self._most_bytes = int(reply["limits"]["max_body"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ServiceError(f"{url} is no reward service of this version: its /info lacks {error}") from None
        first = next(iter(specs), "")
        if self.metric is None and len(specs) == 1:
            self.metric = first
        if self.metric not in specs:
            raise ServiceError(
                f"{url} serves {', '.join(specs)}, and not {self.metric!r}: write {first}={url}, or metric={first!r}"
            )
        self._check(identities[self.metric], url)
        self.identity = identities[self.metric]
        self._spec = specs[self.metric]
        facts: dict[str, Any] = reply["metrics"][self.metric]
        self.reads_images, self.reads_references = facts["reads_images"], facts["reads_references"]
        return facts

    def _check(self, identity: Any, where: str) -> None:
        if self.identity is not None and identity != self.identity:
            raise ServiceError(
                f"{where} serves another {self.metric} than this run began with: {identity}, not {self.identity}. "
                "Scores of two metrics must not be mixed: start all replicas with the same checkpoint, precision and "
                "version, or begin a new run"
            )

    def context(self, sample: CaptionSample) -> str | None:
        """The cells that the metric needs, as JSON."""
        if not self._spec.columns:
            return None
        cells = {role: sample.columns.get(role) for role in self._spec.columns}
        return json.dumps(cells, default=lambda value: value.tolist())

    def score_samples(self, samples: list[CaptionSample], *arguments: Any, **options: Any) -> ScoreTable:
        self.connect()  # only the service knows what the metric reads
        return super().score_samples(samples, *arguments, **options)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """A request for each group, or several where it has many candidates; `batch_size` is the service's to choose.

        Raises:
            ServiceError: the service serves something else than at first, or refuses the token.
        """
        ended = threading.Event()
        # A service takes so many candidates in a request; a group with more becomes several requests.
        parts = []
        for group in groups:
            for window in windows([group], self._most_candidates):
                parts += window
        requests = [self._threads.submit(self._ask, part, ended) for part in parts]
        rows: list[CandidateRow] = []
        try:
            for request in requests:
                rows += request.result()
        finally:  # of an interrupted run nothing is asked any more
            ended.set()
            for request in requests:
                request.cancel()
        errors = {index: error for index, (_, error, _) in enumerate(rows) if error is not None}
        return CandidateScores([scores for scores, _, _ in rows], [is_cut for _, _, is_cut in rows], errors)

    def _ask(self, group: Group, ended: threading.Event) -> list[CandidateRow]:
        """The rows of a group's candidates, without scores where the service gave no answer."""
        try:
            reply = self._replicas.post("/score", self._body(group), ended, key=group.image_key or "")
            return self._read(reply, len(group.rows))
        except ImageError as error:
            reason = str(error)
        except RequestRefused as error:
            reason = f"the service refuses: {error}"
        except Unreachable as error:
            reason = f"the service cannot be reached: {error}"
        return [([math.nan] * len(self._spec.aspects), reason, False)] * len(group.rows)

    def _body(self, group: Group) -> bytes:
        sample: dict[str, Any] = {"candidates": list(group.rows), "references": list(group.references)}
        if group.context is not None:
            sample["columns"] = json.loads(group.context)
        if group.image is not None and self.reads_images:
            sample["image"] = self._image(group.image)
        body = json.dumps({"metric": self.metric, "samples": [sample]}).encode()
        if len(body) > self._most_bytes:  # it would cut us off while we send, which looks like a lost connection
            limit = f"the limit of {self._most_bytes} (`capreward serve --max-body`)"
            raise RequestRefused(f"the request has {len(body)} bytes, over {limit}")
        return body

    def _image(self, image: Any) -> dict[str, str]:
        if self._facts.get("wants_png"):  # a worker of another environment, which is to see the pixels that we see
            return {"base64": base64.b64encode(encoded_image(load_image(image))).decode()}
        if self._image_root is not None and isinstance(image, (str, os.PathLike)):
            path = os.path.realpath(image)
            if path.startswith(self._image_root + os.sep):
                return {"path": os.path.relpath(path, self._image_root).replace(os.sep, "/")}
        return {"base64": base64.b64encode(encoded_image(image)).decode()}

    def _read(self, reply: Any, count: int) -> list[CandidateRow]:
        """The rows of `count` candidates in a reply."""
        rows: list[CandidateRow] = []
        try:
            identity, sample = reply["identity"], reply["samples"][0]
            for values, error, is_cut in zip(sample["scores"], sample["errors"], sample["truncated"], strict=True):
                scores = [math.nan if value is None else float(value) for value in values]
                if len(scores) != len(self._spec.aspects):
                    raise ValueError(f"{len(scores)} scores for {len(self._spec.aspects)} aspects")
                rows.append((scores, error, bool(is_cut)))
            if len(rows) != count:
                raise ValueError(f"scores of {len(rows)} captions for {count}")
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise RequestRefused(f"the reply cannot be read ({error})") from None
        self._check(identity, "the service")
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_replicas", "_threads")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"RemoteScorer({','.join(self.urls)!r}, metric={self.metric!r})"


def _spec(facts: dict[str, Any]) -> MetricSpec:
    low, high = facts["range"]
    return MetricSpec(
        name=str(facts["metric"]),
        scorer=REMOTE.scorer,
        aspects=tuple(map(str, facts["aspects"])),
        aliases={str(short): str(aspect) for short, aspect in facts["aliases"].items()},
        needs_image=bool(facts["needs_image"]),
        needs_references=bool(facts["needs_references"]),
        columns=tuple(map(str, facts.get("columns", ()))),
        range=(-math.inf if low is None else float(low), math.inf if high is None else float(high)),
        paper=str(facts["paper"]),
        default_weights=facts["default_weights"],
    )
