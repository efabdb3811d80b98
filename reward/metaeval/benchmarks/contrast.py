"""JSON files of correct captions beside incorrect ones: SugarCrepe, VALSE, FOIL and nocaps-FOIL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.json_files import read_json
from reward.metaeval.benchmarks.files import find_file, read_entries, take, take_texts
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, CaptionPair, Item

__all__ = ["SPECS", "coco_captions"]

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
        image_set: data set of the image. Its images may be in a folder of that name, or in one with all others.
    """

    image: str
    correct: str
    incorrect: str
    references: str | None = None
    category: str | None = None
    image_set: str | None = None


def _read(
    files: Mapping[str, Path],
    fields: Fields,
    images: Path,
    *,
    kind: type[dict] | type[list] = dict,
    keep: Callable[[Any, str], bool] = lambda entry, where: True,
) -> Iterator[CaptionPair]:
    """The pairs of JSON files, by category; the correct caption comes first."""
    for name, file in files.items():
        for _, where, entry in read_entries(file, kind):
            if not keep(entry, where):
                continue
            image_id = image = take(entry, fields.image, str, where)
            folder = images
            if fields.image_set is not None:
                image_set = take(entry, fields.image_set, str, where)
                image_id = f"{image_set}/{image}"
                folder = images / image_set if image_set and (images / image_set).is_dir() else images
            yield CaptionPair(
                captions=(take(entry, fields.correct, str, where), take(entry, fields.incorrect, str, where)),
                label=0,
                image=folder / image,
                references=() if fields.references is None else take_texts(entry, fields.references, where),
                image_id=image_id,
                category=name if fields.category is None else take(entry, fields.category, str, where),
            )


def _category_files(path: Path, names: Sequence[str], title: str) -> dict[str, Path]:
    """{category: its file}, of a folder with a file for each category, or of one of these files."""
    if path.is_file() and path.stem not in names:
        raise DataError(f"{path} is not a file of {title}; they are: {', '.join(f'{name}.json' for name in names)}")
    return {
        name: find_file(path, f"{name}.json", f"data/{name}.json")
        for name in names
        if path.is_dir() or name == path.stem
    }


