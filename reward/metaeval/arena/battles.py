"""Battles of two captions of one image, in the fields of CapArena's files: read, or made of the captions of models."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from reward.data.json_files import read_json
from reward.data.samples import check_encodable, find_column, is_blank, join_names, one_image
from reward.errors import DataError, InvalidSampleError
from reward.judges.pairwise import Winner
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow

HUMAN = "human"  # the source of captions that people wrote
EQUAL = "equal"  # the winner where people called a tie
AUTO_FILE = "caparena_auto_600.json"  # holds no battles, and may lie beside files of them
VERDICTS: dict[Winner, str] = {"A": "Caption 1 is better.", "B": "Caption 2 is better.", "tie": "Tie."}
WHERE_TO_GET = """\
CapArena-Auto comes from its authors, not with this package: caparena_auto_600.json and its 600 images, test_*.jpg.
Links to both: the readme of github.com/njucckevin/CapArena, under CapArena-Auto. The readme states no licence for them;
the images come from DOCCI, whose terms its own page states. Ask the authors before you pass them on. The captions of
your model are yours to make: {"test_01258.jpg": "A caption.", ...}, one for each image."""

# An entry of a battles file: img, source1, source2, caption1, caption2, perhaps ref, and whatever else is in it.
Battle: TypeAlias = dict[str, Any]


class AutoItem(NamedTuple):
    """One image of CapArena-Auto: the model that is the opponent on it, that model's caption, and one by a person."""

    image: str
    baseline: str
    caption: str
    reference: str


def read_battles(path: str | os.PathLike[str]) -> list[Battle]:
    """Reads battles: a JSON list of objects with img, source1, source2, caption1, caption2 and perhaps ref.

    Args:
        path: the file, or a folder of such files.

    Raises:
        DataError: unreadable, not such a list, empty, or an entry that is not complete; the message names it.
    """
    path = Path(path)
    if path.is_dir():
        battles = []
        for file in sorted(path.glob("*.json")):
            if file.name != AUTO_FILE:
                battles += read_battles(file)
        if not battles:
            raise DataError(f"folder {path} holds no .json file of battles")
        return battles
    entries = read_json(path) if path.suffix.lower() == ".json" else None
    if not isinstance(entries, list):
        raise DataError(
            f"{path} must hold a JSON list of battles; captions of two models or more go to `capreward compare`, or "
            "here with --judge"
        )
    if not entries:
        raise DataError(f"{path} holds no battles")
    return [check_battle(entry, f"{path}: battle {number}") for number, entry in enumerate(entries, start=1)]


def check_battle(entry: Any, name: str) -> Battle:
    """An entry as a battle, without a blank `ref`; `name` stands for it in messages.

    Raises:
        DataError: a field is missing or of the wrong type.
    """
    if not isinstance(entry, dict):
        raise DataError(f"{name} must be a JSON object, got {type(entry).__name__}")
    for field in ("img", "source1", "source2", "caption1", "caption2"):
        if field not in entry:
            raise DataError(f"{name} has no field {field!r}; it has: {', '.join(map(str, entry)) or 'none'}")
        # A blank caption may come from a model; it is for the voters to say what it is worth.
        _check_text(entry[field], f"{name}: field {field!r}", blank=field.startswith("caption"))
    if entry["source1"] == entry["source2"]:
        raise DataError(f"{name} is one of {entry['source1']!r} against itself; source1 and source2 must differ")
    battle = dict(entry)
    if battle.get("ref") is not None:
        _check_text(battle["ref"], f"{name}: field 'ref'", blank=True)
    # A blank reference is none.
    if not (battle.get("ref") or "").strip():
        battle.pop("ref", None)
    return battle


def has_human(battle: Battle) -> bool:
    """Whether one source is `human`; the reference would then be one of the two captions."""
    return HUMAN in (battle["source1"], battle["source2"])


