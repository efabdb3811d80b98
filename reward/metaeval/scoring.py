"""Scores the captions of a benchmark with a metric, and keeps every chunk on disk, so that nothing is scored twice."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ConfigError, DataError, ImageError
from reward.images import image_key
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.score_cache import KnownScore, ScoreCache, metric_identity, sample_key
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.registry import load_scorer, loaded_if_remote, metric_spec
from reward.samples import CaptionSample, ImageLike
from reward.scoring.dataset import CHUNK_SECONDS, FIRST_CHUNK, ScoringInterrupted
from reward.scoring.progress import progress_bar

__all__ = ["BenchmarkScores", "score_benchmark"]

LARGEST_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class BenchmarkScores:
    """Scores of the N * K captions of a benchmark, in the order of `Benchmark.samples`.

    Args:
        scores: (N * K, A), NaN where a caption has none.
        aspects: A names.
        weights: (A,), of the aspects in the one number.
        errors: {row: why it has no score}.
        truncated: captions of which text was cut.
        seconds: mean time of a caption, measured when it was scored, perhaps by an earlier run; NaN if none was.
        devices: what the scoring ran on.
        known: captions whose scores were on disk.
        new: captions scored by this run.
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    weights: np.ndarray
    errors: dict[int, str] = field(default_factory=dict)
    truncated: int = 0
    seconds: float = float("nan")
    devices: tuple[str, ...] = ()
    known: int = 0
    new: int = 0

    def for_aspects(self, benchmark: Benchmark) -> np.ndarray | dict[str, np.ndarray]:
        """The scores to compare with the judgments: (N, K), or {rated aspect: (N, K)}.

        A rated aspect is compared with the metric's aspect of that name or, if there is none, with the weighted mean.
        """
        shape = (len(benchmark.items), benchmark.captions_per_item)
        used = self.weights != 0  # an aspect without weight must not spread its NaN
        mean = (self.scores[:, used] @ self.weights[used]).reshape(shape)
        if not set(benchmark.aspects) & set(self.aspects):
            return mean
        return {
            aspect: self.scores[:, self.aspects.index(aspect)].reshape(shape) if aspect in self.aspects else mean
            for aspect in benchmark.aspects
        }


def score_benchmark(
    benchmark: Benchmark,
    metric: str | Scorer,
    source: str | os.PathLike[str] = "embedded",
    *,
    cache: str | os.PathLike[str] | None = None,
    references: bool = True,
    batch_size: int | None = None,
    progress: bool = False,
    revision: str | None = None,
    dtype: str | None = None,
    **options: Any,
) -> BenchmarkScores:
    """Scores every caption of a benchmark.

    A caption that cannot be scored does not stop the others. Its error is not stored, and the next run tries again.

    Args:
        benchmark: from `load_benchmark`.
        metric: name of a metric, or a scorer.
        source: checkpoint of a metric given by name.
        cache: folder of `ScoreCache` files; None stores nothing. Scores of a scorer object are stored only if it has a
            `fingerprint`.
        references: False withholds the references from a metric that can do without them.
        batch_size: passed to the scorer.
        progress: show a progress bar.
        revision, dtype, options: passed to `load_scorer`.

    Raises:
        DataError: the benchmark has no images, or no references, and the metric needs them.
        ScoringInterrupted: Ctrl-C; the scores so far are stored.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scores = score_benchmark(load_benchmark("scenes", limit=2), "length")
        >>> scores.scores.shape, scores.aspects, scores.errors
        ((2, 1), ('length',), {})
    """
    given = {name: value for name, value in options.items() if value is not None}
    loading = {**given, "revision": revision, "dtype": dtype}
    run = _Run(metric, source, {name: value for name, value in loading.items() if value is not None}, cache)
    try:
        return run(benchmark, references=references, batch_size=batch_size, progress=progress)
    finally:
        if run.cache is not None:
            run.cache.close()


