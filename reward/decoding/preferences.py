"""Which captions of an image are worth a training row: pairs of a better and a worse one, for DPO."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from reward.data.chats import has_placeholder
from reward.data.samples import is_wordless
from reward.data.words import words_of
from reward.errors import ConfigError, DataError

# Of captions that share this much of their pairs of neighbouring words (Dice), only the best is used: DPO on nearly
# equal captions lowers the probability of both.
_NEAR = 0.9


@dataclass(frozen=True, kw_only=True)
class PreferenceRules:
    """What becomes of the scored captions of an image.

    Args:
        margin: least difference between the scores of chosen and rejected, at least 0. Equal scores never make a pair.
        per_image: most pairs an image. A caption is used once.
        length_ratio: the longer caption of a pair has at most this many times the characters of the shorter; None for
            any. Metrics and judges may like long captions, and DPO then learns length.

    Raises:
        ConfigError: a value is out of range.
    """

    margin: float = 0.0
    per_image: int = 1
    length_ratio: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("margin", 0), ("per_image", 1), ("length_ratio", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ConfigError(f"{name} must be a finite number of at least {least}, got {value!r}")


class Scored(NamedTuple):
    """A caption and its score."""

    text: str
    score: float


class PreferencePair(NamedTuple):
    """A chosen caption and the rejected one."""

    chosen: Scored
    rejected: Scored


@dataclass
class ImageCandidates:
    """The captions of an image that compete.

    Args:
        image: path, or `{"bytes": ..., "path": ...}`.
        prompt: the messages that the captions answer.
        captions: candidates, not checked.
        scores: as many numbers; None where there is none.
        problem: why nothing can be made of them, or None.
    """

    image: Any
    prompt: list[dict[str, Any]]
    captions: list[Any] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    problem: str | None = None


def choose_pairs(
    captions: Sequence[Any], scores: Sequence[float | None], rules: PreferenceRules
) -> tuple[list[PreferencePair], Counter[str], str | None]:
    """Pairs of the captions of one image, the widest difference first.

    Args:
        captions: candidates; those that are no text, without a word, without a score or nearly repeated are left out.
        scores: N numbers, larger is better; None and NaN where there is none.
        rules: what is wanted.

    Returns:
        The pairs; {why: number of captions left out}; why there is no pair, or None.

    Example:
        >>> pairs, _, _ = choose_pairs(["A star.", "A red star.", "a red star"], [0.2, 0.9, 0.9], PreferenceRules())
        >>> [(pair.chosen.text, pair.rejected.text) for pair in pairs]
        [('A red star.', 'A star.')]
        >>> choose_pairs(["A star.", "A moon."], [0.2, 0.3], PreferenceRules(margin=0.5))[2]
        'no two captions whose scores differ by the margin'
    """
    usable, left_out = _usable(captions, scores)
    if not usable:
        return [], left_out, "no caption with a score and a word"
    if len(usable) < 2:
        return [], left_out, "only one caption once repetitions are left out"
    apart = []
    for better, worse in combinations(usable, 2):  # best first
        if better.score > worse.score and better.score - worse.score >= rules.margin:
            apart.append(PreferencePair(better, worse))
    if not apart:
        return [], left_out, "no two captions whose scores differ by the margin"
    allowed = apart
    if rules.length_ratio is not None:
        allowed = [pair for pair in apart if _length_ratio(pair) <= rules.length_ratio]
    if not allowed:
        return [], left_out, "no two such captions of like length"

    # The widest difference first. The sort is stable, so that of equal ones the best chosen comes first.
    allowed.sort(key=lambda pair: pair.rejected.score - pair.chosen.score)
    pairs: list[PreferencePair] = []
    in_pairs: set[Scored] = set()
    for pair in allowed:
        if in_pairs.isdisjoint(pair):
            pairs.append(pair)
            in_pairs.update(pair)
    return pairs[: rules.per_image], left_out, None


def _usable(captions: Sequence[Any], scores: Sequence[float | None]) -> tuple[list[Scored], Counter[str]]:
    """The captions that may be used, best first, and how many may not."""
    left_out: Counter[str] = Counter()
    scored: list[Scored] = []
    for text, score in zip(captions, scores, strict=True):
        if not isinstance(text, str) or is_wordless(text):
            left_out["without a word"] += 1
        elif has_placeholder(text):
            left_out["with a placeholder of a chat template, such as <image>, at which trainers stop"] += 1
        elif score is None or not math.isfinite(score):
            left_out["without a score"] += 1
        else:
            scored.append(Scored(text.strip(), float(score)))
    usable: list[Scored] = []
    word_pairs: list[Counter[tuple[str, str]]] = []  # of the usable captions
    for caption in sorted(scored, key=lambda caption: -caption.score):
        words = Counter(pairwise(["", *words_of(caption.text), ""]))
        if any(_dice(words, better) >= _NEAR for better in word_pairs):
            left_out["the same as a better one, or nearly"] += 1
        else:
            usable.append(caption)
            word_pairs.append(words)
    return usable, left_out


def _length_ratio(pair: PreferencePair) -> float:
    short, long = sorted(len(caption.text) for caption in pair)
    return long / short


def _dice(first: Counter[tuple[str, str]], second: Counter[tuple[str, str]]) -> float:
    return 2 * (first & second).total() / (first.total() + second.total())


@dataclass
class Preferences:
    """Rows to train on, and what became of the data.

    Args:
        rows: with `images` (a list of one), `prompt`, `chosen` and `rejected` (lists of messages), `chosen_score` and
            `rejected_score`.
        images: how many images (with different prompts) there were.
        images_kept: how many of them have rows.
        images_dropped, captions_dropped: {why: how many}.
        chosen_longer: share of pairs whose chosen caption is the longer one.
    """

    rows: list[dict[str, Any]]
    images: int
    images_kept: int
    images_dropped: Counter[str]
    captions_dropped: Counter[str]
    chosen_longer: float

    @classmethod
    def choose(cls, groups: Sequence[ImageCandidates], rules: PreferenceRules) -> Preferences:
        """Chooses rows for every image.

        Raises:
            DataError: no image gives a row; the message counts why.
        """
        dropped: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        rows: list[dict[str, Any]] = []
        images_kept = 0
        longer = 0
        for group in groups:
            reason = group.problem
            if reason is None:
                pairs, unused, reason = choose_pairs(group.captions, group.scores, rules)
                left_out += unused
            if reason is not None:
                dropped[reason] += 1
                continue
            images_kept += 1
            for pair in pairs:
                rows.append(_row(group, pair))
                longer += len(pair.chosen.text) > len(pair.rejected.text)
        if not rows:
            reasons = "; ".join(f"{count} have {reason}" for reason, count in dropped.most_common())
            if left_out:
                not_used = "; ".join(f"{count} captions {reason}" for reason, count in left_out.most_common())
                reasons += f" (left out: {not_used})"
            raise DataError(
                f"no row can be made of the {len(groups)} images: {reasons or 'there are none'}. Sample more "
                "captions an image or at a higher temperature, or loosen the rules (margin, length ratio)"
            )
        return cls(rows, len(groups), images_kept, dropped, left_out, longer / len(rows))


def _row(group: ImageCandidates, pair: PreferencePair) -> dict[str, Any]:
    return {
        "images": [group.image],
        "prompt": group.prompt,
        "chosen": [{"role": "assistant", "content": pair.chosen.text}],
        "rejected": [{"role": "assistant", "content": pair.rejected.text}],
        "chosen_score": pair.chosen.score,
        "rejected_score": pair.rejected.score,
    }
