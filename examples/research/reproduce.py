"""Runs the published figures whose data and weights are here, and says of the others what is missing.

    python -m examples.research.reproduce cider flickr8k-expert=flickr8k.jsonl
    python -m examples.research.reproduce ALL --download --output reproduced

Each word is a metric (NAME or NAME=CHECKPOINT) or a benchmark (NAME or NAME=PATH); only their figures are compared,
with ALL those of all others, too. Data and weights come from the paths and from the Hub's cache. Ends with 1 if no
figure ran.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

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
from reward.report.bench import published_table
from reward.report.report import Report, check_report, is_file
from reward.report.tables import Table, markdown

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
        verdicts = Counter(comparison.verdict for _, _, comparison in self.compared)
        counts = f"{verdicts['reproduced']} reproduced, {verdicts['differs']} differ"
        return f"{self.total} published figures: {counts}, {self.total - len(self.compared)} not run"

    def report(self, command: str) -> Report:
        """The figures that ran, and what the others lack."""
        tables = []
        if self.compared:
            tables.append(published_table(self.compared))
        for kind in (WEIGHTS, DATA):
            rows = []
            for (lacking, name, missing), number in self.missing.items():
                if lacking == kind:
                    rows.append((name, number, missing))
            if rows:
                frame = pd.DataFrame(rows, columns=[kind, "figures", "what is missing"])
                tables.append(Table(f"Not run, for want of the {kind}", frame))
        figures = {"seed": 0, "resamples": 1, **self.to_json()}
        heading = "Published figures, and what came out"
        return Report("reproduce", heading, command, figures, tables, [self.summary()])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        compared = [{"label": label, "title": title, **value.to_json()} for label, title, value in self.compared]
        not_run = [
            {"lacks": kind, "name": name, "missing": missing, "figures": number}
            for (kind, name, missing), number in self.missing.items()
        ]
        return {"total": self.total, "compared": compared, "not_run": not_run}


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
    paths: dict[str, str | None] = {}
    metrics: list[MetricSource] = []
    for word in words:
        name, _, path = word.partition("=")
        try:
            paths[benchmark_spec(name).name] = path or None
        except DataError:
            if word.upper() != EVERY:
                metrics.append(MetricSource.parse(word))
    groups = _figures_of_parts(words, set(paths), {metric.name for metric in metrics})
    if not groups:
        raise DataError(f"no published figure is known of {', '.join(words)}")
    reproduction = Reproduction(sum(map(len, groups.values())))
    for (name, part), figures in groups.items():
        try:
            path = _path(name, paths.get(name), download)
            benchmark = load_benchmark(name, path, part=part or None, images=images)
        except DataError as error:
            benchmark = None
            reproduction.missing[DATA, name, first_line(error)] += len(figures)
        # Without the data, too, since a figure may also lack its weights.
        runs = _runs(reproduction, benchmark, figures, metrics, download)
        if benchmark is None:
            continue
        for (metric, references), wanted in runs.items():
            try:
                values = _run(benchmark, metric, wanted, references=references, say=say, **scoring)
            except Exception as error:  # of many kinds, as on a full GPU; hours of other rows are kept
                reproduction.missing[WEIGHTS, metric.label, first_line(error)] += len(wanted)
            else:
                reproduction.compared += [(metric.label, title_of(benchmark), value) for value in values]
    return reproduction


def _figures_of_parts(
    words: Sequence[str], benchmarks: Collection[str], metrics: Collection[str]
) -> dict[tuple[str, str], list[Figure]]:
    """The figures that are named, by benchmark and part of it."""
    every = EVERY in map(str.upper, words)
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in published_figures():
        is_of_metric = not metrics or figure.metric.removesuffix("_raw") in metrics
        is_of_benchmark = not benchmarks or figure.benchmark in benchmarks
        if every or (is_of_metric and is_of_benchmark):
            parts = benchmark_spec(figure.benchmark).parts if figure.benchmark in list_benchmarks() else ()
            part = figure.split if figure.split in parts else ""
            groups.setdefault((figure.benchmark, part), []).append(figure)
    return groups


def _runs(
    reproduction: Reproduction,
    benchmark: Benchmark | None,
    figures: Sequence[Figure],
    metrics: Sequence[MetricSource],
    download: bool,
) -> dict[tuple[MetricSource, bool], list[Figure]]:
    """The figures that each metric gives, with and without references; counts the others as missing."""
    runs: dict[tuple[MetricSource, bool], list[Figure]] = {}
    if figures[0].benchmark not in list_benchmarks():
        return runs
    columns = () if benchmark is None else tuple(benchmark.columns)
    for figure in figures:
        metric = _metric(figure, metrics, columns, download)
        if isinstance(metric, MetricSource):
            runs.setdefault((metric, figure.references), []).append(figure)
        else:
            label = figure.metric if figure.checkpoint == FORMULA else f"{figure.metric}={figure.checkpoint}"
            reproduction.missing[WEIGHTS, label, metric] += 1
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
    values = compare_published(benchmark, evaluation, figures, references=references)
    if len(values) < len(figures):
        message = f"{table.title}: these data are a part of it, or lack a column of the figures"
        row = table.rows[0]
        if row.errors:
            message += f"; {row.errors} captions have no score, the first: {row.problem}"
        raise DataError(message)
    return values


def _path(name: str, path: str | None, download: bool) -> str | None:
    """Where a benchmark lies; None for the Hub.

    Raises:
        DataError: it is not here, with how to get it.
    """
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


def _metric(
    figure: Figure, metrics: Sequence[MetricSource], columns: Collection[str], download: bool
) -> MetricSource | str:
    """The metric that gives a figure, with its weights; else what is missing."""
    if figure.variant:
        return f"not published: capreward {figure.variant}"
    checkpoint, options = figure.checkpoint, tuple(figure.options.items())
    for metric in metrics:
        is_same = is_published(metric, figure) or PurePath(metric.source).name == PurePath(checkpoint).name
        if metric.name == figure.metric and metric.source != "embedded" and (is_same or checkpoint in _HOW):
            return replace(metric, options=metric.options or options)
    if figure.metric in columns and _AUTHORS.get(figure.metric) == checkpoint and not (figure.references or options):
        return MetricSource(figure.metric, is_column=True)
    if figure.metric.endswith("_raw"):
        return f"scores of its authors, in a column {figure.metric} of the benchmark's file"
    if checkpoint == FORMULA:
        return MetricSource(figure.metric)
    if checkpoint in _HOW:
        return _HOW[checkpoint].format(metric=figure.metric)
    if checkpoint.endswith(".pth"):
        return f"a file of its authors: give {figure.metric}={checkpoint}"
    if "/" not in checkpoint and ":" not in checkpoint:
        return f"a model behind a server: give {figure.metric}=http://ADDRESS/v1#{checkpoint}"
    repository = _repository(checkpoint)
    if not download and _in_cache(repository) is None:
        return f"hf download {repository}"
    return MetricSource(figure.metric, checkpoint, options=options)


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
    suffixes = {file.suffix for file in folder.rglob("*")}
    return None if suffixes.isdisjoint((*WEIGHT_SUFFIXES, ".parquet", ".jsonl")) else folder


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME", help="metrics and benchmarks; default: all")
    parser.add_argument("--download", action="store_true", help="fetch what is on the Hub, for all of it some 60 GB")
    parser.add_argument("--images", type=Path, help="folder that relative image paths start from")
    parser.add_argument("--device", help="such as cuda:0; default: a GPU if there is one")
    parser.add_argument("--dtype", help="number type, such as bfloat16; default: the model's own")
    parser.add_argument("--batch-size", type=int, help="captions that a metric scores at a time")
    parser.add_argument("--output", type=Path, help="folder for reproduce.json, .md, .html and the scores, or a file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress and no remarks")
    options = parser.parse_args(argv)
    if options.output is not None:
        check_report(options.output)  # before hours of scoring

    def say(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr)

    reproduction = reproduce(
        options.words,
        download=options.download,
        images=options.images,
        say=say,
        folder=None if options.output is None or is_file(options.output) else options.output / "scores",
        progress=not options.quiet,
        device=options.device,
        dtype=options.dtype,
        batch_size=options.batch_size,
    )
    arguments = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "examples.research.reproduce", *arguments])
    report = reproduction.report(command)
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for table in report.tables:
            print(f"{table.title}\n\n{markdown(table)}")
    say(reproduction.summary())
    if options.output is not None:
        report.write(options.output)
    return 0 if reproduction.compared else 1


if __name__ == "__main__":
    sys.exit(main())
