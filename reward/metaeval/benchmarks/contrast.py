"""JSON files of captions that contrast: Pascal-50S, SugarCrepe, VALSE, two of foils, LongCapVLCP, Winoground."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError, find_file
from reward.metaeval.benchmarks.items import Entry
from reward.metaeval.benchmarks.jsonl import read_lines

FOILS, COCO_CAPTIONS, NOCAPS = "foilv1.0_test_2017.json", "captions_val2014.json", "nocaps-val-foil.json"
REFERENCES = {"4-ref": 4, "1-ref": 1}  # of FOIL, by part
SUGARCREPE = ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att")
COREFERENCE = ("coreference-standard", "coreference-hard")  # whose texts do not read like captions
VALSE = (
    *("existence", "plurals", "counting-hard", "counting-small-quant", "counting-adversarial", "relations"),
    *("action-replacement", "actant-swap", *COREFERENCE, "foil-it"),
)
ALL, WITHOUT = "all", "without coreference"
WINOGROUND = "facebook/winoground"  # on the Hub
PAIRS_FILE = "pairs.jsonl"  # of LongCapVLCP
VALID = 2  # of three annotators of VALSE, how many must have taken the caption, and not the foil, for the right one


def load_pascal50s(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """`{category: list of {image, captions, label, references}}`, where people chose the caption that fits better.

    The categories: two correct captions by people (HC); one by people of this image and one of another (HI); one by
    people and one by a machine (HM); two by machines (MM).
    """
    for category, pairs in read_json(find_file(data, "pascal_50s.json")).items():
        for pair in pairs:
            yield {**pair, "category": category}


def load_sugarcrepe(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """A file for each category."""
    for category, entry in _of_categories(data, SUGARCREPE):
        yield _pair(entry["filename"], entry["caption"], entry["negative_caption"], category=category)


def load_valse(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Valid foils only: those for which two of three annotators chose the caption, as the authors ask.

    The images of a data set may lie in a folder of its name. The part "without coreference" is that of BEiTScore's
    paper.
    """
    root = images or Path(data)
    categories = [name for name in VALSE if part != WITHOUT or name not in COREFERENCE]
    for category, entry in _of_categories(data, categories):
        if entry["mturk"]["caption"] >= VALID:
            image = entry["image_file"]
            image_id = f"{entry['dataset']}/{image}"
            if (root / entry["dataset"]).is_dir():
                image = image_id
            yield _pair(image, entry["caption"], entry["foil"], category=category, image_id=image_id)


def _of_categories(data: str, names: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    """The entries of a folder with a file for each category, which holds {key: entry}."""
    if Path(data).is_file():
        raise MissingFileError(f"{data} is no folder")
    files = {name: find_file(data, f"{name}.json") for name in names}  # all are there before the first is read
    for name, file in files.items():
        for entry in read_json(file).values():
            yield name, entry


def without_coreference(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """For the common form, which holds all categories in one file."""
    return (item for item in items if part != WITHOUT or item["category"] not in COREFERENCE)


def load_nocaps_foil(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Captions of nocaps beside their foils; the category is the domain, references are the image's other captions."""
    for entry in read_json(find_file(data, NOCAPS)):
        shared = {"references": entry["references"], "category": entry["domain"]}
        yield _pair(entry["image_path"], entry["baseline"], entry["foil"], **shared)


def load_foil(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Pairs every foil of the test set with the COCO caption it was made from, which comes first.

    References are the image's other COCO captions, the first four (part `"4-ref"`) or the first one (`"1-ref"`).
    """
    folder = Path(data)
    if folder.is_file():
        folder = folder.parent
    captions: dict[int, list[str]] = {}
    for entry in read_json(find_file(folder, COCO_CAPTIONS))["annotations"]:
        if entry["caption"].strip():
            captions.setdefault(entry["image_id"], []).append(entry["caption"])
    for image, name, original, foil in foil_pairs(find_file(data, FOILS)):
        references = [caption for caption in captions[image] if caption.split() != original.split()]
        yield _pair(name, original, foil, references=references[: REFERENCES[part]], image_id=str(image))


def foil_pairs(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """(number and file name of the image, caption of COCO, foil) of every foil in a file of FOIL-COCO.

    Raises:
        KeyError: a field is missing, or a foil has no caption or no image.
    """
    data = read_json(path)
    names = {image["id"]: image["file_name"] for image in data["images"]}
    originals = {entry["id"]: entry["caption"] for entry in data["annotations"] if not entry["foil"]}
    for entry in data["annotations"]:
        if entry["foil"]:
            yield entry["image_id"], names[entry["image_id"]], originals[entry["id"]], entry["caption"]


def load_longcapvlcp(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Long captions beside others with one error, mostly beyond CLIP's context."""
    for where, row in read_lines(find_file(data, PAIRS_FILE)):
        if row["correct"] == row["incorrect"]:
            raise DataError(f"{where}: correct and incorrect caption are the same")
        yield _pair(row["image"], row["correct"], row["incorrect"], category=row["category"])


def _pair(image: str, correct: str, incorrect: str, **facts: Any) -> Entry:
    """The correct caption comes first."""
    return {"image": image, "captions": [correct, incorrect], "label": 0, **facts}


def load_winoground(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Winoground: two images and two captions of the same words in another order, to be told apart both ways.

    The category is the collapsed tag (Object, Relation, Both) if there is one.
    """
    if data == WINOGROUND:
        from huggingface_hub import snapshot_download

        data = snapshot_download(WINOGROUND, repo_type="dataset", allow_patterns=["data/*"])
    path = find_file(data, "examples.jsonl")
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
