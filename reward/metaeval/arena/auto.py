"""CapArena-Auto: the captions of a model against one of three baselines on each of 600 images."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reward.errors import DataError
from reward.json_files import check_same_images, check_text, read_json
from reward.metaeval.arena.battles import HUMAN, Battle, make_battle

WHERE_TO_GET = """\
CapArena-Auto is distributed by its authors, not with this package:
- the benchmark, caparena_auto_600.json: for each of 600 images a caption written by a person, the captions of the
  baselines, and which baseline is met on the image;
- the 600 images, test_*.jpg.
Links to both: the readme of github.com/njucckevin/CapArena, under CapArena-Auto. The readme states no licence for
them; the images come from DOCCI, whose terms its own page states. Ask the authors before you pass them on. The
captions of your model are yours to make: {"test_01258.jpg": "A caption.", ...}, one for each image."""


class AutoItem(NamedTuple):
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
            f'{path} must hold one JSON object {{image: {{"captions": ..., "ref_model": ...}}}}.\n{WHERE_TO_GET}'
        )
    return [_item(image, entry, f"{path}: {image!r}") for image, entry in values.items()]


def _item(image: str, entry: Any, where: str) -> AutoItem:
    check_text(image, f"{where}: the name of the image", blank=False)
    for name, kind in (("captions", dict), ("ref_model", str)):
        if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
            wanted = "an object {source: caption}" if kind is dict else "the name of a baseline"
            raise DataError(f"{where} must have {name!r}, {wanted}, got {entry!r:.80}")
    captions, baseline = entry["captions"], entry["ref_model"]
    for source in (baseline, HUMAN):
        if source not in captions:
            raise DataError(f"{where} has no caption of {source!r}; it has those of: {', '.join(captions)}")
        check_text(captions[source], f"{where}: the caption of {source!r}", blank=False)
    return AutoItem(image, baseline, captions[baseline], captions[HUMAN])


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
        >>> make_auto_battles(items, {"1.jpg": "A brown dog."}, "mine")[0]["ref_model"]
        'baseline'
    """
    if model == HUMAN:
        raise DataError(f"{HUMAN!r} is the name of the captions that people wrote; give the model another name")
    check_same_images({item.image: item for item in items}, captions, "benchmark", "captions of the model")
    battles = []
    for image, baseline, caption, reference in items:
        if baseline != model:
            battle = make_battle(image, {model: captions[image], baseline: caption}, reference, seed)
            battles.append({**battle, "ref_model": baseline})
    if not battles:
        raise DataError(f"{model!r} is the only baseline of the benchmark; there is nobody else to meet")
    return battles


def auto_scores(battles: Sequence[Battle], points: np.ndarray) -> list[dict[str, Any]]:
    """The leaderboard: scores of all models by one voter, best first; models without a score come last.

    A win counts +1, a loss -1, a tie 0. The score against a baseline is 100 times the mean over its battles (of the 200
    battles against each, half the sum), and the score of a model is the mean over the baselines. A battle without a
    verdict that can be read counts as a tie, as with the authors. A model that is a baseline gets 0 against itself.
    Words are counted between single spaces, as the authors do.

    Args:
        battles: N battles of CapArena-Auto, of one model or more. `ref_model` says which source is the baseline.
        points: (N,), what the first caption won; NaN without a verdict.

    Returns:
        For each model {"model", "score" in [-100, 100], "baselines", "mean_words"}, where the baselines are {name:
        {"wins", "ties", "losses", "unjudged", "itself", "score"}}; the unjudged ones are not among the ties. NaN is no
        score: no battle against that baseline has a verdict.

    Raises:
        DataError: `ref_model` is neither of the two sources, or a model meets a baseline twice on one image.

    Example:
        >>> entry = {"img": "1", "caption1": "A dog.", "caption2": "A cat.", "source2": "base", "ref_model": "base"}
        >>> scores = auto_scores([{**entry, "source1": name} for name in ("new", "old")], np.array([0.0, 0.5]))
        >>> [(score["model"], score["score"]) for score in scores]
        [('old', 0.0), ('new', -100.0)]
    """
    met: dict[str, dict[str, tuple[str, float, int]]] = {}  # {model: {image: (baseline, points of the model, words)}}
    baselines: dict[str, None] = {}
    for number, (battle, won) in enumerate(zip(battles, points, strict=True), start=1):
        sources, baseline, image = (battle["source1"], battle["source2"]), battle.get("ref_model"), battle["img"]
        if baseline not in sources:
            raise DataError(
                f"battle {number} on {image!r}: 'ref_model' must be one of {sources[0]!r} and {sources[1]!r}, "
                f"got {baseline!r:.80}"
            )
        baselines[baseline] = None
        place = 1 - sources.index(baseline)
        own = met.setdefault(sources[place], {})
        if image in own:
            raise DataError(
                f"{sources[place]!r} is on {image!r} twice: give the battles of each model, by one judge, once"
            )
        own[image] = (baseline, 1 - won if place else won, len(battle[f"caption{1 + place}"].split(" ")))
    scores = [_auto_score(model, list(own.values()), list(baselines)) for model, own in met.items()]
    return sorted(scores, key=lambda score: math.inf if math.isnan(score["score"]) else -score["score"])


def _auto_score(model: str, battles: Sequence[tuple[str, float, int]], baselines: Sequence[str]) -> dict[str, Any]:
    parts = {}
    for name in baselines:
        won = [points for baseline, points, _ in battles if baseline == name]
        counts: dict[str, Any] = {"wins": won.count(1.0), "ties": won.count(0.5), "losses": won.count(0.0)}
        counts |= {"unjudged": len(won) - sum(counts.values()), "itself": name == model}
        score = 100 * (counts["wins"] - counts["losses"]) / len(won) if len(won) > counts["unjudged"] else math.nan
        parts[name] = {**counts, "score": 0.0 if name == model else score}
    mean = sum(part["score"] for part in parts.values()) / len(parts)
    words = sum(words for *_, words in battles) / len(battles)
    return {"model": model, "score": mean, "baselines": parts, "mean_words": words}
