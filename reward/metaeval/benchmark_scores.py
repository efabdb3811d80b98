"""Scores the captions of a benchmark with a metric, or reads the scores that an earlier run has kept."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.checkpoints.fingerprints import metric_identity
from reward.data.images import image_key
from reward.data.samples import CaptionSample
from reward.errors import ConfigError, DataError, ImageError
from reward.judges.wording import JudgePrompt
from reward.metaeval.benchmarks import Benchmark
from reward.metrics.base import MetricSpec, Scorer, fitted, image_documents
from reward.metrics.function_places import names_function
from reward.registry import as_scorer, is_address, load_scorer, metric_spec
from reward.scoring.results import score_samples
from reward.scoring.runs import progress_bar
from reward.scoring.writers import write_text

CHUNK = 256  # captions that are scored at a time, so that the bar moves


@dataclass(frozen=True, eq=False)
class BenchmarkScores:
    """Scores of the captions of a benchmark, in the order of `Benchmark.samples`.

    Args:
        scores: (N * K, A), or (N * K, A, draws) of drawn references; NaN where a caption has none.
        aspects: A names.
        weights: (A,), of the aspects in the one number.
        errors: {number of the caption, from 0: why it has no score}.
        truncated: captions of which text was cut.
        seconds: mean time of a caption with a score; NaN if none has one.
        device: what the scoring ran on.
        prompt: version and hash of the prompt of a metric that asks a judge.
        reads_references: whether the scores depend on references, so that each draw of them has its own.
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    weights: np.ndarray
    errors: dict[int, str] = field(default_factory=dict)
    truncated: int = 0
    seconds: float = float("nan")
    device: str = ""
    prompt: str = ""
    reads_references: bool = True

    def for_aspects(self, benchmark: Benchmark) -> np.ndarray | dict[str, np.ndarray]:
        """The scores to compare with the judgments: (N, K), or {rated aspect: (N, K)}; of several draws (N, K, draws).

        A rated aspect is compared with the metric's aspect of that name or, if there is none, with the weighted mean.
        """
        has_weight = self.weights != 0  # an aspect without weight must not spread its NaN
        shape = (*benchmark.shape, *self.scores.shape[2:])
        mean = np.tensordot(self.scores[:, has_weight], self.weights[has_weight], (1, 0)).reshape(shape)
        if not set(benchmark.aspects) & set(self.aspects):
            return mean
        by_aspect = dict.fromkeys(benchmark.aspects, mean)
        for column, aspect in enumerate(self.aspects):
            if aspect in by_aspect:
                by_aspect[aspect] = self.scores[:, column].reshape(shape)
        return by_aspect

    def save(self, path: Path) -> None:
        """Writes a JSON file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(self) | {"scores": self.scores.tolist(), "weights": self.weights.tolist()}))

    @classmethod
    def read(cls, path: Path) -> BenchmarkScores:
        """What `save` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("scores", "weights"):
            fields[name] = np.array(fields[name], dtype=np.float64)
        fields["aspects"] = tuple(fields["aspects"])
        fields["errors"] = {int(row): error for row, error in fields["errors"].items()}
        return cls(**fields)


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
    folder: Path | None = None,
    **options: Any,
) -> BenchmarkScores:
    """Scores every caption of a benchmark; equal ones are scored once.

    A caption that cannot be scored does not stop the others.

    Args:
        benchmark: from `load_benchmark`.
        metric: name of a metric, or a scorer.
        source: checkpoint of a metric given by name.
        references: False withholds the references from a metric that can do without them.
        batch_size: passed to the scorer.
        progress: show a progress bar.
        revision, dtype, options: passed to `load_scorer`.
        folder: keeps the scores of a metric given by name in a file, which is read where metric, weights, settings and
            captions are the same.

    Raises:
        DataError: the benchmark has no images, or no references, and the metric needs them.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scores = score_benchmark(load_benchmark("scenes", limit=2), "length")
        >>> scores.scores.shape, scores.aspects, scores.errors
        ((2, 1), ('length',), {})
    """
    settings = {**options, "revision": revision, "dtype": dtype}
    settings = {name: value for name, value in settings.items() if value is not None}
    metric = as_scorer(metric)
    if isinstance(metric, str) and (names_function(metric) or names_function(source) or is_address(source)):
        metric = load_scorer(metric, source, **settings)  # functions and services alone know their facts

    @functools.cache
    def load() -> Scorer:
        if isinstance(metric, str):
            return load_scorer(metric, source, **settings)
        return metric

    # Facts of a metric with its own weights are known before they are loaded.
    spec = metric_spec(metric) if isinstance(metric, str) and source == "embedded" else load().spec
    runs: list[BenchmarkScores] = []
    for draw in range(1, 1 + max(1, benchmark.draws)):
        # Draws differ in their references alone, which not every metric reads.
        if runs and not (references and runs[0].reads_references):
            break
        samples = benchmark.samples(references=references, draw=draw)
        if not runs:
            check_needs(spec, benchmark, samples)
        # Captions with one key are scored once, and kept scores belong to all keys in their order.
        keys, errors = _sample_keys(samples, spec)
        if not any(keys):
            raise DataError(
                f"{benchmark.spec.name}: no caption can be scored; the first: {next(iter(errors.values()))}"
            )
        documents = _documents(benchmark, draw) if spec.needs_corpus else []
        file = None
        if folder is not None and isinstance(metric, str):
            # The device does not change what is scored.
            of_scorer = {name: value for name, value in options.items() if name != "device"}
            identity = metric_identity(spec, source, revision=revision, dtype=dtype, options=of_scorer)
            digest = hashlib.sha256(repr((sorted(identity.items()), keys, documents)).encode()).hexdigest()
            file = folder / f"{benchmark.spec.name}-{metric}-{digest[:12]}.json"
            if file.is_file():
                runs.append(BenchmarkScores.read(file))
                continue
        try:
            scorer = fitted(load(), documents)
        except ConfigError as error:
            raise DataError(f"{benchmark.spec.name}: {error}") from error
        run = _score_distinct(scorer, spec, samples, keys, errors, batch_size, progress)
        runs.append(run)
        if file is not None and set(run.errors) == set(errors):  # what failed is tried again
            run.save(file)
    if len(runs) == 1:
        return runs[0]
    all_errors: dict[int, str] = {}
    for run in runs:
        all_errors |= run.errors
    return replace(runs[0], scores=np.stack([run.scores for run in runs], axis=-1), errors=all_errors)


