"""FOIL and nocaps-FOIL: captions in which one noun was exchanged for that of an object which is not in the image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, take, take_texts
from reward.metaeval.benchmarks.forms import OVERALL, BenchmarkSpec, CaptionPair
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_pairs
from reward.metrics.caparena.files import read_json

__all__ = ["SPECS", "load_foil", "load_nocaps_foil"]

FOILS, CAPTIONS, NOCAPS = "foilv1.0_test_2017.json", "captions_val2014.json", "nocaps-val-foil.json"
REFERENCES = {"4-ref": 4, "1-ref": 1}

SPECS = (
    BenchmarkSpec(
        name="foil",
        title="FOIL",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.foil:load_foil",
        statistic="accuracy",
        ties="wrong",
        files=f"a folder with {FOILS} and COCO's {CAPTIONS} (also in annotations/), or a .jsonl file with image, "
        "captions, label and references a line; and the folder of COCO's images val2014 (--images, images=)",
        origin="foilunitn.github.io (Shekhar and others 2017); captions and images from cocodataset.org",
        parts=tuple(REFERENCES),
    ),
    BenchmarkSpec(
        name="nocaps-foil",
        title="nocaps-FOIL",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.foil:load_nocaps_foil",
        statistic="accuracy",
        ties="wrong",
        headline=OVERALL,
        files=f"{NOCAPS} or a folder that holds it, or a .jsonl file with category, image, captions, label and "
        "references a line; and the folder of the nocaps validation images (--images, images=)",
        origin="the repository of ALOHa (DavidMChan/aloha, data/; Petryk and others 2024); images from nocaps.org",
        licence="none found for the foils; the captions of nocaps are CC BY 2.0, says the card of HuggingFaceM4/NoCaps",
    ),
)


def load_foil(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Pairs every foil of the test set with the COCO caption it was made from, which comes first.

    References are the image's other COCO captions, the first four (part `"4-ref"`) or the first one (`"1-ref"`).

    Raises:
        DataError: files that are missing or not as they should be.
    """
    if is_jsonl(path):
        yield from read_pairs(path, images)
        return
    folder = path.parent if path.is_file() else path
    path = find_file(path, FOILS)
    captions = _coco_captions(find_file(folder, CAPTIONS, f"annotations/{CAPTIONS}"))
    data = read_json(path)
    names: dict[int, str] = {}
    for number, entry in enumerate(take(data, "images", list, str(path)), start=1):
        where = f"{path}, image {number}"
        names[take(entry, "id", int, where)] = take(entry, "file_name", str, where)
    originals: dict[int, str] = {}
    foils: list[tuple[str, int, int, str]] = []
    for number, entry in enumerate(take(data, "annotations", list, str(path)), start=1):
        where = f"{path}, annotation {number}"
        key, caption = take(entry, "id", int, where), take(entry, "caption", str, where)
        if take(entry, "foil", bool, where):
            foils.append((where, key, take(entry, "image_id", int, where), caption))
        elif originals.setdefault(key, caption) != caption:
            raise DataError(f"{where}: the id {key} has two captions that are no foils")
    for where, key, image, foil in foils:
        if key not in originals:
            raise DataError(f"{where}: the id {key} has no caption that is no foil")
        if image not in names:
            raise DataError(f"{where}: there is no image with the id {image}")
        if image not in captions:
            raise DataError(f"{where}: the image {image} has no captions in {CAPTIONS}")
        own = " ".join(originals[key].split())
        references = [caption for caption in captions[image] if " ".join(caption.split()) != own]
        yield CaptionPair(
            captions=(originals[key], foil),
            label=0,
            image=(images or folder) / names[image],
            references=tuple(references[: REFERENCES[part]]),
            image_id=str(image),
        )


def _coco_captions(path: Path) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for number, entry in enumerate(take(read_json(path), "annotations", list, str(path)), start=1):
        where = f"{path}, annotation {number}"
        caption = take(entry, "caption", str, where)
        if caption.strip():
            found.setdefault(take(entry, "image_id", int, where), []).append(caption)
    return found


def load_nocaps_foil(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Pairs captions of nocaps with their foils; the category is the domain, references are the image's other captions.

    Raises:
        DataError: a file that is missing or not as it should be.
    """
    if is_jsonl(path):
        yield from read_pairs(path, images)
        return
    path = find_file(path, NOCAPS, f"data/{NOCAPS}")
    entries: Any = read_json(path)
    if not isinstance(entries, list):
        raise DataError(f"{path} must hold a JSON list, got {type(entries).__name__}")
    for number, entry in enumerate(entries, start=1):
        where = f"{path}, entry {number}"
        image = take(entry, "image_path", str, where)
        yield CaptionPair(
            captions=(take(entry, "baseline", str, where), take(entry, "foil", str, where)),
            label=0,
            image=(images or path.parent) / image,
            references=take_texts(entry, "references", where),
            image_id=image,
            category=take(entry, "domain", str, where),
        )
