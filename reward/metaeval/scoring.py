"""Scores the captions of a benchmark with a metric, and keeps every chunk on disk, so that nothing is scored twice."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ConfigError, DataError, ImageError
from reward.images import image_key
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.score_cache import KnownScore, metric_identity, open_cache, sample_key
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.registry import load_scorer, loaded_if_remote, metric_spec
from reward.samples import CaptionSample, ImageLike
from reward.scoring.dataset import FIRST_CHUNK
from reward.scoring.journal import Journal
from reward.scoring.progress import progress_bar
from reward.scoring.results import CaptionResult, score_samples
from reward.scoring.runs import ChunkSize, ScoringInterrupted

__all__ = ["BenchmarkScores", "score_benchmark"]

LARGEST_CHUNK = 1024
SPEC = "spec"  # the key of what the journal keeps of a checkpoint's spec


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
        cache: folder that keeps the scores, see `open_cache`; None keeps nothing. Scores of a scorer object are kept
            only if it has a `fingerprint`.
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
    given = {**options, "revision": revision, "dtype": dtype}
    loading = {name: value for name, value in given.items() if value is not None}
    metric = loaded_if_remote(metric, source, **loading)
    load = functools.cache(lambda: load_scorer(metric, source, **loading) if isinstance(metric, str) else metric)
    identity = None if cache is None else _identity(metric, source, loading)
    journal = None if cache is None or identity is None else open_cache(Path(cache), identity)
    with journal or nullcontext():
        known = {} if journal is None else dict(journal.results())
        spec = _checkpoint_spec(metric, source, load, known, journal)
        samples = benchmark.samples(references=references)
        check_needs(spec, benchmark, samples)
        corpus = [sample.references for sample in samples if sample is not None and sample.references]
        keys, errors = _keys(samples, spec, corpus)
        wanted: dict[str, CaptionSample] = {}  # equal samples once
        for key, sample in zip(keys, samples, strict=True):
            if key is not None and sample is not None and key not in wanted:
                wanted[key] = sample if spec.needs_image else replace(sample, image=None)
        if not wanted:
            raise DataError(
                f"{benchmark.spec.name}: no caption can be scored; the first: {next(iter(errors.values()))}"
            )
        scored = {key: KnownScore(*known[key]) for key in wanted if key in known}
        todo = {key: sample for key, sample in wanted.items() if key not in known}
        failed: dict[str, CaptionResult] = {}
        if todo:
            try:
                scorer = fitted(load(), corpus)
            except ConfigError as error:
                raise DataError(f"{benchmark.spec.name}: {error}") from error
            failed = _score(scorer, todo, scored, journal, batch_size, progress)
    scores = np.full((len(keys), len(spec.aspects)), np.nan)
    for row, key in enumerate(keys):
        if key in failed:
            known_scores, _, _, errors[row] = failed[key]
            scores[row] = known_scores[: len(spec.aspects)]
        elif key is not None:
            scores[row] = scored[key].scores
    return BenchmarkScores(
        scores=scores,
        aspects=tuple(spec.aspects),
        weights=spec.weigh(),
        errors=dict(sorted(errors.items())),
        truncated=sum(scored[key].truncated for key in keys if key in scored),
        seconds=float(np.mean([each.seconds for each in scored.values()])) if scored else float("nan"),
        devices=tuple(sorted({each.device for each in scored.values()})),
        known=len(wanted) - len(todo),
        new=len(todo),
    )


def _identity(
    metric: str | Scorer, source: str | os.PathLike[str], loading: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What the scores depend on besides the samples; None for a scorer that cannot be told from others."""
    if isinstance(metric, str):
        own = {name: loading.get(name) for name in ("revision", "dtype")}
        others = {name: str(value) for name, value in loading.items() if name not in (*own, "device")}
        return {**metric_identity(metric_spec(metric), source, **own), **others}
    fingerprint = getattr(metric, "fingerprint", None)
    return None if fingerprint is None else {"metric": metric.spec.name, "fingerprint": fingerprint}


def _checkpoint_spec(
    metric: str | Scorer,
    source: str | os.PathLike[str],
    load: Callable[[], Scorer],
    known: Mapping[str, Any],
    journal: Journal | None,
) -> MetricSpec:
    """The spec of the checkpoint, whose aspects and needs may differ from the metric's; kept, to load it only once."""
    if not isinstance(metric, str):
        return metric.spec
    if source == "embedded":
        return metric_spec(metric)
    if SPEC in known:
        return replace(metric_spec(metric), **{**known[SPEC], "aspects": tuple(known[SPEC]["aspects"])})
    spec = load().spec
    if journal is not None:
        names = ("aspects", "needs_image", "needs_references", "needs_corpus")
        weights = None if spec.default_weights is None else dict(spec.default_weights)
        journal.append([[SPEC, {**{name: getattr(spec, name) for name in names}, "default_weights": weights}]])
    return spec


def _score(
    scorer: Scorer,
    todo: Mapping[str, CaptionSample],
    scored: dict[str, KnownScore],
    journal: Journal | None,
    batch_size: int | None,
    progress: bool,
) -> dict[str, CaptionResult]:
    """Adds scores to `scored` and the journal, chunk by chunk; returns the results of captions without a score."""
    device, failed = _device_name(scorer), dict[str, CaptionResult]()
    try:
        with progress_bar(progress, done=len(scored), total=len(scored) + len(todo)) as advance:
            for chunk in ChunkSize(FIRST_CHUNK, largest=LARGEST_CHUNK).chunks(list(todo)):
                start = time.perf_counter()
                results = score_samples([todo[key] for key in chunk], scorer, batch_size)
                seconds = time.perf_counter() - start
                new: dict[str, KnownScore] = {}
                for key, result in zip(chunk, results, strict=True):
                    if len(result) > 2:
                        failed[key] = result
                    else:
                        scores = tuple(result[0][: len(scorer.spec.aspects)])
                        new[key] = KnownScore(scores, result[1], seconds / len(chunk), device)
                if journal is not None:
                    journal.append(list(new.items()))
                scored |= new
                advance(len(chunk), len(chunk) - len(new))
    except KeyboardInterrupt:
        if journal is None:
            raise
        raise ScoringInterrupted(len(scored), journal.path) from None
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
    samples: Sequence[CaptionSample | None], spec: MetricSpec, corpus: Sequence[Sequence[str]]
) -> tuple[list[str | None], dict[int, str]]:
    """`sample_key` of each sample, or None; and {row: why there is no key}. Each image is hashed once."""
    among = ""
    if spec.needs_corpus:  # a score depends on the references of all captions, in whatever order
        among = hashlib.sha256(json.dumps(sorted(map(list, corpus))).encode()).hexdigest()
    hashes: dict[Any, str | ImageError | None] = {}
    keys: list[str | None] = [None] * len(samples)
    errors: dict[int, str] = {}
    for row, sample in enumerate(samples):
        if sample is None:
            errors[row] = "the caption is empty or not valid text"
            continue
        image = sample.image if spec.needs_image else None  # the scorer reports a missing image
        name = os.fspath(image) if isinstance(image, (str, os.PathLike)) else id(image)
        if name not in hashes:
            hashes[name] = _image_hash(image)
        digest = hashes[name]
        if isinstance(digest, ImageError):
            errors[row] = str(digest)
        else:
            keys[row] = sample_key(sample, digest, among=among)
    return keys, errors


def _image_hash(image: ImageLike | None) -> str | ImageError | None:
    try:
        return None if image is None else image_key(image)
    except ImageError as error:
        return error


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
