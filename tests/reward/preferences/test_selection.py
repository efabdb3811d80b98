"""Rules of preference data hold for any candidates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from datasets import Dataset
from datasets import Image as ImageColumn
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward.errors import ConfigError, DataError
from reward.images import load_image
from reward.preferences import PreferenceRules, Preferences, choose_pairs
from reward.preferences.reading import read_candidates
from reward.preferences.selection import ImageCandidates, is_apart, similarity

WORDS = st.lists(st.sampled_from(["a", "red", "blue", "star", "moon", "on", "grass"]), min_size=0, max_size=8).map(
    " ".join
)
CAPTIONS = st.one_of(WORDS, WORDS.map(lambda text: text.upper() + "."), st.sampled_from(["", "...", "星と月。", None]))
SCORES = st.one_of(st.none(), st.just(float("nan")), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-1, 1))
CANDIDATES = st.lists(st.tuples(CAPTIONS, SCORES), max_size=10)
RULES = st.builds(
    PreferenceRules,
    kind=st.sampled_from(["pairs", "labels"]),
    margin=st.sampled_from([0.0, 0.1, 0.5]),
    per_image=st.integers(1, 4),
    length_ratio=st.one_of(st.none(), st.floats(1, 3)),
    minimum=st.one_of(st.none(), st.floats(-1, 1)),
    near=st.floats(0.1, 1),
    seed=st.integers(0, 3),
)


def chosen(candidates, rules):
    return choose_pairs([text for text, _ in candidates], [score for _, score in candidates], rules)


@given(CANDIDATES, RULES)
def test_every_pair_keeps_every_rule(candidates, rules):
    pairs, left_out, reason = chosen(candidates, rules)
    assert (pairs == []) == (reason is not None)
    assert len(pairs) <= rules.per_image
    assert left_out.total() <= len(candidates)
    used = [caption for pair in pairs for caption in pair]
    for one, other in itertools.combinations(used, 2):
        assert similarity(one.text, other.text) < rules.near
    given_scores = {(text and text.strip(), score) for text, score in candidates}
    assert {tuple(caption) for caption in used} <= given_scores
    for better, worse in pairs:
        assert is_apart(better.score, worse.score, rules.margin)
        assert rules.minimum is None or better.score >= rules.minimum - 2e-7
        if rules.length_ratio is not None:
            short, long = sorted((len(better.text), len(worse.text)))
            assert long <= rules.length_ratio * short
    if rules.kind == "labels" and pairs:
        lowest, highest = min(pair.chosen.score for pair in pairs), max(pair.rejected.score for pair in pairs)
        assert is_apart(lowest, highest, rules.margin)
    assert chosen(candidates, rules)[0] == pairs


@given(CANDIDATES, st.sampled_from([0.0, 0.1, 0.5]), st.one_of(st.none(), st.floats(1, 3)))
def test_one_pair_is_the_widest_there_is(candidates, margin, ratio):
    rules = PreferenceRules(margin=margin, length_ratio=ratio, near=1.0)
    pairs, _, _ = chosen(candidates, rules)
    best = chosen(candidates, PreferenceRules(kind="best", per_image=10, near=1.0))[0]
    texts = [pair.chosen for pair in best]
    gaps = [
        a.score - b.score
        for a, b in itertools.permutations(texts, 2)
        if is_apart(a.score, b.score, margin)
        and (ratio is None or max(len(a.text), len(b.text)) <= ratio * min(len(a.text), len(b.text)))
    ]
    assert [better.score - worse.score for better, worse in pairs] == ([max(gaps)] if gaps else [])


@given(CANDIDATES, st.integers(1, 4), st.one_of(st.none(), st.floats(-1, 1)))
def test_the_best_are_the_best(candidates, k, minimum):
    pairs, _, _ = chosen(candidates, PreferenceRules(kind="best", per_image=k, minimum=minimum, near=1.0))
    scores = [pair.chosen.score for pair in pairs]
    assert scores == sorted(scores, reverse=True)
    assert len(pairs) <= k
    usable = [score for text, score in candidates if text and text.strip(".") and score is not None and score == score]
    if scores:
        assert scores[0] == max(usable)
    assert minimum is None or all(score >= minimum - 2e-7 for score in scores)


@given(
    st.lists(st.tuples(st.integers(0, 5), CANDIDATES), min_size=1, max_size=8),
    RULES,
    st.sampled_from([0.0, 0.2, 0.5, 0.9]),
)
def test_no_image_is_in_both_splits_and_everything_is_counted(images, rules, holdout):
    groups = [
        ImageCandidates(
            str(image),
            f"{image}.png",
            [],
            [text for text, _ in own],
            [score for _, score in own],
            None if image else "no image",
        )
        for number, (image, own) in enumerate(images)
    ]
    try:
        made = Preferences.choose(groups, rules, holdout=holdout)
    except DataError:
        with_rows = {
            group.image_key
            for group in groups
            if not group.problem and choose_pairs(group.captions, group.scores, rules)[0]
        }
        assert len(with_rows) <= (1 if holdout else 0)
        return
    pictures = {split: {row["images"][0] for row in rows} for split, rows in made.rows.items()}
    assert all(pictures.values())
    assert not pictures["train"] & pictures.get("test", set())
    assert set(pictures) == ({"train", "test"} if holdout else {"train"})
    assert sum(made.images_kept.values()) + made.images_dropped.total() == made.images == len(images)
    assert Preferences.choose(groups, rules, holdout=holdout) == made
    fewer = Preferences.choose(groups[::-1], rules, holdout=holdout)  # a choice does not depend on other images
    assert sorted(map(str, fewer.rows["train"])) == sorted(map(str, made.rows["train"]))


def test_neighbouring_labels_are_of_different_images_and_alternate():
    scores = [0.1, 0.2, 0.8, 0.9]
    groups = [ImageCandidates(str(n), f"{n}.png", [], ["red", "blue", "star", "moon"], list(scores)) for n in range(4)]
    rows = Preferences.choose(groups, PreferenceRules(kind="labels", per_image=2)).rows["train"]
    assert [row["label"] for row in rows] == [True, False] * 8
    assert all(one["images"] != other["images"] for one, other in itertools.pairwise(rows))
    assert all((row["score"] > 0.5) == row["label"] for row in rows)


@pytest.mark.parametrize("sizes", [[3, 1, 1, 1], [1, 1, 1, 3], [4, 3, 2, 1], [1, 2, 2], [3, 3, 3, 1, 1], [1] * 5])
def test_neighbours_stay_of_different_images_when_short_ones_run_out(sizes):
    names = ["one", "two", "three", "four"]
    groups = [
        ImageCandidates(
            str(n),
            f"{n}.png",
            [],
            [w for s in "ab" for w in (f"{s} {name}" for name in names[:size])],
            [0.0] * size + [1.0] * size,
        )
        for n, size in enumerate(sizes)
    ]
    rows = Preferences.choose(groups, PreferenceRules(kind="labels", per_image=4, near=1.0)).rows["train"]
    assert len(rows) == 2 * sum(sizes)
    assert all(one["images"] != other["images"] for one, other in itertools.pairwise(rows))
    assert [row["label"] for row in rows] == [True, False] * sum(sizes)


def test_neighbours_of_one_image_are_told_where_no_order_avoids_them(caplog):
    many = ImageCandidates("a", "a.png", [], ["one", "two", "three", "four", "five", "six"], [0, 0, 0, 1, 1, 1])
    groups = [many, ImageCandidates("b", "b.png", [], ["one", "two"], [0, 1])]
    rows = Preferences.choose(groups, PreferenceRules(kind="labels", per_image=3, near=1.0)).rows["train"]
    alike = sum(one["images"] == other["images"] for one, other in itertools.pairwise(rows))
    assert f"{alike} of 7 neighbours are of one image" in caplog.text
    two_prompts = [ImageCandidates("a", "a.png", [{"content": text}], ["one", "two"], [0, 1]) for text in "xy"]
    others = [ImageCandidates(name, f"{name}.png", [], ["one", "two"], [0, 1]) for name in "bcd"]
    rows = Preferences.choose([*two_prompts, *others], PreferenceRules(kind="labels")).rows["train"]
    assert all(one["images"] != other["images"] for one, other in itertools.pairwise(rows))


@pytest.mark.parametrize(("low", "high"), [(place / 10, (place + 1) / 10) for place in range(10)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["pairs", "labels"])
def test_scores_that_are_exactly_the_margin_apart_make_a_pair(low, high, dtype, kind):
    low, high = (float(np.array(score, dtype)) for score in (low, high))
    rules = PreferenceRules(kind=kind, margin=0.1, per_image=2)
    assert len(choose_pairs(["red", "blue"], [low, high], rules)[0]) == 1
    assert choose_pairs(["red", "blue"], [low, high - 0.0001], rules)[0] == []
    best = PreferenceRules(kind="best", minimum=round(high, 1))
    assert len(choose_pairs(["blue"], [high], best)[0]) == 1
    assert choose_pairs(["blue"], [high - 0.0001], best)[0] == []


@pytest.mark.parametrize("encoded", [False, True])
def test_a_picture_under_two_names_is_held_out_or_not_under_both(encoded, tmp_path):
    rows = []
    for number, name in itertools.product(range(6), ("first", "second")):
        file = tmp_path / f"{number} {name}.png"
        Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(file, compress_level=9 if name == "first" else 1)
        image = {"bytes": file.read_bytes(), "path": file.name} if encoded else str(file)
        rows.append({"image": image, "candidates": ["A dot.", "A large square."], "rewards": [0.1, 0.9]})
    data = Dataset.from_list(rows)
    groups = read_candidates(data.cast_column("image", ImageColumn()) if encoded else data)
    made = Preferences.choose(groups, PreferenceRules(), holdout=0.3)
    pictures = {}
    for split, own in made.rows.items():
        pictures[split] = {load_image(row["images"][0]).getpixel((0, 0)) for row in own}
    assert sum(map(len, made.rows.values())) == 12
    assert len(pictures["test"]) == 2
    assert not pictures["train"] & pictures["test"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "dpo"}, "kind must be one of pairs, labels, best, got 'dpo'"),
        ({"margin": -1}, "margin must be a number of at least 0, got -1"),
        ({"margin": float("nan")}, "margin must be"),
        ({"length_ratio": 0.5}, "length_ratio must be a number of at least 1, got 0.5"),
        ({"near": 1.5}, "near must be a number of at least 0 and at most 1, got 1.5"),
        ({"per_image": 0}, "per_image must be a whole number of at least 1, got 0"),
        ({"minimum": float("inf")}, "minimum must be a finite number"),
        ({"kind": "best", "margin": 0.1}, "kind 'best' has no pairs: leave margin out"),
    ],
)
def test_wrong_rules_say_so(wrong, message):
    with pytest.raises(ConfigError, match=message):
        PreferenceRules(**wrong)


def test_why_there_is_no_pair():
    captions = ["A star.", "A long caption of a red star."]
    for scores, rules, reason in (
        ([None, None], {}, "no caption with a score and a word"),
        ([0.1, 0.2], {"minimum": 0.5}, "no caption that reaches the minimum"),
        ([0.1, 0.2], {"near": 0.1}, "only one caption once repetitions are left out"),
        ([0.1, 0.1], {}, "no two captions whose scores differ by the margin"),
        ([0.1, 0.2], {"length_ratio": 1.5}, "no two such captions of like length"),
    ):
        assert choose_pairs(captions, scores, PreferenceRules(**rules))[::2] == ([], reason)
