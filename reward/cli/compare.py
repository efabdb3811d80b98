"""`capreward compare`: two captioners on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.summaries import print_report


@options.describe(
    "metric set caption-column image-column references-column image-root device batch-size output json quiet"
)
def compare(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FIRST SECOND", help="Captions of two captioners, or what `score` wrote; or NAME=FILE."),
    ],
    columns: options.InputOptions,
    device: options.DeviceOptions,
    metric: options.Metrics = None,
    settings: options.Settings = None,
    candidate_column: options.CandidateColumn = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="An .html file: the images with the largest differences.")
    ] = None,
    json: options.AsJson = False,
    quiet: options.QuietFigures = False,
) -> None:
    """Compare two captioners on the same images: mean scores, their paired difference, and how often the first wins.

    ```
    capreward compare mine.jsonl theirs.jsonl -m vela=my-vela -o compare.html
    capreward compare before=a.scores.parquet after=b.scores.parquet
    ```

    Without --metric it compares the column `reward` of what `score` wrote; of files that the same metric has scored,
    --metric takes its scores as they are. Scores by different metrics or checkpoints are refused. Images are the same
    if their paths are, or else their file names. An image with several captions counts by their mean. [low, high] are
    95 % intervals of a bootstrap over images.
    """
    from reward.metaeval.benchmarks.own_captions import load_captions
    from reward.metaeval.score_records import score_records
    from reward.metaeval.two_captioners import compare_captioners
    from reward.report.captioners import compare_report
    from reward.scoring.writers import check_output_name

    named = options.named_files(files, "FIRST SECOND")
    if len(named) != 2:
        raise typer.BadParameter(f"compare takes two files, got {len(named)}", param_hint="FIRST SECOND")
    if output is not None:
        check_output_name(output, ".html")  # before hours of scoring
    with terminal.stdout_kept_clean():
        metrics = options.read_metrics(metric or [], settings)
        sides = [load_captions(file, candidate_column=candidate_column, **vars(columns)) for file in named.values()]
        records = [score_records(file) for file in named.values()]
        scoring = {"progress": not quiet, **vars(device)}
        comparisons = list(compare_captioners(sides, metrics, records=records, **scoring))
    command = terminal.command_line()
    report = compare_report(list(named), comparisons, command=command, with_pictures=output is not None)
    # What has no score is said also when quiet.
    notes = []
    for comparison, note in zip(comparisons, report.notes, strict=True):
        if any(comparison.unscored) or not quiet:
            notes.append(note)
    print_report(report, output, json=json, quiet=quiet, notes=notes)
