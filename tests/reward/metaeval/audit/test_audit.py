"""Attacks change captions as they say, the audit counts what metrics prefer, and only what is worse counts."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.data.score_table import ScoreTable
from reward.data.word_edits import corrupt_words
from reward.errors import DataError
from reward.metaeval.audit.attacks import ATTACKS, Attack, Material
from reward.metaeval.audit.auditing import AuditRow, audit, read_rows, scene_rows
from reward.metrics.base import MetricSpec
from reward.registry import load_scorer
from reward.scenes import rate_text
from tests.toys.json_lines import write_lines

CAPTION = "A small red dog runs on the left. Two people watch it from a bench. The sky is dark."
OTHERS = ["A cat sleeps on a sofa. It is grey."]


class Fixed:
    """A metric that scores a sample by a function; NaN is no score."""

    spec = MetricSpec("fixed", "", ("reward",))

    def __init__(self, rate):
        self.rate = rate

    def score(self, samples, **_):
        scores = np.array([[self.rate(sample)] for sample in samples], dtype=float)
        errors = dict.fromkeys(np.flatnonzero(np.isnan(scores[:, 0])).tolist(), "no")
        return ScoreTable(scores, ("reward",), errors=errors)


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_every_attack_changes_a_caption_and_is_repeatable(kind):
    made = [ATTACKS[kind].apply(CAPTION, Material(random.Random(3), OTHERS)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][1].strip() not in ("", made[0][0])


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.sampled_from(sorted(ATTACKS)), st.integers(1, 3))
def test_attacks_take_any_text(text, kind, amount):
    made = ATTACKS[kind].apply(text, Material(random.Random(0), amount=amount))
    assert made is None or made[0] != made[1]


def test_a_metric_that_counts_words_is_cheated_by_length_and_not_by_truncation():
    equal = Fixed(lambda sample: 1.0)
    result = audit({"length": load_scorer("length"), "equal": equal}, scene_rows(6, seed=2), resamples=50, most=3)
    found = result.metrics["length"]
    assert found.findings["repeated caption"].wins.value == found.findings["relations"].wins.value == 1
    assert found.findings["truncation"].wins.value == 0 > found.findings["truncation"].change.value
    assert found.longer.value == found.worst[1].wins.value == 1
    assert len(found.worst[1].examples) == 3
    assert {finding.wins.value for finding in result.metrics["equal"].findings.values()} == {0}  # a tie is no win


def test_the_oracle_is_never_cheated_and_what_is_not_worse_does_not_count():
    rows = scene_rows(5, seed=3)
    scenes = {id(row.image): row.scene for row in rows}
    truth = Fixed(lambda sample: sum(rate_text(sample.candidate, scenes[id(sample.image)]).values()))
    reordered = Attack("", lambda caption, material: corrupt_words(caption, material.rng, "shuffle_sentences"))
    result = audit({"truth": truth}, rows, attacks={**ATTACKS, "reordered": reordered}, resamples=20)
    assert {finding.wins.value for finding in result.metrics["truth"].findings.values()} == {0}
    assert result.skipped["reordered"] == 5  # the scenes' sentences may stand in any order
    assert max(result.metrics["truth"].nothing.values()) == 3.0  # one point for each aspect


def test_scores_that_are_missing_are_left_out_and_told():
    rows = [AuditRow(CAPTION), AuditRow("A man eats. A woman sings.")]
    half = Fixed(lambda sample: float("nan") if "dog" in sample.candidate else len(sample.candidate))
    found = audit({"half": half}, rows, resamples=20).metrics["half"]
    assert (found.unscored[0] > 0, found.findings["repeated caption"].captions) == (True, 1)
    with pytest.raises(DataError, match="could score no caption: no"):
        audit({"none": Fixed(lambda sample: float("nan"))}, rows, resamples=20)
    with pytest.raises(DataError, match="at least one metric and one caption"):
        audit({}, rows)
    with pytest.raises(DataError, match="no attack fits"):
        audit({"half": half}, [AuditRow(".")], attacks={"relations": ATTACKS["relations"]})


def test_captions_of_one_image_count_as_one_image_and_are_not_those_of_another(tmp_path):
    colours = ("red", "blue", "green")
    for colour in colours:
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{colour}.png")
    rows = [
        {"image": f"{colour}.png", "caption": f"The {colour} wall has {count} windows. It is old."}
        for colour in colours
        for count in range(4)
    ]
    read = read_rows(write_lines(tmp_path / "rows.jsonl", rows))
    seen = []

    def spy(text, material):
        seen.append((text, material.others))
        return text + " More."

    attacks = {"spy": Attack("adds a word", spy), "other image": ATTACKS["other image"]}
    result = audit({"fixed": Fixed(lambda sample: len(sample.candidate))}, read, attacks=attacks, resamples=200)
    assert (result.images, len(seen)) == (3, 12)
    for caption, others in seen:
        [colour] = [each for each in colours if each in caption]
        assert [colour in other for other in others] == [False] * 3
    wins = result.metrics["fixed"].findings["other image"].wins
    assert wins.high - wins.low > 0.6  # three images say little, however many captions each has


def test_rows_of_a_file(tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [{"text": CAPTION, "references": ["a dog"]}, {"text": " "}])
    assert read_rows(path, limit=1, candidate_column="text") == [AuditRow(CAPTION, None, ("a dog",))]
    with pytest.raises(DataError, match="row 2: the caption is empty"):
        read_rows(path, candidate_column="text")
