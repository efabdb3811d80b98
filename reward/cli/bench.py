"""`capreward bench`: how well metrics agree with people, on one benchmark or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import bench_options, options, terminal

if TYPE_CHECKING:
    from reward.metaeval.bench import BenchTable, MetricSource
    from reward.metaeval.benchmarks import Benchmark

__all__ = ["bench"]

EVERY = "ALL"  # what --metric calls all metrics that can do without a checkpoint of the user's

_CHECKED = {
    "published": "ran on files that its authors published",
    "schema": "ran only on small files written in the documented form",
    "own": "data of this project",
}


def bench(
    benchmark: Annotated[
        list[str] | None,
        typer.Option("--benchmark", "-b", help="NAME or NAME=PATH; repeat for several. See --list."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", help="File or folder of the benchmark, if there is one --benchmark.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="NAME, or NAME=SOURCE with a folder or Hub id (HUB_ID@REVISION); repeat for several. ALL stands for "
            "those that need no checkpoint and that these data suffice for, and is the default without --score-column.",
        ),
    ] = None,
    score_column: Annotated[
        list[str] | None,
        typer.Option("--score-column", "-s", help="Scores that came with the data, by name; repeat for several."),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Part of the benchmark; repeat for several. Default: its first.")
    ] = None,
    images: bench_options.Images = None,
    limit: bench_options.Limit = None,
    no_references: bench_options.NoReferences = False,
    resamples: bench_options.Resamples = 1000,
    seed: bench_options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for bench.json, bench.md and bench.html, with plots.")
    ] = None,
    cache: bench_options.CacheFolder = None,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    json: bench_options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the benchmarks and what files they need.")] = False,
) -> None:
    """Hold metrics, and scores that came with the data, against human judgments.

    ```
    capreward bench --benchmark scenes --metric vela --metric unigram --metric length
    capreward bench --benchmark flickr8k-expert --data flickr8k.jsonl --metric vela=my/checkpoint --score-column fleur
    capreward bench --benchmark flickr8k-expert=flickr8k.jsonl --benchmark scenes --metric vela --output report
    ```

    The table has a row for each metric and score column, and a column for each aspect or category: the benchmark's own
    statistic times 100, with its 95 % interval over images. Where there are several aspects, a metric with one score
    has it held against each, and rows are ranked by the mean over the aspects. Every row is tested against the best.

    Scores are kept by caption, references, image and checkpoint: stopped or killed, the same command goes on where it
    was, and run again it scores nothing. A caption's time is measured when it is scored, and is kept with its score;
    another --cache measures anew.
    """
    if list_:
        _print_list(json)
        return
    from reward.metaeval.score_cache import default_cache_folder

    if output is not None:
        from reward.metaeval.report import check_report

        check_report(output)  # before hours of scoring
    told = terminal.console(stderr=True)

    def say(line: str) -> None:
        if not quiet:
            told.print(line)

    def run() -> list[BenchTable]:
        from reward.metaeval.bench import run_bench

        benchmarks = bench_options.read_benchmarks(benchmark or [], data, part or [], images, limit)
        candidates = _candidates(metric or [], score_column or [], [each for each, _ in benchmarks], no_references, say)
        return run_bench(
            benchmarks,
            candidates,
            references=not no_references,
            resamples=resamples,
            seed=seed,
            say=say,
            cache=cache or default_cache_folder(),
            batch_size=batch_size,
            progress=not quiet,
            device=device,
            dtype=dtype,
        )

    with bench_options.stdout_kept_clean():
        tables = run()
    _print(tables, json=json, quiet=quiet, output=output, seed=seed, resamples=resamples, references=not no_references)
    lost = [row for table in tables for row in table.rows if row.evaluation is None and not row.left_out]
    if lost:
        told.print(f"error: nothing to evaluate for {lost[0].metric.label}: {lost[0].problem}", style="red")
        raise typer.Exit(1)


def _candidates(
    metrics: list[str], columns: list[str], benchmarks: list[Benchmark], no_references: bool, say: Any
) -> list[MetricSource]:
    from reward.metaeval.bench import MetricSource, default_metrics

    found = []
    for text in metrics or ([] if columns else [EVERY]):
        if text.upper() == EVERY:
            shipped, left_out = default_metrics(benchmarks, references=not no_references)
            found += shipped
            for note in left_out:
                say(note)
        else:
            found.append(MetricSource.parse(text))
    found += [MetricSource(name, is_column=True) for name in columns]
    return list(dict.fromkeys(found))


def _print(
    tables: list[BenchTable],
    *,
    json: bool,
    quiet: bool,
    output: Path | None,
    seed: int,
    resamples: int,
    references: bool,
) -> None:
    from reward.metaeval import bench_report

    command = bench_options.command_line()
    found = bench_report.to_json(tables, command=command, seed=seed, resamples=resamples, references=references)
    told = terminal.console(stderr=True)
    if json:
        terminal.print_json(found)
    else:
        for grid in bench_report.grids(tables):
            bench_options.print_table(grid.heads, grid.rows, title=grid.title, best=grid.best)
    failed = [row for table in tables for row in table.rows if row.errors]
    if not quiet or failed:
        for note in bench_report.notes(tables, resamples=resamples):
            told.print(note)
    if output is not None:
        from reward.metaeval.bench_report import write_report

        page = write_report(output, tables, found)
        if not quiet:
            told.print(f"report: {page}", style="green")


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
