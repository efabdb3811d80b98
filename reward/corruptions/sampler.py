"""Negatives, which are wrong captions, and a sampler that draws the same ones for the same row, epoch and seed."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reward.corruptions.tagging import PARTS, Tagger
from reward.corruptions.words import corrupt_words
from reward.errors import ConfigError, InvalidSampleError
from reward.samples import check_encodable, is_blank

__all__ = ["WORD_LEVEL", "Negative", "NegativeSampler", "comparable"]

# Categories that are made on demand, out of the correct caption alone.
WORD_LEVEL = (*(f"repeat_{part}" for part in PARTS), "shuffle_words", "shuffle_sentences")
_QUOTES = "\"'`“”‘’«»„"


@dataclass(frozen=True)
class Negative:
    """A wrong caption of an image.

    Args:
        text: the caption.
        category: what is wrong with it, such as `"count"` or `"shuffle_words"`; negatives are counted by it.

    Raises:
        InvalidSampleError: text or category is not a string or is blank, or the text is not valid Unicode.
    """

    text: str
    category: str

    def __post_init__(self) -> None:
        for name in ("text", "category"):
            value = getattr(self, name)
            if not isinstance(value, str) or is_blank(value):
                raise InvalidSampleError(f"{name} of a negative must be a string that shows something, got {value!r}")
        check_encodable(self.text, "text of a negative")


def comparable(text: str) -> str:
    """A text without what does not count as a change: case, white space, and quotes around the whole.

    Example:
        >>> comparable('"A red  star."') == comparable("a red star.")
        True
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_QUOTES).strip()


class NegativeSampler:
    """Draws negatives at random from several sources.

    The sampler first draws a source by weight, then a category that the source has for the row, then a negative of that
    category, the latter two with equal chances. Thirty retrieved captions therefore do not outweigh one rewrite. If a
    source has nothing for a row, the next one is tried. A negative that equals the correct caption is never drawn.

    A draw depends only on seed, epoch and row, not on the order of the calls or the number of workers.

    Args:
        captions: N correct captions.
        sources: by name, N lists of negatives each: rewrites, retrieved captions, wrong captions that came with the
            data. A row is read only when it is drawn from.
        weights: by name of source, with `"words"` for the word-level corruptions; the default is 1, and 0
            switches a source off.
        categories: only these are drawn; None draws all.
        seed: any whole number.
        tagger: part-of-speech tagger for repeated keywords; see `reward.corruptions.tagging.tag_words`.

    Attributes:
        counts: negatives drawn so far by this object, by category, and `"none"` where there was nothing to draw.
            Copies in worker processes count for themselves.

    Raises:
        ConfigError: a source has another length, weights name an unknown source or are not finite numbers >= 0, none is
            above 0, or `categories` is empty or a bare string.

    Example:
        >>> wrong = {"given": [[Negative("A blue star.", "attribute")], []]}
        >>> sampler = NegativeSampler(["A red star.", "A ring."], wrong, weights={"words": 0})
        >>> sampler.draw(0, epoch=3), sampler.draw(1, epoch=3)
        (Negative(text='A blue star.', category='attribute'), None)
    """

    def __init__(
        self,
        captions: Sequence[str],
        sources: Mapping[str, Sequence[Sequence[Negative]]] | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        categories: Collection[str] | None = None,
        seed: int = 0,
        tagger: Tagger | None = None,
    ) -> None:
        self._captions = captions
        self._sources = dict(sources or {})
        self._weights = _checked_weights(self._sources, weights or {})
        if isinstance(categories, str) or (categories is not None and not categories):
            raise ConfigError(f"categories must be a list of at least one name, or None for all, got {categories!r}")
        self._categories = None if categories is None else frozenset(categories)
        self._seed = seed
        self._tagger = tagger
        self.counts: Counter[str] = Counter()
        for name, lists in self._sources.items():
            if len(lists) != len(captions):
                raise ConfigError(f"source {name!r} has {len(lists)} rows, but there are {len(captions)} captions")

    def __len__(self) -> int:
        return len(self._captions)

    def draw(self, index: int, epoch: int = 0) -> Negative | None:
        """Draws a negative for row `index` of the captions.

        Args:
            index: 0 .. N - 1.
            epoch: another epoch draws afresh.

        Returns:
            The negative; None if no source has one for this row.

        Raises:
            IndexError: no such row.
        """
        if not 0 <= index < len(self._captions):
            raise IndexError(f"row {index} of {len(self._captions)} captions")
        rng = random.Random(f"capreward negative {self._seed} {epoch} {index}")
        negative = None
        for name in _weighted_order(self._weights, rng):
            negative = self._from_words(index, rng) if name == "words" else self._from_source(name, index, rng)
            if negative is not None:
                break
        self.counts[negative.category if negative else "none"] += 1
        return negative

    def _from_source(self, name: str, index: int, rng: random.Random) -> Negative | None:
        correct = comparable(self._captions[index])
        by_category: dict[str, list[Negative]] = {}
        for negative in self._sources[name][index]:
            if self._wants(negative.category) and comparable(negative.text) != correct:
                by_category.setdefault(negative.category, []).append(negative)
        return rng.choice(by_category[rng.choice(sorted(by_category))]) if by_category else None

    def _from_words(self, index: int, rng: random.Random) -> Negative | None:
        names = [name for name in WORD_LEVEL if self._wants(name)]
        for name in rng.sample(names, len(names)):
            text = corrupt_words(self._captions[index], rng, name, tagger=self._tagger)
            if text is not None:
                return Negative(text, name)
        return None

    def _wants(self, category: str) -> bool:
        return self._categories is None or category in self._categories


def _checked_weights(sources: Mapping[str, object], weights: Mapping[str, float]) -> dict[str, float]:
    if "words" in sources:
        raise ConfigError("the name 'words' is taken by the word-level corruptions; give the source another name")
    names = ["words", *sources]
    unknown = [name for name in weights if name not in names]
    if unknown:
        raise ConfigError(f"weights name unknown sources {unknown}; known: {', '.join(names)}")
    checked = {name: float(weights.get(name, 1.0)) for name in names}
    for name, weight in checked.items():
        if not 0 <= weight < float("inf"):
            raise ConfigError(f"weight of {name!r} must be a finite number >= 0, got {weight}")
    checked = {name: weight for name, weight in checked.items() if weight}
    if not checked:
        raise ConfigError("no source of negatives: every weight is 0")
    return checked


def _weighted_order(weights: Mapping[str, float], rng: random.Random) -> list[str]:
    """Names in the order in which they would be drawn without replacement."""
    return sorted(weights, key=lambda name: rng.expovariate(1) / weights[name])
