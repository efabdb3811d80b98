"""Winoground: two images and two captions of the same words in another order, to be told apart both ways."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError, find_file, take
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, Quadruple
from reward.metaeval.benchmarks.jsonl import in_common_form, is_jsonl, read_common, read_lines
from reward.metaeval.benchmarks.tables import read_file
from reward.samples import ImageLike

__all__ = ["SPECS"]

EXAMPLES = "examples.jsonl"
SUFFIX = ".png"  # of the images, which the published file names without it


def _load(path: Path, part: str, images: Path | None) -> Iterator[Item]:
    """Reads the published examples; the category is the collapsed tag (Object, Relation, Both) if there is one."""
    if path.is_dir():
        tables = sorted([*path.glob("*.parquet"), *path.glob("data/*.parquet")])
        path = tables[0] if len(tables) == 1 else find_file(path, EXAMPLES, f"data/{EXAMPLES}")
    if path.suffix == ".parquet":
        for example in read_file(path):
            shown = [take(example.values, name, dict, example.where) for name in ("image_0", "image_1")]
            yield _quadruple(example.values, example.where, shown)
        return
    if not is_jsonl(path):
        raise DataError(f"{path} is neither a .jsonl nor a .parquet file")
    if in_common_form(path):  # in a folder
        yield from read_common(path, Quadruple, images)
        return
    image: Callable[[str], ImageLike] | None = None
    for where, row in read_lines(path):
        image = image or _images_of(path, images)
        yield _quadruple(row, where, [image(take(row, name, str, where)) for name in ("image_0", "image_1")])


def _quadruple(row: dict[str, Any], where: str, images: Sequence[ImageLike]) -> Quadruple:
    tag = row.get("collapsed_tag") or row.get("tag") or ""
    if not isinstance(tag, str):
        raise DataError(f"{where}: tag must be text, got {tag!r:.60}")
    return Quadruple(
        images=(images[0], images[1]),
        captions=(take(row, "caption_0", str, where), take(row, "caption_1", str, where)),
        image_id=str(row.get("id", where)),
        category=tag,
    )


def _images_of(path: Path, images: Path | None) -> Callable[[str], ImageLike]:
    """Where the images are: gives one by the name that it has in the examples."""
    if images is None and (path.parent / "images").is_dir():
        images = path.parent / "images"
    if images is not None:
        return lambda name: images / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    packed = path.parent / "images.zip"
    if not packed.is_file():
        raise MissingFileError(f"{path.parent} holds neither the folder images nor images.zip")
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
        # RuntimeError: locked by a password; NotImplementedError (a kind of it): packed by a method zipfile has not
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
        files=f"{EXAMPLES} with image_0, image_1, caption_0, caption_1 and tag a line, or a folder that holds it (also "
        "in data/), and beside it images.zip or the folder images, unless --images (images=) names another; or a "
        ".parquet file with these columns and encoded images; or a .jsonl file with images and captions, two each, a "
        "line",
        origin="facebook/winoground on the Hub, whose terms have to be accepted there first (Thrush and others 2022)",
        licence="Meta Images Research License, say those who hold it: for evaluation only, not to be passed on; its "
        "text is license_agreement.txt in the repository",
        hub="facebook/winoground",
        hub_files=("data/*",),
    ),
)
