"""Which captions of an image are worth a training row: pairs of a better and a worse one, labels, or the best."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from reward.errors import ConfigError, DataError
from reward.preferences.order import spread
from reward.rewards.chats import has_placeholder
from reward.samples import is_wordless
from reward.words import count_words, words_of

__all__ = [
    "KINDS",
    "ImageCandidates",
    "Pair",
    "PreferenceRules",
    "Preferences",
    "Scored",
    "choose_pairs",
    "is_apart",
    "similarity",
]

KINDS = ("pairs", "labels", "best")


@dataclass(frozen=True, kw_only=True)
class PreferenceRules:
    """What becomes of the scored captions of an image.

    Args:
        kind: `"pairs"` of a chosen and a rejected caption (DPO); `"labels"`, True for the chosen and False for the
            rejected captions (KTO); `"best"`, the best captions alone (rejection sampling for SFT).
        margin: least difference between the scores of chosen and rejected, at least 0. Equal scores never make a pair.
            Of labels, every True of an image is this much better than every False.
        per_image: most pairs an image (labels: most True and most False; best: most captions). A caption is used once.
        length_ratio: the longer caption of a pair has at most this many times the characters of the shorter; None for
            any. Metrics and judges may like long captions, and DPO then learns length.
        minimum: least score of a chosen or best caption; None for any.
        near: of captions with at least this `similarity`, only the best is used; 1 drops only those that are the same
            up to case and punctuation. DPO on nearly equal captions lowers the probability of both.
        seed: of the images that are held out.

    Raises:
        ConfigError: a value is out of range, or goes with another kind.
    """

    kind: str = "pairs"
    margin: float = 0.0
    per_image: int = 1
    length_ratio: float | None = None
    minimum: float | None = None
    near: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        ranges = (("margin", 0.0, float("inf")), ("length_ratio", 1.0, float("inf")), ("near", 0.0, 1.0))
        for name, low, high in ranges:
            value = getattr(self, name)
            if value is not None and not (low <= value <= high and value != float("inf")):
                most = "" if high == float("inf") else f" and at most {high:g}"
                raise ConfigError(f"{name} must be a number of at least {low:g}{most}, got {value!r}")
        if not isinstance(self.per_image, int) or isinstance(self.per_image, bool) or self.per_image < 1:
            raise ConfigError(f"per_image must be a whole number of at least 1, got {self.per_image!r}")
        if self.minimum is not None and not abs(self.minimum) < float("inf"):
            raise ConfigError(f"minimum must be a finite number, got {self.minimum!r}")
        if self.kind == "best":
            for name, default in (("margin", 0.0), ("length_ratio", None)):
                if getattr(self, name) != default:
                    raise ConfigError(f"{name} compares two captions, and kind 'best' has no pairs: leave {name} out")


class Scored(NamedTuple):
    """A caption and its score."""

    text: str
    score: float


class Pair(NamedTuple):
    """A chosen caption and the rejected one; of kind `"best"`, None."""

    chosen: Scored
    rejected: Scored | None


@dataclass
class ImageCandidates:
    """The captions of an image that compete.

    Args:
        image_key: of the image's content, by which images are held out: one picture under two names is one.
        image: path, or `{"bytes": ..., "path": ...}`.
        prompt: the messages that the captions answer.
        captions: candidates, not checked.
        scores: as many numbers; None where there is none.
        problem: why nothing can be made of them, or None.
    """

    image_key: str
    image: Any
    prompt: list[dict[str, Any]]
    captions: list[Any] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    problem: str | None = None


def similarity(first: str, second: str) -> float:
    """How much two captions have in common, from 0 to 1: pairs of neighbouring words in both, of all in either (Dice).

    Case, punctuation and white space do not count; the order of words does. Of scripts without spaces, each character
    is a word.

    Example:
        >>> similarity("A red star.", "a  red star"), similarity("A red star.", "A star, red.")
        (1.0, 0.25)
    """
    return _dice(_word_pairs(first), _word_pairs(second))


def is_apart(better: float, worse: float, margin: float) -> bool:
    """Whether a score is above another by at least the margin, but for the rounding of scores in single precision.

    Example:
        >>> 0.3 - 0.2 >= 0.1, is_apart(0.3, 0.2, 0.1), is_apart(0.3, 0.3, 0.0)
        (False, True, False)
    """
    return better > worse and better - worse >= margin - _rounding(better, worse)


def _rounding(*scores: float) -> float:
    """How far single precision may have moved the difference of two scores."""
    return 2**-23 * max(map(abs, scores))


def choose_pairs(
    captions: Sequence[Any], scores: Sequence[float | None], rules: PreferenceRules
) -> tuple[list[Pair], Counter[str], str | None]:
    """Pairs of the captions of one image.

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
    usable, left_out = _usable(captions, scores, rules.near)
    least = rules.minimum
    good = [caption for caption in usable if least is None or caption.score >= least - _rounding(caption.score, least)]
    if not usable:
        return [], left_out, "no caption with a score and a word"
    if not good:
        return [], left_out, "no caption that reaches the minimum"
    if rules.kind == "best":
        return [Pair(caption, None) for caption in good[: rules.per_image]], left_out, None
    if len(usable) < 2:
        return [], left_out, "only one caption once repetitions are left out"
    apart = [(a, b) for a in good for b in usable if is_apart(a.score, b.score, rules.margin)]
    if not apart:
        return [], left_out, "no two captions whose scores differ by the margin"
    allowed = [(a, b) for a, b in apart if _like_long(a.text, b.text, rules.length_ratio)]
    if not allowed:
        return [], left_out, "no two such captions of like length"
    allowed.sort(key=lambda pair: pair[1].score - pair[0].score)  # stable: the better chosen first
    return [Pair(*pair) for pair in _without_sharing(allowed, rules)], left_out, None


