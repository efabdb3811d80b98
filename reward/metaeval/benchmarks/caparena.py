"""CapArena's battles: long captions by two models of one image, and which of them people preferred."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.arena.battles import HUMAN, Battle, Record, human_outcome, outcome, read_battles
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, PreferencePair
from reward.metaeval.benchmarks.records import find_file, score_in

__all__ = ["SPECS", "pair_of_battle"]

BATTLES = "caparena_annots_eval.json"
JUDGE = "judge"  # the column of the verdicts that came with the battles
_LABELS = {1: 0, -1: 1, 0: None}  # by the outcome for the first caption
_SCORES = {1: (1.0, 0.0), -1: (0.0, 1.0), 0: (0.5, 0.5)}


def _load_battles(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Reads battles that people have judged.

    The category is the level (`cluster`), the reference what a person wrote of the image (`ref`). Verdicts of a judge
    in the file (`judge`) become the score column `"judge"`: 1 for the better caption and 0 for the other, 0.5 for both
    in a tie, NaN without a readable verdict. Other fields with two numbers, one per caption, are score columns too.
    """
    path = find_file(path, BATTLES, f"data/eval/{BATTLES}")
    battles = read_battles(path)
    judged = any(battle.record.get(JUDGE) is not None for battle in battles)
    for number, battle in enumerate(battles, start=1):
        if battle.has_human:
            continue  # left out below anyway; it need not have a winner
        where = f"{path}: battle {number}"
        result = human_outcome(battle.record)
        if result is None:
            raise DataError(f"{where} has no 'winner': only battles that people have judged can be compared with")
        level = battle.record.get("cluster", "")
        if not isinstance(level, str):
            raise DataError(f"{where}: cluster must be text, such as 'level 1', got {level!r:.60}")
        columns = {JUDGE: _verdict(battle.record)} if judged else {}
        yield pair_of_battle(battle, images or path.parent, _LABELS[result], level, columns)


def _without_people(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """Leaves out battles against captions by people (source `human`), as CapArena does."""
    return (item for item in items if not (isinstance(item, PreferencePair) and HUMAN in (item.systems or ())))


def pair_of_battle(
    battle: Battle,
    images: Path,
    label: int | None = None,
    level: str = "",
    columns: Mapping[str, tuple[float, float]] | None = None,
) -> PreferencePair:
    """A battle as a pair of captions, with its fields that hold two numbers as score columns.

    Args:
        battle: the battle.
        images: folder of the images.
        label: as for `PreferencePair`.
        level: the category.
        columns: further score columns.

    Raises:
        DataError: a score is too large for a float.
    """
    return PreferencePair(
        captions=(battle.caption1, battle.caption2),
        label=label,
        image=images / battle.img,
        references=() if battle.ref is None else (battle.ref,),
        image_id=battle.img,
        category=level,
        systems=(battle.source1, battle.source2),
        columns=_numbers(battle) | dict(columns or {}),
    )


def _verdict(record: Record) -> tuple[float, float]:
    try:
        verdict = outcome(record, 1)
    except DataError:  # published files have some answers that are not verdicts
        verdict = None
    return (math.nan, math.nan) if verdict is None else _SCORES[verdict]


def _numbers(battle: Battle) -> dict[str, tuple[float, float]]:
    columns = {}
    for name, value in battle.record.items():
        if isinstance(value, list) and len(value) == 2 and all(type(number) in (int, float) for number in value):
            first, second = map(score_in, value)
            if first is None or second is None:
                where = f"the battle of {battle.source1} and {battle.source2} of {battle.img}"
                raise DataError(f"{where}: {name} must be finite numbers, got {value!r:.60}")
            columns[name] = first, second
    return columns


SPECS = (
    BenchmarkSpec(
        name="caparena",
        title="CapArena",
        form=PreferencePair,
        statistic="agreement",
        load=_load_battles,
        refine=_without_people,
        files=f"{BATTLES}, another file of battles with winner, or a folder that holds the first; or a .jsonl file "
        "with image, captions, label, systems, category and references per line; and the folder of DOCCI's images "
        "(--images, images=)",
        origin="the link in the repository njucckevin/CapArena (Cheng and others 2025); images from DOCCI",
    ),
)
