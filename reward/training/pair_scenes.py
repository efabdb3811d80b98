"""Pairs of captions of synthetic scenes, made when they are asked for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from reward.errors import DataError
from reward.training.pairs import FAMILIES, CaptionPair

if TYPE_CHECKING:
    from reward.scenes import Scene
    from reward.training.config import TrainingConfig

__all__ = ["ScenePairs"]

_LONG = 0.25  # share of long captions
_VOCABULARY = 500  # pairs whose captions a tokenizer learns from


class ScenePairs:
    """Pairs of captions of random scenes, each category equally often.

    The part that is trained on shows other scenes each epoch, and other ones under each seed; held-out parts are always
    the same.

    Args:
        part: name of the part.
        count: number of pairs.
        config: gives the categories (default: all), the seeds, and which part is trained on.

    Raises:
        DataError: an unknown category.
    """

    def __init__(self, part: str, count: int, config: TrainingConfig) -> None:
        from reward.scenes.pairs import CATEGORIES

        known = (*CATEGORIES, *FAMILIES)
        self.categories = config.categories or known
        unknown = [name for name in self.categories if name not in known]
        if unknown:
            raise DataError(f"the scenes have no errors of the kinds {', '.join(unknown)}; known: {', '.join(known)}")
        self._count = count
        self._fresh = part == config.train_part
        self._seed = f"{config.scenes_seed} {part}" + (f" {config.seed}" if self._fresh else "")

    def kinds(self) -> list[int]:
        return [number % len(self.categories) for number in range(self._count)]

    def lengths(self) -> None:
        """Not known before the captions are made."""
        return None

    def texts(self) -> list[str]:
        pairs = [self.draw(number, 0) for number in range(min(self._count, _VOCABULARY))]
        return list(dict.fromkeys(text for pair in pairs for text in (pair.correct, pair.incorrect)))

    def draw(self, number: int, epoch: int) -> CaptionPair:
        from reward.scenes import render, sample_scene

        rng = random.Random(f"capreward pairs {self._seed} {epoch if self._fresh else 0} {number}")
        category = self.categories[number % len(self.categories)]
        while True:  # not every scene has a sign, an action or a free cell; about one in two or more has
            scene = sample_scene(rng)
            captions = self._captions(scene, category, rng)
            if captions is not None:
                return CaptionPair(render(scene), *captions)

    def _captions(self, scene: Scene, category: str, rng: random.Random) -> tuple[str, str] | None:
        from reward.corruptions.sampler import NegativeSampler
        from reward.scenes import sample_scene
        from reward.scenes.pairs import CATEGORIES, make_pair

        long = rng.random() < _LONG
        if category in CATEGORIES:
            pair = make_pair(scene, category, rng, long=long)
            return (pair.correct.text, pair.incorrect.text) if pair else None
        correct = _true_caption(scene, long, rng)
        if correct is None:
            return None
        if category == "retrieved":
            other = _true_caption(sample_scene(rng), long, rng)
            return (correct, other) if other is not None else None
        sampler = NegativeSampler([correct], categories=FAMILIES[category], seed=rng.getrandbits(32))
        negative = sampler.draw(0)
        return (correct, negative.text) if negative else None


def _true_caption(scene: Scene, long: bool, rng: random.Random) -> str | None:
    """The correct caption of a pair of any kind, so that what is corrupted looks like what is not."""
    from reward.scenes.pairs import CATEGORIES, make_pair

    pair = make_pair(scene, rng.choice(CATEGORIES), rng, long=long)
    return pair.correct.text if pair else None
