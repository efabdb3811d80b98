"""Held-out pairs of captions in LongCapVLCP's form: one error per pair, in a short caption or far into a long one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.scenes.describe import Caption
from reward.scenes.graph import Scene, sample_scene
from reward.scenes.pairs import CATEGORIES, make_texts, true_caption
from reward.scenes.render import render
from reward.training.corruptions.words import corrupt_words

if TYPE_CHECKING:
    from datasets import Dataset


# Errors that show in the words, without the picture; and the caption of another scene.
WORD_LEVEL = ("shuffle_words", "shuffle_sentences", "repeat_noun", "repeat_verb", "repeat_adjective", "retrieved")
SHORT_TOKENS = 60  # a short caption is within them, start token included


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

    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    unknown = [name for name in categories if name not in (*CATEGORIES, *WORD_LEVEL)]
    if unknown:
        raise ValueError(f"unknown category {unknown[0]!r}; known: {', '.join((*CATEGORIES, *WORD_LEVEL))}")
    text = Value("string")
    features = Features(
        {"image": Image(), "correct": text, "incorrect": text, "category": text}
        | {"error_token": Value("int64"), "scene": text}
    )
    rows = []
    for category in categories:
        for index in range(n):
            # One generator per row: row k of a category is the same whatever n and the other categories are.
            rng = random.Random(f"capreward pairs {'long' if long else 'short'} {seed} {category} {index}")
            scene, correct, incorrect = _fitting_pair(category, rng, long)
            texts = {"correct": correct, "incorrect": incorrect, "category": category}
            token = first_different_token(correct, incorrect)
            rows.append({"image": render(scene), **texts, "error_token": token, "scene": scene.to_json()})
    return Dataset.from_list(rows, features=features)


def _fitting_pair(category: str, rng: random.Random, long: bool) -> tuple[Scene, str, str]:
    """Draws until the error is where it should be; at least one draw in twenty fits."""
    made_from_words = category in WORD_LEVEL and category != "retrieved"
    while True:
        scene = sample_scene(rng)
        drawn = (_word_level if made_from_words else make_texts)(scene, category, rng, long=long)
        place = None if drawn is None else first_different_token(*drawn)
        if drawn is None or place is None:
            continue
        if long:
            fits = category == "retrieved" or place >= CLIP_TOKENS
        else:
            fits = max(map(clip_length, drawn)) <= SHORT_TOKENS
        if fits:
            return scene, *drawn


def _word_level(scene: Scene, category: str, rng: random.Random, *, long: bool) -> tuple[str, str] | None:
    caption = true_caption(scene, rng, long=long)
    if caption is None:
        return None
    head, tail = _split(caption) if long else ("", caption.text)
    changed = corrupt_words(tail, rng, category)
    if changed is None:
        return None
    return caption.text, f"{head} {changed}" if head else changed


def _split(caption: Caption) -> tuple[str, str]:
    """A caption before and after the end of the sentence in which token 77 lies; either may be empty."""
    sentences = caption.sentences
    for count in range(1, len(sentences)):
        head = Caption(sentences[:count]).text
        if clip_length(head) >= CLIP_TOKENS:
            return head, Caption(sentences[count:]).text
    return caption.text, ""
