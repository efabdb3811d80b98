"""How commands print: lines and tables uncut, and without control characters that a file or a server sent."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

# Control characters but line breaks and tabs, and the marks that turn the direction of writing: with them the content
# of a file or the answer of a server could move the cursor, set colours, or show other text than it holds.
_STEERING = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _STEERING}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING}


def plain(text: str) -> str:
    r"""A text with escape sequences and the like made visible.

    Example:
        >>> print(plain("\x1b[2Jgone"))
        \x1b[2Jgone
    """
    return text.translate(_VISIBLE)


def console(*, stderr: bool) -> Any:
    """Where texts of files, servers and models are printed: `plain`, lines uncut."""
    from rich.console import Console

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain(text), **options)

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
        print(f"warning: {plain(str(message))}", file=sys.stderr)

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
                    cells[position] = Text(plain(row[column]), style="bold")
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
