"""The docs site: `make docs` writes it to docs/_build/html. Pages in docs/reference are written from the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import reward
from reward.cli.metrics import CHECKPOINT, WHICH, photo_tables
from reward.registry import list_metrics, metric_spec
from reward.report.tables import Table, markdown

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REFERENCE = Path(__file__).parent / "reference"
API = {
    "rewards": ("Rewards and scorers", "reward"),
    "trl": ("Training with TRL", "integrations.trl"),
    "generate": ("Decoding with transformers", "integrations.hf_generate"),
    "scoring": ("Scoring data sets", "reward.scoring"),
    "ray": ("Scoring on a Ray cluster", "integrations.ray_data"),
    "judges": ("Judges", "reward.judges"),
    "preferences": ("Preference pairs", "reward.decoding.preferences"),
    "metaeval": ("Agreement with people", "reward.metaeval"),
    "arena": ("Arenas", "reward.metaeval.arena"),
    "scenes": ("Synthetic scenes", "reward.scenes"),
    "metric": ("A metric of your own", "reward.metrics.base"),
}
FOR_PHOTOS = """
## For photos

What `capreward metrics --for photos` prints; [Photos](../../PHOTOS.md) says which to take. GiB are of the weights as
they are loaded by default. GFLOP are counted for eight captions of one photo, 60 words each, with five references of 30
words where the metric reads them.
"""

project = "capreward"
copyright = "the authors of capreward"
release = reward.__version__
html_title = f"capreward {release}"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
highlight_language = "none"  # of blocks that name none
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # what typer writes of a command starts at the second level
default_role = "code"  # docstrings have single backticks
smartquotes = False  # they make one dash of the two before an option
autodoc_member_order = "bysource"
maximum_signature_line_length = 88


def write_commands(folder: Path) -> None:
    """A page a command, from its own help."""
    asked = [sys.executable, "-m", "typer", "reward.cli.app", "utils", "docs", "--name", "capreward"]
    text = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    whole, *commands = re.split(r"^## `capreward ([\w-]+)`\n", text, flags=re.MULTILINE)
    pages = dict(zip(commands[::2], commands[1::2], strict=True))
    for name, body in pages.items():
        write(folder / f"{name}.md", f"# capreward {name}\n{body}")
    about = whole.partition("**Commands**")[0].partition("\n")[2]
    write(folder / "index.md", f"# Commands\n{about}\n{contents(pages)}")


def write_metrics(folder: Path) -> None:
    """A page a metric, from the registry and its scorer."""
    for name in list_metrics():
        spec = metric_spec(name)
        needs = ["image"] * spec.needs_image + ["references"] * spec.needs_references + ["corpus"] * spec.needs_corpus
        facts = {
            "Aspects": ", ".join(f"`{aspect}`" for aspect in spec.aspects),
            "Needs": ", ".join(needs) or "the caption only",
            "Range": f"{spec.range[0]:g} to {spec.range[1]:g}",
            "Paper": spec.paper,
        }
        listed = "\n".join(f"- {fact}: {value}" for fact, value in facts.items())
        directive = f".. autoclass:: {spec.scorer.replace(':', '.')}\n   :members: from_pretrained, score\n"
        write(folder / f"{name}.md", f"# {name}\n\n{listed}\n\n```{{eval-rst}}\n{directive}```\n")
    which, checkpoints, notes = photo_tables([metric_spec(name) for name in list_metrics()])
    tables = [pd.DataFrame(which, columns=WHICH), pd.DataFrame(checkpoints, columns=CHECKPOINT)]
    for_photos = "\n\n".join([*(markdown(Table("", frame)) for frame in tables), "\n".join(notes)])
    write(folder / "index.md", f"# Metrics by name\n\n{contents(list_metrics())}\n{FOR_PHOTOS}\n{for_photos}\n")


def write_api(folder: Path) -> None:
    """A page a package, from the docstrings of its public names."""
    for name, (title, module) in API.items():
        imported = "   :imported-members:\n" if hasattr(import_module(module), "__all__") else ""
        directive = f".. automodule:: {module}\n   :members:\n{imported}"
        write(folder / f"{name}.md", f"# {title}\n\n```{{eval-rst}}\n{directive}```\n")
    write(folder / "index.md", f"# Python API\n\n{contents(API)}")


def contents(names: dict | list[str]) -> str:
    """A table of contents of pages in the same folder."""
    return "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def write(page: Path, text: str) -> None:
    """Writes a page unless it is so already, so that Sphinx reads only what is new."""
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Brings the pictures of the pages, whose tags Sphinx does not read."""
    if error is None:
        shutil.copytree(Path(app.srcdir) / "images", Path(app.outdir) / "images", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Writes the reference before Sphinx looks for pages."""
    app.connect("build-finished", copy_pictures)
    for name, write_pages in {"api": write_api, "commands": write_commands, "metrics": write_metrics}.items():
        (REFERENCE / name).mkdir(parents=True, exist_ok=True)
        write_pages(REFERENCE / name)
