"""How commands print: lines and tables uncut, without control characters of others; and what they say at the end."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

    from reward.judges import Usage
    from reward.scoring.summary import Distribution, ScoringSummary

# Control characters but line breaks and tabs, and the marks that turn the direction of writing: with them the content
# of a file or the answer of a server could move the cursor, set colours, or show other text than it holds.
_STEERING = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _STEERING}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING}
_ROWS_SHOWN = 20
_WIDTH = 60  # characters of a cell, at most


def printable(text: str) -> str:
    r"""A text with escape sequences and the like made visible.

    Example:
        >>> print(printable("\x1b[2Jgone"))
        \x1b[2Jgone
    """
    return text.translate(_VISIBLE)


def console(*, stderr: bool) -> Any:
    """Where texts of files, servers and models are printed: `printable`, lines uncut."""
    from rich.console import Console

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    # Names of models and columns may hold brackets and colons, which are not ours to read as markup or emoji.
    return PlainConsole(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON value on stdout, in ASCII where the terminal has no Unicode."""
    import json

    has_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=not has_unicode, allow_nan=False).translate(_IN_JSON))


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Prints warnings as `warning: ...`, without the place in the code that they come from."""

    def show(message: Warning | str, *details: Any, **keywords: Any) -> None:
        print(f"warning: {printable(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["capreward", *sys.argv[1:]])


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    best: int | None = None,
    best_of: Mapping[str, int] | None = None,
    stderr: bool = False,
) -> None:
    """A table on stdout or `stderr`, never cut: columns that do not fit into a terminal come in tables below the first.

    In a file or a pipe, which have no width, it is one table. Row `best` and the cells of `best_of` are bold, see
    `reward.report.tables.Table`.
    """
    from rich.table import Table
    from rich.text import Text

    numbers = best_of or {}

    out = console(stderr=stderr)
    for number, columns in enumerate(_blocks(heads, rows, out.width if out.is_terminal else None)):
        named = f"{title}, continued" if title and number else title
        table = Table(title=named or None, title_justify="left")
        for column in columns:
            table.add_column(heads[column], justify="right" if column else "left", no_wrap=True)
        for index, row in enumerate(rows):
            cells: list[Any] = [row[column] for column in columns]
            for position, column in enumerate(columns):
                if numbers.get(heads[column]) == index:
                    cells[position] = Text(printable(row[column]), style="bold")
            table.add_row(*cells, style="bold" if index == best else None)
        # In a pipe rich assumes 80 columns; a column that alone is wider than the terminal is not to be cut either.
        out.width = max(out.width, out.measure(table, options=out.options.update(width=10_000)).maximum)
        out.print(table)


def _blocks(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[list[int]]:
    """Numbers of the columns of each table: the first column, and as many more as fit, at least one."""
    from rich.cells import cell_len

    wide = [3 + max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]  # with border and padding
    # Each block begins with the first column, the names of the rows, and takes a second one however wide that is: a
    # terminal too narrow for two columns breaks lines, and loses nothing.
    blocks, left = [[0]], 0
    for number in range(1, len(heads)):
        if width is not None and len(blocks[-1]) > 1 and wide[number] > left:
            blocks.append([0])
        if len(blocks[-1]) == 1:
            left = (width or 0) - 1 - wide[0]
        blocks[-1].append(number)
        left -= wide[number]
    return blocks


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Sends to stderr what libraries print, such as those that announce what they do."""
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        yield


def print_summary(summary: ScoringSummary, *, quiet: bool, verb: str, shows_rows: bool = False) -> None:
    """Prints what a scoring run did, and exits with 1 if no caption has a score.

    Args:
        summary: of the run.
        quiet: print only what went wrong.
        verb: "scored" or "reranked".
        shows_rows: print the first rows on stdout.
    """
    out = console(stderr=True)
    if shows_rows and summary.scored and not quiet:
        _print_rows(summary)
    if summary.already_done:
        print_done(summary.output, "input and settings", "scored")
    if not quiet:
        columns = ", ".join(f"{role} = {column}" for role, column in summary.columns.items() if column)
        line = f"columns read: {columns}; {summary.rows} rows"
        if summary.columns.get("image") and summary.image_root is not None:
            line += f"; image paths start at {os.path.abspath(summary.output.parent / summary.image_root)}"
        out.print(line)
        _print_distributions(summary)
    for kind, count in summary.errors.items():
        fault = "scored, but without a text" if kind == "text" else f"not scored ({kind})"
        out.print(f"{count} {fault}; the first is {summary.examples[kind]}", style="yellow")
    if not quiet:
        _print_remarks(summary)
        out.print(f"{_work_done(summary, verb)} -> {summary.output}", style="green")
    if not summary.scored:
        out.print("error: no caption could be scored", style="red")
        sys.exit(1)


def print_done(output: Path, same: str, work: str) -> None:
    """Says that there was nothing to do."""
    console(stderr=True).print(
        f"{output} is complete already, from the same {same}; nothing was {work} again (--overwrite does).",
        style="yellow",
    )


