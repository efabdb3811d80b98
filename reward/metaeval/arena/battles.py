"""Battles of two captions of one image, in CapArena's JSON: reading them, making them, and counting wins."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.json_files import check_same_images, check_text, read_json
from reward.judges.opinions import Winner

__all__ = [
    "EQUAL",
    "HUMAN",
    "VERDICTS",
    "Battle",
    "Record",
    "choices_of",
    "human_outcome",
    "in_random_order",
    "make_battles",
    "outcome",
    "read_battles",
    "tally",
]

HUMAN = "human"  # the source of captions that people wrote
EQUAL = "equal"  # the winner where people called a tie
_JUDGEMENT = ("judge", "judge_reason", "judge_probabilities", "judge_orders", "judge_error")
VERDICTS: dict[Winner, str] = {"A": "Caption 1 is better.", "B": "Caption 2 is better.", "tie": "Tie."}


@dataclass(frozen=True)
class Battle:
    """Two captions of one image.

    Args:
        img: file name of the image.
        source1, source2: names of the models that wrote the captions.
        caption1, caption2: the captions; a blank caption loses without being judged.
        ref: a caption written by a person, or None.
        record: the entry as it was read, with all its fields.

    Raises:
        DataError: a field is missing or of the wrong type.
    """

    img: str
    source1: str
    source2: str
    caption1: str
    caption2: str
    ref: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_json(cls, entry: Any, where: str = "battle") -> Battle:
        """Reads one entry of a battles file; `where` names it in messages."""
        if not isinstance(entry, dict):
            raise DataError(f"{where} must be a JSON object, got {type(entry).__name__}")
        for name in ("img", "source1", "source2", "caption1", "caption2"):
            if name not in entry:
                raise DataError(f"{where} has no field {name!r}; it has: {', '.join(map(str, entry)) or 'none'}")
            check_text(entry[name], f"{where}: field {name!r}", blank=name.startswith("caption"))
        if entry["source1"] == entry["source2"]:
            raise DataError(f"{where} is one of {entry['source1']!r} against itself; source1 and source2 must differ")
        ref = entry.get("ref")
        if ref is not None:
            check_text(ref, f"{where}: field 'ref'", blank=True)
            ref = ref if ref.strip() else None
        return cls(
            img=entry["img"],
            source1=entry["source1"],
            source2=entry["source2"],
            caption1=entry["caption1"],
            caption2=entry["caption2"],
            ref=ref,
            record=dict(entry),
        )

    @property
    def has_human(self) -> bool:
        """Whether one source is `human`; the reference would then be one of the two captions."""
        return HUMAN in (self.source1, self.source2)

    def to_json(self) -> dict[str, Any]:
        """The entry for a file, with all fields that were read, except those of an earlier judge."""
        entry = {"img": self.img, "source1": self.source1, "source2": self.source2}
        entry |= {"caption1": self.caption1, "caption2": self.caption2}
        if self.ref is not None:
            entry["ref"] = self.ref
        return {name: value for name, value in {**entry, **self.record}.items() if name not in _JUDGEMENT}


# An entry of a judged file: the battle, and the fields of `judged_fields` in reward.metaeval.arena.judging.
Record = Mapping[str, Any]


def tally(battles: Sequence[Record]) -> dict[str, dict[str, int]]:
    """Wins, ties, losses and battles without a verdict of each source.

    Args:
        battles: entries of a judged file; those without `judge` count as `unjudged`.

    Raises:
        DataError: `judge` is none of CapArena's three verdicts.

    Example:
        >>> entry = {"img": "a", "source1": "x", "source2": "y", "judge": "Caption 2 is better."}
        >>> tally([entry])["y"]
        {'wins': 1, 'ties': 0, 'losses': 0, 'unjudged': 0}
    """
    counts: dict[str, dict[str, int]] = {}
    for entry in battles:
        for place, source in ((1, entry["source1"]), (2, entry["source2"])):
            row = counts.setdefault(source, {"wins": 0, "ties": 0, "losses": 0, "unjudged": 0})
            result = outcome(entry, place)
            row["unjudged" if result is None else ("ties", "wins", "losses")[result]] += 1
    return counts


def outcome(entry: Record, place: int) -> int | None:
    """Result of a battle for caption 1 or 2: 1 for a win, -1 for a loss, 0 for a tie, None without a verdict.

    Raises:
        DataError: `judge` is none of CapArena's three verdicts.
    """
    judge = entry.get("judge")
    if judge is None:
        return None
    values = {"Caption 1 is better": 1, "Caption 2 is better": -1, "Tie": 0}
    if not isinstance(judge, str) or judge.rstrip(".") not in values:
        raise DataError(f"{_name(entry)}: 'judge' must be {', '.join(map(repr, VERDICTS.values()))}, got {judge!r:.80}")
    value = values[judge.rstrip(".")]
    return value if place == 1 else -value


def human_outcome(entry: Record) -> int | None:
    """Result of a battle by people for caption 1, as `outcome`, from the field `winner`: a source or `equal`.

    Raises:
        DataError: `winner` is neither of the two sources, nor `equal`.

    Example:
        >>> human_outcome({"img": "a", "source1": "x", "source2": "y", "winner": "y"})
        -1
    """
    winner = entry.get("winner")
    if winner is None:
        return None
    if winner == EQUAL:
        return 0
    sources = (entry["source1"], entry["source2"])
    if winner not in sources:
        raise DataError(f"{_name(entry)}: 'winner' must be one of the two, or {EQUAL!r}, got {winner!r:.80}")
    return 1 if winner == sources[0] else -1


def _name(entry: Record) -> str:
    return f"battle of {entry['source1']!r} and {entry['source2']!r} on {entry['img']!r}"


def choices_of(entry: Record) -> tuple[Winner, ...]:
    """The verdict of each order of a judged battle, as `Verdict.choices`; empty if no order was judged.

    Raises:
        DataError: `judge_orders` is no list of CapArena's three verdicts.
    """
    names = {words: winner for winner, words in VERDICTS.items()}
    orders = entry.get("judge_orders") or []
    if not isinstance(orders, list) or any(words not in list(names) for words in orders):
        raise DataError(
            f"{_name(entry)}: 'judge_orders' must be a list of {', '.join(map(repr, names))}, got {orders!r:.80}"
        )
    return tuple(names[words] for words in orders)


def read_battles(path: str | os.PathLike[str]) -> list[Battle]:
    """Reads a battles file: a JSON list of objects with img, source1, source2, caption1, caption2 and perhaps ref.

    Raises:
        DataError: unreadable, not such a list, empty, or an entry that is not complete; the message names it.
    """
    if Path(path).suffix.lower() in (".jsonl", ".ndjson") and Path(path).is_file():
        raise DataError(f"{path} has an object a line; battles are one JSON list: [{{...}}, {{...}}]")
    entries = read_json(path)
    if not isinstance(entries, list):
        raise DataError(f"{path} must hold a JSON list of battles, got {type(entries).__name__}")
    if not entries:
        raise DataError(f"{path} holds no battles")
    return [Battle.from_json(entry, f"{path}: battle {number}") for number, entry in enumerate(entries, start=1)]


def make_battles(
    captions: Mapping[str, Mapping[str, str]], references: Mapping[str, str] | None = None, *, seed: int = 0
) -> list[Battle]:
    """Pairs up the captions of models: every two models meet on every image, in an order drawn at random.

    Args:
        captions: {model: {image: caption}} of two models or more, all for the same images.
        references: {image: caption written by a person}.
        seed: of the order; the order of a pair depends on it, the image and the models only.

    Raises:
        DataError: fewer than two models, images that one model lacks, or no reference for an image.

    Example:
        >>> [b.img for b in make_battles({"x": {"1.jpg": "A dog."}, "y": {"1.jpg": "A cat."}})]
        ['1.jpg']
    """
    if len(captions) < 2:
        raise DataError(f"battles need the captions of at least two models, got {len(captions)}")
    first, *others = captions
    for other in others:
        for one, two in ((first, other), (other, first)):
            check_same_images(captions[one], captions[two], f"captions of {one!r}", f"captions of {two!r}")
    if references is not None:
        check_same_images(captions[first], references, f"captions of {first!r}", "references")
    battles = []
    for image in captions[first]:
        for pair in combinations(captions, 2):
            one, two = in_random_order(pair, f"{seed}/{image}")
            entry = {"img": image, "source1": one, "source2": two}
            entry |= {"caption1": captions[one][image], "caption2": captions[two][image]}
            if references is not None:
                entry["ref"] = references[image]
            battles.append(Battle.from_json(entry, f"battle of {one!r} and {two!r} on {image!r}"))
    return battles


def in_random_order(pair: tuple[str, str], seed: str) -> tuple[str, str]:
    """The pair in random order, by a draw that depends on the seed and the names, but not on the order given."""
    one, two = sorted(pair)
    return (one, two) if random.Random(f"{seed}/{one}/{two}").random() < 0.5 else (two, one)
