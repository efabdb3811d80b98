"""`capreward compare`: captioners on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.summaries import print_report


@options.describe(
    "metric set by caption-column image-column references-column image-root annotations device batch-size output json "
    "quiet",
    synonyms={
        "--column --score-column --reward-column": "--by",
        "--references --refs": "--annotations FILE",
        "--names --labels": "NAME=FILE for each file, without an option",
    },
)
def compare(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES", help="Captions of a captioner each, or what `score` wrote; or NAME=FILE."),
    ],
    columns: options.InputOptions,
    device: options.DeviceOptions,
    metric: options.Metrics = None,
    settings: options.Settings = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column of scores that all files have; repeat it for several. Default: reward."),
    ] = None,
    candidate_column: options.CandidateColumn = None,
    annotations: options.Annotations = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="An .html file, with the images on which the captioners differ most, a .tex, .md or .csv file of the "
            "tables, .json with all figures, or a folder.",
        ),
    ] = None,
    json: options.AsJson = False,
    quiet: options.QuietFigures = False,
) -> None:
    """Compare captioners on the same images: mean scores, paired differences from the best, and images won.

    ```
    capreward compare mine.jsonl theirs.jsonl base.jsonl \\
        -m cider -m clipscore=ViT-L-14:openai -o compare.html
    capreward compare mine.json theirs.json -m cider \\
        --annotations captions_val2014.json -o table.tex
    capreward compare before=a.scores.parquet after=b.scores.parquet
    ```

    Without --metric it compares the column `reward` of what `score` wrote, or the columns of --by; of files that the
    same metric has scored, --metric takes its scores as they are. Scores by different metrics or checkpoints are
    refused. Images are the same if their paths are, or else their file names. An image with several captions counts by
    their mean. [low, high] are 95 % intervals of a bootstrap over images.
    """
    from reward.metaeval.benchmarks.own_captions import load_captions
    from reward.metaeval.captioners import compare_captioners
    from reward.metaeval.score_records import score_records
    from reward.registry import MetricSource
    from reward.report.captioners import compare_report
    from reward.report.report import check_report

    named = options.named_files(files, "FILES")
    if len(named) < 2:
        raise typer.BadParameter(f"compare takes two files or more, got {len(named)}", param_hint="FILES")
    if output is not None:
        check_report(output, named.values())  # before hours of scoring
    with terminal.stdout_kept_clean():
        metrics = options.read_metrics(metric or [], settings)
        metrics += [MetricSource(column, is_column=True) for column in by or ()]
        metrics = list(dict.fromkeys(metrics))
        captions = {}
        for name, file in named.items():
            captions[name] = load_captions(
                file, candidate_column=candidate_column, annotations=annotations, **vars(columns)
            )
        records = {name: score_records(file) for name, file in named.items()}
        scoring = {"progress": not quiet, **vars(device)}
        comparisons = list(compare_captioners(captions, metrics, records=records, **scoring))
    has_pictures = output is not None and output.suffix.lower() not in (".tex", ".csv", ".md", ".json")
    report = compare_report(list(named), comparisons, command=terminal.command_line(), with_pictures=has_pictures)
    notes = report.notes
    if quiet:  # what has no score is said all the same
        notes = [f"{comparison.metric}: {comparison.note}" for comparison in comparisons if any(comparison.unscored)]
    print_report(report, output, json=json, quiet=quiet, notes=notes)
