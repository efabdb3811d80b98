"""Pascal-50S: which of two captions people find closer to what others wrote of the image."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, PreferencePair
from reward.metaeval.benchmarks.jsonl import read_pair
from reward.metaeval.benchmarks.records import find_file, read_object

__all__ = ["SPECS"]

# Two correct captions by people; one by people of this image and one of another; one by people and one by a machine;
# two by machines. In the order of the numbers 1 to 4 of the published files.
CATEGORIES = ("HC", "HI", "HM", "MM")
DRAWN = 5  # references of a pair, in the protocol of the literature
VOTES = 48  # of people on a pair, each of whom saw another reference
ALL = "all references"
DRAWS = tuple(f"draw {number}" for number in range(1, 6))


def _load(path: Path, part: str, images: Path | None) -> Iterator[Item]:
    """Reads the JSON file or the .mat files.

    Where as many people voted for one caption as for the other, a seeded generator says which is labelled better, as
    the literature does; so all 4,000 pairs count.
    """
    if path.suffix == ".json" or (path / "pascal_50s.json").is_file():
        return _read_json(find_file(path, "pascal_50s.json"), images)
    return _read_mat(path, part, images)


def _draw_references(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """Draws 5 references of each pair, unless the part is "all references" or the pair has no more.

    The literature scores with 5 of the 48 references drawn at random, and gives the mean over 5 draws. Each part
    `"draw 1"` to `"draw 5"` is one such draw, by a generator that is seeded with the draw and the pair's place.
    """
    for place, pair in enumerate(items):
        if pair.category not in CATEGORIES:
            raise DataError(f"{path}: category must be {', '.join(CATEGORIES)}, got {pair.category!r:.60}")
        if isinstance(pair, PreferencePair) and part != ALL and len(pair.references) > DRAWN:
            drawn = tuple(_generator(part, place, "references").sample(pair.references, DRAWN))
            pair = replace(pair, references=drawn)
        yield pair


def _generator(part: str, place: int, purpose: str) -> random.Random:
    return random.Random(f"capreward pascal-50s {part} {place} {purpose}")


def _read_json(path: Path, images: Path | None) -> Iterator[PreferencePair]:
    """`{category: list of {image, captions, label, references}}`."""
    data = read_object(path)
    for category in data.values:
        for entry in data.records(category, f"{category}, pair"):
            yield replace(read_pair(entry, images), category=category)


def _read_mat(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    folder = path.parent if path.is_file() else path
    pairs_file, votes_file = (
        find_file(folder, name, f"pyCIDErConsensus/{name}") for name in ("pair_pascal.mat", "consensus_pascal.mat")
    )
    pairs, categories = _load_mat(pairs_file, "new_input", "category")
    [votes] = _load_mat(votes_file, "triplets")
    if len(categories) != len(pairs) or len(votes) != VOTES * len(pairs):
        raise DataError(
            f"{pairs_file} holds {len(pairs)} pairs and {len(categories)} categories, and {votes_file} {len(votes)} "
            f"votes; there must be a category and {VOTES} votes a pair"
        )
    for place, pair in enumerate(pairs):
        where = f"{pairs_file}, pair {place + 1}"
        image, first, second = _record(pair, (str, str, str), where)
        number = _plain(categories[place])
        if number not in (1, 2, 3, 4):
            raise DataError(f"{where}: category must be 1, 2, 3 or 4, got {number!r:.60}")
        counts, references = [0, 0], []
        for row in range(VOTES * place, VOTES * (place + 1)):
            where = f"{votes_file}, triplet {row + 1}"
            reference, *captions, vote = _record(votes[row], (str, str, str, int), where)
            chosen = captions[0] if vote == 1 else captions[1]
            if chosen not in (first, second):
                raise DataError(f"{where}: its captions are not those of pair {place + 1} of {pairs_file}")
            counts[chosen != first] += 1
            if reference:
                references.append(reference)
        if counts[0] == counts[1]:
            label = _generator(part, place, "label").randrange(2)
        else:
            label = int(counts[1] > counts[0])
        yield PreferencePair(
            captions=(first, second),
            label=label,
            image=(images or folder) / image,
            references=tuple(references),
            image_id=image,
            category=CATEGORIES[int(number) - 1],
        )


def _load_mat(path: Path, *names: str) -> list[np.ndarray]:
    """Variables of a MATLAB file, flattened."""
    from scipy.io import loadmat

    try:
        variables = loadmat(path, variable_names=names)
    except Exception as error:  # damaged files make scipy raise nearly any exception
        raise DataError(f"{path} cannot be read as a MATLAB file: {error}") from error
    for name in names:
        if name not in variables:
            raise DataError(f"{path} has no variable {name!r}")
    return [variables[name].reshape(-1) for name in names]


def _record(record: Any, kinds: tuple[type, ...], where: str) -> list[Any]:
    """The fields of a struct, or the cells of a row, by their place; texts without blanks around them."""
    values = [_plain(value) for value in (record.reshape(-1) if isinstance(record, np.ndarray) else record)]
    if len(values) != len(kinds):
        raise DataError(f"{where} must have {len(kinds)} fields, got {len(values)}")
    for value, kind in zip(values, kinds, strict=True):
        if not isinstance(value, (int, float) if kind is int else kind):
            raise DataError(f"{where} must hold {', '.join(kind.__name__ for kind in kinds)}, got {value!r:.60}")
    return [value.strip() if isinstance(value, str) else value for value in values]


def _plain(value: Any) -> Any:
    """What is in cells within cells: a text, or a number."""
    while isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, np.ndarray) and value.size == 0:
        return ""  # MATLAB's empty text
    return value.item() if isinstance(value, np.generic) else value


SPECS = (
    BenchmarkSpec(
        name="pascal-50s",
        title="Pascal-50S",
        form=PreferencePair,
        statistic="accuracy",
        load=_load,
        refine=_draw_references,
        ties="wrong",
        files="a folder with pair_pascal.mat and consensus_pascal.mat (also in pyCIDErConsensus/); or pascal_50s.json, "
        "{category: list of {image, captions, label, references}}; or a .jsonl file with category, image, captions, "
        "label and references per line; and a folder of the images of the PASCAL VOC challenge (--images, images=)",
        origin="the authors of CIDEr (Vedantam, Zitnick, Parikh 2015) publish the .mat files with the data of their "
        "consensus study; pascal_50s.json is in the repository of FLEUR (Yebin46/FLEUR, annotations/)",
        parts=(*DRAWS, ALL),
    ),
)
