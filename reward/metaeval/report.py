"""What all reports are made of: tables of texts, plots, plain values for JSON, and pages in Markdown and HTML."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.images import load_image
from reward.data.samples import one_image
from reward.errors import ImageError, InvalidSampleError, OutputError
from reward.metaeval.bootstrap import Interval
from reward.optional import installed_versions
from reward.scoring.writers import refuse_address, write_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL import Image

SIGNIFICANT = 0.05
_SIDE = 280  # pixels of a picture on a page
FEW_IMAGES = 10  # with fewer images, resamples are too similar for intervals to be reliable
_PACKAGES = ("capreward", "numpy", "scipy", "torch", "transformers", "open_clip_torch", "pycocoevalcap")
# The colours of a light page and of files; `page_svg` replaces them by the page's names, which are others in the dark.
INK, SOFT, BEST, PLAIN, BOUND, GOOD = "#1b2330", "#5c6878", "#2f5bea", "#8a94a3", "#b7791f", "#14804a"
_NAMES = {INK: "ink", SOFT: "soft", BEST: "ours", PLAIN: "plain", BOUND: "bound", GOOD: "good"}


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
    """A Markdown table of estimates with their intervals, one row per system.

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


def star(p: float | None) -> str:
    """The mark of a significant difference."""
    return " *" if p is not None and p < SIGNIFICANT else ""


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


def bar_plot(rows: Mapping[str, Interval], *, best: str | None = None, unit: str = "") -> str:
    """Horizontal bars with 95 % intervals, times 100.

    Args:
        rows: {label: estimate}, from top to bottom; an estimate may be NaN.
        best: label of the bar to highlight.
        unit: below the axis.

    Example:
        >>> "<svg" in bar_plot({"vela": Interval(0.5, 0.4, 0.6)}, best="vela")
        True
    """
    figure, axes = blank_figure(0.45 + 0.32 * len(rows) + (0.2 if unit else 0))
    labels = list(rows)
    values = np.array([[100 * each for each in (row.value, row.low, row.high)] for row in rows.values()])
    value, low, high = values.T
    # An estimate may lie outside its percentile interval, but an error bar cannot have a negative length.
    errors = np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)])
    colours = [BEST if label == best else PLAIN for label in labels]
    axes.barh(range(len(labels)), value, xerr=errors, color=colours, ecolor=INK, height=0.6, error_kw={"lw": 1})
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color=SOFT, lw=0.8)
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(unit)
    return page_svg(figure)


def blank_figure(height: float, width: float = 6.4) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes."""
    from matplotlib.figure import Figure  # not pyplot, which looks for a screen

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure, figure.subplots()


def page_svg(figure: Any) -> str:
    """The figure as text, without frames, in the page's font and colours."""
    import matplotlib

    for axes in figure.axes:
        axes.tick_params(colors=INK, labelsize=8, length=0)
        axes.xaxis.label.set(color=SOFT, fontsize=8)
        axes.yaxis.label.set(color=SOFT, fontsize=8)
        axes.spines[:].set_visible(False)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = re.sub(
        r'.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg class="chart" viewBox="\1">', text, count=1, flags=re.S
    )
    for colour, name in _NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def check_report(folder: Path) -> None:
    """Checks, before anything is scored, that a report can be written, as files in a folder or as one file."""
    refuse_address(folder)
    try:
        place = folder.parent if is_file(folder) else folder
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error


def write_pages(
    folder: Path,
    name: str,
    heading: str,
    figures: Mapping[str, Any],
    tables: Sequence[Grid],
    remarks: Sequence[str],
    sections: Sequence[tuple[str, Mapping[str, str]]],
) -> Path:
    """Writes NAME.json, NAME.md and NAME.html, each whole or not at all; gives the path of the HTML page.

    Args:
        folder: of the files; or one of the three by its path, which alone is then written.
        name: of the command.
        heading: of the pages.
        figures: for NAME.json; the pages show their command, versions and seed.
        tables: from top to bottom.
        remarks: below the tables.
        sections: plots of the HTML page, which needs no other file: titles, each with {heading: SVG}.
    """
    texts = {
        "json": json.dumps(figures, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "md": _markdown(heading, figures, tables, remarks),
        "html": page_html(name, heading, figures, tables, remarks, sections),
    }
    if is_file(folder):
        texts = {folder.suffix[1:]: texts[folder.suffix[1:]]}
    for ending, text in texts.items():
        written = folder if is_file(folder) else folder / f"{name}.{ending}"
        write_text(written, text)
    return written


def is_file(path: Path) -> bool:
    """Whether a report is to be one file, and not a folder of them."""
    return path.suffix in (".json", ".md", ".html") and not path.is_dir()


def page_html(
    name: str,
    heading: str,
    figures: Mapping[str, Any],
    tables: Sequence[Grid],
    remarks: Sequence[str],
    sections: Sequence[tuple[str, Mapping[str, str]]],
    galleries: Sequence[Mapping[str, Any]] = (),
    *,
    lead: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> str:
    """The HTML page of `write_pages`, with sentences above it and, below it, galleries.

    Args:
        name, heading, figures, tables, remarks, sections: see `write_pages`.
        galleries: {title, cards [{picture, caption, figures}]}.
        lead, warnings: above the tables.
    """
    above = {"name": name, "heading": heading, "figures": figures, "lead": lead, "warnings": warnings}
    page = page_templates("reward.metaeval").get_template("report.html.jinja")
    return page.render(**above, grids=tables, notes=remarks, sections=sections, galleries=galleries)


def page_templates(package: str) -> Environment:
    """Jinja's templates of a package, which may extend `page.html.jinja` and use `parts.html.jinja`."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(name, "") for name in dict.fromkeys((package, "reward.metaeval"))])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def picture_card(image: Any, caption: str, figures: Sequence[str] = (), *, root: Path | None = None) -> dict[str, Any]:
    """A card of `page_html`'s galleries: a small copy of the image, or why there is none, with text below it.

    Args:
        image: as in a cell of a data set; None for no picture.
        caption: below it.
        figures: short texts below the caption.
        root: where relative paths start.
    """
    picture, notes = None, [*figures]
    if image is not None:
        try:
            shown = load_image(one_image(image), root=root).copy()
            shown.thumbnail((_SIDE, _SIDE))
            picture = data_address(shown, "jpeg", quality=85)
        except (ImageError, InvalidSampleError) as error:
            notes.append(f"no picture: {error}")
    return {"picture": picture, "caption": caption, "figures": " · ".join(notes)}


def data_address(image: Image.Image, kind: str, **options: Any) -> str:
    """The image as an address that holds it, so that a page needs no other file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _markdown(heading: str, figures: Mapping[str, Any], tables: Sequence[Grid], remarks: Sequence[str]) -> str:
    parts = [f"# {heading}", f"`{figures['command']}`"]
    for grid in tables:
        parts += [f"## {grid.title}", grid.markdown()]
    parts.append("\n".join(f"- {remark}" for remark in remarks))
    versions = ", ".join(f"{package} {number}" for package, number in figures["versions"].items())
    return "\n\n".join([*parts, f"Seed {figures['seed']}; {versions}."]) + "\n"
