"""`capreward bench`: how well metrics agree with judgments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.cli.chosen import Metrics, Settings, read_metrics
from reward.cli.summaries import print_report

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


def bench(
    selection: options.BenchmarkOptions,
    figures: options.FigureOptions,
    device: options.DeviceOptions,
    columns: options.InputOptions,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RATINGS",
            help="Captions that you have rated: a file that `score` reads, with a column of ratings. With --reproduce "
            "metrics and benchmarks, as NAME, NAME=CHECKPOINT or NAME=PATH.",
        ),
    ] = None,
    rating_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of ratings in RATINGS, or A,B,C with one for each rater; default: rating."),
    ] = None,
    rater_column: Annotated[
        str | None, typer.Option(help="Column that says who rated, where each rater of a caption has a row.")
    ] = None,
    rating_map: Annotated[
        str | None, typer.Option(help="Numbers of ratings in words, as in `poor=1,fair=2,good=3`.")
    ] = None,
    candidate_column: options.CandidateColumn = None,
    benchmark: Annotated[
        list[str] | None, typer.Option("--benchmark", "-b", help="NAME or NAME=PATH; repeat for several. See --list.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", help="File or folder of the benchmark, if there is one --benchmark.")
    ] = None,
    metric: Metrics = None,
    settings: Settings = None,
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
            "nothing has changed; or one such file.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the benchmarks and their files.")] = False,
    reproduced: Annotated[
        bool,
        typer.Option(
            "--reproduce",
            help="Compare with all published figures, or those of the metrics and benchmarks that are named: run what "
            "is here, and say what is missing for the others.",
        ),
    ] = False,
    download: Annotated[
        bool, typer.Option("--download", help="With --reproduce: fetch what is on the Hub, for all of it some 60 GB.")
    ] = False,
) -> None:
    """Measure how well metrics, and scores that came with the data, agree with human judgments or simulated ratings.

    ```
    capreward bench ratings.csv --metric vela=my/checkpoint --metric length
    capreward bench ratings.csv -m length --rating-column a --rating-column b
    capreward bench --benchmark scenes -m vela -m unigram -m length
    capreward bench --benchmark flickr8k-expert --data flickr8k.jsonl \\
        --metric vela=my/checkpoint --score-column fleur
    capreward bench --reproduce cider flickr8k-expert=flickr8k.jsonl
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
    from reward.report.page import check_report, is_file

    console = terminal.console(stderr=True)

    def say(line: str) -> None:
        if not figures.quiet:
            console.print(line)

    if output is not None:
        check_report(output)  # before hours of scoring
    folder = None if output is None or is_file(output) else output / "scores"
    scoring: dict[str, Any] = {"say": say, "folder": folder, **figures.scoring(device)}
    arguments = given or []
    if reproduced:
        fixed = {"data": data, "part": part, "set": settings, "score_column": score_column, "limit": selection.limit}
        options.refuse(fixed, "does not go with --reproduce, which takes all of a benchmark; a path is NAME=PATH")
        names = [*arguments, *(metric or ()), *(benchmark or ())]
        _reproduce(names, selection, figures, output, {"download": download, **scoring})
        return
    options.refuse({"download": download or None}, "goes with --reproduce")
    if len(arguments) > 1:
        raise typer.BadParameter(f"got {len(arguments)}; one file of ratings at a time", param_hint="RATINGS")
    with terminal.stdout_kept_clean():
        if benchmark and len(benchmark) == 1 and Path(benchmark[0]).is_file():  # a file in place of a name
            arguments, benchmark = benchmark, None
        if arguments:
            data = data or Path(arguments[0])
        benchmarks: list[tuple[Benchmark, str | None]]
        of_ratings = {"rating_column": rating_column, "rater_column": rater_column, "rating_map": rating_map}
        if data is not None and not benchmark:
            from reward.metaeval.benchmarks.own_ratings import load_ratings

            ratings = load_ratings(
                data,
                rating_columns=rating_column or (),
                rater_column=rater_column,
                rating_map=options.parse_map(rating_map),
                candidate_column=candidate_column,
                limit=selection.limit,
                **{**vars(columns), "image_root": columns.image_root or selection.images},
            )
            benchmarks = [(ratings, str(data))]
        else:
            options.refuse(of_ratings, "is for RATINGS of your own")
            benchmarks = options.read_benchmarks(benchmark or [], data, part or [], selection)
        benchmarks, names = _add_score_files(benchmarks, score_column or [])
        loaded = [benchmark for benchmark, _ in benchmarks]
        sources = _metric_sources(metric or [], settings, names, loaded, figures.no_references, say)
        tables = run_bench(
            benchmarks,
            sources,
            against=against,
            raters=raters,
            threshold=threshold,
            resamples=selection.resamples,
            seed=selection.seed,
            **scoring,
        )
    _print(tables, selection, figures, output)
    for table in tables:
        for row in table.rows:
            if row.evaluation is None and not row.left_out:
                message = f"error: nothing to evaluate for {row.metric.label}: {row.problem}"
                console.print(message, style="red")
                raise typer.Exit(1)


def _add_score_files(
    benchmarks: list[tuple[Benchmark, str | None]], columns: list[str]
) -> tuple[list[tuple[Benchmark, str | None]], list[str]]:
    """The benchmarks with the score columns that are in files of their own, and the names of all columns."""
    from glob import glob

    from reward.metaeval.benchmarks.score_files import add_scores

    names = []
    for text in columns:
        name, _, pattern = text.partition("=")
        is_column = any(text in benchmark.columns for benchmark, _ in benchmarks)
        files = [Path(path) for path in sorted(glob(pattern))] if pattern else []
        if pattern and not files and not is_column:
            raise typer.BadParameter(f"there is no file {pattern}", param_hint="--score-column")
        if files:
            benchmarks = [(add_scores(benchmark, name, files), path) for benchmark, path in benchmarks]
        names.append(name if files else text)
    return benchmarks, names


def _reproduce(
    names: list[str],
    selection: options.BenchmarkOptions,
    figures: options.FigureOptions,
    output: Path | None,
    scoring: dict[str, Any],
) -> None:
    from reward.metaeval.reproduce import reproduce
    from reward.report.bench import reproduction_report

    del scoring["references"]  # as the figures have them
    with terminal.stdout_kept_clean():
        reproduction = reproduce(names, images=selection.images, **scoring)
    report = reproduction_report(reproduction, command=terminal.command_line())
    print_report(report, output, json=figures.json, quiet=figures.quiet, notes=report.notes)
    if not reproduction.compared:
        raise typer.Exit(1)


def _metric_sources(
    metrics: list[str],
    settings: list[str] | None,
    columns: list[str],
    benchmarks: list[Benchmark],
    no_references: bool,
    say: Callable[[str], None],
) -> list[MetricSource]:
    from reward.metaeval.bench import default_metrics
    from reward.registry import MetricSource

    named = [text for text in metrics if text.upper() != ALL]
    sources = read_metrics(named, settings)
    if len(named) < len(metrics) or not (metrics or columns):
        defaults, notes = default_metrics(benchmarks, references=not no_references)
        sources += defaults
        for note in notes:
            say(note)
    sources += [MetricSource(name, is_column=True) for name in columns]
    return list(dict.fromkeys(sources))


def _print(
    tables: list[BenchTable],
    selection: options.BenchmarkOptions,
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
