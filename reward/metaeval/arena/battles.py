"""Battles of two captions of one image, in the fields of CapArena's files: read, made, and who won."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from reward.data.json_files import read_json
from reward.data.samples import check_encodable, find_column, is_blank, join_names, one_image
from reward.errors import DataError, InvalidSampleError
from reward.judges.opinions import Winner
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow

HUMAN = "human"  # the source of captions that people wrote
EQUAL = "equal"  # the winner where people called a tie
AUTO_FILE = "caparena_auto_600.json"  # holds no battles, and may lie beside files of them
VERDICTS: dict[Winner, str] = {"A": "Caption 1 is better.", "B": "Caption 2 is better.", "tie": "Tie."}
POINTS: dict[Winner, float] = {"A": 1.0, "B": 0.0, "tie": 0.5}  # of the first caption

# An entry of a battles file: img, source1, source2, caption1, caption2, perhaps ref, and whatever else is in it.
Battle: TypeAlias = dict[str, Any]


def read_battles(path: str | os.PathLike[str]) -> list[Battle]:
    """Reads battles: a JSON list of objects with img, source1, source2, caption1, caption2 and perhaps ref.

    Args:
        path: the file, or a folder of such files.

    Raises:
        DataError: unreadable, not such a list, empty, or an entry that is not complete; the message names it.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json") if file.name != AUTO_FILE)
        if not files:
            raise DataError(f"folder {path} holds no .json file of battles")
        return [battle for file in files for battle in read_battles(file)]
    if path.suffix.lower() in (".jsonl", ".ndjson") and path.is_file():
        raise DataError(f"{path} has an object a line; battles are one JSON list: [{{...}}, {{...}}]")
    entries = read_json(path)
    if not isinstance(entries, list):
        what = f"got {type(entries).__name__}; captions go with --judge"
        raise DataError(f"{path} must hold a JSON list of battles, {what}")
    if not entries:
        raise DataError(f"{path} holds no battles")
    return [check_battle(entry, f"{path}: battle {number}") for number, entry in enumerate(entries, start=1)]


def check_battle(entry: Any, where: str) -> Battle:
    """An entry as a battle, without a blank `ref`; `where` names it in messages.

    Raises:
        DataError: a field is missing or of the wrong type.
    """
    if not isinstance(entry, dict):
        raise DataError(f"{where} must be a JSON object, got {type(entry).__name__}")
    for name in ("img", "source1", "source2", "caption1", "caption2"):
        if name not in entry:
            raise DataError(f"{where} has no field {name!r}; it has: {', '.join(map(str, entry)) or 'none'}")
        _check_text(entry[name], f"{where}: field {name!r}", blank=name.startswith("caption"))
    if entry["source1"] == entry["source2"]:
        raise DataError(f"{where} is one of {entry['source1']!r} against itself; source1 and source2 must differ")
    battle = dict(entry)
    if battle.get("ref") is not None:
        _check_text(battle["ref"], f"{where}: field 'ref'", blank=True)
    if not (battle.get("ref") or "").strip():
        battle.pop("ref", None)
    return battle


def _check_text(value: Any, name: str, *, blank: bool) -> None:
    """Checks that a value, which messages call `name`, is a text in valid Unicode, and not blank unless it may be."""
    if not isinstance(value, str):
        raise DataError(f"{name} must be a text, got {type(value).__name__}: {value!r:.80}")
    if not blank and is_blank(value):
        raise DataError(f"{name} is empty")
    try:
        check_encodable(value, name)
    except InvalidSampleError as error:
        raise DataError(str(error)) from None


def check_same_images(images: Mapping[str, Any], others: Mapping[str, Any], name: str, other_name: str) -> None:
    """Raises DataError if some images are not among the others, which messages call `name` and `other_name`."""
    missing = [image for image in images if image not in others]
    if missing:
        examples = join_names(missing, most=3)
        raise DataError(
            f"{len(missing)} of the {len(images)} images in the {name} are missing in the {other_name}: {examples}"
        )


def has_human(battle: Battle) -> bool:
    """Whether one source is `human`; the reference would then be one of the two captions."""
    return HUMAN in (battle["source1"], battle["source2"])


def points_of(battle: Battle, field: str, meaning: Mapping[str, float]) -> float | None:
    """What the first caption won by a field of a battle; None without it.

    Raises:
        DataError: the field holds nothing that has a meaning.
    """
    value = battle.get(field)
    if value is None:
        return None
    for words, points in meaning.items():
        if isinstance(value, str) and value.rstrip(".") == words.rstrip("."):
            return points
    where = f"battle of {battle['source1']!r} and {battle['source2']!r} on {battle['img']!r}"
    raise DataError(f"{where}: {field!r} must be one of {', '.join(map(repr, meaning))}, got {value!r:.80}")


def read_captions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads the captions of one model: {image: caption} as JSON, or rows in the forms that `capreward score` reads.

    Raises:
        DataError: unreadable, empty, an image named twice, or a caption that is no text.
    """
    source = open_source(path)
    image, caption = (
        str(find_column(role, source.columns, option="--candidate-column", needed_by=str(path)))
        for role in ("image", "candidate")
    )
    captions: dict[str, str] = {}
    for number, row in enumerate(source.rows([image, caption]), start=1):
        if isinstance(row, BadRow):
            raise DataError(f"{path}: {row.message}")
        try:
            name = one_image(row.get(image))
        except InvalidSampleError as error:
            raise DataError(f"{path}: row {number}: {error}") from None
        _check_text(name, f"{path}: the image of row {number}", blank=False)
        _check_text(row.get(caption), f"{path}: the caption of {name!r}", blank=True)
        if name in captions:
            raise DataError(f"{path}: {name!r} is there twice; which one is meant?")
        captions[name] = row[caption]
    return captions


def make_battles(captions: Mapping[str, Mapping[str, str]], *, seed: int = 0) -> list[Battle]:
    """Pairs up the captions of models: every two models meet on every image, in an order drawn at random.

    Args:
        captions: {model: {image: caption}} of two models or more, all for the same images.
        seed: of the order; the order of a pair depends on it, the image and the models only.

    Raises:
        DataError: fewer than two models, or images that one model lacks.

    Example:
        >>> [battle["img"] for battle in make_battles({"x": {"1.jpg": "A dog."}, "y": {"1.jpg": "A cat."}})]
        ['1.jpg']
    """
    if len(captions) < 2:
        raise DataError(f"battles need the captions of at least two models, got {len(captions)}")
    first, *others = captions
    for other in others:
        for one, two in ((first, other), (other, first)):
            check_same_images(captions[one], captions[two], f"captions of {one!r}", f"captions of {two!r}")
    return [
        make_battle(image, {name: captions[name][image] for name in pair}, None, seed)
        for image in captions[first]
        for pair in combinations(captions, 2)
    ]


def make_battle(image: str, captions: Mapping[str, str], reference: str | None, seed: int) -> Battle:
    """A battle of two captions {source: caption}, in an order that depends on the seed, the image and the sources."""
    one, two = sorted(captions)
    if random.Random(f"{seed}/{image}/{one}/{two}").random() >= 0.5:
        one, two = two, one
    entry = {"img": image, "source1": one, "source2": two, "caption1": captions[one], "caption2": captions[two]}
    return check_battle({**entry, "ref": reference}, f"battle of {one!r} and {two!r} on {image!r}")
