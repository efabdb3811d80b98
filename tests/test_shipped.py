"""The checkpoints that ship with the package, which are final: what they are good for."""

import random
from collections import Counter

import numpy as np
import pytest

from integrations.demo.agreement import BASELINES, measure_agreement
from integrations.demo.captioner import write_captions
from integrations.trl import load_policy
from reward import load_scorer
from reward.decoding.captioners import EMBEDDED_PROMPT, EMBEDDED_SHORT_PROMPT
from reward.scenes import ASPECTS, CATEGORIES, Oracle, make_pair_dataset, render, sample_scene

pytestmark = pytest.mark.slow


def test_vela_agrees_with_raters_better_than_every_baseline():
    measured = measure_agreement(60, 4711, scorers={"vela": load_scorer("vela", device="cpu")}, resamples=2)
    differences = {
        (mode, other, aspect): measured["differences"][f"VELA, {mode} references"][other][aspect].value
        for mode in ("with", "without")
        for other in BASELINES
        for aspect in ASPECTS
    }
    assert {place: value for place, value in differences.items() if value <= 0} == {}


def test_beitscore_sees_every_kind_of_error_in_the_picture_and_not_in_the_words():
    rows = make_pair_dataset(24, seed=4711, long=False, categories=CATEGORIES)
    scorer, images = load_scorer("beitscore", device="cpu"), list(rows["image"])

    def told(pictures):
        """Whether each correct caption has the higher score."""
        right, wrong = (scorer.score(pictures, list(rows[side])) for side in ("correct", "incorrect"))
        return right.scores[:, 0] > wrong.scores[:, 0]

    seen, unseen = told(images), told([*images[7:], *images[:7]])
    assert all(seen[np.array(rows["category"]) == category].mean() > 0.5 for category in CATEGORIES)
    assert seen.mean() > 0.8
    assert 0.4 < unseen.mean() < 0.6


ALWAYS = {"object", "count", "colour", "action"}


@pytest.mark.parametrize(
    ("prompt", "greedy", "kinds", "right", "recall", "flaws"),
    [
        (EMBEDDED_PROMPT, True, {*ALWAYS, "size", "pattern", "position", "text", "background"}, 0.85, 0.72, 0.03),
        (EMBEDDED_PROMPT, False, ALWAYS, 0.7, 0.5, 0.1),  # a fifth of the training captions had an error
        (EMBEDDED_SHORT_PROMPT, True, ALWAYS, 0.85, 0.25, 0.03),
    ],
)
def test_the_captioner_sees_what_it_says(prompt, greedy, kinds, right, recall, flaws):
    rng = random.Random("what the captioner says")
    scenes = [sample_scene(rng) for _ in range(60)]
    model, processor = load_policy("embedded")
    written = write_captions(model, processor, [render(scene) for scene in scenes], greedy=greedy, prompt=prompt)
    oracle, stated, true, verdicts = Oracle(), Counter(), Counter(), []
    for [caption], scene in zip(written, scenes, strict=True):
        verdicts.append(oracle.score(caption, scene))
        claims = oracle.read(caption).claims
        stated.update(str(claim[0]) for claim in claims)
        true.update(str(claim[0]) for claim in claims - verdicts[-1].wrong)
    assert {kind for kind in kinds if true[kind] > right * stated[kind] > 0} == kinds
    assert (max(len(caption.split()) for [caption] in written) > 40) == (prompt == EMBEDDED_PROMPT)
    assert np.mean([verdict.recall for verdict in verdicts]) > recall
    assert np.mean([verdict.faults for verdict in verdicts]) <= flaws
