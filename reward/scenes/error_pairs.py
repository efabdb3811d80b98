"""Pairs of captions that differ in one error, and a data set of them in LongCapVLCP's form, short or long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.data.word_edits import corrupt_words
from reward.scenes.describe import Caption, Style, describe
from reward.scenes.edits import make_error
from reward.scenes.graph import Fact, Scene, sample_scene
from reward.scenes.render import render

if TYPE_CHECKING:
    from datasets import Dataset

# What can be wrong, in the terms of compositional benchmarks; each is one kind of error of `reward.scenes.edits`.
CATEGORIES = ("spatial", "actant_swap", "action", "noun", "attribute", "count", "scene_text")
# Errors that show in the words, without the picture; and the caption of another scene.
WORD_LEVEL = ("shuffle_words", "shuffle_sentences", "repeat_noun", "repeat_verb", "repeat_adjective", "retrieved")
SHORT_TOKENS = 60  # a short caption is within them, start token included


@dataclass(frozen=True)
class ErrorPair:
    """A true caption and one with one error.

    Args:
        correct, incorrect: the captions; where they differ, they state different values of the same fact.
        category: one of `CATEGORIES`.
    """

    correct: Caption
    incorrect: Caption
    category: str


class SteadyRandom(random.Random):
    """Draws one number from the stream for every choice, whatever the number of options.

    Two captions written with equal seeds then differ only where the facts do. `random.Random` draws by rejection on
    bits, and so more for some numbers of options; with `random()` overridden it draws once.
    """

    def random(self) -> float:
        return super().random()


def make_pair(scene: Scene, category: str, rng: random.Random, *, long: bool = False) -> ErrorPair | None:
    """Writes a pair, or returns None if the scene or the draw allows no such error.

    Args:
        scene: the truth.
        category: one of `CATEGORIES`.
        rng: source of the error and of the wording.
        long: whether the captions state everything, in many sentences with padding (about 90 to 190 tokens of a CLIP);
            by default they state some of the facts in few sentences.

    Example:
        >>> from reward.scenes.graph import sample_scene
        >>> rng = random.Random(1)
        >>> pair = make_pair(sample_scene(rng), "scene_text", rng)
        >>> "PARK" in pair.correct.text, "PARK" in pair.incorrect.text
        (False, True)
    """
    if category not in CATEGORIES:
        raise ValueError(f"unknown category {category!r}; known: {', '.join(CATEGORIES)}")
    belief = _belief(scene, category, rng)
    if belief is None:
        return None
    if long:
        keep = rng.choice((0.9, 1.0, 1.0))
        style = Style(split=rng.choice((0.6, 0.9)), filler=rng.randint(1, 4), spatial=rng.randint(0, 3))
    else:
        keep = rng.choice((0.3, 0.5, 0.7, 1.0))
        style = Style(split=rng.choice((0.0, 0.0, 0.3)), spatial=rng.choice((0, 0, 1)))
    stated = {_key(fact) for fact in sorted(scene.facts(), key=str) if rng.random() < keep}
    stated |= {_key(fact) for fact in scene.facts() - belief.facts()}
    # A fact can only be stated of an object that is mentioned.
    stated |= {("object", noun) for kind, noun in stated if kind in ("colour", "size", "pattern", "count", "position")}
    if ("action", "") in stated and scene.action:
        stated |= {("object", scene.action.agent), ("object", scene.action.patient)}
    # An error may have renamed an object; both captions state the facts of the same ones.
    names = {new.noun: old.noun for old, new in zip(scene.entities, belief.entities, strict=False)}
    # With one seed both captions are worded alike, and differ only where the facts do.
    seed = rng.getrandbits(64)
    correct = describe(
        scene, SteadyRandom(seed), facts=[fact for fact in scene.facts() if _key(fact) in stated], style=style
    )
    believed = [fact for fact in belief.facts() if _key(fact, names) in stated]
    incorrect = describe(belief, SteadyRandom(seed), facts=believed, style=style)
    if category == "spatial" and any(
        before != after and all(scene.is_true(fact) for fact in after.claims)
        for before, after in zip(correct.sentences, incorrect.sentences, strict=True)
    ):
        return None  # "left of" became "above", which is true as well: those words would pass for wrong
    if correct.text == incorrect.text:
        return None
    return ErrorPair(correct, incorrect, category)


def true_caption(scene: Scene, rng: random.Random, *, long: bool) -> Caption | None:
    """The correct caption of a pair of a random category; None where the scene offers no such error."""
    pair = make_pair(scene, rng.choice(CATEGORIES), rng, long=long)
    return pair.correct if pair else None


def make_texts(scene: Scene, category: str, rng: random.Random, *, long: bool) -> tuple[str, str] | None:
    """The texts of a pair, (correct, incorrect); the category `"retrieved"` takes the caption of another scene.

    None where the scene or the draw allows no such error.
    """
    if category != "retrieved":
        pair = make_pair(scene, category, rng, long=long)
        if pair is None:
            return None
        return pair.correct.text, pair.incorrect.text
    correct = true_caption(scene, rng, long=long)
    if correct is None:
        return None
    retrieved = true_caption(sample_scene(rng), rng, long=long)
    if retrieved is None:
        return None
    return correct.text, retrieved.text


def _belief(scene: Scene, category: str, rng: random.Random) -> Scene | None:
    """A scene with one error that the words alone do not reveal."""
    for _ in range(8):
        belief = make_error(scene, category, rng)
        if belief is None or category != "count":
            return belief
        changed = zip(scene.entities, belief.entities, strict=True)
        # Objects that come alone are commoner than groups, so "two stars" for one star would be a fair guess unseen.
        if all(old.count > 1 and new.count > 1 for old, new in changed if old != new):
            return belief
    return None


def _key(fact: Fact, names: dict[str, str] | None = None) -> tuple[str, str]:
    """What a fact is about, in the true scene's nouns, without its value."""
    if fact[0] in ("action", "background", "text"):
        return str(fact[0]), ""
    noun = str(fact[1])
    return str(fact[0]), (names or {}).get(noun, noun)


