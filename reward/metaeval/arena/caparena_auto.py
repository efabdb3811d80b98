"""CapArena-Auto: the captions of a model against one of three baselines on each of 600 images."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.json_files import check_same_images, check_text, read_json
from reward.metaeval.arena.battles import HUMAN, VERDICTS, Battle, Record, in_random_order, outcome

__all__ = [
    "WHERE_TO_GET",
    "AutoItem",
    "AutoScore",
    "BaselineScore",
    "auto_scores",
    "make_auto_battles",
    "read_auto",
    "score_auto",
]

WHERE_TO_GET = """\
CapArena-Auto is distributed by its authors, not with this package:
- the benchmark, caparena_auto_600.json: for each of 600 images a caption written by a person, the captions of the
  baselines, and which baseline is met on the image;
- the 600 images, test_*.jpg.
Links to both: the readme of github.com/njucckevin/CapArena, under CapArena-Auto. The readme states no licence for
them; the images come from DOCCI, whose terms its own page states. Ask the authors before you pass them on. The
captions of your model are yours to make: {"test_01258.jpg": "A caption.", ...}, one for each image."""


@dataclass(frozen=True)
class AutoItem:
    """One image of the benchmark.

    Args:
        image: file name.
        baseline: name of the model that is the opponent on this image.
        caption: the baseline's caption.
        reference: a caption by a person.
    """

    image: str
    baseline: str
    caption: str
    reference: str


@dataclass(frozen=True)
class BaselineScore:
    """Battles against one baseline.

    Args:
        wins, ties, losses: of the model.
        unjudged: battles without a verdict; they count in nothing else.
        itself: the model is this baseline; there are no battles, and the score is 0, as for ties.
    """

    wins: int = 0
    ties: int = 0
    losses: int = 0
    unjudged: int = 0
    itself: bool = False

    @property
    def judged(self) -> int:
        return self.wins + self.ties + self.losses

    @property
    def score(self) -> float:
        """100 (wins - losses) / judged battles, in [-100, 100]: of 200 battles, half of wins minus losses."""
        if self.itself:
            return 0.0
        return 100 * (self.wins - self.losses) / self.judged if self.judged else float("nan")


@dataclass(frozen=True)
class AutoScore:
    """The score of a model in CapArena-Auto.

    Args:
        model: its name.
        baselines: {baseline: battles against it}.
        mean_words: mean length of the model's captions in words.
    """

    model: str
    baselines: Mapping[str, BaselineScore]
    mean_words: float

    @property
    def score(self) -> float:
        """Mean over the baselines, in [-100, 100]; NaN if one of them has no judged battle."""
        return sum(part.score for part in self.baselines.values()) / len(self.baselines)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file; scores that are not numbers are null."""
        parts = {name: {**asdict(part), "score": _number(part.score)} for name, part in self.baselines.items()}
        return {"model": self.model, "score": _number(self.score), "baselines": parts, "mean_words": self.mean_words}


def read_auto(path: str | os.PathLike[str]) -> list[AutoItem]:
    """Reads the benchmark: {image: {"captions": {"human": ..., "<baseline>": ...}, "ref_model": "<baseline>"}}.

    Raises:
        DataError: missing (the message says where to get it), unreadable, or an entry that is not complete.
    """
    if not Path(path).is_file():
        raise DataError(f"there is no file {path}.\n{WHERE_TO_GET}")
    values = read_json(path)
    if not isinstance(values, dict) or not values:
        raise DataError(
            f'{path} must hold one JSON object {{image: {{"captions": ..., "ref_model": ...}}}}, got '
            f"{type(values).__name__} of {len(values) if isinstance(values, (dict, list)) else 1}.\n{WHERE_TO_GET}"
        )
    return [_item(image, entry, f"{path}: {image!r}") for image, entry in values.items()]


def _item(image: str, entry: Any, where: str) -> AutoItem:
    check_text(image, f"{where}: the name of the image", blank=False)
    for name, kind in (("captions", dict), ("ref_model", str)):
        if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
            fields = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
            wanted = "an object {source: caption}" if kind is dict else "the name of a baseline"
            raise DataError(f"{where} must have {name!r}, {wanted}; it has: {fields or 'nothing'}")
    baseline = entry["ref_model"]
    for source in (baseline, HUMAN):
        if source not in entry["captions"]:
            raise DataError(f"{where} has no caption of {source!r}; it has those of: {', '.join(entry['captions'])}")
        check_text(entry["captions"][source], f"{where}: the caption of {source!r}", blank=False)
    return AutoItem(image, baseline, entry["captions"][baseline], entry["captions"][HUMAN])