class _Run:
    """One metric on one benchmark; the model is loaded when the first caption is to be scored."""

    def __init__(
        self,
        metric: str | Scorer,
        source: str | os.PathLike[str],
        loading: Mapping[str, Any],
        cache: str | os.PathLike[str] | None,
    ) -> None:
        metric = loaded_if_remote(metric, source, **loading)
        self.source, self.loading = source, loading
        self.scorer: Scorer | None = None if isinstance(metric, str) else metric
        self.registered: MetricSpec = metric_spec(metric) if isinstance(metric, str) else metric.spec
        fingerprint = getattr(metric, "fingerprint", None)
        self.cache: ScoreCache | None = None
        if cache is not None and self.scorer is None:
            own = {name: loading.get(name) for name in ("revision", "dtype")}
            identity = metric_identity(self.registered, source, **own)
            others = {name: str(value) for name, value in loading.items() if name not in (*own, "device")}
            self.cache = ScoreCache(Path(cache), {**identity, **others})
        elif cache is not None and fingerprint is not None:
            self.cache = ScoreCache(Path(cache), {"metric": self.registered.name, "fingerprint": fingerprint})

    def spec(self) -> MetricSpec:
        """The spec of the checkpoint, whose aspects and needs may differ from the metric's; from the cache if there."""
        kept = None if self.scorer is not None or self.cache is None else self.cache.fact("spec")
        if kept is not None:
            return replace(self.registered, **{**kept, "aspects": tuple(kept["aspects"])})
        spec = self.registered if self.source == "embedded" and self.scorer is None else self.load().spec
        if self.cache is not None:
            names = ("aspects", "needs_image", "needs_references", "needs_corpus", "default_weights")
            facts = {name: getattr(spec, name) for name in names}
            weights = facts["default_weights"]
            self.cache.set_fact("spec", {**facts, "default_weights": None if weights is None else dict(weights)})
        return spec

    def load(self) -> Scorer:
        if self.scorer is None:
            self.scorer = load_scorer(self.registered.name, self.source, **self.loading)
        return self.scorer

    def __call__(
        self, benchmark: Benchmark, *, references: bool, batch_size: int | None, progress: bool
    ) -> BenchmarkScores:
        spec = self.spec()
        samples = benchmark.samples(references=references)
        check_needs(spec, benchmark, samples)
        corpus = [sample.references for sample in samples if sample is not None and sample.references]
        among = ""
        if spec.needs_corpus:  # a score depends on the references of all captions, in whatever order
            among = hashlib.sha256(json.dumps(sorted(map(list, corpus))).encode()).hexdigest()
        keys, errors = _keys(samples, spec, among)
        wanted: dict[str, CaptionSample] = {}  # equal samples once
        for key, sample in zip(keys, samples, strict=True):
            if key is not None and sample is not None and key not in wanted:
                wanted[key] = sample if spec.needs_image else replace(sample, image=None)
        if not wanted:
            raise DataError(
                f"{benchmark.spec.name}: no caption can be scored; the first: {next(iter(errors.values()))}"
            )
        known = {} if self.cache is None else self.cache.get(list(wanted))
        scored, failed = dict(known), {}
        todo = {key: sample for key, sample in wanted.items() if key not in known}
        if todo:
            try:
                scorer = fitted(self.load(), corpus)
            except ConfigError as error:
                raise DataError(f"{benchmark.spec.name}: {error}") from error
            failed = self._score(scorer, todo, scored, len(wanted), batch_size, progress)
        return _collect(keys, scored, failed, errors, spec, new=len(todo), known=len(known))

    def _score(
        self,
        scorer: Scorer,
        todo: Mapping[str, CaptionSample],
        scored: dict[str, KnownScore],
        total: int,
        batch_size: int | None,
        progress: bool,
    ) -> dict[str, tuple[tuple[float, ...], str]]:
        """Adds scores to `scored`; returns the failures, {key: (scores, message)}."""
        device = _device_name(scorer)
        failed: dict[str, tuple[tuple[float, ...], str]] = {}
        keys, position, limit, saved = list(todo), 0, FIRST_CHUNK, len(scored)
        try:
            with progress_bar(progress, done=total - len(todo), total=total) as advance:
                while position < len(keys):
                    chunk = keys[position : position + limit]
                    start = time.perf_counter()
                    table = scorer.score([todo[key] for key in chunk], batch_size=batch_size)
                    seconds = time.perf_counter() - start
                    if len(table) != len(chunk):
                        raise ValueError(f"{scorer.spec.name!r} gave {len(table)} results for {len(chunk)} samples")
                    new: dict[str, KnownScore] = {}
                    for row, key in enumerate(chunk):
                        scores = tuple(map(float, table.scores[row]))
                        if row in table.errors or not np.isfinite(scores).all():
                            failed[key] = scores, table.errors.get(row, "the metric gave no finite score")
                        else:
                            new[key] = KnownScore(scores, bool(table.truncated[row]), seconds / len(chunk), device)
                    if self.cache is not None:
                        self.cache.put(new)
                        saved += len(new)
                    scored |= new
                    advance(len(chunk), len(chunk) - len(new))
                    position += len(chunk)
                    if seconds < CHUNK_SECONDS:
                        limit = min(2 * limit, LARGEST_CHUNK)
        except KeyboardInterrupt:
            if self.cache is None:
                raise
            raise ScoringInterrupted(saved, self.cache.path) from None
        return failed


