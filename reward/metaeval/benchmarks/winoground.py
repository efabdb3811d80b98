"""Winoground: two images and two captions of the same words in another order, to be told apart both ways."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, Quadruple
from reward.metaeval.benchmarks.records import MissingFileError, Record, find_file, read_lines
from reward.samples import ImageLike

__all__ = ["SPECS"]

EXAMPLES = "examples.jsonl"
_IMAGES = ("image_0", "image_1")
SUFFIX = ".png"  # of the images, which the published file names without it


def _load(path: Path, part: str, images: Path | None) -> Iterator[Item]:
    """Reads the published examples; the category is the collapsed tag (Object, Relation, Both) if there is one."""
    path = find_file(path, EXAMPLES, f"data/{EXAMPLES}")
    image = _images_of(path, images)
    for row in read_lines(path):
        yield _quadruple(row, [image(row.text(name)) for name in _IMAGES])


def _quadruple(row: Record, images: Sequence[ImageLike]) -> Quadruple:
    tag = row.values.get("collapsed_tag") or row.values.get("tag") or ""
    if not isinstance(tag, str):
        raise row.error("tag", "text", tag)
    return Quadruple(
        images=(images[0], images[1]),
        captions=(row.text("caption_0"), row.text("caption_1")),
        image_id=str(row.values.get("id", row.where)),
        category=tag,
    )


def _images_of(path: Path, images: Path | None) -> Callable[[str], ImageLike]:
    """A function from the name of an image in the examples to its path or bytes."""
    if images is not None:
        return lambda name: images / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    packed = path.parent / "images.zip"
    if not packed.is_file():
        raise MissingFileError(f"{path.parent} holds no images.zip")
    try:
        archive = zipfile.ZipFile(packed)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{packed} cannot be read: {error}") from error
    members = {Path(name).name: name for name in archive.namelist()}

    def unpacked(name: str) -> bytes:
        member = members.get(f"{name.removesuffix(SUFFIX)}{SUFFIX}")
        if member is None:
            raise DataError(f"{packed} holds no image {name}{SUFFIX}")
        try:
            return archive.read(member)
        # RuntimeError: protected by a password; NotImplementedError (a kind of it): another compression method
        except (zipfile.BadZipFile, OSError, RuntimeError) as error:
            raise DataError(f"{packed}: {member} cannot be read: {error}") from error

    return unpacked


SPECS = (
    BenchmarkSpec(
        name="winoground",
        title="Winoground",
        form=Quadruple,
        statistic="group",
        load=_load,
        ties="wrong",
        files=f"{EXAMPLES} with image_0, image_1, caption_0, caption_1 and tag per line, or a folder that holds it "
        "(also in data/), and beside it images.zip, unless --images (images=) names a folder; or a .jsonl file with "
        "images and captions, two each, per line",
        origin="facebook/winoground on the Hub, whose terms have to be accepted there first (Thrush and others 2022)",
        licence="Meta Images Research License, say those who hold it: for evaluation only, not to be passed on; its "
        "text is license_agreement.txt in the repository",
        hub="facebook/winoground",
        hub_files=("data/*",),
    ),
)