def _documents(benchmark: Benchmark, draw: int) -> list[tuple[str, ...]]:
    """The documents of a metric that weighs words by a corpus."""
    references = benchmark.references(draw)
    if benchmark.spec.cider_documents == "row":
        return [texts for texts in references for _ in range(benchmark.shape[1])]
    # An item without an image has an id that is its own, by which rows of one image would be many documents.
    image_names = []
    for images, image_id in zip(benchmark.rows["images"], benchmark.rows["image_id"], strict=True):
        image_names.append(None if images[0] is None else image_id)
    return list(image_documents(zip(image_names, references, strict=True)))


def _score_distinct(
    scorer: Scorer,
    spec: MetricSpec,
    samples: Sequence[CaptionSample | None],
    keys: Sequence[str | None],
    errors: Mapping[int, str],
    batch_size: int | None,
    progress: bool,
) -> BenchmarkScores:
    """Scores of samples, of which those with one key are scored once; `errors` says why some have no key."""
    row_of_key: dict[str, int] = {}  # in `distinct`
    distinct: list[CaptionSample] = []
    for key, sample in zip(keys, samples, strict=True):
        if key is not None and sample is not None and key not in row_of_key:
            row_of_key[key] = len(distinct)
            if not spec.needs_image:
                sample = replace(sample, image=None)
            distinct.append(sample)
    start = time.perf_counter()
    scores: list[list[float]] = []
    truncated: list[bool] = []
    problems: dict[int, str] = {}
    with progress_bar(progress, done=0, total=len(distinct)) as advance:
        for first in range(0, len(distinct), CHUNK):
            table = score_samples(distinct[first : first + CHUNK], scorer, batch_size)
            scores += table.scores.tolist()
            truncated += table.truncated.tolist()
            for row, message in table.errors.items():
                problems[first + int(row)] = message
            advance(len(table), len(table.errors))
    seconds, good = time.perf_counter() - start, len(distinct) - len(problems)

    # Back from distinct samples to all captions.
    all_scores = np.full((len(keys), len(spec.aspects)), np.nan)
    all_errors = dict(errors)
    cut = 0
    for caption, key in enumerate(keys):
        if key is None:
            continue
        row = row_of_key[key]
        all_scores[caption] = scores[row]
        if row in problems:
            all_errors[caption] = problems[row]
        else:
            cut += truncated[row]
    return BenchmarkScores(
        scores=all_scores,
        aspects=tuple(spec.aspects),
        weights=spec.weigh(),
        errors=dict(sorted(all_errors.items())),
        truncated=cut,
        seconds=seconds / good if good else np.nan,
        device=_device_name(scorer),
        prompt=prompt_name(scorer),
        reads_references=getattr(scorer, "reads_references", True),
    )


