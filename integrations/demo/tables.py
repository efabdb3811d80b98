"""The demo's results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from integrations.demo.agreement import CEILING, AgreementPart
from integrations.demo.choosing import ChoicePart
from integrations.demo.grpo import GrpoPart
from integrations.demo.offline import OfflinePart
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.scenes import ASPECTS

__all__ = ["agreement_table", "choice_table", "grpo_table", "offline_table"]

_QUALITY = {"f1": "oracle F1", "recall": "recall", "precision": "precision", "words": "words"}


def agreement_table(part: AgreementPart) -> Table:
    """Agreement of metrics with ratings, then paired differences of the learned ones from the baselines."""
    table = _table(f"Kendall's tau-c with the mean of three raters, {part.samples} held-out scenes", [*ASPECTS, MEAN])
    _add_rows(table, part.agreement, [*ASPECTS, MEAN])
    table.add_row(f"{RATER} (with the other two)", *_cells(part.against_two[RATER], [*ASPECTS, MEAN]))
    table.add_section()
    for name, rows in part.differences.items():
        for other, row in rows.items():
            if other not in part.differences and other != CEILING:
                table.add_row(f"{name} - {other}", *_cells(row, [*ASPECTS, MEAN], signed=True))
        table.add_row(f"{name} - {RATER}", *_cells(part.differences_from_rater[name], [*ASPECTS, MEAN], signed=True))
    return table


def choice_table(part: ChoicePart) -> Table:
    """Greedy against best of n."""
    table = _table(f"Best of {part.n} on {part.scenes} held-out scenes", list(_QUALITY.values()))
    _add_rows(table, part.means, list(_QUALITY))
    table.add_section()
    for name, row in part.differences.items():
        table.add_row(name, *_cells(row, list(_QUALITY), signed=True))
    if part.gap_closed:
        ways = " and ".join(f"{name} goes {share:.0%}" for name, share in part.gap_closed.items())
        table.caption = f"{ways} of the way from greedy to the oracle's choice in F1"
        table.caption_justify = "left"
    return table


def grpo_table(part: GrpoPart) -> Table:
    """Before and after GRPO."""
    title = f"GRPO with VelaReward, {part.steps} steps of {part.completions} captions; {part.scenes} other scenes"
    table = _table(title, list(_QUALITY.values()))
    _add_rows(table, part.means, list(_QUALITY))
    table.add_section()
    for name, row in part.differences.items():
        table.add_row(name, *_cells(row, list(_QUALITY), signed=True))
    return table


def offline_table(part: OfflinePart) -> Table:
    """Distribution of the scores of the file."""
    summary = part.summary
    title = f"{summary['scored']} captions of a file scored, {summary['rows_per_second']:.1f} a second"
    table = _table(title, ["mean", "std", "min", "median", "max"])
    for name, spread in summary["distributions"].items():
        table.add_row(name, *(f"{spread[key]:.3f}" for key in ("mean", "std", "min", "median", "max")))
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("", min_width=26)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _add_rows(table: Table, rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str]) -> None:
    for name, row in rows.items():
        table.add_row(name, *_cells(row, columns))


def _cells(row: Mapping[str, Interval], columns: Sequence[str], *, signed: bool = False) -> list[Text]:
    return [_cell(row[column], signed, coloured=signed and column != "words") for column in columns]


def _cell(interval: Interval, signed: bool, coloured: bool) -> Text:
    """The estimate and half the width of its 95 % interval; green or red where a difference's interval excludes 0."""
    text = Text(f"{interval.value:{'+' if signed else ''}.2f} ±{(interval.high - interval.low) / 2:.2f}")
    if coloured and interval.excludes_zero:
        text.stylize("bold green" if interval.low > 0 else "bold red")
    return text
