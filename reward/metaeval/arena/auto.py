"""CapArena-Auto: the captions of a model against one of three baselines on each of 600 images."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.arena.battles import HUMAN, Battle, check_same_images, make_battle

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
        DataError: missing, unreadable, or of another form; the message says where to get it.
    """
    if not Path(path).is_file():
        raise DataError(f"there is no file {path}.\n{WHERE_TO_GET}")
    items, image, values = [], "", read_json(path)
    try:
        for image, entry in values.items():
            captions, baseline = entry["captions"], entry["ref_model"]
            items.append(AutoItem(image, baseline, captions[baseline], captions[HUMAN]))
    except (AttributeError, KeyError, TypeError) as error:
        form = '{image: {"captions": {"human": ..., "<baseline>": ...}, "ref_model": "<baseline>"}}'
        where = f"{path} must hold {form}, and {image or 'the whole'!r} is none: {type(error).__name__}: {error}"
        raise DataError(f"{where}.\n{WHERE_TO_GET}") from error
    return items


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
    rows = []
    for number, (battle, won) in enumerate(zip(battles, points, strict=True), start=1):
        sources, baseline = (battle["source1"], battle["source2"]), battle.get("ref_model")
        if baseline not in sources:
            raise DataError(
                f"battle {number} on {battle['img']!r}: 'ref_model' must be one of {sources[0]!r} and {sources[1]!r}, "
                f"got {baseline!r:.80}"
            )
        place = 1 - sources.index(baseline)
        words = len(battle[f"caption{1 + place}"].split(" "))
        rows.append((sources[place], baseline, battle["img"], 1 - won if place else won, words))
    table = pd.DataFrame(rows, columns=["model", "baseline", "img", "points", "words"])
    for _, row in table[table.duplicated(["model", "img"])].iterrows():
        raise DataError(
            f"{row['model']!r} is on {row['img']!r} twice: give the battles of each model, by one judge, once"
        )
    baselines = table["baseline"].unique()
    scores = []
    for model, own in table.groupby("model", sort=False):
        parts = {name: _against(own["points"][own["baseline"] == name], itself=name == model) for name in baselines}
        mean = sum(part["score"] for part in parts.values()) / len(parts)
        scores.append({"model": model, "score": mean, "baselines": parts, "mean_words": own["words"].mean()})
    return sorted(scores, key=lambda score: math.inf if math.isnan(score["score"]) else -score["score"])


def _against(points: pd.Series[float], *, itself: bool) -> dict[str, Any]:
    """Battles of a model against one baseline."""
    wins, ties, losses = (int((points == value).sum()) for value in (1, 0.5, 0))
    score = 0.0 if itself else 100 * (wins - losses) / len(points) if points.notna().any() else math.nan
    counts = {"wins": wins, "ties": ties, "losses": losses, "unjudged": int(points.isna().sum())}
    return {**counts, "itself": itself, "score": score}
