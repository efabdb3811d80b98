"""What a stage has found, as a file of its own, and the Markdown that all of them make."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Report", "Result", "markdown", "read_result", "write_result"]

DONE, FAILED, MEMORY, TIME, STOPPED = "done", "FAILED", "lacks memory", "no time left", "stopped"


class Report:
    """Filled by a stage while it runs; what it holds is kept also if the stage then fails or is stopped.

    Args:
        save: called after each row.
    """

    def __init__(self, save: Callable[[], None] = lambda: None) -> None:
        self.save = save
        self.tables: dict[str, list[dict[str, str]]] = {}
        self.notes: list[str] = []
        self.faults: list[str] = []

    def row(self, table: str, **cells: object) -> None:
        """Adds a row to a table; underscores of a column's name stand for blanks."""
        row = {name.replace("_", " "): str(cell) for name, cell in cells.items()}
        self.tables.setdefault(table, []).append(row)
        self.save()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def check(self, value: float, bound: float, what: str) -> str:
        """The value as a cell; above the bound, or no number, the stage has failed."""
        if not value <= bound:
            self.faults.append(f"{what}: {value:.2g} is above the bound {bound:g}")
            return f"**{value:.1e}**"
        return f"{value:.1e}"


@dataclass
class Result:
    """How a stage went.

    Args:
        stage: its name.
        status: `"done"`, `"FAILED"`, `"lacks memory"`, `"no time left"`, or `"stopped"` while it runs.
        facts: of the machine, see `card.facts`.
        seconds: that it took.
        note: what failed, or what is to be known.
        tables: {title: rows}.
    """

    stage: str
    status: str
    facts: dict[str, str]
    seconds: float = 0.0
    note: str = ""
    tables: dict[str, list[dict[str, str]]] = field(default_factory=dict)


def write_result(folder: Path, result: Result) -> None:
    """Writes `STAGE.json`, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{result.stage}.json.partial"
    part.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    os.replace(part, folder / f"{result.stage}.json")


def read_result(folder: Path, stage: str) -> Result | None:
    """A stage's result; None if there is none."""
    try:
        return Result(**json.loads((folder / f"{stage}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def markdown(results: Iterable[Result], facts: Mapping[str, str], date: str) -> str:
    """The page to paste: the machine, how each stage went, and the tables; stages may share one."""
    results = list(results)
    lines = [f"# capreward on {facts['card']}", "", f"{date}; `make gpu`.", ""]
    lines += _table([{"": name, "version": value} for name, value in facts.items() if name != "card"])
    stages = [
        {"stage": each.stage, "status": each.status, "seconds": f"{each.seconds:.0f}", "note": each.note}
        for each in results
    ]
    lines += ["## Stages", "", *_table(stages)]
    tables: dict[str, list[dict[str, str]]] = {}
    for each in results:
        for title, rows in each.tables.items():
            tables.setdefault(title, []).extend(rows)
    for title, rows in tables.items():
        lines += [f"## {title}", "", *_table(rows)]
    return "\n".join(lines)


def _table(rows: list[dict[str, str]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([row.get(name, "") for name in columns] for row in rows)]
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]
