"""Correct and incorrect captions of images as training rows: from a data set's columns, or of synthetic scenes."""

from __future__ import annotations

import random
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import ConcatDataset
from torch.utils.data import Dataset as TorchDataset

from reward.data.samples import CaptionSample
from reward.errors import DataError, InvalidSampleError
from reward.training.corruptions.sampler import WORD_LEVEL, Negative, comparable, draw_negative
from reward.training.judgements import TrainingRow
from reward.training.preference_columns import PREFERENCE, with_preferences
from reward.training.splits import TRAIN, VALIDATION, Split, part_error

if TYPE_CHECKING:
    from reward.scenes import Scene
    from reward.training.config import TrainingConfig


# Kinds of errors that count as one when kinds are balanced, and the corruptions that belong to each.
FAMILIES = {
    "repeat": ("repeat_noun", "repeat_verb", "repeat_adjective", "repeat_adverb"),
    "shuffle": ("shuffle_words", "shuffle_sentences"),
    "retrieved": ("retrieved_easy", "retrieved_medium", "retrieved_hard"),
}
FOIL = "foil"  # one noun of a short caption replaced, as in FOIL-COCO
_FAMILY_OF = {member: family for family, members in FAMILIES.items() for member in members}
_PREFIX = "incorrect_"
_TRIES = 200  # captions tried for a corruption that few captions allow, such as repeating an adverb
_LONG = 0.25  # share of long captions of scenes
_VOCABULARY = 500  # pairs of scenes whose captions a new tokenizer is trained on


@dataclass(frozen=True)
class ContrastPair:
    """An image with a correct caption and an incorrect one."""

    image: Any
    correct: str
    incorrect: str


