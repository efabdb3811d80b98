"""`capreward bench`: how well metrics agree with judgments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.cli.summaries import print_report
from reward.data.column_names import names_in_words

if TYPE_CHECKING:
    from reward.metaeval.bench import BenchTable
    from reward.metaeval.benchmarks import Benchmark
    from reward.registry import MetricSource

ALL = "ALL"  # what --metric calls all metrics that can do without a checkpoint of the user's
_CHECKED = {
    "public": "tried with the public files: counts and accuracies equal to an independent reading",
    "schema": "ran only on small files written in the documented form",
    "own": "data of this project",
}


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """What part of a benchmark is used, and how its statistics are computed."""

    images: Annotated[
        Path | None, typer.Option(help="Folder that relative image paths start from; default: that of the data.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N items of the benchmark.")] = None
    reference_draws: Annotated[
        int,
        typer.Option(min=0, help="Of Pascal-50S: draws of 5 references, whose mean is given; 0 takes all references."),
    ] = 5
    resamples: Annotated[int, typer.Option(min=1, help="Number of resamples of the bootstrap.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")] = 0


@dataclass(frozen=True, kw_only=True)
class RatingOptions(options.InputOptions):
    """Where captions that you have rated hold what."""

    rating_column: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Column of ratings in RATINGS, or A,B,C with one for each rater; default: {names_in_words('rating')}."
        ),
    ] = None
    rater_column: Annotated[
        str | None, typer.Option(help="Column that says who rated, where each rater of a caption has a row.")
    ] = None
    rating_map: Annotated[
        str | None, typer.Option(help="Numbers of ratings in words, as in `poor=1,fair=2,good=3`.")
    ] = None
    candidate_column: options.CandidateColumn = None

    def load(self, ratings: Path, selection: BenchmarkOptions) -> Benchmark:
        """The benchmark that the rated captions make."""
        from reward.metaeval.benchmarks.own_ratings import load_ratings

        return load_ratings(
            ratings,
            rating_columns=self.rating_column or (),
            rater_column=self.rater_column,
            rating_map=options.weights_option(self.rating_map, "--rating-map") or {},
            candidate_column=self.candidate_column,
            image_column=self.image_column,
            references_column=self.references_column,
            image_root=self.image_root or selection.images,
            split=self.split,
            limit=selection.limit,
        )


@options.describe(
    "metric set score-column benchmark part rating-column images limit no-references device output list json quiet",
    synonyms={"--data -d": "--benchmark NAME=PATH"},
)
def bench(
    selection: BenchmarkOptions,
    figures: options.FigureOptions,
    device: options.DeviceOptions,
    rating: RatingOptions,
    ratings: Annotated[
        Path | None,
        typer.Argument(help="Captions that you have rated: a file that `score` reads, with a column of ratings."),
    ] = None,
    benchmark: Annotated[
        list[str] | None, typer.Option("--benchmark", "-b", help="NAME or NAME=PATH; repeat for several. See --list.")
    ] = None,
    metric: options.Metrics = None,
    settings: options.Settings = None,
    score_column: Annotated[
        list[str] | None,
        typer.Option(
            "--score-column",
            "-s",
            help="Scores that came with the data, by name; or NAME=FILES of text as FLEUR's authors publish them; "
            "FILES may hold a *. Repeat for several.",
        ),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Part of the benchmark; repeat for several. Default: its first.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Row to test the others against, chosen before you saw the table; default: the best one."),
    ] = None,
    raters: Annotated[bool, typer.Option("--raters", help="Compare one rater with the mean of the others.")] = False,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Count and list scores that are so far from the mean rating.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for bench.json, .md and .html with plots, and for the scores, which are read again where "
            "nothing has changed; or one such file, or .tex or .csv for the tables.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the benchmarks and their files.")] = False,
) -> None:
    """Measure how well metrics, and scores that came with the data, agree with human judgments or simulated ratings.

    ```
    capreward bench ratings.csv --metric vela=my/checkpoint --metric length
    capreward bench ratings.csv -m length --rating-column a --rating-column b
    capreward bench --benchmark scenes -m vela -m unigram -m length
    capreward bench --benchmark flickr8k-expert=flickr8k.jsonl \\
        --metric vela=my/checkpoint --score-column fleur
    capreward bench --benchmark flickr8k-expert=flickr8k.jsonl \\
        --benchmark scenes --metric vela --output report
    ```

    `-m ALL`, the default without --score-column, stands for the metrics that need no checkpoint and no data that is
    missing.

    The table has a row for each metric and score column, and a column for each aspect or category: the benchmark's own
    statistic times 100, with its 95 % interval over images. Where there are several aspects, a metric with one score
    is compared with each of them, and the best row is the one with the highest mean over the aspects. Every row is
    tested against the best, on the data that made it best, or against the one that --against names. Published figures
    of the same metric, checkpoint and benchmark stand in a table below.

    For ratings of your own there are Kendall's tau-b and tau-c, Spearman's and Pearson's correlation with the mean
    rating, and for ratings of 0 and 1 also AUROC and average precision (AP). Two columns of captions, such as caption_a
    and caption_b, with the better one as the rating (A, B or tie) give the share of pairs that a metric gets right.
    """
    if list_:
        _print_list(figures.json)
        return
    from reward.metaeval.bench import run_bench
    from reward.report.report import check_report, is_file

    console = terminal.console(stderr=True)

    def say(line: str) -> None:
        if not figures.quiet:
            console.print(line)

    if output is not None:
        check_report(
            output, [ratings, *(name.partition("=")[2] for name in benchmark or [])]
        )  # before hours of scoring
    folder = None if output is None or is_file(output) else output / "scores"
    scoring: dict[str, Any] = {"say": say, "folder": folder, **figures.scoring(device)}
    with terminal.stdout_kept_clean():
        benchmarks: list[tuple[Benchmark, str | None]]
        if ratings is not None:
            options.refuse({"benchmark": benchmark}, "stands for RATINGS: give one of them")
            benchmarks = [(rating.load(ratings, selection), str(ratings))]
        else:
            names = ("rating_column", "rater_column", "rating_map")
            options.refuse({name: getattr(rating, name) for name in names}, "is for RATINGS of your own")
            benchmarks = read_benchmarks(benchmark or [], part or [], selection)
        benchmarks, columns = _add_score_files(benchmarks, score_column or [])
        loaded = [benchmark for benchmark, _ in benchmarks]
        metrics = _read_metrics(metric or [], settings, columns, loaded, figures.no_references, say)
        tables = run_bench(
            benchmarks,
            metrics,
            against=against,
            raters=raters,
            threshold=threshold,
            resamples=selection.resamples,
            seed=selection.seed,
            **scoring,
        )
    _print(tables, selection, figures, output)
    # After the table, so that one metric that scores nothing does not cost the figures of the others.
    for table in tables:
        for row in table.rows:
            if row.evaluation is None and not row.left_out:
                message = f"error: nothing to evaluate for {row.metric.label}: {row.problem}"
                console.print(message, style="red")
                raise typer.Exit(1)


def read_benchmarks(
    names: Sequence[str], parts: Sequence[str], selection: BenchmarkOptions
) -> list[tuple[Benchmark, str | None]]:
    """Loads the benchmarks that the options name, each with its path.

    Raises:
        typer.BadParameter: options that do not go together.
        DataError: there is no such benchmark, or its files are not as they should be.
    """
    from reward.metaeval.benchmarks import load_benchmark

    if not names:
        raise typer.BadParameter("is missing; `capreward bench --list` shows which there are", param_hint="--benchmark")
    if len(names) > 1:
        options.refuse({"part": parts or None, "images": selection.images}, "goes with one --benchmark")
    loaded: list[tuple[Benchmark, str | None]] = []
    for text in names:
        name, _, path = text.partition("=")
        no_parts: list[str | None] = [None]
        for part in parts or no_parts:
            benchmark = load_benchmark(
                name,
                path or None,
                part=part,
                images=selection.images,
                limit=selection.limit,
                reference_draws=selection.reference_draws,
            )
            loaded.append((benchmark, path or None))
    return loaded


def _add_score_files(
    benchmarks: list[tuple[Benchmark, str | None]], columns: list[str]
) -> tuple[list[tuple[Benchmark, str | None]], list[str]]:
    """The benchmarks with the score columns that are in files of their own, and the names of all columns."""
    from glob import glob

    from reward.metaeval.benchmarks.score_files import add_scores

    names = []
    for text in columns:
        name, _, pattern = text.partition("=")
        # A column of the data may have the sign = in its name, so that it is looked for first.
        is_column = any(text in benchmark.columns for benchmark, _ in benchmarks)
        files = [Path(path) for path in sorted(glob(pattern))] if pattern else []
        if pattern and not files and not is_column:
            raise typer.BadParameter(f"there is no file {pattern}", param_hint="--score-column")
        if files:
            benchmarks = [(add_scores(benchmark, name, files), path) for benchmark, path in benchmarks]
        names.append(name if files else text)
    return benchmarks, names


def _read_metrics(
    texts: list[str],
    settings: list[str] | None,
    columns: list[str],
    benchmarks: list[Benchmark],
    no_references: bool,
    say: Callable[[str], None],
) -> list[MetricSource]:
    """The rows of the table: metrics by name, those of ALL, and columns of scores."""
    from reward.metaeval.bench import default_metrics
    from reward.registry import MetricSource

    named = [text for text in texts if text.upper() != ALL]
    metrics = options.read_metrics(named, settings)
    if len(named) < len(texts) or not (texts or columns):
        defaults, notes = default_metrics(benchmarks, references=not no_references)
        metrics += defaults
        for note in notes:
            say(note)
    metrics += [MetricSource(name, is_column=True) for name in columns]
    return list(dict.fromkeys(metrics))


def _print(
    tables: list[BenchTable],
    selection: BenchmarkOptions,
    figures: options.FigureOptions,
    output: Path | None,
) -> None:
    from reward.report.bench import bench_report

    report = bench_report(
        tables,
        command=terminal.command_line(),
        seed=selection.seed,
        resamples=selection.resamples,
        references=not figures.no_references,
    )
    has_errors = any(row.errors for table in tables for row in table.rows)
    notes = report.notes if has_errors or not figures.quiet else []  # what went wrong is said also when quiet
    print_report(report, output, json=figures.json, quiet=figures.quiet, notes=notes)


def _print_list(json: bool) -> None:
    from reward.metaeval.benchmarks import benchmark_spec, list_benchmarks

    specs = [benchmark_spec(name) for name in list_benchmarks()]
    if json:
        names = ("name", "title", "statistic", "parts", "files", "origin", "licence", "hub", "checked")
        terminal.print_json({"benchmarks": [{name: getattr(spec, name) for name in names} for spec in specs]})
        return
    for spec in specs:
        print(f"{spec.name}: {spec.title}, {spec.statistic}")
        facts = {
            "parts": ", ".join(spec.parts),
            "files": spec.files,
            "from": spec.origin,
            "licence": spec.licence or "not stated",
            "on the Hub": spec.hub,
            "loader": _CHECKED[spec.checked],
        }
        for name, value in facts.items():
            if value:
                print(f"  {name}: {value}")
