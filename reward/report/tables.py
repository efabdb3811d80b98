"""Tables of texts, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from reward.metaeval.bootstrap import Interval

SIGNIFICANT = 0.05
FEW_IMAGES = 10  # with fewer images, resamples are too similar for intervals to be reliable


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Args:
        title: shown above it.
        heads: of the columns; the first is that of the rows' names.
        rows: one text a column.
        best: number of the row in bold; None for none.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: int | None = None

    def markdown(self) -> str:
        """As a Markdown table, without the title."""
        lines = [_markdown_line(self.heads), "|---" * len(self.heads) + "|"]
        for number, row in enumerate(self.rows):
            cells = [f"**{cell}**" for cell in row] if number == self.best else row
            lines.append(_markdown_line(cells))
        return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def interval_grid(
    title: str,
    rows: Mapping[str, Mapping[str, Interval | None]],
    columns: Iterable[str],
    *,
    head: str = "",
    cell: Callable[[Interval | None], str] | None = None,
) -> Grid:
    """A table of estimates.

    Args:
        title: shown above it.
        rows: {row: {column: estimate}}.
        columns: which, in order; an estimate may be missing.
        head: of the first column.
        cell: writes an estimate, or None; the default is `percent`.
    """
    write = cell or percent
    columns = list(columns)
    lines = []
    for name, row in rows.items():
        lines.append([name, *(write(row.get(column)) for column in columns)])
    return Grid(title, [head, *columns], lines)


def column_grid(title: str, columns: Mapping[str, Mapping[str, str]], *, head: str = "") -> Grid:
    """A table of columns, {head: {row: text}}, with "-" where a column has no text; `head` is that of the rows' names.

    Example:
        >>> print(column_grid("", {"first": {"x": "1"}, "second": {"x": "2", "y": "3"}}).markdown())
        |  | first | second |
        |---|---|---|
        | x | 1 | 2 |
        | y | - | 3 |
    """
    frame = pd.DataFrame(columns).fillna("-")
    return Grid(title, [head, *frame.columns], frame.reset_index().to_numpy().tolist())


def markdown_table(
    rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str], *, title: str = "", signed: bool = False
) -> str:
    """A Markdown table of estimates with their intervals, one row per system.

    Args:
        rows: {row: {column: estimate}}.
        columns: which, in order.
        title: head of the first column.
        signed: for differences: write the sign, and in bold intervals that exclude 0.

    Example:
        >>> print(markdown_table({"VELA - length": {"rel": Interval(0.2, 0.1, 0.3)}}, ["rel"], signed=True))
        |  | rel |
        |---|---|
        | VELA - length | **+0.200 [0.100, 0.300]** |
    """
    cell = _signed if signed else str
    return interval_grid("", rows, columns, head=title, cell=cell).markdown()


def _signed(difference: Interval | None) -> str:
    if difference is None:
        return "-"
    text = f"+{difference}" if difference.value > 0 else str(difference)
    return f"**{text}**" if difference.excludes_zero else text


def percent(interval: Interval | None, *, scale: int = 100, digits: int = 1, sign: str = "") -> str:
    """An estimate times 100, as papers give it, with its interval if it has one.

    Args:
        interval: the estimate; None or NaN gives "-".
        scale: what values are multiplied with.
        digits: after the point.
        sign: "+" writes the sign of positive values too.

    Example:
        >>> percent(Interval(0.5298, 0.52, 0.541))
        '53.0 [52.0, 54.1]'
    """
    if interval is None or math.isnan(interval.value):
        return "-"
    number = f"{{:{sign}.{digits}f}}"
    text = number.format(scale * interval.value)
    if math.isnan(interval.low):
        return text
    return f"{text} [{number.format(scale * interval.low)}, {number.format(scale * interval.high)}]"


def milliseconds(seconds: float) -> str:
    """A time as text, three digits.

    Example:
        >>> milliseconds(0.0012345), milliseconds(1.4567)
        ('1.23', '1,457')
    """
    if math.isnan(seconds):
        return "-"
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


def few_images(count: int) -> str:
    """A warning for figures of so few images; empty where there are enough.

    Example:
        >>> few_images(1)
        'Only 1 different image: too few for intervals and p-values to be trusted.'
    """
    if count >= FEW_IMAGES:
        return ""
    return f"Only {count} different image{'s' * (count != 1)}: too few for intervals and p-values to be trusted."
