"""`capreward compare`: whether one metric agrees with people better than another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import bench_options, options, terminal

if TYPE_CHECKING:
    from reward.metaeval.comparison import MetricComparison

__all__ = ["compare"]

Side = "A metric (NAME, or NAME=SOURCE with a folder or Hub id), or a score column of the data (column:NAME)."


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=Side)],
    second: Annotated[str, typer.Argument(metavar="B", help=Side)],
    benchmark: Annotated[
        str, typer.Option("--benchmark", "-b", help="NAME or NAME=PATH; see `capreward bench --list`.")
    ],
    data: Annotated[Path | None, typer.Option("--data", "-d", help="File or folder of the benchmark.")] = None,
    part: Annotated[str | None, typer.Option(help="Part of the benchmark; default: its first.")] = None,
    images: bench_options.Images = None,
    limit: bench_options.Limit = None,
    no_references: bench_options.NoReferences = False,
    resamples: bench_options.Resamples = 1000,
    seed: bench_options.Seed = 0,
    cache: bench_options.CacheFolder = None,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    json: bench_options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Test whether metric A agrees with people better than metric B, on the same captions.

    ```
    capreward compare vela unigram --benchmark scenes
    capreward compare vela=my/checkpoint column:fleur --benchmark flickr8k-expert --data flickr8k.jsonl
    ```

    Differences are A minus B, times 100, with the 95 % interval of a paired bootstrap over images; p is of a paired
    permutation test. Scores are kept and shared with `capreward bench`.
    """

    def run() -> MetricComparison:
        from reward.metaeval.bench import MetricSource
        from reward.metaeval.comparison import compare_on_benchmark
        from reward.metaeval.score_cache import default_cache_folder

        [(loaded, _)] = bench_options.read_benchmarks([benchmark], data, [part] if part else [], images, limit)
        told = terminal.console(stderr=True)
        return compare_on_benchmark(
            loaded,
            MetricSource.parse(first),
            MetricSource.parse(second),
            references=not no_references,
            resamples=resamples,
            seed=seed,
            say=lambda line: None if quiet else told.print(line),
            cache=cache or default_cache_folder(),
            batch_size=batch_size,
            progress=not quiet,
            device=device,
            dtype=dtype,
        )

    with bench_options.stdout_kept_clean():
        found = run()
    if json:
        terminal.print_json({"command": bench_options.command_line(), **found.to_json(), "seed": seed})
        return
    heads, rows = found.table()
    bench_options.print_table(heads, rows, title=found.title)
    terminal.console(stderr=False).print(found.sentence)
    for note in found.notes:
        terminal.console(stderr=True).print(note, style="yellow")
