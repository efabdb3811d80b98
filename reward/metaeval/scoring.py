"""Scores the captions of a benchmark with a metric."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ConfigError, DataError, ImageError
from reward.images import image_key
from reward.metaeval.benchmarks import Benchmark
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.registry import load_scorer, loaded_if_remote, metric_spec
from reward.samples import CaptionSample, ImageLike
from reward.scoring.progress import progress_bar
from reward.scoring.results import score_samples

__all__ = ["BenchmarkScores", "score_benchmark"]

CHUNK = 256  # captions that are scored at a time, so that the bar moves


@dataclass(frozen=True, eq=False)
class BenchmarkScores:
    """Scores of the N * K captions of a benchmark, in the order of `Benchmark.samples`.

    Args:
        scores: (N * K, A), NaN where a caption has none.
        aspects: A names.
        weights: (A,), of the aspects in the one number.
        errors: {row: why it has no score}.
        truncated: captions of which text was cut.
        seconds: mean time of a caption with a score; NaN if none has one.
        device: what the scoring ran on.
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    weights: np.ndarray
    errors: dict[int, str] = field(default_factory=dict)
    truncated: int = 0
    seconds: float = float("nan")
    device: str = ""

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
    references: bool = True,
    batch_size: int | None = None,
    progress: bool = False,
    revision: str | None = None,
    dtype: str | None = None,
    **options: Any,
) -> BenchmarkScores:
    """Scores every caption of a benchmark.

    A caption that cannot be scored does not stop the others.

    Args:
        benchmark: from `load_benchmark`.
        metric: name of a metric, or a scorer.
        source: checkpoint of a metric given by name.
        references: False withholds the references from a metric that can do without them.
        batch_size: passed to the scorer.
        progress: show a progress bar.
        revision, dtype, options: passed to `load_scorer`.

    Raises:
        DataError: the benchmark has no images, or no references, and the metric needs them.

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
    spec = metric_spec(metric) if isinstance(metric, str) and source == "embedded" else load().spec
    samples = benchmark.samples(references=references)
    check_needs(spec, benchmark, samples)
    keys, errors = _keys(samples, spec)
    wanted: dict[Hashable, CaptionSample] = {}  # equal samples once
    for key, sample in zip(keys, samples, strict=True):
        if key is not None and sample is not None and key not in wanted:
            wanted[key] = sample if spec.needs_image else replace(sample, image=None)
    if not wanted:
        raise DataError(f"{benchmark.spec.name}: no caption can be scored; the first: {next(iter(errors.values()))}")
    try:
        scorer = fitted(load(), [sample.references for sample in samples if sample is not None and sample.references])
    except ConfigError as error:
        raise DataError(f"{benchmark.spec.name}: {error}") from error
    found = np.full((len(wanted), len(spec.aspects)), np.nan)
    cut, problems = np.zeros(len(wanted), dtype=bool), dict[int, str]()
    seconds: list[float] = []  # of each caption with a score: its share of the time of its chunk
    order = list(wanted)
    with progress_bar(progress, done=0, total=len(order)) as advance:
        for begin in range(0, len(order), CHUNK):
            chunk, start = order[begin : begin + CHUNK], time.perf_counter()
            table = score_samples([wanted[key] for key in chunk], scorer, batch_size)
            found[begin : begin + CHUNK], cut[begin : begin + CHUNK] = table.scores, table.truncated
            problems |= {begin + row: message for row, message in table.errors.items()}
            share = (time.perf_counter() - start) / len(chunk)
            good = len(chunk) - len(table.errors)
            seconds += [share] * good
            advance(len(chunk), len(chunk) - good)
    places = {key: place for place, key in enumerate(order)}
    scores, truncated = np.full((len(keys), len(spec.aspects)), np.nan), 0
    for row, key in enumerate(keys):
        if key is not None:
            scores[row] = found[places[key]]
            if places[key] in problems:
                errors[row] = problems[places[key]]
            truncated += bool(places[key] not in problems and cut[places[key]])
    return BenchmarkScores(
        scores=scores,
        aspects=tuple(spec.aspects),
        weights=spec.weigh(),
        errors=dict(sorted(errors.items())),
        truncated=truncated,
        seconds=float(np.mean(seconds)) if seconds else float("nan"),
        device=_device_name(scorer),
    )


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


def _keys(samples: Sequence[CaptionSample | None], spec: MetricSpec) -> tuple[list[Hashable | None], dict[int, str]]:
    """What is equal for equal samples, or None; and {row: why there is no key}. Each image is hashed once."""
    hashes: dict[Any, str | ImageError | None] = {}
    keys: list[Hashable | None] = [None] * len(samples)
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
            keys[row] = (
                sample.candidate,
                tuple(sample.references),
                digest,
                sample.question,
                sample.task,
                repr(sample.columns),
            )
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
