"""Flickr8k-Expert and Flickr8k-CF: captions of Flickr8k's images, rated by experts and by a crowd."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.rated_tables import rated_split
from reward.metaeval.benchmarks.records import (
    MissingFileError,
    Record,
    find_file,
    image_folder,
    read_entries,
    text_lines,
)

__all__ = ["SPECS", "captions_by_image", "read_token_file"]

# The fields of a line of each text file, between tabs. Experts rate from 1 (does not describe the image) to 4.
_TOKENS = ("caption id", "caption")
_EXPERT = ("image", "caption id", "expert 1", "expert 2", "expert 3")
_CROWD = ("image", "caption id", "share of yes", "yes", "no")
_TOKEN_FILE = "Flickr8k.token.txt"
_TEXTS = "Flickr8k_text"
_IMAGES = ("Flicker8k_Dataset", "Flickr8k_Dataset", "images")  # the first is how the archive spells it


def _expert_text(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    """Reads 5,664 captions, each rated by three experts.

    The annotations have 5,822 pairs of an image and a candidate, most of them with the caption of another image. As in
    the evaluations of SPICE and CLIPScore, the 158 candidates that are references of their own image are left out, and
    all five references of an image stay.
    """
    for line, image, candidate, own in _annotations(path, _EXPERT, images):
        if candidate not in own:
            ratings = tuple(line.number(name, 1, 4, text=True) for name in _EXPERT[2:])
            yield RatedCaption(candidate, {OVERALL: ratings}, image, tuple(own), line.text("image"))


def _crowd_text(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    """Reads 47,830 captions with the share of a crowd, three people or more, that says they describe the image.

    As in CLIPScore's evaluation every pair counts. If a candidate is a reference of its own image, it is taken out of
    the references of that image instead, for all its candidates.
    """
    rated: dict[str, list[tuple[Path, str, float, list[str]]]] = {}
    for line, image, candidate, own in _annotations(path, _CROWD, images):
        yes, no = (line.number(name, 0, text=True) for name in ("yes", "no"))
        if not yes + no or abs(yes / (yes + no) - line.number("share of yes", 0, 1, text=True)) > 1e-5:
            raise line.error("share of yes", f"the share of {yes:g} yes and {no:g} no")
        rated.setdefault(line.text("image"), []).append((image, candidate, yes / (yes + no), own))
        if candidate in own:
            own.remove(candidate)
    for name, captions in rated.items():
        for image, candidate, rating, own in captions:
            yield RatedCaption(candidate, {OVERALL: (rating,)}, image, tuple(own), name)


def _annotations(
    path: Path, fields: Sequence[str], images: Path | None
) -> Iterator[tuple[Record, Path, str, list[str]]]:
    """Each line, its image, its candidate, and the references of the image, one list for all its lines."""
    captions = read_token_file(find_file(path.parent, _TOKEN_FILE))
    references = captions_by_image(captions)
    root = _image_root(path.parent, images)
    for line in _read_lines(path, fields):
        image, caption = line.text("image"), line.text("caption id")
        for name, known in ((caption, captions), (image, references)):
            if name not in known:
                raise DataError(f"{line.where}: {_TOKEN_FILE} has no caption of {name!r:.80}")
        yield line, root / image, captions[caption], references[image]


def _read_lines(path: Path, fields: Sequence[str]) -> Iterator[Record]:
    """The lines of a text file, whose fields stand between tabs."""
    for where, line in text_lines(path):
        values = line.strip().split("\t", len(fields) - 1)
        if len(values) != len(fields):
            wanted = f"{len(fields)} fields between tabs ({', '.join(fields)})"
            raise DataError(f"{where} must have {wanted}, got {len(values)}")
        yield Record(dict(zip(fields, values, strict=True)), where, path.parent)


def read_token_file(path: Path) -> dict[str, str]:
    """{caption id: caption} from a file with `<image>#<number>`, a tab and a caption per line."""
    return {line.text("caption id"): _plain(line.text("caption")) for line in _read_lines(path, _TOKENS)}


def captions_by_image(captions: Mapping[str, str]) -> dict[str, list[str]]:
    """{image: its captions} from `read_token_file`."""
    by_image: dict[str, list[str]] = {}
    for caption_id, caption in captions.items():
        by_image.setdefault(caption_id.rpartition("#")[0], []).append(caption)
    return by_image


def _expert_json(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    for caption, ratings, shared in _judged(path, images):
        if len(ratings) % 3:
            raise DataError(
                f"{path}, image {shared['image_id']}: {len(ratings)} ratings of {caption!r:.60}, but 3 experts rated "
                "each caption; is this the file of Flickr8k-CF?"
            )
        for start in range(0, len(ratings), 3):
            if given := tuple(rating for rating in ratings[start : start + 3] if not math.isnan(rating)):
                yield RatedCaption(caption, {OVERALL: given}, **shared)


def _crowd_json(path: Path, images: Path | None) -> Iterator[RatedCaption]:
    for caption, ratings, shared in _judged(path, images):
        for rating in ratings:
            if not 0 <= rating <= 1 and not math.isnan(rating):
                raise DataError(
                    f"{path}, image {shared['image_id']}: the rating of {caption!r:.60} must be a share from 0 to 1, "
                    f"got {rating}; is this the file of Flickr8k-Expert?"
                )
            if not math.isnan(rating):
                yield RatedCaption(caption, {OVERALL: (rating,)}, **shared)


def _judged(path: Path, images: Path | None) -> Iterator[tuple[str, list[float], dict[str, Any]]]:
    """Each caption with its consecutive ratings (NaN: not given), and what all captions of its image share."""
    root = _image_root(path.parent, images)
    for _, entry in read_entries(path, noun="image"):
        name = entry.text("image_path").replace("\\", "/").rpartition("/")[2]
        references = tuple(map(_plain, entry.texts("ground_truth")))
        shared = {"image": root / name, "references": references, "image_id": name}
        rows = entry.records("human_judgement", "judgment")
        rated = [(_plain(row.text("caption")), _rating(row)) for row in rows]
        for caption, group in groupby(rated, key=lambda pair: pair[0]):
            yield caption, [rating for _, rating in group], shared


def _rating(row: Record) -> float:
    return math.nan if row.values.get("rating") != row.values.get("rating") else row.number("rating")


def _image_root(folder: Path, images: Path | None) -> Path:
    if images is None and folder.name == _TEXTS:  # as the archives are unpacked
        return image_folder(folder.parent, None, *_IMAGES)
    return image_folder(folder, images, *_IMAGES)


def _plain(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class _Layout:
    """The published files of a benchmark, and the functions that read them."""

    text: str
    json: str
    config: str
    read_text: Callable[[Path, Path | None], Iterator[RatedCaption]]
    read_json: Callable[[Path, Path | None], Iterator[RatedCaption]]

    def load(self, path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
        """Reads CLIPScore's JSON file, the text files of the archive, or the tables of the Hub."""
        file = path / self.json if path.is_dir() else path
        if file.suffix.lower() == ".json" and file.is_file():
            return self.read_json(file, images)
        places = self.text, f"{_TEXTS}/{self.text}"
        if path.suffix == ".txt" if path.is_file() else any((path / place).is_file() for place in places):
            return self.read_text(find_file(path, *places), images)
        try:
            return rated_split(path, images, ("test",), self.config)
        except MissingFileError:
            raise MissingFileError(
                f"{path} holds neither {self.text} nor {self.json}, nor Parquet files of {self.config}"
            ) from None


