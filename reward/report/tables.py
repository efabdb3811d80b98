"""Tables of texts, as data frames whose first column names the rows, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from reward.metaeval.bootstrap import Interval

SIGNIFICANT = 0.05
FEW_IMAGES = 10  # with fewer images, resamples are too similar for intervals to be reliable


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Args:
        title: shown above it.
        frame: texts; the first column names the rows.
        best: number of the row in bold; None for none.
    """

    title: str
    frame: pd.DataFrame
    best: int | None = None


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


def interval_frame(
    rows: Mapping[str, Mapping[str, Interval | None]],
    columns: Iterable[str],
    *,
    head: str = "",
    write: Callable[[Interval | None], str] = percent,
) -> pd.DataFrame:
    """A frame of estimates.

    Args:
        rows: {row: {column: estimate}}; an estimate may be missing.
        columns: which, in order.
        head: of the rows' names.
        write: makes a text of an estimate or None.
    """
    columns = list(columns)
    lines = []
    for name, row in rows.items():
        lines.append([name, *(write(row.get(column)) for column in columns)])
    return pd.DataFrame(lines, columns=[head, *columns])


def column_frame(columns: Mapping[str, Mapping[str, str]], *, head: str = "") -> pd.DataFrame:
    """A frame of columns, {column: {row: text}}, with "-" where a column has no text.

    `head` is that of the rows' names.

    Example:
        >>> print(markdown(column_frame({"first": {"x": "1"}, "second": {"x": "2", "y": "3"}})))
        |  | first | second |
        |---|---|---|
        | x | 1 | 2 |
        | y | - | 3 |
    """
    return pd.DataFrame(columns).fillna("-").rename_axis(head).reset_index()


def markdown(frame: pd.DataFrame, best: int | None = None) -> str:
    """A frame of texts as a table in Markdown, with the row of number `best` in bold."""
    lines = [_markdown_line(frame.columns), "|---" * len(frame.columns) + "|"]
    for number, row in enumerate(frame.to_numpy().tolist()):
        cells = [f"**{cell}**" for cell in row] if number == best else row
        lines.append(_markdown_line(cells))
    return "\n".join(lines)


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown_table(
    rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str], *, title: str = "", signed: bool = False
) -> str:
    """A Markdown table of estimates with their intervals, one row per system.

    Args:
        rows: {row: {column: estimate}}.
        columns: which, in order.
        title: head of the first column.
        signed: whether to write the sign of positive values, too, for differences.

    Example:
        >>> print(markdown_table({"VELA - length": {"rel": Interval(0.2, 0.1, 0.3)}}, ["rel"], signed=True))
        |  | rel |
        |---|---|
        | VELA - length | +0.200 [+0.100, +0.300] |
    """
    write = partial(percent, scale=1, digits=3, sign="+" if signed else "")
    return markdown(interval_frame(rows, columns, head=title, write=write))


def milliseconds(seconds: float) -> str:
    """A time as text, three digits.

    Example:
        >>> milliseconds(0.0012345), milliseconds(1.4567)
        ('1.23', '1,457')
    """
    if math.isnan(seconds):
        return "-"
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


def few_images(count: int) -> list[str]:
    """A warning for figures of so few images; none where there are enough.

    Example:
        >>> few_images(1)
        ['Only 1 different image: too few for intervals and p-values to be trusted.']
    """
    if count >= FEW_IMAGES:
        return []
    images = "image" if count == 1 else "images"
    return [f"Only {count} different {images}: too few for intervals and p-values to be trusted."]
