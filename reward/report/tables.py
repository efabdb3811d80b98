"""Tables of values, as data frames whose first column names the rows, and how their cells are written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reward.metaeval.bootstrap import Interval

# The folders of a path, alone or behind "metric="; one folder alone may be the owner of a checkpoint on the Hub.
_FOLDERS = re.compile(r"(?:^|(?<==))(?:/|[^/\s:=]+/[^/\s=]+/)(?:[^/\s=]+/)*(?=[^/\s=]+/?(?:$| \())")
# What LaTeX takes for commands, or shows as other signs.
_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
)
FEW_IMAGES = 10  # with fewer images, resamples are too similar for intervals to be reliable


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Args:
        title: shown above it.
        frame: texts, numbers, estimates and None; the first column names the rows.
        best: number of the row in bold; None for none.
        best_of: {column: number of the row whose cell of that column is bold}.
        form: of numbers that are not whole, as Python's format specifications have it.
        forms: {column: form}, of columns with another one.
    """

    title: str
    frame: pd.DataFrame
    best: int | None = None
    best_of: Mapping[str, int] = field(default_factory=dict)
    form: str = ".1f"
    forms: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[list[Any]]:
        """The values of each row."""
        rows: list[list[Any]] = self.frame.astype(object).to_numpy().tolist()
        return rows

    def texts(self, bold: str = "{}", write: Callable[[str], str] = str) -> list[list[str]]:
        """The cells of each row as `write` writes their texts, those that are bold in `bold`, a format."""
        written = []
        for number, row in enumerate(self.rows()):
            cells = []
            for column, value in zip(self.frame, row, strict=True):
                text = write(cell_text(value, self.forms.get(column, self.form)))
                is_best = number in (self.best, self.best_of.get(column))
                cells.append(bold.format(text) if is_best else text)
            written.append(cells)
        return written


def cell_text(value: Any, form: str = ".1f") -> str:
    """A cell as it is shown; nothing and NaN are "-".

    Example:
        >>> cell_text(Interval(52.98, 52, 54.1)), cell_text(0.5, "+.3f"), cell_text(1200), cell_text(None)
        ('53.0 [52.0, 54.1]', '+0.500', '1,200', '-')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Interval):
        number = cell_text(value.value, form)
        if math.isnan(value.value) or math.isnan(value.low):
            return number
        return f"{number} [{value.low:{form}}, {value.high:{form}}]"
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:{form}}"


def percent(interval: Interval | None) -> Interval | None:
    """An estimate times 100, as papers give it."""
    if interval is None:
        return None
    return Interval(100 * interval.value, 100 * interval.low, 100 * interval.high)


def milliseconds(seconds: float) -> float:
    """A time with three digits, for a column of the form ",g".

    Example:
        >>> milliseconds(0.0012345), milliseconds(1.4567)
        (1.23, 1460.0)
    """
    return float(f"{1000 * seconds:.3g}")


def frame_of_rows(rows: Mapping[str, Mapping[str, Any]], *, head: str = "") -> pd.DataFrame:
    """The frame of {row: {column: value}}, with None where a row has no value; `head` is that of the rows' names.

    Example:
        >>> print(markdown(Table("", frame_of_rows({"x": {"first": 1}, "y": {"first": 2, "second": 0.5}}))))
        |  | first | second |
        |---|---|---|
        | x | 1 | - |
        | y | 2 | 0.5 |
    """
    columns = dict.fromkeys(column for row in rows.values() for column in row)
    lines = []
    for name, row in rows.items():
        lines.append([name, *(row.get(column) for column in columns)])
    return pd.DataFrame(lines, columns=[head, *columns], dtype=object)


def short_names(names: Sequence[str]) -> list[str]:
    """Names of rows with file names in place of paths, as far as they stay different.

    Example:
        >>> short_names(["/home/me/runs/best", "clipscore=/data/clip", "/home/me/my.py:f", "vela=owner/name"])
        ['best', 'clipscore=clip', 'my.py:f', 'vela=owner/name']
        >>> short_names(["/runs/1/best", "/runs/2/best", "judge=http://host/v1/#model"])
        ['/runs/1/best', '/runs/2/best', 'judge=http://host/v1/#model']
    """
    short = [_FOLDERS.sub("", name) for name in names]
    return [name if short.count(last) > 1 else last for name, last in zip(names, short, strict=True)]


def markdown(table: Table) -> str:
    """A table in Markdown, without its title."""
    rows = [list(table.frame), *table.texts("**{}**")]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|---" * len(table.frame.columns) + "|")
    return "\n".join(lines)


def latex(table: Table) -> str:
    r"""A table in LaTeX, for its package booktabs, with the title as a comment.

    Example:
        >>> print(latex(Table("Scores", pd.DataFrame({"": ["a_1", "b"], "CIDEr": [0.9, -0.1]}), best=0)))
        % Scores
        \begin{tabular}{lr}
        \toprule
         & CIDEr \\
        \midrule
        \textbf{a\_1} & \textbf{0.9} \\
        b & $-$0.1 \\
        \bottomrule
        \end{tabular}
    """
    head, *rows = [list(map(_latex_text, table.frame)), *table.texts(r"\textbf{{{}}}", _latex_text)]
    lines = [f"% {' '.join(table.title.split())}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    lines += [" & ".join(head) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _latex_text(text: str) -> str:
    """A text in which no character is a command, with signs of numbers as minus signs."""
    escaped = " ".join(text.split()).translate(_LATEX)
    if escaped.startswith("["):
        escaped = "{}" + escaped  # a bracket at the begin of a row would be an option of the end of the last one
    return re.sub(r"(?<![\w.-])-(?=[\d.])", "$-$", escaped)


def csv(tables: Sequence[Table]) -> str:
    """The first table as CSV, beside it those with the same rows; an estimate is three columns: it, low and high.

    Example:
        >>> print(csv([Table("Scores", frame_of_rows({"a": {"tau": Interval(0.5, 0.4, 0.6)}}))]), end="")
        ,tau,tau low,tau high
        a,0.5,0.4,0.6
    """
    first = tables[0].frame
    names = first.iloc[:, 0]
    columns: dict[str, Any] = {first.columns[0]: names}
    for table in tables:
        if not table.frame.iloc[:, 0].equals(names):
            continue
        for head, values in list(table.frame.items())[1:]:
            name = head if table is tables[0] else f"{table.title}: {head}"
            is_estimate = values.map(lambda value: isinstance(value, Interval))
            if not is_estimate.any():
                columns[name] = values
                continue
            estimates = values.where(is_estimate, Interval(math.nan, math.nan, math.nan))
            columns[name] = [estimate.value for estimate in estimates]
            columns[f"{name} low"] = [estimate.low for estimate in estimates]
            columns[f"{name} high"] = [estimate.high for estimate in estimates]
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")


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
