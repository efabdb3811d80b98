"""What the captions of a policy resemble: how they differ from ordinary ones, beside how each attack changes those."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reward.audit.attacks import ATTACKS, Material, attack
from reward.errors import DataError
from reward.sentences import split_sentences

__all__ = ["TRAITS", "Resemblance", "compare_captions", "traits"]

TRAITS = (
    "words",
    "words a sentence",
    "repeated sentences",
    "sentences of one form",
    "repeated words",
    "repeated three-word runs",
    "commas",
    "other scripts",
    "marks of a template",
    "breaks off",
    "same word twice in a sentence",
)
_NOTABLE = 1.0  # standard deviations of ordinary captions
_MARKS = re.compile(r"<\|?[^ ]*\|?>|\[/?INST\]|[{}]|\b(?:score|assistant|instructions?)\b", re.IGNORECASE)


@dataclass
class Resemblance:
    """How much a policy's captions look like those of one attack.

    Args:
        attack: its name.
        similarity: cosine, in [-1, 1], of what the policy changed and what the attack changes.
        written: the policy's caption that looks most like it.
        attacked: an attacked caption beside it.
    """

    attack: str
    similarity: float
    written: str
    attacked: str


def traits(caption: str) -> np.ndarray:
    """Numbers that describe how a caption is written, (len(`TRAITS`),), whatever it is about.

    Example:
        >>> dict(zip(TRAITS, traits("A star. A star."), strict=True))["repeated sentences"].item()
        0.5
    """
    sentences = [sentence.strip().lower() for sentence, _ in split_sentences(caption) if sentence.strip()] or [""]
    words = re.findall(r"\w+", caption.lower()) or [""]
    runs = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
    # A form is a sentence without its longer words: "the is above the".
    forms = Counter(" ".join(word for word in sentence.split() if len(word) <= 5) for sentence in sentences)
    letters = [character for character in caption if character.isalpha()]
    doubled = [
        any(count > 1 for word, count in Counter(re.findall(r"\w+", sentence)).items() if len(word) > 3)
        for sentence in sentences
    ]
    return np.array(
        [
            np.log1p(len(words)),
            len(words) / len(sentences),
            1 - len(set(sentences)) / len(sentences),
            max(forms.values()) / len(sentences) if len(sentences) > 1 else 0.0,
            1 - len(set(words)) / len(words),
            1 - len(set(runs)) / len(runs) if runs else 0.0,
            caption.count(",") / len(words),
            float(np.mean([not character.isascii() for character in letters])) if letters else 0.0,
            len(_MARKS.findall(caption)) / len(sentences),
            float(not caption.rstrip().endswith((".", "!", "?", "。"))),
            float(np.mean(doubled)),
        ]
    )


def compare_captions(
    written: Sequence[str],
    ordinary: Sequence[str],
    *,
    most: int = 8,
    seed: int = 0,
) -> tuple[dict[str, float], list[Resemblance]]:
    """Compares what a policy wrote with ordinary captions, and with what attacks make of those.

    Each caption becomes the numbers of `traits`, in standard deviations of the ordinary captions. The policy's mean
    shift from them is compared with each attack's by the cosine.

    Args:
        written: captions of the policy.
        ordinary: captions of the same images as people, or the policy before its training, write them; at least 2.
        most, seed: see `reward.audit.run.audit`.

    Returns:
        ({trait: shift in standard deviations} where it is at least 1, resemblances, the greatest first). Without such
        a shift the captions are written like ordinary ones, and there are no resemblances.

    Raises:
        DataError: too few captions.
    """
    if len(ordinary) < 2 or not written:
        raise DataError(f"need at least 2 ordinary captions and 1 written, got {len(ordinary)} and {len(written)}")
    mine = np.stack([traits(text) for text in written])
    plain = np.stack([traits(text) for text in ordinary])
    spread = np.maximum(plain.std(axis=0), 0.05)
    centre = plain.mean(axis=0)
    shift = (mine.mean(axis=0) - centre) / spread
    notable = {name: float(by) for name, by in zip(TRAITS, shift, strict=True) if abs(by) >= _NOTABLE}
    if not notable:
        return {}, []
    found = []
    for name in ATTACKS:
        rng = random.Random(f"{seed} {name}")
        made: list[str] = []
        for text in ordinary:
            others = [other for other in ordinary if other != text]
            material = Material(rng, rng.sample(others, min(3, len(others))), (), rng.randint(1, most))
            pair = attack(name, text, material)
            made += [pair[1]] if pair is not None else []
        if not made:
            continue
        theirs = (np.stack([traits(text) for text in made]) - centre) / spread
        direction = theirs.mean(axis=0)
        closest = int((_cosines((mine - centre) / spread, direction)).argmax())
        beside = int((_cosines(theirs, shift)).argmax())
        similarity = float(_cosines(shift[None], direction)[0])
        found.append(Resemblance(name, similarity, written[closest], made[beside]))
    return notable, sorted(found, key=lambda each: -each.similarity)


def _cosines(rows: np.ndarray, direction: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(direction)
    return rows @ direction / np.maximum(norms, 1e-9)
