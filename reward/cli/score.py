"""`capreward score`: scores the captions of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options

if TYPE_CHECKING:
    from reward.scoring.summary import ScoringSummary

__all__ = ["score"]


def score(
    data: options.Data,
    metric: options.Metric,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .parquet or .jsonl file.")],
    source: options.Source = "embedded",
    revision: options.Revision = None,
    weights: options.Weights = None,
    candidate_column: Annotated[
        str | None,
        typer.Option(help="Column of captions; default: candidate, else cand or caption."),
    ] = None,
    image_column: options.ImageColumn = None,
    references_column: options.ReferencesColumn = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
    prefix: options.Prefix = "",
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Score every caption of a file: its rows, plus one column an aspect, the reward, and an error column.

    ```
    capreward score captions.jsonl --metric vela --output scores.parquet
    ```

    A line of captions.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog runs.", "references": ["A dog is running."]}
    ```

    Other forms of data, with the same columns:

    ```
    captions.json, captions.csv, captions.parquet     and captions.jsonl.gz, captions.csv.gz
    photos/                                           images with metadata.jsonl or metadata.csv (column file_name)
    saved/ --split test                               written by save_to_disk, or any folder load_dataset reads
    owner/name --split test                           on the Hub; also owner/name:subset and owner/name@revision
    ```

    Image paths start at the folder of the file. A row that cannot be scored keeps its place and says why in `error`.
    Stopped or killed, the same command goes on where it was; no row is lost or in the output twice. Scores are kept in
    OUTPUT.partial meanwhile; OUTPUT.summary.json tells afterwards how the output was made.
    """

    def run() -> ScoringSummary:
        from reward.scoring.dataset import score_dataset

        return score_dataset(
            data,
            metric,
            output,
            source=source,
            weights=options.parse_weights(weights),
            candidate_column=candidate_column,
            image_column=image_column,
            references_column=references_column,
            image_root=image_root,
            split=split,
            prefix=prefix,
            batch_size=batch_size,
            overwrite=overwrite,
            progress=not quiet,
            revision=revision,
            device=device,
            dtype=dtype,
        )

    options.report(run, quiet=quiet, what="scored")