def make_pair_dataset(
    n: int, seed: int, *, long: bool, categories: Sequence[str] = (*CATEGORIES, *WORD_LEVEL)
) -> Dataset:
    """Makes `n` pairs of each category, each of a scene of its own; the same arguments always give the same rows.

    Scenes and captions are drawn until a pair fits: short ones are within 60 tokens of a CLIP (both captions whole),
    long ones differ at token 77 and no sooner, counted from 0 at the start token, where a CLIP reads no more. Only
    the long captions of category "retrieved" differ from their beginning. Word-level errors of long captions are
    made in the sentences past that token.

    Args:
        n: pairs of each category, at least 1.
        seed: any whole number; rows of different seeds are different scenes, and no model here is trained on any.
        long: see above.
        categories: which of `CATEGORIES` and `WORD_LEVEL`.

    Returns:
        A data set with the columns image (PIL), correct, incorrect, category, error_token (first token in which the
        captions differ, counted as above) and scene (JSON, for `Oracle.score`), ordered by category.

    Example:
        >>> rows = make_pair_dataset(1, seed=0, long=False, categories=["count", "scene_text"])
        >>> rows.column_names
        ['image', 'correct', 'incorrect', 'category', 'error_token', 'scene']
    """
    from datasets import Dataset, Features, Image, Value

    text = Value("string")
    features = Features(
        {"image": Image(), "correct": text, "incorrect": text, "category": text}
        | {"error_token": Value("int64"), "scene": text}
    )
    length = "long" if long else "short"
    rows = []
    for category in categories:
        for index in range(n):
            # One generator per row: row k of a category is the same whatever n and the other categories are.
            rng = random.Random(f"capreward pairs {length} {seed} {category} {index}")
            scene, correct, incorrect = _fitting_pair(category, rng, long)
            row = {
                "image": render(scene),
                "correct": correct,
                "incorrect": incorrect,
                "category": category,
                "error_token": first_different_token(correct, incorrect),
                "scene": scene.to_json(),
            }
            rows.append(row)
    return Dataset.from_list(rows, features=features)


def _fitting_pair(category: str, rng: random.Random, long: bool) -> tuple[Scene, str, str]:
    """Draws until the error is where it should be; at least one draw in twenty fits."""
    make_captions = make_texts
    if category in WORD_LEVEL and category != "retrieved":
        make_captions = _word_level
    while True:
        scene = sample_scene(rng)
        captions = make_captions(scene, category, rng, long=long)
        if captions is None:
            continue
        error_token = first_different_token(*captions)
        if error_token is None:
            continue
        if long:
            fits = category == "retrieved" or error_token >= CLIP_TOKENS
        else:
            fits = max(map(clip_length, captions)) <= SHORT_TOKENS
        if fits:
            return scene, *captions


def _word_level(scene: Scene, category: str, rng: random.Random, *, long: bool) -> tuple[str, str] | None:
    caption = true_caption(scene, rng, long=long)
    if caption is None:
        return None
    head, tail = "", caption.text
    if long:
        head, tail = _split(caption)
    changed = corrupt_words(tail, rng, category)
    if changed is None:
        return None
    return caption.text, f"{head} {changed}".lstrip()


def _split(caption: Caption) -> tuple[str, str]:
    """A caption before and after the end of the sentence in which token 77 lies; either may be empty."""
    sentences = caption.sentences
    for count in range(1, len(sentences)):
        head = Caption(sentences[:count]).text
        if clip_length(head) >= CLIP_TOKENS:
            return head, Caption(sentences[count:]).text
    return caption.text, ""
