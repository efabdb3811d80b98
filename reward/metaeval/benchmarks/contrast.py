"""JSON files of correct captions beside incorrect ones: SugarCrepe, VALSE, FOIL and nocaps-FOIL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reward.json_files import read_json
from reward.metaeval.benchmarks.files import MissingFileError, find_file
from reward.metaeval.benchmarks.items import OVERALL, PAIRS, BenchmarkSpec, Entry

FOILS, COCO_CAPTIONS, NOCAPS = "foilv1.0_test_2017.json", "captions_val2014.json", "nocaps-val-foil.json"
REFERENCES = {"4-ref": 4, "1-ref": 1}  # of FOIL, by part
SUGARCREPE = ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att")
COREFERENCE = ("coreference-standard", "coreference-hard")  # whose texts do not read like captions
VALSE = (
    *("existence", "plurals", "counting-hard", "counting-small-quant", "counting-adversarial", "relations"),
    *("action-replacement", "actant-swap", *COREFERENCE, "foil-it"),
)
ALL, WITHOUT = "all", "without coreference"
VALID = 2  # of three annotators of VALSE, how many must have taken the caption, and not the foil, for the right one


def _load_sugarcrepe(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """A file for each category."""
    for category, entry in _of_categories(data, SUGARCREPE):
        yield _pair(entry["filename"], entry["caption"], entry["negative_caption"], category=category)


def _load_valse(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Valid foils only: those for which two of three annotators chose the caption, as the authors ask.

    The images of a data set may lie in a folder of its name. The part "without coreference" is that of BEiTScore's
    paper.
    """
    root = images or Path(data)
    for category, entry in _of_categories(data, [n for n in VALSE if part != WITHOUT or n not in COREFERENCE]):
        if entry["mturk"]["caption"] >= VALID:
            image_id = f"{entry['dataset']}/{entry['image_file']}"
            image = image_id if (root / entry["dataset"]).is_dir() else entry["image_file"]
            yield _pair(image, entry["caption"], entry["foil"], category=category, image_id=image_id)


def _of_categories(data: str, names: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    """The entries of a folder with a file for each category, which holds {key: entry}."""
    if Path(data).is_file():
        raise MissingFileError(f"{data} is no folder")
    files = {name: find_file(data, f"{name}.json") for name in names}
    for name, file in files.items():
        yield from ((name, entry) for entry in read_json(file).values())


def _without_coreference(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """For the common form, which holds all categories in one file."""
    return (item for item in items if part != WITHOUT or item["category"] not in COREFERENCE)


def _load_nocaps_foil(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Captions of nocaps beside their foils; the category is the domain, references are the image's other captions."""
    for entry in read_json(find_file(data, NOCAPS)):
        shared = {"references": entry["references"], "category": entry["domain"]}
        yield _pair(entry["image_path"], entry["baseline"], entry["foil"], **shared)


def _load_foil(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Pairs every foil of the test set with the COCO caption it was made from, which comes first.

    References are the image's other COCO captions, the first four (part `"4-ref"`) or the first one (`"1-ref"`).
    """
    folder = Path(data).parent if Path(data).is_file() else Path(data)
    captions: dict[int, list[str]] = {}
    for each in read_json(find_file(folder, COCO_CAPTIONS))["annotations"]:
        if each["caption"].strip():
            captions.setdefault(each["image_id"], []).append(each["caption"])
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
    originals = {each["id"]: each["caption"] for each in data["annotations"] if not each["foil"]}
    for each in data["annotations"]:
        if each["foil"]:
            yield each["image_id"], names[each["image_id"]], originals[each["id"]], each["caption"]


def _pair(image: str, correct: str, incorrect: str, **facts: Any) -> Entry:
    """The correct caption comes first."""
    return {"image": image, "captions": [correct, incorrect], "label": 0, **facts}


_COMMON = "a .jsonl file with category, image, captions and label per line"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"{name}.json" for name in names)


_PAIRS: dict[str, Any] = {"form": PAIRS, "statistic": "accuracy", "ties": "wrong"}
SPECS = (
    BenchmarkSpec(
        name="foil",
        title="FOIL",
        **_PAIRS,
        load=_load_foil,
        files=f"a folder with {FOILS} and COCO's {COCO_CAPTIONS}, or a .jsonl file with image, "
        "captions, label and references per line; and the folder of COCO's images val2014 (--images, images=)",
        origin="foilunitn.github.io (Shekhar and others 2017); captions and images from cocodataset.org",
        parts=tuple(REFERENCES),
    ),
    BenchmarkSpec(
        name="nocaps-foil",
        title="nocaps-FOIL",
        **_PAIRS,
        load=_load_nocaps_foil,
        headline=OVERALL,
        files=f"{NOCAPS} or a folder that holds it, or a .jsonl file with category, image, captions, label and "
        "references per line; and the folder of the nocaps validation images (--images, images=)",
        origin="the repository of ALOHa (DavidMChan/aloha, data/; Petryk and others 2024); images from nocaps.org",
        licence="none found for the foils; the captions of nocaps are CC BY 2.0, says the card of HuggingFaceM4/NoCaps",
    ),
    BenchmarkSpec(
        name="sugarcrepe",
        title="SugarCrepe",
        **_PAIRS,
        load=_load_sugarcrepe,
        files=f"a folder with the files {_names(SUGARCREPE)}, or {_COMMON}; and the "
        "folder of COCO's images val2017 (--images, images=)",
        origin="the repository RAIVNLab/sugar-crepe (Hsieh and others 2023); images from cocodataset.org",
        licence="MIT, by the repository's LICENSE; the images have licences of their own",
    ),
    BenchmarkSpec(
        name="valse",
        title="VALSE",
        **_PAIRS,
        load=_load_valse,
        refine=_without_coreference,
        files=f"a folder with the files {_names(VALSE)}, or {_COMMON}; and a "
        "folder of the images (--images, images=), together or in one folder for each value of the field dataset",
        origin="the repository Heidelberg-NLP/VALSE, data/ (Parcalabescu and others 2022); images from the data sets "
        "that the files name: Visual7W, COCO, SWiG and VisDial",
        licence="none stated in its readme; a copy on the Hub, Mayfull/valse_vlms, says MIT",
        parts=(ALL, WITHOUT),
    ),
)
