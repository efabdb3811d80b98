"""Estimates with their intervals as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reward.metaeval.intervals import Interval

__all__ = ["markdown_table"]


def markdown_table(
    rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str], *, title: str = "", signed: bool = False
) -> str:
    """A Markdown table with one row a system.

    Args:
        rows: {row: {column: estimate}}.
        columns: which, in order.
        title: head of the first column.
        signed: for differences: write the sign, and set in bold what excludes 0.

    Example:
        >>> print(markdown_table({"VELA - length": {"rel": Interval(0.2, 0.1, 0.3)}}, ["rel"], signed=True))
        |  | rel |
        |---|---|
        | VELA - length | **+0.200 [0.100, 0.300]** |
    """
    lines = [f"| {' | '.join([title, *columns])} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {' | '.join([name, *(_cell(row[column], signed) for column in columns)])} |")
    return "\n".join(lines)


def _cell(interval: Interval, signed: bool) -> str:
    if not signed:
        return str(interval)
    text = f"+{interval}" if interval.value > 0 else str(interval)
    return f"**{text}**" if interval.excludes_zero else text