def read_captions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads the captions of one model: {image: caption} as JSON, or rows in the forms that `capreward score` reads.

    Raises:
        DataError: unreadable, empty, an image named twice, or a caption that is no text.
    """
    reader = open_source(path)
    option = "--candidate-column"
    image_column = str(find_column("image", reader.columns, option=option, needed_by=str(path)))
    caption_column = str(find_column("candidate", reader.columns, option=option, needed_by=str(path)))
    captions: dict[str, str] = {}
    for number, row in enumerate(reader.rows([image_column, caption_column]), start=1):
        if isinstance(row, BadRow):
            raise DataError(f"{path}: {row.message}")
        try:
            image = one_image(row.get(image_column))
        except InvalidSampleError as error:
            raise DataError(f"{path}: row {number}: {error}") from None
        _check_text(image, f"{path}: the image of row {number}", blank=False)
        _check_text(row.get(caption_column), f"{path}: the caption of {image!r}", blank=True)
        if image in captions:
            raise DataError(f"{path}: {image!r} is there twice; which one is meant?")
        captions[image] = row[caption_column]
    return captions


def read_auto(path: str | os.PathLike[str]) -> list[AutoItem]:
    """Reads CapArena-Auto: {image: {"captions": {"human": ..., "<baseline>": ...}, "ref_model": "<baseline>"}}.

    Raises:
        DataError: missing, unreadable, or of another form; the message says where to get it.
    """
    if not Path(path).is_file():
        raise DataError(f"there is no file {path}.\n{WHERE_TO_GET}")
    entries = read_json(path)
    items = []
    image = "the whole"
    try:  # one clause for all that may be wrong; `image` says where
        for image, entry in entries.items():
            captions, baseline = entry["captions"], entry["ref_model"]
            items.append(AutoItem(image, baseline, captions[baseline], captions[HUMAN]))
    except (AttributeError, KeyError, TypeError) as error:
        form = '{image: {"captions": {"human": ..., "<baseline>": ...}, "ref_model": "<baseline>"}}'
        fault = f"{image!r} is none: {type(error).__name__}: {error}"
        raise DataError(f"{path} must hold {form}, and {fault}.\n{WHERE_TO_GET}") from error
    return items


def make_battles(captions: Mapping[str, Mapping[str, str]], *, seed: int = 0) -> list[Battle]:
    """Pairs up the captions of models: every two models meet on every image, in an order drawn at random.

    Args:
        captions: {model: {image: caption}} of two models or more, all for the same images.
        seed: of the order; the order of a pair depends on it, the image and the models only.

    Raises:
        DataError: fewer than two models, or images that one model lacks.
    """
    if len(captions) < 2:
        raise DataError(f"battles need the captions of at least two models, got {len(captions)}")
    first, *others = captions
    for other in others:
        _check_images(captions[first], captions[other], f"captions of {first!r}", f"captions of {other!r}")
        _check_images(captions[other], captions[first], f"captions of {other!r}", f"captions of {first!r}")
    battles = []
    for image in captions[first]:
        for one, two in combinations(captions, 2):
            battles.append(_battle(image, {one: captions[one][image], two: captions[two][image]}, None, seed))
    return battles


def make_auto_battles(
    items: Sequence[AutoItem], captions: Mapping[str, str], model: str, *, seed: int = 0
) -> list[Battle]:
    """The battles of a model in CapArena-Auto: on each image against its baseline, with the captions in random order.

    A model that is a baseline does not meet itself.

    Args:
        items: the benchmark.
        captions: {image: caption of the model}; a blank caption loses.
        model: its name.
        seed: for the order of the captions.

    Raises:
        DataError: an image has no caption, or no image is left.
    """
    if model == HUMAN:
        raise DataError(f"{HUMAN!r} is the name of the captions that people wrote; give the model another name")
    _check_images([item.image for item in items], captions, "benchmark", "captions of the model")
    battles = []
    for image, baseline, caption, reference in items:
        if baseline != model:
            battle = _battle(image, {model: captions[image], baseline: caption}, reference, seed)
            battles.append({**battle, "ref_model": baseline})
    if not battles:
        raise DataError(f"{model!r} is the only baseline of the benchmark; there is nobody else to meet")
    return battles


def _battle(image: str, captions: Mapping[str, str], reference: str | None, seed: int) -> Battle:
    """A battle of two captions {model: caption}, in an order that depends on the seed, the image and the models."""
    # Sorted first, so that the order does not depend on which model was named first.
    one, two = sorted(captions)
    if random.Random(f"{seed}/{image}/{one}/{two}").random() >= 0.5:
        one, two = two, one
    entry = {"img": image, "source1": one, "source2": two, "caption1": captions[one], "caption2": captions[two]}
    return check_battle({**entry, "ref": reference}, f"battle of {one!r} and {two!r} on {image!r}")


def _check_images(images: Collection[str], others: Mapping[str, str], name: str, other_name: str) -> None:
    """Raises DataError if some images are not among the others, which messages call `name` and `other_name`."""
    missing = [image for image in images if image not in others]
    if missing:
        counts = f"{len(missing)} of the {len(images)} images in the {name}"
        raise DataError(f"{counts} are missing in the {other_name}: {join_names(missing, most=3)}")


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
