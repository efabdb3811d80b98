"""What HTML pages that need no other file and no network are made of: pictures, cells and templates."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from reward.data.images import load_image
from reward.data.samples import one_image
from reward.errors import ImageError, InvalidSampleError
from reward.metaeval.bootstrap import Interval
from reward.report.tables import cell_text, short_names

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


def html_cell(value: Any, form: str) -> str:
    """A cell of a table, of an estimate with its interval in small."""
    text = cell_text(value, form)
    if not isinstance(value, Interval):
        return text
    number, _, ends = text.partition(" ")
    return Markup('{} <span class="ends">{}</span>').format(number, ends)


@cache
def environment(package: str = "reward.report") -> Environment:
    """Jinja's templates of a package, which may extend `page.html.jinja` and import `parts.html.jinja`.

    They escape every text, so that a caption cannot write HTML.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package, ""), PackageLoader("reward.report", "")])
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.globals |= {"cell": html_cell, "short_names": short_names}
    return templates
