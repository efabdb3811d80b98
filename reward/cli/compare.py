"""`capreward compare`: two captioners on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.summaries import print_report


@options.describe(
    "metric set caption-column image-column references-column image-root device batch-size output examples resamples "
    "seed json quiet"
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
    examples: Annotated[int, typer.Option(min=0, help="Images to show for each captioner.")] = 12,
    resamples: Annotated[int, typer.Option(min=1, help="Number of resamples of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")] = 0,
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
        drawn = {"resamples": resamples, "seed": seed}
        scoring = {"progress": not quiet, **vars(device)}
        comparisons = list(compare_captioners(sides, metrics, records=records, **drawn, **scoring))
    report = compare_report(
        list(named),
        comparisons,
        command=terminal.command_line(),
        examples=0 if output is None else examples,
        **drawn,
    )
    # What has no score is said also when quiet.
    notes = []
    for comparison, note in zip(comparisons, report.notes, strict=True):
        if any(comparison.unscored) or not quiet:
            notes.append(note)
    print_report(report, output, json=json, quiet=quiet, notes=notes)