def _usable(captions: Sequence[Any], scores: Sequence[float | None], near: float) -> tuple[list[Scored], Counter[str]]:
    """The captions that may be used, best first, and how many may not."""
    left_out: Counter[str] = Counter()
    scored: list[Scored] = []
    for caption, score in zip(captions, scores, strict=True):
        if not isinstance(caption, str) or is_wordless(caption):
            left_out["without a word"] += 1
        elif has_placeholder(caption):
            left_out["with a placeholder of a chat template, such as <image>, at which trainers stop"] += 1
        elif score is None or not abs(score) < float("inf"):  # NaN, too
            left_out["without a score"] += 1
        else:
            scored.append(Scored(caption.strip(), float(score)))
    scored.sort(key=lambda caption: -caption.score)
    usable: list[Scored] = []
    seen: list[Counter[tuple[str, str]]] = []
    for caption in scored:
        words = _word_pairs(caption.text)
        if any(_dice(words, other) >= near for other in seen):
            left_out["the same as a better one, or nearly"] += 1
        else:
            usable.append(caption)
            seen.append(words)
    return usable, left_out


def _without_sharing(allowed: Iterable[tuple[Scored, Scored]], rules: PreferenceRules) -> list[tuple[Scored, Scored]]:
    """The first pairs of which no two share a caption."""
    taken: list[tuple[Scored, Scored]] = []
    for better, worse in allowed:
        if len(taken) == rules.per_image:
            break
        if any(caption in pair for pair in taken for caption in (better, worse)):
            continue
        if rules.kind == "labels" and taken:  # a caption labelled False must not beat one labelled True
            lowest = min(better.score, *(pair[0].score for pair in taken))
            highest = max(worse.score, *(pair[1].score for pair in taken))
            if not is_apart(lowest, highest, rules.margin):
                continue
        taken.append((better, worse))
    return taken


def _like_long(first: str, second: str, ratio: float | None) -> bool:
    short, long = sorted((len(first), len(second)))
    return ratio is None or long <= ratio * short


def _word_pairs(text: str) -> Counter[tuple[str, str]]:
    words = ["", *words_of(text), ""]
    return Counter(pairwise(words))


def _dice(first: Counter[tuple[str, str]], second: Counter[tuple[str, str]]) -> float:
    return 2 * (first & second).total() / (first.total() + second.total())


