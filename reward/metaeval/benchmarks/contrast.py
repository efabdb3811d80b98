"""JSON files of correct captions beside incorrect ones: SugarCrepe, VALSE, FOIL and nocaps-FOIL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, Item, PreferencePair
from reward.metaeval.benchmarks.records import MissingFileError, Record, find_file, read_entries, read_list, read_object

__all__ = ["SPECS", "foil_pairs"]

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


@dataclass(frozen=True)
class Fields:
    """Names of the fields of an entry that hold a pair.

    Args:
        image: file name of the image.
        correct, incorrect: the two captions.
        references: captions by people; None if there are none.
        category: kind of error or domain; None if the file is named after it.
        image_set: data set of the image, whose images may be in a folder of that name.
    """

    image: str
    correct: str
    incorrect: str
    references: str | None = None
    category: str | None = None
    image_set: str | None = None

    def pair(self, entry: Record, images: Path, category: str = "") -> PreferencePair:
        """The pair of an entry; the correct caption comes first."""
        image_id = image = entry.text(self.image)
        if self.image_set is not None:
            image_set = entry.text(self.image_set)
            image_id = f"{image_set}/{image}"
            images = images / image_set if image_set and (images / image_set).is_dir() else images
        return PreferencePair(
            captions=(entry.text(self.correct), entry.text(self.incorrect)),
            label=0,
            image=images / image,
            references=() if self.references is None else entry.texts(self.references),
            image_id=image_id,
            category=category if self.category is None else entry.text(self.category),
        )


SUGARCREPE_FIELDS = Fields("filename", "caption", "negative_caption")
VALSE_FIELDS = Fields("image_file", "caption", "foil", image_set="dataset")
NOCAPS_FIELDS = Fields("image_path", "baseline", "foil", references="references", category="domain")


def _category_files(
    path: Path,
    names: Sequence[str],
    fields: Fields,
    images: Path | None,
    keep: Callable[[Record], bool] = lambda entry: True,
) -> Iterator[PreferencePair]:
    """The pairs of a folder with a file for each category, which holds {key: entry}."""
    if path.is_file():
        raise MissingFileError(f"{path} is no folder")
    files = {name: find_file(path, f"{name}.json", f"data/{name}.json") for name in names}
    for name, file in files.items():
        for _, entry in read_entries(file):
            if keep(entry):
                yield fields.pair(entry, images or path, name)


def _load_sugarcrepe(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    return _category_files(path, SUGARCREPE, SUGARCREPE_FIELDS, images)


def _load_valse(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Valid foils only: those for which two of three annotators chose the caption, as the authors ask."""
    names = [name for name in VALSE if part != WITHOUT or name not in COREFERENCE]

    def valid(entry: Record) -> bool:
        return entry.record("mturk").of_kind("caption", int) >= VALID

    return _category_files(path, names, VALSE_FIELDS, images, valid)


def _without_coreference(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """The part "without coreference" is that of BEiTScore's paper."""
    return (item for item in items if part != WITHOUT or item.category not in COREFERENCE)


def _load_nocaps_foil(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Captions of nocaps beside their foils; the category is the domain, references are the image's other captions."""
    file = find_file(path, NOCAPS, f"data/{NOCAPS}")
    return (NOCAPS_FIELDS.pair(entry, images or file.parent) for entry in read_list(file))


def _load_foil(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Pairs every foil of the test set with the COCO caption it was made from, which comes first.

    References are the image's other COCO captions, the first four (part `"4-ref"`) or the first one (`"1-ref"`).
    """
    folder = path.parent if path.is_file() else path
    captions = _coco_captions(find_file(folder, COCO_CAPTIONS, f"annotations/{COCO_CAPTIONS}"))
    for image, name, original, foil in foil_pairs(find_file(path, FOILS)):
        if image not in captions:
            raise DataError(f"the image {image} has no captions in {COCO_CAPTIONS}")
        references = [caption for caption in captions[image] if caption.split() != original.split()]
        yield PreferencePair(
            captions=(original, foil),
            label=0,
            image=(images or folder) / name,
            references=tuple(references[: REFERENCES[part]]),
            image_id=str(image),
        )


def foil_pairs(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """(number and file name of the image, caption of COCO, foil) of every foil in a file of FOIL-COCO.

    Raises:
        DataError: a field is missing or of the wrong type, or a foil has no caption or no image.
    """
    data = read_object(path)
    names = {entry.of_kind("id", int): entry.text("file_name") for entry in data.records("images", "image")}
    originals: dict[int, str] = {}
    foils: list[tuple[str, int, int, str]] = []
    for entry in data.records("annotations", "annotation"):
        key, caption = entry.of_kind("id", int), entry.text("caption")
        if entry.of_kind("foil", bool):
            foils.append((entry.where, key, entry.of_kind("image_id", int), caption))
        elif originals.setdefault(key, caption) != caption:
            raise DataError(f"{entry.where}: the id {key} has two captions that are not foils")
    for where, key, image, foil in foils:
        if key not in originals:
            raise DataError(f"{where}: the id {key} has no caption that is not a foil")
        if image not in names:
            raise DataError(f"{where}: there is no image with the id {image}")
        yield image, names[image], originals[key], foil


def _coco_captions(path: Path) -> dict[int, list[str]]:
    """{number of an image: its captions} from a caption file of COCO.

    Raises:
        DataError: an annotation without an image or a caption.
    """
    captions: dict[int, list[str]] = {}
    for entry in read_object(path).records("annotations", "annotation"):
        caption = entry.text("caption")
        if caption.strip():
            captions.setdefault(entry.of_kind("image_id", int), []).append(caption)
    return captions


_COMMON = "a .jsonl file with category, image, captions and label per line"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"{name}.json" for name in names)


_PAIRS: dict[str, Any] = {"form": PreferencePair, "statistic": "accuracy", "ties": "wrong"}
SPECS = (
    BenchmarkSpec(
        name="foil",
        title="FOIL",
        **_PAIRS,
        load=_load_foil,
        files=f"a folder with {FOILS} and COCO's {COCO_CAPTIONS} (also in annotations/), or a .jsonl file with image, "
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
        files=f"a folder with the files {_names(SUGARCREPE)} (also in data/), or {_COMMON}; and the "
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
        files=f"a folder with the files {_names(VALSE)} (also in data/), or {_COMMON}; and a "
        "folder of the images (--images, images=), together or in one folder for each value of the field dataset",
        origin="the repository Heidelberg-NLP/VALSE, data/ (Parcalabescu and others 2022); images from the data sets "
        "that the files name: Visual7W, COCO, SWiG and VisDial",
        licence="none stated in its readme; a copy on the Hub, Mayfull/valse_vlms, says MIT",
        parts=(ALL, WITHOUT),
    ),
)
