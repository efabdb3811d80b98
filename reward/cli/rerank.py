"""`capreward rerank`: orders the candidates of every image of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options

if TYPE_CHECKING:
    from reward.scoring.summary import ScoringSummary

__all__ = ["rerank"]


def rerank(
    data: options.Data,
    metric: options.Metric,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .jsonl or .parquet file.")],
    source: options.Source = "embedded",
    revision: options.Revision = None,
    weights: options.Weights = None,
    candidates_column: Annotated[
        str | None,
        typer.Option(
            "--candidate-column",
            help="Column of lists of captions; default: candidates, else cands or captions. Of one caption a row: "
            "candidate, else cand or caption.",
        ),
    ] = None,
    image_column: options.ImageColumn = None,
    references_column: options.ReferencesColumn = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            help="For one candidate a row: column of what the candidates of one image share; default: the image."
        ),
    ] = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
    prefix: options.Prefix = "",
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Order the candidates of every image by reward, best first.

    ```
    capreward rerank candidates.jsonl --metric vela --output best.jsonl
    ```

    A line of candidates.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidates": ["A dog.", "A dog runs on grass."]}
    ```

    The output has the candidates in order, `best`, `order` (their places in the input), `rewards`, one list an
    aspect, `truncated` and `error`. Candidates that cannot be scored come last.

    Or one candidate a line, in any order; those of one image, or of one value of --group-column, compete:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog.", "model": "small"}
    {"image": "photos/1.jpg", "candidate": "A dog runs on grass.", "model": "large"}
    ```

    The output then has the same rows with the columns of `capreward score` and `rank`, which is 1 for the best.

    `capreward score --help` shows other forms of data. Stopped or killed, the same command goes on where it was.
    """

    def run() -> ScoringSummary:
        from reward.scoring.dataset import rerank_dataset

        return rerank_dataset(
            data,
            metric,
            output,
            source=source,
            weights=options.parse_weights(weights),
            candidates_column=candidates_column,
            image_column=image_column,
            references_column=references_column,
            group_column=group_column,
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

    options.report(run, quiet=quiet, what="reranked")