def _print_rows(summary: ScoringSummary) -> None:
    """The first rows of the output: image, caption and numbers; of a list of candidates the best."""
    from itertools import islice

    from reward.data.column_names import column_names
    from reward.scoring.readers import open_source

    reader = open_source(summary.output)
    # The picture, the caption, then scores in the order of the file; the columns of the input that nobody scored stay
    # out, and the errors too if the rows that are shown have none.
    image_names = [name for name in (summary.columns.get("image"), *column_names("image")) if name in reader.columns]
    caption = "best" if "best" in reader.columns else summary.columns["candidate"]
    heads = [name for name in (*image_names[:1], caption) if name is not None]
    scores = _without_copies(summary.distributions)
    for name in reader.columns:
        if name.endswith(tuple(scores)) or (name == "rewards" and "reward" in scores):
            heads.append(name)
    columns = [*heads, "error"] if "error" in reader.columns else heads
    records = [row for row in islice(reader.rows(columns), _ROWS_SHOWN) if isinstance(row, dict)]
    if any(row.get("error") for row in records):
        heads = columns
    rows = []
    for record in records:
        rows.append([_in_short(record.get(head)) for head in heads])
    title = summary.output.name
    count = summary.rows if summary.selected is None else summary.selected
    if count > len(rows):
        title += f", the first {len(rows)} of {count} rows"
    print_table(heads, rows, title=title)


def _in_short(cell: Any) -> str:
    """A cell in a line: of a list the first, of an image its path."""
    if isinstance(cell, list):
        cell = cell[0] if cell else None
    if isinstance(cell, dict):
        cell = cell.get("path")
    if cell is None:
        return ""
    text = f"{cell:.4g}" if isinstance(cell, float) else " ".join(str(cell).split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _without_copies(distributions: Mapping[str, Distribution]) -> dict[str, Distribution]:
    """The distributions without rewards that are the same as an aspect: as of a metric with one aspect."""
    distinct: dict[str, Distribution] = {}
    for name, spread in distributions.items():
        is_copy = name.endswith("reward") and spread in distinct.values()
        if not is_copy:
            distinct[name] = spread
    return distinct


def _print_distributions(summary: ScoringSummary) -> None:
    rows = []
    for name, spread in _without_copies(summary.distributions).items():
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        rows.append([name, *(f"{number:.4g}" for number in numbers)])
    if rows:
        heads = ("", "mean", "std", "min", "max")
        print_table(heads, rows, title=f"{summary.captions} captions", stderr=True)


def _print_remarks(summary: ScoringSummary) -> None:
    """What a reader must know of the scores."""
    out = console(stderr=True)
    if 1 < summary.groups == summary.rows:
        out.print(
            f"no two rows share a value of {summary.columns['group']}, so that nothing was compared; name the column "
            "that the candidates of one image share with --group-column",
            style="yellow",
        )
    if summary.readings:
        ways = ", ".join(f"{count:,} by {way}" for way, count in summary.readings.items())
        out.print(f"answers of judges read: {ways}")
    if summary.truncated:
        out.print(f"{summary.truncated} captions had text cut to fit the model")
    if summary.thinking_cut:
        out.print(f"reasoning or marks (<think>, <answer>, ...) were cut from {summary.thinking_cut} captions")
    if summary.distinct:
        out.print(f"distinct among the candidates of a row: {summary.distinct} of {summary.captions}")
    if summary.selected is not None:
        out.print(f"{summary.selected} of {summary.rows} rows were selected and written")


def _work_done(summary: ScoringSummary, verb: str) -> str:
    """How many rows were scored, by what, and how fast."""
    from reward.scoring.summary import metric_label

    line = f"{verb} {summary.rows} rows"
    if summary.groups:
        line += f" in {summary.groups} groups"
    if summary.resumed_rows:
        line += f" ({summary.resumed_rows} of them by an earlier run)"
    if summary.devices:
        line += f" by {len(summary.devices)} processes ({', '.join(summary.devices)})"
    if summary.new_rows and not summary.already_done:
        line += f", {summary.rows_per_second:,.1f} rows/s"
    if summary.images_decoded:
        line += f", {summary.images_decoded} images decoded"
    metrics = [metric_label(metric, checkpoint) for metric, checkpoint in summary.checkpoints.items()]
    if metrics:
        line += f", metric {', '.join(metrics)}"
    return line


def print_usage(usages: Sequence[Usage], *, by: str = "judge", quiet: bool) -> None:
    """Says what models that were asked have done together, and what it cost; nothing if none was asked."""
    if quiet or not usages:
        return
    # Several metrics may ask one server each; the user pays one bill.
    total = type(usages[0])(*map(sum, zip(*map(astuple, usages), strict=True)))
    if total.answered + total.cached == 0:
        return
    line = f"{total.answered:,} questions answered by the {by}"
    if total.cached:
        line += f", {total.cached:,} known already"
    line += f"; {total.input_tokens:,} tokens read, {total.output_tokens:,} written"
    if total.cost:
        line += f"; cost {total.cost:.4f}"
    console(stderr=True).print(line)