class CaptionPairs(TorchDataset[TrainingRow], ABC):
    """Captions of pairs, one per row: row 2k is pair k's correct caption, row 2k + 1 its incorrect one.

    A row's `aspect` is the kind of error of its pair, its `target` 1 or 0 for correct or not. What a row holds depends
    on `epoch` and its number alone.

    Args:
        categories: names of the kinds of errors.
        kinds: index in `categories` of each of P pairs.

    Attributes:
        left_out: {kind of error that the data have and `categories` do not name: number of rows}.
    """

    step = 2  # rows of a pair

    def __init__(self, categories: Sequence[str], kinds: Sequence[int]) -> None:
        self.epoch = 0
        self.categories = tuple(categories)
        self.kinds = kinds
        self.left_out: dict[str, int] = {}
        self._order: Sequence[int] = range(2 * len(kinds))
        self._last: tuple[tuple[int, int], ContrastPair] | None = None

    @abstractmethod
    def draw(self, number: int, epoch: int) -> ContrastPair:
        """One pair; the same number and epoch always give the same pair."""

    @abstractmethod
    def lengths(self) -> list[int] | None:
        """About how many characters the correct caption of each pair has (P,), or None where that is not known."""

    @abstractmethod
    def texts(self) -> list[str]:
        """Captions that a tokenizer may be trained on."""

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, item: int) -> TrainingRow:
        number, is_incorrect = divmod(self._order[item], 2)
        key = (number, self.epoch)
        # The two rows of a pair are mostly read in turn, and drawing a pair is slow.
        if self._last is None or self._last[0] != key:
            self._last = key, self.draw(number, self.epoch)
        pair = self._last[1]
        caption = pair.incorrect if is_incorrect else pair.correct
        sample = CaptionSample(caption, pair.image)
        return {"sample": sample, "aspect": self.kinds[number], "target": 1.0 - is_incorrect}

    def counts(self) -> dict[str, int]:
        """{category: number of pairs}."""
        counts = Counter(self.kinds)
        return {name: counts[kind] for kind, name in enumerate(self.categories)}

    def sorted_by_length(self) -> CaptionPairs:
        """The same rows from short to long, so that batches taken in order need little padding."""
        ordered = copy(self)  # shares captions and images
        lengths = self.lengths()
        if lengths is not None:
            ordered._order = sorted(self._order, key=lambda row: (lengths[row // 2], row))
        return ordered


class TablePairs(CaptionPairs):
    """Pairs of splits. Rows are read when a pair is asked for, and a wrong caption is drawn among those of its kind.

    Args:
        splits: the splits, one after the other.
        categories: names of the kinds of errors.
        pairs: (row, index in `categories`) of each pair.
        seed: seed of the draws.
        fresh: whether each epoch draws afresh.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        categories: Sequence[str],
        pairs: Sequence[tuple[int, int]],
        *,
        seed: int,
        fresh: bool,
    ) -> None:
        super().__init__(categories, [kind for _, kind in pairs])
        self._pairs, self._seed, self._fresh = pairs, seed, fresh
        self._captions: list[str] = []
        for split in splits:
            self._captions += split.rows["caption"]
        self._images = _joined([split.images for split in splits])
        self._negatives = _joined([_Negatives(split) for split in splits])

    def lengths(self) -> list[int]:
        return [len(self._captions[row]) for row, _ in self._pairs]

    def texts(self) -> list[str]:
        texts = list(self._captions)
        for row in range(len(self._negatives)):
            for negative in self._negatives[row]:
                texts.append(negative.text)
        return list(dict.fromkeys(texts))

    def draw(self, number: int, epoch: int) -> ContrastPair:
        # Seeds are of run, epoch and number alone, so that workers and resumed runs draw the same pairs.
        if not self._fresh:
            epoch = 0
        row, kind = self._pairs[number]
        category = self.categories[kind]
        corruptions = (category, *FAMILIES.get(category, ()))
        rng = random.Random(f"captions {self._seed} {epoch} {number}")
        for _ in range(_TRIES):
            chance = random.Random(f"capreward negative {self._seed} {epoch} {row}")
            caption = self._captions[row]
            negative = draw_negative(caption, corruptions, chance, self._negatives[row])
            if negative is not None:
                return ContrastPair(self._images[row], caption, negative.text)
            # A pair of another caption that allows the corruption: the kinds stay balanced.
            row = rng.randrange(len(self._captions))
        raise DataError(f"{category!r} could not be made from any of {_TRIES} captions: leave it out of `categories`")


def make_table_pairs(splits: Sequence[Split], config: TrainingConfig, *, fresh: bool) -> TablePairs:
    """Pairs of splits, one after the other.

    Columns: `image` (or `file_name`), `caption` or `correct` (a correct caption), and wrong captions in any of

    - `incorrect` (a string) with `category` (what is wrong with it: `count`, `action`, any name);
    - `incorrect_<category>`: a string or a list of strings, null where there is none.

    In place of these, the columns of preferences, see `reward.training.preference_columns.with_preferences`.

    The kinds `repeat` and `shuffle` are made on demand from the captions alone. A wrong caption that equals the correct
    one is left out. One row gives one pair for each of its kinds of errors.

    Args:
        splits: the splits, named in messages.
        config: the seed, and the categories: names from the columns or of `FAMILIES`; empty means all.
        fresh: whether each epoch draws afresh, as in training.
    """
    splits = [_checked(split) for split in splits]
    name = splits[0].name
    kinds_of_rows: list[set[str]] = []
    for split in splits:
        kinds_of_rows += _kinds_of_rows(split)
    on_demand = [family for family, members in FAMILIES.items() if set(members) <= set(WORD_LEVEL)]
    offered = [*sorted(set().union(*kinds_of_rows)), *on_demand]
    categories, absent = [], []
    by_default = offered
    if any(PREFERENCE in split.rows["category"] for split in splits if "category" in split.rows.column_names):
        # Who gives preferences wants no errors made on demand, unless the settings name them.
        by_default = [PREFERENCE, *(category for category in offered if category not in on_demand)]
    for category in config.categories or dict.fromkeys(by_default):
        if category in offered:
            categories.append(category)
        else:
            absent.append(category)
    problem = f"split {name!r} has no pairs of the categories {', '.join(absent)}"
    if not categories:
        raise DataError(f"{problem}; it offers {', '.join(offered)}")
    if absent:
        warnings.warn(problem, stacklevel=2)
    # A row gives one pair for each of its kinds of errors; those made on demand, every row has.
    pairs = []
    left_out: Counter[str] = Counter()
    for row, kinds in enumerate(kinds_of_rows):
        left_out.update(kinds.difference(categories))
        for kind, category in enumerate(categories):
            if category in kinds or category in on_demand:
                pairs.append((row, kind))
    rows = TablePairs(splits, categories, pairs, seed=config.seed, fresh=fresh)
    rows.left_out = dict(left_out)
    return rows


def _joined(parts: Any) -> ConcatDataset[Any]:
    return ConcatDataset(parts)  # its types do not say that any sequences can be joined


class _Negatives(Sequence[list[Negative]]):
    """Wrong captions of each row, read when a row is."""

    def __init__(self, split: Split) -> None:
        names = split.rows.column_names
        columns = [name for name in names if name in ("incorrect", "category") or name.startswith(_PREFIX)]
        self._rows = split.rows.select_columns(columns or ["caption"])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: Any) -> Any:  # an index, not a slice
        cells = self._rows[row]
        negatives = []
        for column, value in cells.items():
            if column == "incorrect":
                category = cells["category"]
            elif column.startswith(_PREFIX):
                category = column.removeprefix(_PREFIX)
            else:
                continue
            texts = value if isinstance(value, list) else [value]
            negatives += [Negative(text, category) for text in texts if text is not None]
        return negatives


def _kinds_of_rows(split: Split) -> list[set[str]]:
    """Kinds of errors of each row; warns of wrong captions that equal the correct one."""
    negatives = _Negatives(split)
    kinds: list[set[str]] = []
    unchanged = 0
    for row, caption in enumerate(split.rows["caption"]):
        try:
            CaptionSample(caption)
            kinds.append(set())
            for negative in negatives[row]:
                if comparable(negative.text) == comparable(caption):
                    unchanged += 1
                else:
                    kinds[row].add(_FAMILY_OF.get(negative.category, negative.category))
        except InvalidSampleError as error:
            raise DataError(f"split {split.name!r}, row {row}: {error}") from error
    if unchanged:
        reason = f"{unchanged} wrong captions are the correct one and are left out"
        warnings.warn(f"split {split.name!r}: {reason}", stacklevel=3)
    return kinds


def _checked(split: Split) -> Split:
    split = with_preferences(split)
    columns = split.rows.column_names
    if "correct" in columns and "caption" not in columns:  # as files of the pairwise benchmark have it
        split = replace(split, rows=split.rows.rename_column("correct", "caption"))
    required = {"caption": "caption"}
    if "incorrect" in columns:
        required["category"] = "category (of the column incorrect)"
    split.check(required)
    return split


class ScenePairs(CaptionPairs):
    """Pairs of captions of random scenes, made when they are asked for; each category occurs equally often.

    The kind `foil` replaces a noun in a short caption. As a special case of `noun`, it is not among the default kinds.
    The training part has new scenes in each epoch and under each seed. Held-out parts are always the same.

    Args:
        part: name of the part.
        count: number of pairs.
        config: the categories (default: all) and the seeds.
    """

    def __init__(self, part: str, count: int, config: TrainingConfig) -> None:
        from reward.scenes.error_pairs import CATEGORIES

        by_default = (*CATEGORIES, *FAMILIES)
        categories = config.categories or by_default
        super().__init__(categories, [number % len(categories) for number in range(count)])
        if config.sampling == "pool":
            warnings.warn("the scenes make every kind of error equally often, whatever `sampling` says", stacklevel=2)
        unknown = [name for name in categories if name not in (*by_default, FOIL)]
        if unknown:
            names = ", ".join((*by_default, FOIL))
            raise DataError(f"the scenes have no errors of the kinds {', '.join(unknown)}; known: {names}")
        self._fresh = part == TRAIN
        self._seed = f"{config.scenes_seed} {part}"
        if self._fresh:
            self._seed += f" {config.seed}"

    def lengths(self) -> None:
        return None  # not known before the captions are made

    def texts(self) -> list[str]:
        texts = []
        for number in range(min(len(self.kinds), _VOCABULARY)):
            pair = self.draw(number, 0)
            texts += [pair.correct, pair.incorrect]
        return list(dict.fromkeys(texts))

    def draw(self, number: int, epoch: int) -> ContrastPair:
        from reward.scenes import render, sample_scene

        if not self._fresh:
            epoch = 0
        rng = random.Random(f"capreward pairs {self._seed} {epoch} {number}")
        category = self.categories[number % len(self.categories)]
        while True:  # not every scene has a sign, an action or a free cell; about one in two or more has
            scene = sample_scene(rng)
            captions = self._captions(scene, category, rng)
            if captions is not None:
                return ContrastPair(render(scene), *captions)

    def _captions(self, scene: Scene, category: str, rng: random.Random) -> tuple[str, str] | None:
        from reward.scenes.error_pairs import make_texts, true_caption

        long = rng.random() < _LONG
        if category == FOIL:
            return make_texts(scene, "noun", rng, long=False)
        corruptions = FAMILIES.get(category)
        if corruptions is None or category == "retrieved":
            return make_texts(scene, category, rng, long=long)
        correct = true_caption(scene, rng, long=long)
        if correct is None:
            return None
        chance = random.Random(f"capreward negative {rng.getrandbits(32)} 0 0")
        negative = draw_negative(correct.text, corruptions, chance)
        return None if negative is None else (correct.text, negative.text)


def make_pairs(sets: Mapping[str, Mapping[str, Split]], part: str, config: TrainingConfig) -> TablePairs | None:
    """The pairs of one part of data sets; None if none has it, unless it is the part to stop by.

    The part of a data set is the split `<part>.pairs` or, without it, the split `<part>`; see `make_table_pairs` for
    its columns. Every data set must have the part to train on.

    Args:
        sets: {data set: {name: split}}.
        part: the part's name.
        config: gives the categories and the seed.
    """
    splits_of_part = []
    for name, splits in sets.items():
        split = splits.get(f"{part}.pairs", splits.get(part))
        if split is not None:
            splits_of_part.append(split)
        elif part == TRAIN:
            raise part_error({name: splits}, part, f"{part} or {part}.pairs")
    if not splits_of_part and part == VALIDATION:
        raise part_error(sets, part, f"{part} or {part}.pairs")
    return make_table_pairs(splits_of_part, config, fresh=part == TRAIN) if splits_of_part else None
