"""Options that the scoring subcommands share, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import terminal

if TYPE_CHECKING:
    from reward.scoring.summary import ScoringSummary

__all__ = [
    "BatchSize",
    "Data",
    "Device",
    "Dtype",
    "ImageColumn",
    "ImageRoot",
    "Metric",
    "Overwrite",
    "Prefix",
    "Quiet",
    "ReferencesColumn",
    "Revision",
    "Source",
    "Split",
    "Weights",
    "parse_weights",
    "report",
]


def _there(device: str | None) -> str | None:
    """Refuses a device that this machine has not, before anything is loaded."""
    if device is not None:
        from reward.backbones.pretrained import usable_device
        from reward.errors import ConfigError

        try:
            usable_device(device)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from error
    return device


Data = Annotated[
    Path,
    typer.Argument(
        help="A .jsonl, .json, .csv (each also with .gz) or .parquet file, a folder of a data set, or the name of one "
        "on the Hub."
    ),
]
Split = Annotated[str | None, typer.Option(help="Of a data set with several splits, such as test.")]
Metric = Annotated[str, typer.Option("--metric", "-m", help="Name of a metric; see `capreward metrics`.")]
Source = Annotated[
    str, typer.Option(help="Checkpoint of the metric: embedded (small, for trials), a folder, or a Hub id.")
]
Revision = Annotated[str | None, typer.Option(help="Revision of a Hub id: branch, tag or commit.")]
Device = Annotated[
    str | None, typer.Option(callback=_there, help="Such as cpu or cuda:0; default: a GPU if there is one.")
]
Dtype = Annotated[str | None, typer.Option(help="Such as bfloat16; default: the metric's own.")]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", "-w", help="Weights of the aspects in the reward, as in desc=1,rel=2,flu=1; default: equal."
    ),
]
ImageColumn = Annotated[
    str | None,
    typer.Option(help="Column of images or their paths; default: images or image, else file_name, image_path or img."),
]
ReferencesColumn = Annotated[
    str | None,
    typer.Option(help="Column of references, lists or (in CSV) JSON lists; default: references, else refs."),
]
ImageRoot = Annotated[
    Path | None,
    typer.Option(help="Folder that relative image paths start from; default: the folder of the data file."),
]
Prefix = Annotated[str, typer.Option(help="Put before the names of the new columns, to tell several metrics apart.")]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Captions the metric scores at a time; default: its own choice."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a finished output, and forget an unfinished run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.")]


def parse_weights(text: str | None) -> dict[str, float] | None:
    """Reads `desc=1,rel=2`.

    Raises:
        typer.BadParameter: not of that form.

    Example:
        >>> parse_weights("desc=1, rel=0.5")
        {'desc': 1.0, 'rel': 0.5}
    """
    if text is None:
        return None
    from reward import scores
    from reward.errors import WeightsError

    try:
        return scores.parse_weights(text)
    except WeightsError as error:
        raise typer.BadParameter(str(error), param_hint="--weights") from None


def report(run: Callable[[], ScoringSummary], *, quiet: bool, what: str) -> None:
    """Runs the scoring, prints the summary on stderr, and exits with the right code.

    Args:
        run: gives the summary.
        quiet: print only what went wrong.
        what: "scored" or "reranked".
    """
    console = terminal.console(stderr=True)
    summary = run()
    if summary.already_done:
        console.print(
            f"{summary.output} is complete already, from the same input and settings; nothing was scored again "
            "(--overwrite does).",
            style="yellow",
        )
    if not quiet:
        _print_summary(console, summary, what)
    elif summary.errors:
        console.print(_error_lines(summary), style="yellow")
    if not summary.scored:
        console.print("error: no caption could be scored", style="red")
        raise typer.Exit(1)


def _error_lines(summary: ScoringSummary) -> str:
    return "\n".join(
        f"{count} not scored ({kind}); the first is {summary.examples[kind]}" for kind, count in summary.errors.items()
    )


def _print_summary(console: Any, summary: ScoringSummary, what: str) -> None:
    from rich.table import Table

    used = ", ".join(f"{role} = {column}" for role, column in summary.columns.items() if column)
    console.print(f"columns read: {used}")
    table = Table("", "mean", "std", "min", "25%", "median", "75%", "max", title=f"{summary.captions} captions")
    for name, spread in summary.distributions.items():
        numbers = (spread.mean, spread.std, spread.min, spread.q25, spread.median, spread.q75, spread.max)
        table.add_row(name, *(f"{number:.4g}" for number in numbers))
    if summary.distributions:
        console.print(table)
    if summary.errors:
        console.print(_error_lines(summary), style="yellow")
    if 1 < summary.groups == summary.rows:
        console.print(
            f"no two rows share a value of {summary.columns['group']}, so that nothing was compared; name the column "
            "that the candidates of one image share with --group-column",
            style="yellow",
        )
    if summary.truncated:
        console.print(f"{summary.truncated} captions had text cut to fit the model")
    groups = f" in {summary.groups} groups" if summary.groups else ""
    before = f" ({summary.resumed_rows} of them by an earlier run)" if summary.resumed_rows else ""
    pace = f", {summary.rows_per_second:,.1f} rows/s" if summary.new_rows and not summary.already_done else ""
    images = f", {summary.images_decoded} images decoded" if summary.images_decoded else ""
    console.print(f"{what} {summary.rows} rows{groups}{before}{pace}{images} -> {summary.output}", style="green")
