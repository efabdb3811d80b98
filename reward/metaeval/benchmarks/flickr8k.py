"""Flickr8k-Expert and Flickr8k-CF: captions of Flickr8k's images, rated by experts and by a crowd."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError, find_file, read_entries, take, take_texts
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.rated_tables import rated_split
from reward.metaeval.benchmarks.tables import image_folder

__all__ = ["SPECS", "captions_by_image", "read_token_file"]

EXPERTS = 3  # who rated each pair of Flickr8k-Expert, from 1 to 4
_TEXTS = "Flickr8k_text"
_IMAGES = ("Flicker8k_Dataset", "Flickr8k_Dataset", "images")  # the first is how the archive spells it


def _load_expert(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads 5,664 captions, each rated by three experts from 1 (does not describe the image) to 4 (describes it).

    The annotations have 5,822 pairs of an image and a candidate, most of them with the caption of another image. As in
    the evaluations of SPICE and CLIPScore, the 158 candidates that are references of their own image are left out, and
    all five references of an image stay.
    """
    return _load(path, images, _EXPERT)


def _load_cf(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads 47,830 captions with the share of a crowd, three people or more, that says they describe the image.

    As in CLIPScore's evaluation every pair counts. If a candidate is a reference of its own image, it is taken out of
    the references of that image instead, for all its candidates.
    """
    return _load(path, images, _CROWD)


def _load(path: Path, images: Path | None, form: _Form) -> Iterator[RatedCaption]:
    """Reads CLIPScore's JSON file, the text files of the archive, or the tables of the Hub."""
    file = path / form.json if path.is_dir() else path
    if file.suffix.lower() == ".json" and file.is_file():
        return form.read_json(file, images)
    places = form.text, f"{_TEXTS}/{form.text}"
    if path.suffix == ".txt" if path.is_file() else any((path / place).is_file() for place in places):
        return form.read_text(find_file(path, *places), images)
    try:
        return rated_split(path, images, ("test",), form.config)
    except MissingFileError:
        raise MissingFileError(
            f"{path} holds neither {form.text} nor {form.json}, nor Parquet files of {form.config}"
        ) from None


def _image_root(folder: Path, images: Path | None) -> Path:
    if images is None and folder.name == _TEXTS:  # as the archives are unpacked
        return image_folder(folder.parent, None, *_IMAGES)
    return image_folder(folder, images, *_IMAGES)


def _expert_json(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    for caption, ratings, item in _judged(path, images):
        if len(ratings) % EXPERTS:
            raise DataError(
                f"{path}, image {item['image_id']}: {len(ratings)} ratings of {caption!r:.60}, but {EXPERTS} experts "
                "rated each caption; is this the file of Flickr8k-CF?"
            )
        for start in range(0, len(ratings), EXPERTS):
            if given := tuple(rating for rating in ratings[start : start + EXPERTS] if not math.isnan(rating)):
                yield RatedCaption(caption, {OVERALL: given}, **item)


def _crowd_json(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    for caption, ratings, item in _judged(path, images):
        for rating in ratings:
            if not math.isnan(rating):
                if not 0 <= rating <= 1:
                    raise DataError(
                        f"{path}, image {item['image_id']}: the rating of {caption!r:.60} must be a share from 0 to 1, "
                        f"got {rating}; is this the file of Flickr8k-Expert?"
                    )
                yield RatedCaption(caption, {OVERALL: (rating,)}, **item)


def _judged(path: Path, images: Path | None) -> Iterator[tuple[str, list[float], dict[str, Any]]]:
    """Each caption with the ratings that follow each other, and what all captions of its image have."""
    root = _image_root(path.parent, images)
    for _, where, entry in read_entries(path, noun="image"):
        references = tuple(_plain(text) for text in take_texts(entry, "ground_truth", where))
        name = take(entry, "image_path", str, where).replace("\\", "/").rpartition("/")[2]
        item = {"image": root / name, "references": references, "image_id": name}
        judgments: list[Any] = take(entry, "human_judgement", list, where)
        rated = [(_plain(take(row, "caption", str, where)), _rating(row, where)) for row in judgments]
        for caption, group in groupby(rated, key=lambda pair: pair[0]):
            yield caption, [rating for _, rating in group], item


def _rating(row: dict[str, Any], where: str) -> float:
    """NaN where none was given, as the file writes it."""
    value = row.get("rating")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isinf(value):
        raise DataError(f"{where}: rating must be a number, got {value!r:.60}")
    return float(value)


def _expert_text(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    captions = read_token_file(find_file(path.parent, "Flickr8k.token.txt"))
    references = captions_by_image(captions)
    root = _image_root(path.parent, images)
    for where, image, caption_id, *numbers in _lines(path, 2 + EXPERTS):
        candidate = _looked_up(captions, caption_id, where)
        own = _looked_up(references, image, where)
        if candidate not in own:
            ratings = tuple(_number(number, 1, 4, where) for number in numbers)
            yield RatedCaption(candidate, {OVERALL: ratings}, root / image, tuple(own), image)


def _crowd_text(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    captions = read_token_file(find_file(path.parent, "Flickr8k.token.txt"))
    references = captions_by_image(captions)
    root = _image_root(path.parent, images)
    rated: dict[str, list[tuple[str, float]]] = {}
    for where, image, caption_id, share, yes, no in _lines(path, 5):
        candidate = _looked_up(captions, caption_id, where)
        own = _looked_up(references, image, where)
        said = _number(yes, 0, math.inf, where), _number(no, 0, math.inf, where)
        if not sum(said) or abs(said[0] / sum(said) - _number(share, 0, 1, where)) > 1e-5:
            raise DataError(f"{where}: {yes} yes and {no} no do not make a share of {share}")
        rated.setdefault(image, []).append((candidate, said[0] / sum(said)))
        if candidate in own:
            own.remove(candidate)
    for image, pairs in rated.items():
        for candidate, rating in pairs:
            yield RatedCaption(candidate, {OVERALL: (rating,)}, root / image, tuple(references[image]), image)


def read_token_file(path: Path) -> dict[str, str]:
    """{caption id: caption} from a file with `<image>#<number>`, a tab and a caption a line."""
    return {caption_id: _plain(caption) for _, caption_id, caption in _lines(path, 2)}


def captions_by_image(captions: Mapping[str, str]) -> dict[str, list[str]]:
    """{image: its captions} from `read_token_file`."""
    by_image: dict[str, list[str]] = {}
    for caption_id, caption in captions.items():
        by_image.setdefault(caption_id.rpartition("#")[0], []).append(caption)
    return by_image


def _lines(path: Path, count: int) -> Iterator[tuple[str, ...]]:
    """The fields of each line, between tabs, after the place of the line."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                fields = line.strip().split("\t", count - 1)
                if len(fields) != count:
                    raise DataError(f"{path}, line {number} must have {count} fields between tabs, got {len(fields)}")
                yield f"{path}, line {number}", *fields
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _looked_up(captions: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in captions:
        raise DataError(f"{where}: Flickr8k.token.txt has no caption of {name!r:.80}")
    return captions[name]


def _number(text: str, low: float, high: float, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high or math.isinf(value):
        raise DataError(f"{where}: {text!r:.40} is not a number from {low} to {high}")
    return value


def _plain(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class _Form:
    """The files of a benchmark, and what reads them."""

    text: str
    json: str
    config: str
    read_text: Callable[[Path, Path | None], Iterator[RatedCaption]]
    read_json: Callable[[Path, Path | None], Iterator[RatedCaption]]


_EXPERT = _Form("ExpertAnnotations.txt", "flickr8k.json", "expert", _expert_text, _expert_json)
_CROWD = _Form("CrowdFlowerAnnotations.txt", "crowdflower_flickr8k.json", "crowdflower", _crowd_text, _crowd_json)

_ORIGIN = (
    "the text and image archives of Flickr8k (Hodosh, Young, Hockenmaier 2013), sent on request; the JSON file is "
    "what download.py of CLIPScore makes of them (jmhessel/clipscore, flickr8k_example/)"
)
_LICENCE = "none stated in its readme, which asks for a citation; the images belong to those who put them on Flickr"
_FILES = (
    "a folder with {name} and Flickr8k.token.txt (also in its folder Flickr8k_text); or {json}; or the Parquet files "
    "of the Hub (configuration {config}); or a .jsonl file with image, candidate, references and ratings ({ratings}) "
    "a line; and the images in a folder Flicker8k_Dataset beside them (or --images, images=)"
)
SPECS = (
    BenchmarkSpec(
        name="flickr8k-expert",
        title="Flickr8k-Expert",
        form=RatedCaption,
        statistic="tau-c",
        load=_load_expert,
        files=_FILES.format(name=_EXPERT.text, json=_EXPERT.json, config=_EXPERT.config, ratings="three numbers"),
        origin=_ORIGIN,
        licence=_LICENCE,
        hub="yuwd/Flickr8k-HumanEval",
        hub_files=("README.md", "*expert*"),
        checked="published",
    ),
    BenchmarkSpec(
        name="flickr8k-cf",
        title="Flickr8k-CF",
        form=RatedCaption,
        statistic="tau-b",
        load=_load_cf,
        judgments="mean",
        files=_FILES.format(
            name=_CROWD.text,
            json=_CROWD.json,
            config=_CROWD.config,
            ratings="0 or 1 a rater, or the share of yes",
        ),
        origin=_ORIGIN,
        licence=_LICENCE,
        hub="yuwd/Flickr8k-HumanEval",
        hub_files=("README.md", "*crowdflower*"),
    ),
)