def prompt_name(asks: Any) -> str:
    """Version and hash of the prompt of what asks a judge, such as `fleur-1 0123456789abcdef`; empty without one."""
    prompt = getattr(asks, "prompt", None)
    if not isinstance(prompt, JudgePrompt):
        return ""
    fields = prompt.to_json()
    content = json.dumps(fields, sort_keys=True)
    return f"{fields['version']} {hashlib.sha256(content.encode()).hexdigest()[:16]}"


def check_needs(spec: MetricSpec, benchmark: Benchmark, samples: Sequence[CaptionSample | None]) -> None:
    """Refuses a metric that needs images or references that no sample of the benchmark has."""
    valid = [sample for sample in samples if sample is not None]
    if spec.needs_references and not any(sample.references for sample in valid):
        message = f"metric {spec.name!r} needs references, and {benchmark.spec.name} has none"
        if any(benchmark.rows["references"]):
            message += " to give (--no-references withholds them)"
        raise DataError(message)
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


def _sample_keys(samples: Sequence[CaptionSample | None], spec: MetricSpec) -> tuple[list[str | None], dict[int, str]]:
    """What is equal for equal samples, or None; and {row: why there is no key}. Each image is hashed once."""
    hashes: dict[Any, str] = {}
    keys: list[str | None] = []
    errors: dict[int, str] = {}
    for row, sample in enumerate(samples):
        keys.append(None)
        if sample is None:
            errors[row] = "the caption is empty or not valid text"
            continue
        image = sample.image if spec.needs_image else None  # the scorer reports a missing image
        name = os.fspath(image) if isinstance(image, (str, os.PathLike)) else id(image)
        if name not in hashes:
            try:
                hashes[name] = "" if image is None else image_key(image)
            except ImageError as error:
                errors[row] = str(error)
                continue
        context = (sample.candidate, tuple(sample.references), sample.question, sample.task, sample.columns)
        keys[row] = hashes[name] + repr(context)
    return keys, errors


def _device_name(scorer: Scorer) -> str:
    """What the scorer computes on, for people: the name of the GPU, or the number of CPU cores."""
    judge = getattr(scorer, "judge", None)
    for owner in (getattr(scorer, "model", None), judge, getattr(judge, "model", None)):
        device = getattr(owner, "device", None)
        if getattr(device, "type", None) == "cuda":
            import torch

            return torch.cuda.get_device_name(device)
    return f"CPU, {os.cpu_count()} cores"
