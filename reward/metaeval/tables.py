"""Pieces that all reports share: tables of texts, cells in percent, Markdown, plain values for JSON, versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward.metaeval.bootstrap import Interval
from reward.optional import installed_versions

__all__ = [
    "FEW_IMAGES",
    "SIGNIFICANT",
    "Grid",
    "few_images",
    "markdown_table",
    "milliseconds",
    "percent",
    "plain",
    "versions",
]

SIGNIFICANT = 0.05
FEW_IMAGES = 10  # with fewer images, resamples are too much alike for their spread to be trusted
_PACKAGES = ("capreward", "numpy", "scipy", "torch", "transformers", "open_clip_torch", "pycocoevalcap")


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
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: int | None = None

    def markdown(self) -> str:
        """As a Markdown table, without the title."""
        lines = [_line(self.heads), "|---" * len(self.heads) + "|"]
        for number, row in enumerate(self.rows):
            lines.append(_line([f"**{cell}**" for cell in row] if number == self.best else row))
        return "\n".join(lines)


def markdown_table(
    rows: Mapping[str, Mapping[str, Interval]], columns: Sequence[str], *, title: str = "", signed: bool = False
) -> str:
    """A Markdown table of estimates with their intervals, one row a system.

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
    cells = [(name, *(_cell(row[column], signed) for column in columns)) for name, row in rows.items()]
    return Grid("", (title, *columns), tuple(cells)).markdown()


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
    value, low, high = (f"{scale * each:{sign}.{digits}f}" for each in (interval.value, interval.low, interval.high))
    return value if math.isnan(interval.low) else f"{value} [{low}, {high}]"


def few_images(count: int) -> str:
    """A warning for figures of so few images.

    Example:
        >>> few_images(1)
        'Only 1 different image: too few for intervals and p-values to be trusted.'
    """
    return f"Only {count} different image{'s' * (count != 1)}: too few for intervals and p-values to be trusted."


def milliseconds(seconds: float) -> str:
    """A time as text, three digits.

    Example:
        >>> milliseconds(0.0012345), milliseconds(1.4567)
        ('1.23', '1,457')
    """
    if math.isnan(seconds):
        return "-"
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that figures may depend on."""
    return installed_versions(_PACKAGES)


def plain(value: Any) -> Any:
    """Plain values for JSON; numbers that are not finite become None.

    Example:
        >>> plain({"a": [1.5, float("nan")]})
        {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Interval):
        return {"value": plain(value.value), "low": plain(value.low), "high": plain(value.high)}
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(interval: Interval, signed: bool) -> str:
    if not signed:
        return str(interval)
    text = f"+{interval}" if interval.value > 0 else str(interval)
    return f"**{text}**" if interval.excludes_zero else text
