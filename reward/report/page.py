"""The report of a command, written as JSON, in Markdown, and as an HTML page that needs no other file."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from reward.data.images import load_image
from reward.data.samples import one_image
from reward.errors import ImageError, InvalidSampleError, OutputError
from reward.optional import installed_versions
from reward.report.tables import Grid
from reward.scoring.writers import refuse_address, write_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL import Image

_SIDE = 280  # pixels of a picture on a page
_PACKAGES = ("capreward", "numpy", "scipy", "torch", "transformers", "open_clip_torch", "pycocoevalcap")


@dataclasses.dataclass(frozen=True)
class Card:
    """A picture of a page, with texts below it.

    Args:
        picture: its address, which holds all of it; None for none.
        caption: below it.
        figures: a short text below the caption.
        problem: why there is no picture; empty if there is one, or none was to be.
    """

    picture: str | None
    caption: str
    figures: str
    problem: str = ""


@dataclasses.dataclass
class Report:
    """What a command shows.

    Args:
        name: of the command, and of the files.
        heading: of the pages.
        command: as it was typed.
        figures: all results, for JSON; with `seed` and `resamples`, which pages show, too.
        grids: tables, from top to bottom.
        notes: sentences below the tables.
        page_grids: tables of the pages; empty for the same.
        sections: plots of the HTML page: titles, each with {heading: function that draws a plot}.
        galleries: pictures of the HTML page: {title: cards}.
        lead, warnings: sentences above the tables of the HTML page.
    """

    name: str
    heading: str
    command: str
    figures: Mapping[str, Any]
    grids: Sequence[Grid]
    notes: Sequence[str]
    page_grids: Sequence[Grid] = ()
    sections: Sequence[tuple[str, Mapping[str, Callable[[], str]]]] = ()
    galleries: Mapping[str, Sequence[Card]] = dataclasses.field(default_factory=dict)
    lead: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """All results as plain JSON values, with the command and the versions that made them."""
        return {"command": self.command, "versions": versions(), **plain(self.figures)}

    def markdown(self) -> str:
        """The tables and the notes as a page in Markdown."""
        parts = [f"# {self.heading}", f"`{self.command}`"]
        for grid in self.page_grids or self.grids:
            parts += [f"## {grid.title}", grid.markdown()]
        parts.append("\n".join(f"- {note}" for note in self.notes))
        numbers = ", ".join(f"{package} {number}" for package, number in versions().items())
        parts.append(f"Seed {self.figures['seed']}; {numbers}.")
        return "\n\n".join(parts) + "\n"

    def html(self, *, figures_file: str = "") -> str:
        """All of it as one HTML page, which names the file that holds the figures, if there is one."""
        page = page_templates("reward.report").get_template("report.html.jinja")
        grids = self.page_grids or self.grids
        return page.render(report=self, name=self.name, grids=grids, versions=versions(), figures_file=figures_file)

    def write(self, output: Path) -> Path:
        """Writes NAME.json, NAME.md and NAME.html, each whole or not at all; gives the path of the HTML page.

        Args:
            output: folder of the files; or one of the three by its path, which alone is then written.
        """
        check_report(output)
        if is_file(output):
            files = {output: output.suffix}
        else:
            files = {output / f"{self.name}{ending}": ending for ending in (".json", ".md", ".html")}
        for file, ending in files.items():
            if ending == ".json":
                text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            elif ending == ".md":
                text = self.markdown()
            else:
                text = self.html(figures_file=f"{self.name}.json" if len(files) > 1 else "")
            write_text(file, text)
        return file


def check_report(output: Path) -> None:
    """Checks, before anything is scored, that a report can be written, as files in a folder or as one file."""
    refuse_address(output)
    folder = output.parent if is_file(output) else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error


def is_file(output: Path) -> bool:
    """Whether a report is to be one file, and not a folder of them."""
    return output.suffix in (".json", ".md", ".html") and not output.is_dir()


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that figures may depend on."""
    return installed_versions(_PACKAGES)


def plain(value: Any) -> Any:
    """Plain values for JSON: dataclasses become dicts, and numbers that are not finite None.

    Example:
        >>> plain({"a": [1.5, float("nan")]})
        {'a': [1.5, None]}
    """
    if dataclasses.is_dataclass(value):  # such as an Interval
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def page_templates(package: str) -> Environment:
    """Jinja's templates of a package, which may extend `page.html.jinja` and use `parts.html.jinja`."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(name, "") for name in dict.fromkeys((package, "reward.report"))])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def picture_card(image: Any, caption: str, figures: str = "", *, root: Path | None = None) -> Card:
    """A card with a small copy of an image, or with why there is none.

    Args:
        image: as in a cell of a data set; None for no picture.
        caption, figures: texts below it.
        root: where relative paths start.
    """
    if image is None:
        return Card(None, caption, figures)
    try:
        small = load_image(one_image(image), root=root).copy()
    except (ImageError, InvalidSampleError) as error:
        return Card(None, caption, figures, str(error))
    small.thumbnail((_SIDE, _SIDE))
    return Card(data_address(small, "jpeg", quality=85), caption, figures)


def data_address(image: Image.Image, kind: str, **options: Any) -> str:
    """The image as an address that holds it, so that a page needs no other file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