def check_needs(spec: MetricSpec, benchmark: Benchmark, samples: Sequence[CaptionSample | None]) -> None:
    """Refuses a metric that needs images or references that no sample of the benchmark has.

    Raises:
        DataError: no images, or no references.
    """
    valid = [sample for sample in samples if sample is not None]
    if spec.needs_references and not any(sample.references for sample in valid):
        withheld = any(getattr(item, "references", ()) for item in benchmark.items)
        raise DataError(
            f"metric {spec.name!r} needs references, and {benchmark.spec.name} has none"
            + (" to give (--no-references withholds them)" if withheld else "")
        )
    if not spec.needs_image:
        return
    images = [sample.image for sample in valid if sample.image is not None]
    if not images:
        raise DataError(f"metric {spec.name!r} looks at the images, and these data of {benchmark.spec.name} name none")
    if all(isinstance(image, (str, os.PathLike)) and not Path(image).is_file() for image in images):
        raise DataError(
            f"metric {spec.name!r} looks at the images, and none of those of {benchmark.spec.name} exists, the first "
            f"being {images[0]!s}; give their folder with --images (images=)"
        )


def _keys(
    samples: Sequence[CaptionSample | None], spec: MetricSpec, among: str
) -> tuple[list[str | None], dict[int, str]]:
    """`sample_key` of each sample, or None; and {row: why there is no key}. Each image is hashed once."""
    hashes: dict[Any, str | ImageError] = {}

    def hashed(image: ImageLike) -> str:
        name = os.fspath(image) if isinstance(image, (str, os.PathLike)) else id(image)
        if name not in hashes:
            try:
                hashes[name] = image_key(image)
            except ImageError as error:
                hashes[name] = error
        digest = hashes[name]
        if isinstance(digest, ImageError):
            raise digest
        return digest

    keys: list[str | None] = [None] * len(samples)
    errors: dict[int, str] = {}
    for row, sample in enumerate(samples):
        if sample is None:
            errors[row] = "the caption is empty or not valid text"
            continue
        try:
            image = hashed(sample.image) if spec.needs_image and sample.image is not None else None
        except ImageError as error:
            errors[row] = str(error)
        else:
            keys[row] = sample_key(sample, image, among=among)  # the scorer reports a missing image
    return keys, errors


def _collect(
    keys: Sequence[str | None],
    scored: Mapping[str, KnownScore],
    failed: Mapping[str, tuple[tuple[float, ...], str]],
    errors: dict[int, str],
    spec: MetricSpec,
    *,
    new: int,
    known: int,
) -> BenchmarkScores:
    scores = np.full((len(keys), len(spec.aspects)), np.nan)
    truncated = 0
    for row, key in enumerate(keys):
        if key is None:
            continue
        if key in scored:
            scores[row] = scored[key].scores
            truncated += scored[key].truncated
        elif key in failed:
            scores[row], errors[row] = failed[key]
    scores[~np.isfinite(scores)] = np.nan
    seconds = [each.seconds for each in scored.values()]
    return BenchmarkScores(
        scores=scores,
        aspects=tuple(spec.aspects),
        weights=spec.weigh(),
        errors=dict(sorted(errors.items())),
        truncated=truncated,
        seconds=float(np.mean(seconds)) if seconds else float("nan"),
        devices=tuple(sorted({each.device for each in scored.values()})),
        known=known,
        new=new,
    )


def _device_name(scorer: Scorer) -> str:
    """What the scorer computes on, for people: the name of the GPU, or the number of CPU cores."""
    for holder in ("model", "judge", "judge.model"):
        owner: Any = scorer
        for part in holder.split("."):
            owner = getattr(owner, part, None)
        device = getattr(owner, "device", None)
        if getattr(device, "type", None) == "cuda":
            import torch

            return torch.cuda.get_device_name(device)
    return f"CPU, {os.cpu_count()} cores"
