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
from reward.training.ratings import TrainingRow
from reward.training.tables import TRAIN, VALIDATION, Table, lacking

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
        kinds: place in `categories` of each of P pairs.

    Attributes:
        left_out: {kind of error that the data have and `categories` do not name: number of rows}.
    """

    step = 2  # rows of a pair

    def __init__(self, categories: Sequence[str], kinds: Sequence[int]) -> None:
        self.epoch = 0
        self.categories, self.kinds = tuple(categories), kinds
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
        number, wrong = divmod(self._order[item], 2)
        key = (number, self.epoch)
        if self._last is None or self._last[0] != key:  # the two rows of a pair are mostly asked for in turn
            self._last = key, self.draw(*key)
        pair = self._last[1]
        sample = CaptionSample(pair.incorrect if wrong else pair.correct, pair.image)
        return {"sample": sample, "aspect": self.kinds[number], "target": 1.0 - wrong}

    def counts(self) -> dict[str, int]:
        """{category: number of pairs}."""
        counts = Counter(self.kinds)
        return {name: counts[kind] for kind, name in enumerate(self.categories)}

    def sorted_by_length(self) -> CaptionPairs:
        """The same rows from short to long, so that batches taken in order need little padding."""
        ordered, lengths = copy(self), self.lengths()
        if lengths is not None:
            ordered._order = sorted(self._order, key=lambda row: (lengths[row // 2], row))
        return ordered


class TablePairs(CaptionPairs):
    """Pairs of splits. Rows are read when a pair is asked for, and a wrong caption is drawn among those of its kind.

    Args:
        tables: the splits, one after the other.
        categories: names of the kinds of errors.
        pairs: (row, place in `categories`) of each pair.
        seed: seed of the draws.
        fresh: whether each epoch draws afresh.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        categories: Sequence[str],
        pairs: Sequence[tuple[int, int]],
        *,
        seed: int,
        fresh: bool,
    ) -> None:
        super().__init__(categories, [kind for _, kind in pairs])
        self._pairs, self._seed, self._fresh = pairs, seed, fresh
        self._captions = [caption for table in tables for caption in table.rows["caption"]]
        self._images = _joined([table.images for table in tables])
        self._negatives = _joined([_Negatives(table) for table in tables])

    def lengths(self) -> list[int]:
        return [len(self._captions[row]) for row, _ in self._pairs]

    def texts(self) -> list[str]:
        given = (negative.text for place in range(len(self._negatives)) for negative in self._negatives[place])
        return list(dict.fromkeys([*self._captions, *given]))

    def draw(self, number: int, epoch: int) -> ContrastPair:
        epoch = epoch if self._fresh else 0
        place, kind = self._pairs[number]
        name = self.categories[kind]
        rng = random.Random(f"captions {self._seed} {epoch} {number}")
        for _ in range(_TRIES):
            chance = random.Random(f"capreward negative {self._seed} {epoch} {place}")
            caption = self._captions[place]
            negative = draw_negative(caption, (name, *FAMILIES.get(name, ())), chance, self._negatives[place])
            if negative is not None:
                return ContrastPair(self._images[place], caption, negative.text)
            place = rng.randrange(len(self._captions))  # another caption that allows it keeps the kinds balanced
        raise DataError(f"{name!r} could not be made from any of {_TRIES} captions: leave it out of `categories`")


def make_table_pairs(tables: Sequence[Table], config: TrainingConfig, *, fresh: bool) -> TablePairs:
    """Pairs of splits, one after the other.

    Columns: `image` (or `file_name`), `caption` or `correct` (a correct caption), and wrong captions in any of

    - `incorrect` (a string) with `category` (what is wrong with it: `count`, `action`, any name);
    - `incorrect_<category>`: a string or a list of strings, null where there is none.

    The kinds `repeat` and `shuffle` are made on demand from the captions alone. A wrong caption that equals the correct
    one is left out. One row gives one pair for each of its kinds of errors.

    Args:
        tables: the splits, named in messages.
        config: the seed, and the categories: names from the columns or of `FAMILIES`; empty means all.
        fresh: whether each epoch draws afresh, as in training.
    """
    tables = [_checked(table) for table in tables]
    name = tables[0].name
    made = [family for family, members in FAMILIES.items() if set(members) <= set(WORD_LEVEL)]
    given = [kinds for table in tables for kinds in _kinds_of_rows(table)]
    there = [*sorted(set().union(*given)), *made]
    categories = [kind for kind in config.categories or dict.fromkeys(there) if kind in there]
    if not categories:
        wanted = ", ".join(config.categories)
        raise DataError(f"split {name!r} has no pairs of the categories {wanted}; it offers {', '.join(there)}")
    absent = [kind for kind in config.categories if kind not in categories]
    if absent:
        warnings.warn(f"split {name!r} has no pairs of the categories {', '.join(absent)}", stacklevel=2)
    pairs = [
        (place, kind)
        for place, kinds in enumerate(given)
        for kind, category in enumerate(categories)
        if category in kinds or category in made
    ]
    source = TablePairs(tables, categories, pairs, seed=config.seed, fresh=fresh)
    source.left_out = dict(Counter(kind for kinds in given for kind in kinds if kind not in categories))
    return source


