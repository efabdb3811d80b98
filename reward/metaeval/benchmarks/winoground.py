"""Winoground: two images and two captions of the same words in another order, to be told apart both ways."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.items import Entry
from reward.metaeval.benchmarks.jsonl import read_lines

EXAMPLES, HUB = "examples.jsonl", "facebook/winoground"


def load(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Reads the published examples; the category is the collapsed tag (Object, Relation, Both) if there is one."""
    if data == HUB:
        from huggingface_hub import snapshot_download

        data = snapshot_download(HUB, repo_type="dataset", allow_patterns=["data/*"])
    path = find_file(data, EXAMPLES)
    image = _packed(find_file(path.parent, "images.zip")) if images is None else (lambda name: name)
    for where, row in read_lines(path):
        yield {
            "images": [image(f"{row[name].removesuffix('.png')}.png") for name in ("image_0", "image_1")],
            "captions": [row["caption_0"], row["caption_1"]],
            "image_id": str(row.get("id", where)),
            "category": row.get("collapsed_tag") or row.get("tag"),
        }


def _packed(path: Path) -> Callable[[str], Any]:
    """A function from the file name of an image to its bytes in an archive."""
    archive = zipfile.ZipFile(path)
    members = {Path(name).name: name for name in archive.namelist()}
    return lambda name: archive.read(members[name])