def _load_sugarcrepe(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    files = _category_files(path, SUGARCREPE, "SugarCrepe")
    return _read(files, Fields("filename", "caption", "negative_caption"), images or _folder(path))


def _load_valse(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Valid foils only: those for which two of three annotators chose the caption, as the authors ask."""
    names = [name for name in VALSE if path.is_file() or part != WITHOUT or name not in COREFERENCE]

    def valid(entry: Any, where: str) -> bool:
        return take(take(entry, "mturk", dict, where), "caption", int, f"{where}, mturk") >= VALID

    fields = Fields("image_file", "caption", "foil", image_set="dataset")
    return _read(_category_files(path, names, "VALSE"), fields, images or _folder(path), keep=valid)


def _without_coreference(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """The part "without coreference" is that of BEiTScore's paper."""
    return (item for item in items if part != WITHOUT or item.category not in COREFERENCE)


def _load_nocaps_foil(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Captions of nocaps beside their foils; the category is the domain, references are the image's other captions."""
    file = find_file(path, NOCAPS, f"data/{NOCAPS}")
    fields = Fields("image_path", "baseline", "foil", references="references", category="domain")
    return _read({NOCAPS: file}, fields, images or file.parent, kind=list)


def _load_foil(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Pairs every foil of the test set with the COCO caption it was made from, which comes first.

    References are the image's other COCO captions, the first four (part `"4-ref"`) or the first one (`"1-ref"`).
    """
    folder, path = _folder(path), find_file(path, FOILS)
    captions = coco_captions(find_file(folder, COCO_CAPTIONS, f"annotations/{COCO_CAPTIONS}"))
    data = read_json(path)
    names = {
        take(entry, "id", int, where): take(entry, "file_name", str, where)
        for where, entry in _listed(data, "images", f"{path}, image")
    }
    originals: dict[int, str] = {}
    foils: list[tuple[str, int, int, str]] = []
    for where, entry in _listed(data, "annotations", f"{path}, annotation"):
        key, caption = take(entry, "id", int, where), take(entry, "caption", str, where)
        if take(entry, "foil", bool, where):
            foils.append((where, key, take(entry, "image_id", int, where), caption))
        elif originals.setdefault(key, caption) != caption:
            raise DataError(f"{where}: the id {key} has two captions that are not foils")
    for where, key, image, foil in foils:
        if key not in originals:
            raise DataError(f"{where}: the id {key} has no caption that is not a foil")
        if image not in names:
            raise DataError(f"{where}: there is no image with the id {image}")
        if image not in captions:
            raise DataError(f"{where}: the image {image} has no captions in {COCO_CAPTIONS}")
        own = originals[key].split()
        references = [caption for caption in captions[image] if caption.split() != own]
        yield CaptionPair(
            captions=(originals[key], foil),
            label=0,
            image=(images or folder) / names[image],
            references=tuple(references[: REFERENCES[part]]),
            image_id=str(image),
        )


def coco_captions(path: Path) -> dict[int, list[str]]:
    """{number of an image: its captions} from a caption file of COCO.

    Raises:
        DataError: an annotation without an image or a caption.
    """
    captions: dict[int, list[str]] = {}
    for where, entry in _listed(read_json(path), "annotations", f"{path}, annotation"):
        caption = take(entry, "caption", str, where)
        if caption.strip():
            captions.setdefault(take(entry, "image_id", int, where), []).append(caption)
    return captions


def _listed(data: Any, name: str, where: str) -> Iterator[tuple[str, Any]]:
    """The entries of a field that is a list, each with its place for messages."""
    for number, entry in enumerate(take(data, name, list, where.rpartition(",")[0]), start=1):
        yield f"{where} {number}", entry


def _folder(path: Path) -> Path:
    return path.parent if path.is_file() else path


_COMMON = "a .jsonl file with category, image, captions and label a line"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"{name}.json" for name in names)


SPECS = (
    BenchmarkSpec(
        name="foil",
        title="FOIL",
        form=CaptionPair,
        statistic="accuracy",
        load=_load_foil,
        ties="wrong",
        files=f"a folder with {FOILS} and COCO's {COCO_CAPTIONS} (also in annotations/), or a .jsonl file with image, "
        "captions, label and references a line; and the folder of COCO's images val2014 (--images, images=)",
        origin="foilunitn.github.io (Shekhar and others 2017); captions and images from cocodataset.org",
        parts=tuple(REFERENCES),
    ),
    BenchmarkSpec(
        name="nocaps-foil",
        title="nocaps-FOIL",
        form=CaptionPair,
        statistic="accuracy",
        load=_load_nocaps_foil,
        ties="wrong",
        headline=OVERALL,
        files=f"{NOCAPS} or a folder that holds it, or a .jsonl file with category, image, captions, label and "
        "references a line; and the folder of the nocaps validation images (--images, images=)",
        origin="the repository of ALOHa (DavidMChan/aloha, data/; Petryk and others 2024); images from nocaps.org",
        licence="none found for the foils; the captions of nocaps are CC BY 2.0, says the card of HuggingFaceM4/NoCaps",
    ),
    BenchmarkSpec(
        name="sugarcrepe",
        title="SugarCrepe",
        form=CaptionPair,
        statistic="accuracy",
        load=_load_sugarcrepe,
        ties="wrong",
        files=f"a folder with the files {_names(SUGARCREPE)} (also in data/), one of these files, or {_COMMON}; and "
        "the folder of COCO's images val2017 (--images, images=)",
        origin="the repository RAIVNLab/sugar-crepe (Hsieh and others 2023); images from cocodataset.org",
        licence="MIT, by the repository's LICENSE; the images have licences of their own",
    ),
    BenchmarkSpec(
        name="valse",
        title="VALSE",
        form=CaptionPair,
        statistic="accuracy",
        load=_load_valse,
        refine=_without_coreference,
        ties="wrong",
        files=f"a folder with the files {_names(VALSE)} (also in data/), one of these files, or {_COMMON}; and a "
        "folder of the images (--images, images=), together or in one folder for each value of the field dataset",
        origin="the repository Heidelberg-NLP/VALSE, data/ (Parcalabescu and others 2022); images from the data sets "
        "that the files name: Visual7W, COCO, SWiG and VisDial",
        licence="none stated in its readme; a copy on the Hub, Mayfull/valse_vlms, says MIT",
        parts=(ALL, WITHOUT),
    ),
)
