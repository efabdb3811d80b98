"""`capreward filter` and `capreward report`: what scores of a data set are for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal

__all__ = ["filter_rows", "report"]

Scored = Annotated[
    Path,
    typer.Argument(
        metavar="SCORED", help="What `capreward score` wrote: a .parquet or .jsonl file, or a folder of Parquet files."
    ),
]
By = Annotated[str, typer.Option("--by", help="Column of the score.")]


def filter_rows(
    scored: Scored,
    output: options.ScoresFile,
    run: options.RunOptions,
    keep: Annotated[
        str | None, typer.Option("--keep", help="Condition on columns, as in 'reward >= 0.6 and error is None'.")
    ] = None,
    top: Annotated[
        str | None, typer.Option("--top", help="Keep only the best: a share such as 20%, rounded up, or a number.")
    ] = None,
    by: By = "reward",
    per: Annotated[
        str | None,
        typer.Option("--per", help="Column of groups; --top applies within each. 'image' is the image column."),
    ] = None,
) -> None:
    """Keep the rows of a scored file that are good enough, or the best, and say why the others went.

    ```
    capreward filter scores.parquet --keep "reward >= 0.6" --top 20% --per image --output good.parquet
    ```

    Rows without a score go first, then those that --keep refuses; --top chooses among the rest. A condition compares
    columns with numbers and texts; there are also `in [...]`, `is None`, `len(candidate)`, and, or, not:

    ```
    --keep "relevance > 0.5 and not truncated and len(candidate) < 400"
    ```

    The data are streamed. If no row is left, that is an error, and nothing is written.
    """
    from reward.scoring.filtering import filter_dataset

    summary = filter_dataset(scored, output, keep=keep, top=top, by=by, per=per, overwrite=run.overwrite)
    if run.quiet:
        return
    console = terminal.console(stderr=True)
    for why, count in summary.dropped.items():
        if count:
            console.print(f"{count:,} rows not kept: {why}", style="yellow")
    console.print(f"kept {summary.kept:,} of {summary.rows:,} rows -> {summary.output}", style="green")


def report(
    scored: Scored,
    output: Annotated[Path, typer.Option("--output", "-o", help="An .html file.")],
    run: options.RunOptions,
    against: Annotated[
        Path | None, typer.Option("--against", help="An earlier scored set, to show how far the scores moved.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="Column of the main score; default: reward, rewards, or the first that ends so."),
    ] = None,
    per: Annotated[
        str | None, typer.Option("--per", help="Column whose values are compared, such as the source of a row.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Best and worst rows to show with their pictures.")] = 6,
    candidate_column: Annotated[
        str | None, typer.Option(help="Column of the captions; default: the one that was scored.")
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="Column of the images' paths; default: the one that was scored.")
    ] = None,
    image_root: Annotated[
        Path | None,
        typer.Option(help="Folder that relative image paths start from; default: as when they were scored."),
    ] = None,
) -> None:
    """Show the scores of a file as one HTML page: distributions, drift, errors, the best and the worst.

    ```
    capreward report scores.parquet --against last_week.parquet --per source --output report.html
    ```

    It reads what `score`, `rerank` and `caption` wrote. All columns of floating-point numbers are shown; --by names the
    main one. Of several metrics (columns that end with `reward`) it shows how far they agree. The page needs no other
    file and no network. Plots need the extra `report`.
    """
    from reward.metaeval.scored_report import warnings_of, write_scored_report

    shown = write_scored_report(
        scored,
        output,
        against=against,
        per=per,
        command=terminal.command_line(),
        overwrite=run.overwrite,
        by=by,
        examples=examples,
        candidate_column=candidate_column,
        image_column=image_column,
        image_root=image_root,
    )
    if not run.quiet:
        console = terminal.console(stderr=True)
        for line in warnings_of(shown):
            console.print(line, style="yellow")
        if shown.unscored:
            console.print(f"{shown.unscored:,} of {shown.captions:,} captions have no {shown.by}", style="yellow")
        console.print(f"report on {shown.rows:,} rows -> {output}", style="green")
