"""Runs the published figures whose data and weights are here, and says of the others what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from reward.checkpoints.folders import WEIGHT_SUFFIXES
from reward.errors import DataError, first_line
from reward.metaeval.bench import run_bench, title_of
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.published import (
    FORMULA,
    UNPUBLISHED,
    UNSAID,
    Compared,
    Figure,
    compare_published,
    is_published,
    published_figures,
)
from reward.registry import MetricSource

EVERY = "ALL"
WEIGHTS, DATA = "metric", "benchmark"  # what a figure may lack
# Checkpoints that cannot be had by their name, and what to do about it.
_HOW = {
    UNPUBLISHED: "not published: train it, and give {metric}=FOLDER",
    UNSAID: "the source does not say which weights: give {metric}=CHECKPOINT",
    "Ka2ukiMatsuda/vela": "its authors' weights cannot be read here: train vela --preset paper, and give vela=FOLDER",
}
# Columns of scores that authors have published, and the weights that gave them, without references.
_AUTHORS = dict.fromkeys(("fleur", "fleur_raw"), "llava-hf/llava-1.5-13b-hf")


@dataclass
class Reproduction:
    """What came of the published figures.

    Args:
        total: number of figures that were asked for.
        compared: metric as on the command line, title of the benchmark, and one's own value beside the figure.
        missing: {(`WEIGHTS` or `DATA`, name, what is missing): number of figures}; a figure may lack both.
    """

    total: int
    compared: list[tuple[str, str, Compared]] = field(default_factory=list)
    missing: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def summary(self) -> str:
        """How many figures came out, differ, and did not run."""
        came = Counter(each.verdict for _, _, each in self.compared)
        other = f"{self.total - len(self.compared)} not run"
        return f"{self.total} published figures: {came['reproduced']} reproduced, {came['differs']} differ, {other}"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        ran = [{"label": label, "title": title, **each.to_json()} for label, title, each in self.compared]
        lacking = [
            {"lacks": kind, "name": name, "missing": lacks, "figures": number}
            for (kind, name, lacks), number in self.missing.items()
        ]
        return {"total": self.total, "compared": ran, "not_run": lacking}


def reproduce(
    words: Sequence[str] = (),
    *,
    download: bool = False,
    images: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    **scoring: Any,
) -> Reproduction:
    """Compares with the published figures, all or those of the metrics and benchmarks that are named.

    Args:
        words: metrics (NAME or NAME=CHECKPOINT) and benchmarks (NAME or NAME=PATH); with `"ALL"` also all others.
        download: fetch what is on the Hub. Otherwise only what its cache holds is used.
        images: as for `load_benchmark`.
        say: called with a line about each run.
        scoring: batch_size, progress, device, dtype and folder of `score_benchmark`.

    Raises:
        DataError: no figure is known of what is named.
        UnknownMetricError: a word names no metric and no benchmark.
    """
    places: dict[str, str | None] = {}
    given: list[MetricSource] = []
    for word in words:
        name, _, path = word.partition("=")
        try:
            places[benchmark_spec(name).name] = path or None
        except DataError:
            given += [] if word.upper() == EVERY else [MetricSource.parse(word)]
    every = EVERY in map(str.upper, words)
    named = {metric.name for metric in given}
    groups: dict[tuple[str, str], list[Figure]] = {}
    for each in published_figures():
        is_wanted = not named or each.metric.removesuffix("_raw") in named
        if every or (is_wanted and (not places or each.benchmark in places)):
            parts = benchmark_spec(each.benchmark).parts if each.benchmark in list_benchmarks() else ()
            groups.setdefault((each.benchmark, each.split if each.split in parts else ""), []).append(each)
    if not groups:
        raise DataError(f"no published figure is known of {', '.join(words)}")
    found = Reproduction(sum(map(len, groups.values())))
    for (name, part), figures in groups.items():
        try:
            place = _place(name, places.get(name), download)
            benchmark = load_benchmark(name, place, part=part or None, images=images)
        except DataError as error:
            benchmark = None
            found.missing[DATA, name, first_line(error)] += len(figures)
        for (metric, references), wanted in _runs(found, benchmark, figures, given, download).items():
            if benchmark is None:
                continue
            try:
                own = _run(benchmark, metric, wanted, references=references, say=say, **scoring)
                found.compared += [(metric.label, title_of(benchmark), each) for each in own]
            except Exception as error:  # of many kinds, as on a full GPU; hours of other rows are kept
                found.missing[WEIGHTS, metric.label, first_line(error)] += len(wanted)
    return found


def _runs(
    found: Reproduction,
    benchmark: Benchmark | None,
    figures: Sequence[Figure],
    given: Sequence[MetricSource],
    download: bool,
) -> dict[tuple[MetricSource, bool], list[Figure]]:
    """The figures that each metric gives, with and without references; of the others says what is missing."""
    runs: dict[tuple[MetricSource, bool], list[Figure]] = {}
    for each in figures if figures[0].benchmark in list_benchmarks() else ():
        source = _source(each, given, () if benchmark is None else tuple(benchmark.columns), download)
        if isinstance(source, MetricSource):
            runs.setdefault((source, each.references), []).append(each)
        else:
            called = each.metric if each.checkpoint == FORMULA else f"{each.metric}={each.checkpoint}"
            found.missing[WEIGHTS, called, source] += 1
    return runs


def _run(
    benchmark: Benchmark, metric: MetricSource, figures: Sequence[Figure], *, references: bool, **scoring: Any
) -> tuple[Compared, ...]:
    """One metric on one benchmark.

    Raises:
        DataError: it has no scores, or what is here is not the benchmark of the figures.
    """
    [table] = run_bench([(benchmark, None)], [metric], references=references, resamples=1, **scoring)
    if (evaluation := table.rows[0].evaluation) is None:
        raise DataError(table.rows[0].problem)
    own = compare_published(benchmark, evaluation, figures, references=references)
    if len(own) < len(figures):
        row = table.rows[0]
        why = f"; {row.errors} captions have no score, the first: {row.problem}" if row.errors else ""
        raise DataError(f"{table.title}: these data are a part of it, or lack a column of the figures{why}")
    return own


def _place(name: str, path: str | None, download: bool) -> str | None:
    """Where a benchmark lies; None for the Hub."""
    if name not in list_benchmarks():
        raise DataError("it has a command of its own, capreward arena")
    spec = benchmark_spec(name)
    if path or (spec.hub and download):
        return path
    folder = None if spec.hub is None else _in_cache(spec.hub, "dataset")
    if folder is None:
        ways = f"give {name}=PATH; from: {spec.origin}"
        raise DataError(f"hf download --repo-type dataset {spec.hub}" if spec.hub else ways)
    return str(folder)


def _source(
    figure: Figure, given: Sequence[MetricSource], columns: Collection[str], download: bool
) -> MetricSource | str:
    """The metric that gives a figure, with its weights; else what is missing."""
    if figure.variant:
        return f"not published: capreward {figure.variant}"
    checkpoint, options = figure.checkpoint, tuple(figure.options.items())
    for metric in given:
        same = is_published(metric, figure) or PurePath(metric.source).name == PurePath(checkpoint).name
        if metric.name == figure.metric and metric.source != "embedded" and (same or checkpoint in _HOW):
            return replace(metric, options=metric.options or options)
    if figure.metric in columns and _AUTHORS.get(figure.metric) == checkpoint and not (figure.references or options):
        return MetricSource(figure.metric, is_column=True)
    if figure.metric.endswith("_raw"):
        return f"scores of its authors, in a column {figure.metric} of the benchmark's file"
    if checkpoint == FORMULA:
        return MetricSource(figure.metric)
    how = _HOW.get(checkpoint, "")
    if checkpoint.endswith(".pth"):
        how = "a file of its authors: give {metric}={checkpoint}"
    elif not how and not {"/", ":"} & set(checkpoint):
        how = "a model behind a server: give {metric}=http://ADDRESS/v1#{checkpoint}"
    elif not how and not download and _in_cache(repository := _repository(checkpoint)) is None:
        how = f"hf download {repository}"
    known = MetricSource(figure.metric, checkpoint, options=options)
    return how.format(metric=figure.metric, checkpoint=checkpoint) if how else known


def _repository(checkpoint: str) -> str:
    """Where the weights of a Hub id, or of open_clip's ARCHITECTURE:TAG, are on the Hub."""
    if ":" not in checkpoint:
        return checkpoint
    from open_clip.pretrained import get_pretrained_cfg

    return str(get_pretrained_cfg(*checkpoint.split(":"))["hf_hub"]).strip("/")


def _in_cache(repository: str, kind: str = "model") -> Path | None:
    """The folder of a repository of the Hub in the local cache; None if its weights or tables are not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, repo_type=kind, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return (
        folder if any(file.suffix in (*WEIGHT_SUFFIXES, ".parquet", ".jsonl") for file in folder.rglob("*")) else None
    )
