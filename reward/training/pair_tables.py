"""Pairs of captions from the columns of a data set, and word-level corruptions of its captions made on demand."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.corruptions.negatives import Negative, comparable
from reward.corruptions.sampler import WORD_LEVEL, NegativeSampler
from reward.errors import DataError, InvalidSampleError
from reward.samples import CaptionSample
from reward.training.pairs import FAMILIES, CaptionPair

if TYPE_CHECKING:
    from datasets import Dataset

    from reward.training.config import TrainingConfig

__all__ = ["TablePairs", "make_table_pairs"]

_PREFIX = "incorrect_"
_FAMILY_OF = {member: family for family, members in FAMILIES.items() for member in members}
# How many captions are tried for a corruption that not every caption allows, such as repeating an adverb.
_TRIES = 200


class TablePairs:
    """Pairs of a split; rows are read when a pair is asked for, negatives drawn at random among those of a kind.

    Args:
        rows: the split, with its images left undecoded.
        categories: names of the kinds of errors.
        pairs: (row, place in `categories`) of each pair.
        seed: seed of the draws.
        fresh: whether each epoch draws afresh.
        root: folder of relative image paths, or None.
    """

    def __init__(
        self,
        rows: Dataset,
        categories: Sequence[str],
        pairs: Sequence[tuple[int, int]],
        *,
        seed: int,
        fresh: bool,
        root: Path | None,
    ) -> None:
        self.categories = categories
        self._rows, self._pairs, self._root = rows, pairs, root
        self._seed, self._fresh = seed, fresh
        self._captions: Sequence[str] = rows["caption"]
        self._negatives = _Negatives(rows)
        self._samplers = [
            NegativeSampler(
                self._captions,
                {"given": self._negatives},
                categories=(name, *FAMILIES.get(name, ())),
                seed=seed,
            )
            for name in categories
        ]

    def kinds(self) -> list[int]:
        return [kind for _, kind in self._pairs]

    def lengths(self) -> list[int]:
        return [len(self._captions[row]) for row, _ in self._pairs]

    def texts(self) -> list[str]:
        given = (negative.text for place in range(len(self._negatives)) for negative in self._negatives[place])
        return list(dict.fromkeys([*self._captions, *given]))

    def draw(self, number: int, epoch: int) -> CaptionPair:
        epoch = epoch if self._fresh else 0
        place, kind = self._pairs[number]
        rng = random.Random(f"captions {self._seed} {epoch} {number}")
        for _ in range(_TRIES):
            negative = self._samplers[kind].draw(place, epoch)
            if negative is not None:
                return CaptionPair(self._image(place), self._captions[place], negative.text)
            place = rng.randrange(len(self._captions))  # another caption that allows it, so that kinds stay balanced
        raise DataError(
            f"{self.categories[kind]!r} could not be made of any of {_TRIES} captions: leave it out of `categories`"
        )

    def _image(self, place: int) -> Any:
        row = self._rows[place]
        image = row.get("image")
        if image is None:
            image = row["file_name"]
        if isinstance(image, str) and self._root is not None:
            return self._root / image  # an absolute path stays itself
        return image


def make_table_pairs(rows: Dataset, name: str, config: TrainingConfig, *, root: Path | None, fresh: bool) -> TablePairs:
    """Pairs of a split.

    Columns: `image` (or `file_name`), `caption` or `correct` (a correct caption), and wrong captions in any of

    - `incorrect` (a string) with `category` (what is wrong with it: `count`, `action`, any name);
    - `incorrect_<category>`: a string or a list of strings, null where there is none.

    From captions alone, the kinds `repeat` and `shuffle` are made on demand. A wrong caption that is the correct one,
    unchanged, is left out. One row gives one pair for each kind of error it has.

    Args:
        rows: the split.
        name: its name, for messages.
        config: gives seed and categories: each one of those in the columns, or one of `FAMILIES`. None given means all.
        root: folder of relative image paths.
        fresh: whether each epoch draws afresh, as in training.

    Raises:
        DataError: empty split, missing columns, captions that are none, or no pair of the wanted categories.
    """
    rows = _checked(rows, name)
    made = [family for family, members in FAMILIES.items() if set(members) <= set(WORD_LEVEL)]
    given, unchanged = _kinds_of_rows(rows, name)
    there = [*sorted(set().union(*given)), *made]
    categories = [kind for kind in config.categories or dict.fromkeys(there) if kind in there]
    if not categories:
        wanted = ", ".join(config.categories)
        raise DataError(f"split {name!r} has no pairs of the categories {wanted}; it offers {', '.join(there)}")
    absent = [kind for kind in config.categories if kind not in categories]
    if absent:
        warnings.warn(f"split {name!r} has no pairs of the categories {', '.join(absent)}", stacklevel=2)
    if unchanged:
        warnings.warn(f"split {name!r}: {unchanged} wrong captions are the correct one and are left out", stacklevel=2)
    pairs = [
        (place, kind)
        for place, kinds in enumerate(given)
        for kind, category in enumerate(categories)
        if category in kinds or category in made
    ]
    return TablePairs(rows, categories, pairs, seed=config.seed, fresh=fresh, root=root)


class _Negatives(Sequence[list[Negative]]):
    """Wrong captions of each row, read when asked for."""

    def __init__(self, rows: Dataset) -> None:
        self._rows = rows.select_columns([name for name in rows.column_names if name not in ("image", "file_name")])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:  # a row, not a slice
        row, found = self._rows[place], []
        for column, value in row.items():
            if column == "incorrect" or column.startswith(_PREFIX):
                category = row["category"] if column == "incorrect" else column.removeprefix(_PREFIX)
                texts = value if isinstance(value, list) else [] if value is None else [value]
                found += [Negative(text, category) for text in texts]
        return found


def _kinds_of_rows(rows: Dataset, name: str) -> tuple[list[set[str]], int]:
    """Kinds of errors of each row, and how many wrong captions are no different from the correct one."""
    negatives, kinds, unchanged = _Negatives(rows), [], 0
    for place, caption in enumerate(rows["caption"]):
        try:
            CaptionSample(caption)
            found = negatives[place]
        except InvalidSampleError as error:
            raise DataError(f"split {name!r}, row {place}: {error}") from error
        wrong = [negative.category for negative in found if comparable(negative.text) != comparable(caption)]
        unchanged += len(found) - len(wrong)
        kinds.append({_FAMILY_OF.get(category, category) for category in wrong})
    return kinds, unchanged


def _checked(rows: Dataset, name: str) -> Dataset:
    from datasets import Image

    if "correct" in rows.column_names and "caption" not in rows.column_names:
        rows = rows.rename_column("correct", "caption")  # as in files of `reward.metaeval.write_pairs`
    columns = rows.column_names
    if not len(rows):
        raise DataError(f"split {name!r} is empty")
    missing = [] if "caption" in columns else ["caption"]
    if "image" not in columns and "file_name" not in columns:
        missing.append("image (or file_name)")
    if "incorrect" in columns and "category" not in columns:
        missing.append("category (of the column incorrect)")
    if missing:
        raise DataError(f"split {name!r} lacks the columns {', '.join(missing)}; it has {', '.join(columns)}")
    if "image" in columns and isinstance(rows.features["image"], Image):
        # Left encoded, so that reward.images reads it, with its checks, in the worker that needs it.
        rows = rows.cast_column("image", Image(decode=False))
    wanted = {"image", "file_name", "caption", "incorrect", "category"}
    return rows.select_columns([column for column in columns if column in wanted or column.startswith(_PREFIX)])
