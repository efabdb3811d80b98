"""One HTML page that needs no other file and no network: tables, plots and pictures under headings.

The functions escape every text, so that a caption cannot write HTML; what they return is `Markup`, which is not escaped
again.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from reward.data.images import load_image
from reward.data.samples import one_image
from reward.errors import ImageError, InvalidSampleError
from reward.metaeval.bootstrap import Interval
from reward.report.tables import Table, cell_text, short_names

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL import Image

_SIDE = 280  # pixels of a picture on a page


@dataclass(frozen=True)
class Picture:
    """A picture with texts below it.

    Args:
        address: holds all of the picture; None for none.
        caption: below it.
        figures: a short text below the caption.
        problem: why there is no picture; empty if there is one, or none was to be.
    """

    address: str | None
    caption: str
    figures: str = ""
    problem: str = ""


def page(
    title: str,
    sections: Sequence[tuple[str, Markup]],
    *,
    command: str = "",
    warnings: Sequence[str] = (),
    footer: Sequence[str] = (),
) -> str:
    """A page, for light and dark screens.

    Args:
        title: of the page.
        sections: (heading, content) from top to bottom; the heading may be empty.
        command: that made the page, as it was typed.
        warnings: sentences in boxes above the sections.
        footer: short texts at the end.

    Example:
        >>> import pandas as pd
        >>> scores = Table("", pd.DataFrame({"": ["<b>"], "cider": [0.9]}))
        >>> text = page("Two captioners", [("Scores", table(scores))])
        >>> "&lt;b&gt;" in text, "http" in text
        (True, False)
    """
    template = environment().get_template("sections.html.jinja")
    return template.render(title=title, sections=sections, command=command, warnings=warnings, footer=footer)


def table(shown: Table) -> Markup:
    """A table; names of rows and of columns are short, see `short_names`, and the pointer shows them whole."""
    forms = [shown.forms.get(column, shown.form) for column in shown.frame]
    rows = []
    for values in shown.rows():
        rows.append([cell(value, form) for value, form in zip(values, forms, strict=True)])
    heads = short_names([str(head) for head in shown.frame])
    names = short_names([str(row[0]) for row in rows])
    return _part("table", shown, rows, heads, names)


def cell(value: Any, form: str) -> str:
    """A cell of a table, of an estimate with its interval in small."""
    text = cell_text(value, form)
    if not isinstance(value, Interval):
        return text
    number, _, ends = text.partition(" ")
    return Markup('{} <span class="ends">{}</span>').format(number, ends)


def folded(title: str, content: Markup) -> Markup:
    """Something that a click on its title shows."""
    return _part("folded", title, content)


def charts(plots: Mapping[str, Markup]) -> Markup:
    """Plots side by side, {heading: plot}, see `reward.report.plots`."""
    return _part("charts", plots, short_names([*plots]))


def pictures(rows: Sequence[Picture]) -> Markup:
    """Pictures side by side, with their texts; see `read_picture`."""
    return _part("pictures", rows)


def listed(sentences: Sequence[str]) -> Markup:
    """Sentences in a list."""
    return _part("listed", sentences)


def read_picture(image: Any, caption: str, figures: str = "", *, root: Path | None = None) -> Picture:
    """A small copy of an image with texts, or why there is none.

    Args:
        image: as in a cell of a data set; None for no picture.
        caption, figures: texts below it.
        root: where relative paths start.
    """
    if image is None:
        return Picture(None, caption, figures)
    try:
        small = small_picture(one_image(image), root=root)
    except (ImageError, InvalidSampleError) as error:
        return Picture(None, caption, figures, str(error))
    return Picture(data_address(small, "jpeg", quality=85), caption, figures)


def small_picture(image: Any, *, root: Path | None = None) -> Image.Image:
    """A copy of an image as large as a page shows it, in RGB; arguments and errors are those of `load_image`."""
    small = load_image(image, root=root).copy()
    small.thumbnail((_SIDE, _SIDE))
    return small


def data_address(image: Image.Image, kind: str, **options: Any) -> str:
    """The image as an address that holds it, so that a page needs no other file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@cache
def environment(package: str = "reward.report") -> Environment:
    """Jinja's templates of a package, which may extend `page.html.jinja`."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package, ""), PackageLoader("reward.report", "")])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _part(name: str, *content: Any) -> Markup:
    """What a macro of `parts.html.jinja` makes of some content."""
    macros = environment().get_template("parts.html.jinja").module
    return Markup(getattr(macros, name)(*content))