_EXPERT_FILES = _Layout("ExpertAnnotations.txt", "flickr8k.json", "expert", _expert_text, _expert_json)
_CROWD_FILES = _Layout(
    "CrowdFlowerAnnotations.txt", "crowdflower_flickr8k.json", "crowdflower", _crowd_text, _crowd_json
)

_ORIGIN = (
    "the text and image archives of Flickr8k (Hodosh, Young, Hockenmaier 2013), sent on request; the JSON file is "
    "what download.py of CLIPScore makes of them (jmhessel/clipscore, flickr8k_example/)"
)
_LICENCE = "none stated in its readme, which asks for a citation; the images belong to those who put them on Flickr"


def _files(layout: _Layout, ratings: str) -> str:
    return (
        f"a folder with {layout.text} and {_TOKEN_FILE} (also in its folder {_TEXTS}); or {layout.json}; or the "
        f"Parquet files of the Hub (configuration {layout.config}); or a .jsonl file with image, candidate, references "
        f"and ratings ({ratings}) per line; and the images in a folder {_IMAGES[0]} beside them (or --images, images=)"
    )


SPECS = (
    BenchmarkSpec(
        name="flickr8k-expert",
        title="Flickr8k-Expert",
        form=RatedCaption,
        statistic="tau-c",
        load=_EXPERT_FILES.load,
        files=_files(_EXPERT_FILES, "three numbers"),
        origin=_ORIGIN,
        licence=_LICENCE,
        hub="yuwd/Flickr8k-HumanEval",
        hub_files=("README.md", "*expert*"),
        checked="schema",
    ),
    BenchmarkSpec(
        name="flickr8k-cf",
        title="Flickr8k-CF",
        form=RatedCaption,
        statistic="tau-b",
        load=_CROWD_FILES.load,
        judgments="mean",
        files=_files(_CROWD_FILES, "0 or 1 per rater, or the share of yes"),
        origin=_ORIGIN,
        licence=_LICENCE,
        hub="yuwd/Flickr8k-HumanEval",
        hub_files=("README.md", "*crowdflower*"),
    ),
)