def _joined(parts: Any) -> ConcatDataset[Any]:
    return ConcatDataset(parts)  # its types do not say that any sequences can be joined


class _Negatives(Sequence[list[Negative]]):
    """Wrong captions of each row, read when asked for."""

    def __init__(self, table: Table) -> None:
        names = table.rows.column_names
        wanted = [name for name in names if name in ("incorrect", "category") or name.startswith(_PREFIX)]
        self._rows = table.rows.select_columns(wanted or ["caption"])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:  # a row, not a slice
        row, negatives = self._rows[place], []
        for column, value in row.items():
            if column == "incorrect" or column.startswith(_PREFIX):
                category = row["category"] if column == "incorrect" else column.removeprefix(_PREFIX)
                texts = value if isinstance(value, list) else [] if value is None else [value]
                negatives += [Negative(text, category) for text in texts]
        return negatives


def _kinds_of_rows(table: Table) -> list[set[str]]:
    """Kinds of errors of each row; warns of wrong captions that equal the correct one."""
    negatives, kinds, unchanged = _Negatives(table), [], 0
    for place, caption in enumerate(table.rows["caption"]):
        try:
            CaptionSample(caption)
            of_row = negatives[place]
        except InvalidSampleError as error:
            raise DataError(f"split {table.name!r}, row {place}: {error}") from error
        wrong = [negative.category for negative in of_row if comparable(negative.text) != comparable(caption)]
        unchanged += len(of_row) - len(wrong)
        kinds.append({_FAMILY_OF.get(category, category) for category in wrong})
    if unchanged:
        left = f"{unchanged} wrong captions are the correct one and are left out"
        warnings.warn(f"split {table.name!r}: {left}", stacklevel=3)
    return kinds


def _checked(table: Table) -> Table:
    there = table.rows.column_names
    if "correct" in there and "caption" not in there:  # as files of the pairwise benchmark have it
        table = replace(table, rows=table.rows.rename_column("correct", "caption"))
    needed = {"caption": "caption"}
    if "incorrect" in there:
        needed["category"] = "category (of the column incorrect)"
    table.check(needed)
    return table


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
        from reward.scenes.pairs import CATEGORIES

        known = (*CATEGORIES, *FAMILIES, FOIL)
        categories = config.categories or known[:-1]
        super().__init__(categories, [number % len(categories) for number in range(count)])
        if config.sampling == "pool":
            warnings.warn("the scenes make every kind of error equally often, whatever `sampling` says", stacklevel=2)
        unknown = [name for name in categories if name not in known]
        if unknown:
            raise DataError(f"the scenes have no errors of the kinds {', '.join(unknown)}; known: {', '.join(known)}")
        self._fresh = part == TRAIN
        self._seed = f"{config.scenes_seed} {part}" + (f" {config.seed}" if self._fresh else "")

    def lengths(self) -> None:
        return None  # not known before the captions are made

    def texts(self) -> list[str]:
        pairs = [self.draw(number, 0) for number in range(min(len(self.kinds), _VOCABULARY))]
        return list(dict.fromkeys(text for pair in pairs for text in (pair.correct, pair.incorrect)))

    def draw(self, number: int, epoch: int) -> ContrastPair:
        from reward.scenes import render, sample_scene

        rng = random.Random(f"capreward pairs {self._seed} {epoch if self._fresh else 0} {number}")
        category = self.categories[number % len(self.categories)]
        while True:  # not every scene has a sign, an action or a free cell; about one in two or more has
            scene = sample_scene(rng)
            captions = self._captions(scene, category, rng)
            if captions is not None:
                return ContrastPair(render(scene), *captions)

    def _captions(self, scene: Scene, category: str, rng: random.Random) -> tuple[str, str] | None:
        from reward.scenes.pairs import make_texts, true_caption

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
        return (correct.text, negative.text) if negative else None


def make_pairs(sets: Mapping[str, Mapping[str, Table]], part: str, config: TrainingConfig) -> TablePairs | None:
    """The pairs of one part of data sets; None if none has it, unless it is the part to stop by.

    The part of a data set is the split `<part>.pairs` or, without it, the split `<part>`; see `make_table_pairs` for
    its columns. Every data set must have the part to train on.

    Args:
        sets: {data set: {name: split}}.
        part: the part's name.
        config: gives the categories and the seed.
    """
    found = []
    for source, splits in sets.items():
        table = splits.get(f"{part}.pairs", splits.get(part))
        if table is not None:
            found.append(table)
        elif part == TRAIN:
            raise lacking({source: splits}, part, f"{part} or {part}.pairs")
    if not found and part == VALIDATION:
        raise lacking(sets, part, f"{part} or {part}.pairs")
    return make_table_pairs(found, config, fresh=part == TRAIN) if found else None
