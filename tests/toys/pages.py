"""Reads a page of a report."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """Pictures and texts of a page, which may load nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.texts: list[str] = []
        text = path.read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in text
        assert not re.search(r"https?://(?!www\.w3\.org)|url\(\s*['\"]?(?!#)|@import", text)
        self.plots = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        self.feed(text)
        self.shown = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href", "xlink:href", "srcset"):
            assert values.get(name, "#").startswith(("#", "data:"))
        if tag == "img":
            self.pictures.append(values["src"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())
