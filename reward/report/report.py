"""The report of a command, written as JSON, in Markdown, and as an HTML page."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from markupsafe import Markup

from reward.errors import OutputError
from reward.optional import installed_versions
from reward.report.page import Picture, environment
from reward.report.tables import Table, csv, latex, markdown
from reward.scoring.writers import refuse_address, write_text

_PACKAGES = ("capreward", "numpy", "scipy", "torch", "transformers", "open_clip_torch", "pycocoevalcap")
_ENDINGS = (".json", ".md", ".html", ".tex", ".csv")


@dataclasses.dataclass
class Report:
    """What a command shows.

    Args:
        name: of the command, and of the files.
        heading: of the pages.
        command: as it was typed.
        figures: further ones for JSON; with `seed` and `resamples`, which pages show, too.
        tables: from top to bottom; JSON has their values.
        notes: sentences below the tables.
        plots: of the HTML page: titles, each with {heading: function that draws a plot}; drawing takes a while.
        galleries: pictures of the HTML page: {title: pictures}.
        warnings: sentences above the tables of the HTML page.
    """

    name: str
    heading: str
    command: str
    figures: Mapping[str, Any]
    tables: Sequence[Table]
    notes: Sequence[str]
    plots: Sequence[tuple[str, Mapping[str, Callable[[], Markup]]]] = ()
    galleries: Mapping[str, Sequence[Picture]] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: the command, the versions that made the figures, and each row of the tables by column.

        An estimate is a dict of value, low and high; of a column without a head the name is "name".
        """
        tables = []
        for shown in self.tables:
            heads = [head or "name" for head in shown.frame]
            rows = [dict(zip(heads, row, strict=True)) for row in shown.rows()]
            tables.append({"title": shown.title, "rows": rows})
        values = {"command": self.command, "versions": installed_versions(_PACKAGES), **self.figures}
        figures: dict[str, Any] = plain_values({**values, "tables": tables, "notes": self.notes})
        return figures

    def markdown(self) -> str:
        """The tables and the notes as a page in Markdown."""
        parts = [f"# {self.heading}", f"`{self.command}`"]
        for shown in self.tables:
            parts += [f"## {shown.title}", markdown(shown)]
        parts.append("\n".join(f"- {note}" for note in self.notes))
        parts.append(" · ".join(self._origin()))
        return "\n\n".join(parts) + "\n"

    def html(self, *, figures_file: str = "") -> str:
        """All of it as one HTML page, which names the file that holds the figures, if there is one."""
        footer = self._origin()
        if figures_file:
            footer.append(f"all figures: {figures_file}")
        return environment().get_template("report.html.jinja").render(title=self.heading, report=self, footer=footer)

    def _origin(self) -> list[str]:
        """What figures may depend on: versions, seed and resamples."""
        origin = [f"{package} {number}" for package, number in installed_versions(_PACKAGES).items()]
        if "seed" in self.figures:
            origin += [f"seed {self.figures['seed']}", f"{self.figures['resamples']} resamples"]
        return origin

    def write(self, output: Path) -> Path:
        """Writes NAME.json, NAME.md and NAME.html, each whole or not at all; gives the path of the last file.

        Args:
            output: folder of the files; or one file, which alone is then written: one of the three, or the tables in
                LaTeX (.tex) or as CSV (.csv), see `reward.report.tables`.
        """
        check_report(output)
        if is_file(output):
            files = {output: output.suffix.lower()}
        else:
            files = {output / f"{self.name}{ending}": ending for ending in (".json", ".md", ".html")}
        for file, ending in files.items():
            if ending == ".json":
                text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            elif ending == ".md":
                text = self.markdown()
            elif ending == ".tex":
                text = "\n\n".join([f"% {' '.join(self.command.split())}", *map(latex, self.tables)]) + "\n"
            elif ending == ".csv":
                text = csv(self.tables)
            else:
                text = self.html(figures_file=f"{self.name}.json" if len(files) > 1 else "")
            write_text(file, text)
        return file


def check_report(output: Path, inputs: Iterable[str | os.PathLike[str] | None] = ()) -> None:
    """Checks, before anything is scored, that a report can be written, as files in a folder or as one file.

    Args:
        output: the folder or file.
        inputs: what is read; a report would take its place, so `output` must be none of these.

    Raises:
        OutputError: it cannot be written, is an input, or is a file that no report was written to.
    """
    refuse_address(output)
    for path in inputs:
        if path is not None and is_file(output) and output.exists() and output.resolve() == Path(path).resolve():
            raise OutputError(f"output {output} is what is read; name another file")
    # A report may take the place of an older one, which names its command. A .csv does not say whose it is.
    says_whose = is_file(output) and output.exists() and output.suffix.lower() != ".csv"
    if says_whose and "capreward" not in output.read_text(encoding="utf-8", errors="replace"):
        raise OutputError(f"output {output} is there already, and is no report of capreward; name another file")
    # Another ending is a form that nobody writes; `runs/vela-1.0` is a folder.
    if output.suffix[1:].isalpha() and not is_file(output) and not output.is_dir():
        raise OutputError(f"output {output} must end in {', '.join(_ENDINGS)}, or be a folder")
    folder = output.parent if is_file(output) else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error


def is_file(output: Path) -> bool:
    """Whether a report is to be one file, and not a folder of them."""
    return output.suffix.lower() in _ENDINGS and not output.is_dir()


def plain_values(value: Any) -> Any:
    """Plain values for JSON: dataclasses become dicts, and numbers that are not finite None.

    Example:
        >>> plain_values({"a": [1.5, float("nan")]})
        {'a': [1.5, None]}
    """
    # Not `dataclasses.asdict`, which would copy what is inside and leave its NaN.
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): plain_values(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
