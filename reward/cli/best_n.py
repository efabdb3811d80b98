"""`capreward best-n`: what the best of n captions is worth for every n, and where more captions do harm."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.reports import report_figures
from reward.cli.score import GroupColumn

__all__ = ["best_n"]


def best_n(
    data: options.Data,
    by: Annotated[
        str | None, typer.Option(help="Column of the score that chooses; default: reward or, of lists, rewards.")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(help="Column of another metric, or of people's ratings, of the same captions; may be repeated."),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option(help="Largest n; images with fewer captions are left out. Default: the fewest of an image."),
    ] = None,
    group_column: GroupColumn = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for best-n.json, best-n.md and best-n.html (plots).")
    ] = None,
    json: options.AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks.")] = False,
) -> None:
    """Estimate what the best of n captions is worth, for every n, and where more captions do harm.

    ```
    capreward score samples.jsonl --metric vela --output scores.parquet
    capreward best-n scores.parquet --by reward --held-out human_rating --output curve
    ```

    The file has several scored captions an image, in rows as `capreward score` writes them or in lists as `capreward
    rerank` does. With M captions per image, the estimates for every n up to M are unbiased and need no resampling.

    The score used for choosing always rises with n. Only a column that was not optimised (--held-out) shows whether the
    captions get better: the command reports the n at which it peaks, or that no peak was found.
    """
    from reward.decoding.curve_report import best_of_n_report
    from reward.metaeval.report import check_report

    if output is not None:
        check_report(output)
    found = best_of_n_report(data, by=by, held_out=held_out or (), group_column=group_column, up_to=up_to)
    figures = found.to_json(command=terminal.command_line())
    write = None if output is None else partial(found.write, output, figures)
    report_figures(figures, [found.grid()], () if quiet else found.notes(), write, json=json, quiet=quiet)
