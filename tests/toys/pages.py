"""Reads a page of a report, and its JSON."""

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Pictures and texts of a page, which may load nothing."""

    def __init__(self, path):
        super().__init__()
        self.pictures = []
        self.texts = []
        text = path.read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in text
        assert not re.search(r"https?://(?!www\.w3\.org)|url\(\s*['\"]?(?!#)|@import", text)
        self.plots = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        self.feed(text)
        self.shown = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href", "xlink:href", "srcset"):
            assert values.get(name, "#").startswith(("#", "data:"))
        if tag == "img":
            self.pictures.append(values["src"])

    def handle_data(self, data):
        self.texts.append(data.strip())


def rows_of(figures, title=""):
    """{name: row} of the table of a report's JSON whose title begins so."""
    rows = next(table["rows"] for table in figures["tables"] if table["title"].startswith(title))
    return {next(iter(row.values())): row for row in rows}