@dataclass
class Preferences:
    """Rows to train on, and what became of the data.

    Args:
        rules: by which they were chosen.
        rows: {"train": rows, and "test" if images are held out}. A row has `images` (a list of one), `prompt` and, of
            pairs, `chosen`, `rejected`, `chosen_score` and `rejected_score`; else `completion`, `score` and, of
            labels, `label`. Prompts and captions are lists of messages.
        images: how many images (with different prompts) there were.
        images_kept: {split: how many images have rows}.
        images_dropped, captions_dropped: {why: how many}.
        facts: figures of the pairs, such as the mean scores and the share of pairs whose chosen caption is longer.
    """

    rules: PreferenceRules
    rows: dict[str, list[dict[str, Any]]]
    images: int
    images_kept: dict[str, int]
    images_dropped: Counter[str]
    captions_dropped: Counter[str]
    facts: dict[str, float]

    @classmethod
    def choose(cls, groups: Sequence[ImageCandidates], rules: PreferenceRules, *, holdout: float = 0.0) -> Preferences:
        """Chooses rows for every image.

        Rows of labels are ordered so that neighbours are of different images, and True and False alternate: KTO
        compares a caption with its neighbour's in the batch. Where that is not possible, a warning counts them.

        Args:
            groups: the candidates of each image.
            rules: what is wanted.
            holdout: share of the images whose rows are `"test"`; no image is in both.

        Raises:
            ConfigError: holdout is not at least 0 and below 1.
            DataError: no image gives a row; the message counts why. Or only one does and images are to be held out.
        """
        if not 0 <= holdout < 1:
            raise ConfigError(f"holdout must be at least 0 and below 1, got {holdout!r}")
        dropped: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        chosen: list[tuple[ImageCandidates, list[Pair]]] = []
        for group in groups:
            if group.problem is not None:
                dropped[group.problem] += 1
                continue
            pairs, unused, reason = choose_pairs(group.captions, group.scores, rules)
            left_out += unused
            if reason is not None:
                dropped[reason] += 1
            else:
                chosen.append((group, pairs))
        if not chosen:
            reasons = "; ".join(f"{count} have {reason}" for reason, count in dropped.most_common())
            not_used = "; ".join(f"{count} captions {reason}" for reason, count in left_out.most_common())
            reasons += f" (left out: {not_used})" if not_used else ""
            raise DataError(
                f"no row can be made of the {len(groups)} images: {reasons or 'there are none'}. Sample more captions "
                "an image or at a higher temperature, or loosen the rules (margin, length ratio, minimum, near)"
            )
        keys = {group.image_key for group, _ in chosen}
        held = _held_out(keys, holdout, rules.seed)
        parts = {"train": [item for item in chosen if item[0].image_key not in held]}
        if held:
            parts["test"] = [item for item in chosen if item[0].image_key in held]
        return cls(
            rules=rules,
            rows={split: _rows(part, rules) for split, part in parts.items()},
            images=len(groups),
            images_kept={split: len(part) for split, part in parts.items()},
            images_dropped=dropped,
            captions_dropped=left_out,
            facts=_facts([pair for _, pairs in chosen for pair in pairs]),
        )


def _held_out(keys: set[str], share: float, seed: int) -> set[str]:
    if not share:
        return set()
    if len(keys) < 2:
        raise DataError("only one image has rows, so none can be held out: leave holdout out, or give more images")
    mixed = sorted(keys, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest())
    return set(mixed[: min(len(keys) - 1, max(1, round(share * len(keys))))])


def _said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def _rows(chosen: Sequence[tuple[ImageCandidates, list[Pair]]], rules: PreferenceRules) -> list[dict[str, Any]]:
    rows: list[list[dict[str, Any]]] = []
    for group, pairs in chosen:
        shared = {"images": [group.image], "prompt": group.prompt}
        if rules.kind == "pairs":
            rows.append(
                [
                    {
                        **shared,
                        "chosen": _said(chosen.text),
                        "rejected": _said(rejected.text),
                        "chosen_score": chosen.score,
                        "rejected_score": rejected.score,
                    }
                    for chosen, rejected in pairs
                    if rejected is not None
                ]
            )
            continue
        own = []
        for pair in pairs:
            for label, caption in ((True, pair.chosen), (False, pair.rejected)):
                if caption is not None:
                    row = {**shared, "completion": _said(caption.text), "score": caption.score}
                    own.append({**row, "label": label} if rules.kind == "labels" else row)
        rows.append(own)
    if rules.kind == "labels":  # an image may have several prompts, or names
        of_image: dict[str, list[dict[str, Any]]] = {}
        for (group, _), own in zip(chosen, rows, strict=True):
            of_image.setdefault(group.image_key, []).extend(own)
        return spread(list(of_image.values()))
    return [row for own in rows for row in own]


def _facts(pairs: Sequence[Pair]) -> dict[str, float]:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    worse = [(pair.chosen, pair.rejected) for pair in pairs if pair.rejected is not None]
    facts = {
        "mean score of chosen": mean([pair.chosen.score for pair in pairs]),
        "mean words of chosen": mean([count_words(pair.chosen.text) for pair in pairs]),
    }
    if worse:
        facts |= {
            "mean score of rejected": mean([rejected.score for _, rejected in worse]),
            "mean words of rejected": mean([count_words(rejected.text) for _, rejected in worse]),
            "share of pairs whose chosen caption is longer": mean([len(a.text) > len(b.text) for a, b in worse]),
        }
    return facts
