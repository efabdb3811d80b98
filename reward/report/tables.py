"""Tables of texts, as data frames whose first column names the rows, and how numbers are written in them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from reward.metaeval.bootstrap import Interval

SIGNIFICANT = 0.05
# The folders of a path, alone or behind "metric="; one folder alone may be the owner of a checkpoint on the Hub.
_FOLDERS = re.compile(r"(?:^|(?<==))(?:/|[^/\s:=]+/[^/\s=]+/)(?:[^/\s=]+/)*(?=[^/\s=]+/?(?:$| \())")
# As `percent` writes an estimate with its interval.
_ESTIMATE = r"^(\S+) \[(\S+), (\S+)\]$"
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
        frame: texts; the first column names the rows.
        best: number of the row in bold; None for none.
        best_of: {column: number of the row whose cell of that column is bold}.
    """

    title: str
    frame: pd.DataFrame
    best: int | None = None
    best_of: Mapping[str, int] = field(default_factory=dict)

    def marked(self, mark: Callable[[str], str], write: Callable[[str], str] = str) -> list[list[str]]:
        """The cells of each row as `write` writes them, with `mark` around those that are bold."""
        rows = []
        for number, texts in enumerate(self.frame.to_numpy().tolist()):
            row = []
            for column, text in zip(self.frame, texts, strict=True):
                is_best = number in (self.best, self.best_of.get(column))
                row.append(mark(write(text)) if is_best else write(text))
            rows.append(row)
        return rows


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
        >>> print(markdown(Table("", column_frame({"first": {"x": "1"}, "second": {"x": "2", "y": "3"}}))))
        |  | first | second |
        |---|---|---|
        | x | 1 | 2 |
        | y | - | 3 |
    """
    return pd.DataFrame(columns).fillna("-").rename_axis(head).reset_index()


def markdown(table: Table) -> str:
    """A table in Markdown, without its title."""
    rows = [list(table.frame), *table.marked("**{}**".format)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|---" * len(table.frame.columns) + "|")
    return "\n".join(lines)


def latex(table: Table) -> str:
    r"""A table in LaTeX, for its package booktabs, with the title as a comment.

    Example:
        >>> print(latex(Table("Scores", pd.DataFrame({"": ["a_1", "b"], "CIDEr": ["0.9", "-0.1"]}), best=0)))
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
    head, *rows = [list(map(_latex_text, table.frame)), *table.marked(r"\textbf{{{}}}".format, _latex_text)]
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
        >>> print(csv([Table("Scores", interval_frame({"a": {"tau": Interval(0.5, 0.4, 0.6)}}, ["tau"]))]), end="")
        ,tau,tau low,tau high
        a,50.0,40.0,60.0
    """
    first = tables[0].frame
    names = first.iloc[:, 0]
    columns = {first.columns[0]: names}
    for table in tables:
        if not table.frame.iloc[:, 0].equals(names):
            continue
        for head in table.frame.columns[1:]:
            name = head if table is tables[0] else f"{table.title}: {head}"
            texts = table.frame[head].replace("-", "")
            parts = texts.str.extract(_ESTIMATE)
            columns[name] = texts.where(parts[0].isna(), parts[0])
            if parts[0].notna().any():
                columns |= {f"{name} low": parts[1], f"{name} high": parts[2]}
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")


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
    return markdown(Table("", interval_frame(rows, columns, head=title, write=write)))


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