def make_auto_battles(
    items: Sequence[AutoItem], captions: Mapping[str, str], model: str, *, seed: int = 0
) -> list[Battle]:
    """The battles of a model: on each image against its baseline, with the two captions in random order.

    A model that is a baseline does not meet itself.

    Args:
        items: the benchmark.
        captions: {image: caption of the model}; a blank caption loses.
        model: its name.
        seed: for the order of the captions.

    Raises:
        DataError: an image has no caption, or no image is left.

    Example:
        >>> items = [AutoItem("1.jpg", "baseline", "A dog.", "A dog runs.")]
        >>> make_auto_battles(items, {"1.jpg": "A brown dog."}, "mine")[0].to_json()["ref_model"]
        'baseline'
    """
    if model == HUMAN:
        raise DataError(f"{HUMAN!r} is the name of the captions that people wrote; give the model another name")
    check_same_images({item.image: item for item in items}, captions, "benchmark", "captions of the model")
    battles = []
    for item in items:
        if item.baseline == model:
            continue
        texts = {model: captions[item.image], item.baseline: item.caption}
        one, two = in_random_order((model, item.baseline), f"{seed}/{item.image}")
        entry = {"img": item.image, "source1": one, "source2": two, "caption1": texts[one], "caption2": texts[two]}
        battles.append(Battle.from_json({**entry, "ref": item.reference, "ref_model": item.baseline}))
    if not battles:
        raise DataError(f"{model!r} is the only baseline of the benchmark; there is nobody else to meet")
    return battles


def score_auto(battles: Sequence[Record], model: str, baselines: Sequence[str]) -> AutoScore:
    """Scores the judged battles of a model.

    A win counts +1, a loss -1, a tie 0. Each baseline's sum is put on a scale from -100 to 100 (of the 200 battles
    against each, half the sum), and the score is the mean over the baselines. Battles without a verdict are left out.
    Words are counted between single spaces, as the authors do.

    Args:
        battles: entries of a judged battles file.
        model: the model that is scored.
        baselines: names of all baselines of the benchmark, the model's own too if it is one.

    Raises:
        DataError: a battle without the model, or against no baseline.

    Example:
        >>> battle = {"img": "1", "source1": "mine", "source2": "base", "caption1": "A dog.", "caption2": "A cat."}
        >>> score_auto([{**battle, "judge": "Caption 1 is better."}], "mine", ["base"]).score
        100.0
    """
    counts = {name: {"wins": 0, "ties": 0, "losses": 0, "unjudged": 0} for name in baselines}
    words = []
    for entry in battles:
        sources = (entry["source1"], entry["source2"])
        if model not in sources:
            raise DataError(f"battle on {entry['img']!r} is between {sources[0]!r} and {sources[1]!r}, not {model!r}")
        place = 1 + sources.index(model)
        other = sources[2 - place]
        if other not in counts:
            raise DataError(f"battle on {entry['img']!r} is against {other!r}, which is none of {', '.join(baselines)}")
        result = outcome(entry, place)
        counts[other]["unjudged" if result is None else ("ties", "wins", "losses")[result]] += 1
        words.append(len(entry[f"caption{place}"].split(" ")))
    parts = {name: BaselineScore(**row, itself=name == model) for name, row in counts.items()}
    return AutoScore(model, parts, sum(words) / len(words) if words else float("nan"))


def auto_scores(battles: Sequence[Battle], points: np.ndarray) -> list[AutoScore]:
    """The leaderboard: scores of all models by one voter, best first; models without a score come last.

    Args:
        battles: N battles of CapArena-Auto, of one model or more. `ref_model` says which source is the baseline.
        points: (N,) of the voter, see `Arena`; a battle without a vote (NaN) is left out.

    Raises:
        DataError: `ref_model` is neither of the two sources, or a model meets a baseline twice on one image.

    Example:
        >>> entry = {"img": "1", "caption1": "A dog.", "caption2": "A cat.", "ref_model": "base"}
        >>> battles = [Battle.from_json({**entry, "source1": name, "source2": "base"}) for name in ("new", "old")]
        >>> [(score.model, score.score) for score in auto_scores(battles, np.array([0.0, 0.5]))]
        [('old', 0.0), ('new', -100.0)]
    """
    words = {1.0: VERDICTS["A"], 0.0: VERDICTS["B"], 0.5: VERDICTS["tie"]}
    models: dict[str, dict[str, Record]] = {}
    baselines: dict[str, None] = {}
    for number, (battle, won) in enumerate(zip(battles, points, strict=True), start=1):
        sources, baseline = (battle.source1, battle.source2), battle.record.get("ref_model")
        if baseline not in sources:
            raise DataError(
                f"battle {number} on {battle.img!r}: 'ref_model' must be one of {sources[0]!r} and {sources[1]!r}, "
                f"got {baseline!r:.80}"
            )
        baselines[baseline] = None
        model = sources[sources[0] == baseline]
        if battle.img in models.setdefault(model, {}):
            raise DataError(f"{model!r} is on {battle.img!r} twice: give the battles of each model, by one judge, once")
        models[model][battle.img] = {**battle.to_json(), "judge": words.get(float(won))}
    scores = [score_auto(list(entries.values()), model, list(baselines)) for model, entries in models.items()]
    return sorted(scores, key=lambda score: math.inf if math.isnan(score.score) else -score.score)


def _number(value: float) -> float | None:
    return value if value == value else None  # NaN is no JSON
