"""The launch commands and plugins of `docs/FRAMEWORKS.md`, for the tests that run them in real engines."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def snippet(title, language):
    """The last block of a language below a heading of the page."""
    page = (ROOT / "docs" / "FRAMEWORKS.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return str(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1])


def launch(title):
    """The launch command below a heading, without line breaks."""
    return snippet(title, "bash").replace("\\\n", " ").strip()
