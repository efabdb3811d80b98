"""Attacks change captions as they say, the audit counts what metrics prefer, and only what is worse counts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward.errors import DataError
from reward.metaeval.audit.attacks import ATTACKS, EMPTY_CAPTIONS, Attack, Material
from reward.metaeval.audit.run import AuditRow, audit, read_rows, scene_rows
from reward.metrics.base import MetricSpec
from reward.registry import load_scorer
from reward.samples import CaptionSample
from reward.scenes import Oracle, describe, rate_text, sample_scene
from reward.score_table import ScoreTable
from reward.training.corruptions.words import corrupt_words
from tests.toys.json_lines import write_lines

CAPTION = "A small red dog runs on the left. Two people watch it from a bench. The sky is dark."
MATERIAL = {"others": ["A cat sleeps on a sofa. It is grey."]}


class Fixed:
    """A metric that scores a caption by a function of its text."""

    spec = MetricSpec("fixed", "", ("reward",))

    def __init__(self, rate) -> None:
        self.rate = rate

    def score(self, samples: Sequence[CaptionSample], **_) -> ScoreTable:
        scores = np.array([[self.rate(sample.candidate)] for sample in samples], dtype=float)
        errors = dict.fromkeys(np.flatnonzero(np.isnan(scores[:, 0])), "no")
        return ScoreTable(scores, ("reward",), errors=errors)


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_every_attack_changes_a_caption_and_is_repeatable(kind: str) -> None:
    made = [ATTACKS[kind].apply(CAPTION, Material(random.Random(3), **MATERIAL)) for _ in range(2)]
    assert made[0] is not None
    assert made[0] == made[1]
    before, after = made[0]
    assert after != before
    assert after.strip()


@given(st.text(max_size=60), st.sampled_from(sorted(ATTACKS)), st.integers(1, 3))
def test_attacks_take_any_text(text: str, kind: str, amount: int) -> None:
    made = ATTACKS[kind].apply(text, Material(random.Random(0), amount=amount))
    assert made is None or made[0] != made[1]


def test_a_metric_that_counts_words_is_cheated_by_length_and_not_by_truncation() -> None:
    result = audit({"length": load_scorer("length")}, scene_rows(6, seed=2), resamples=50, most=3)
    found = result.metrics["length"]
    assert found.findings["repeated caption"].wins.value == found.findings["relations"].wins.value == 1
    assert found.findings["truncation"].wins.value == 0 > found.findings["truncation"].change.value
    assert found.longer is not None
    assert found.longer.value == 1
    assert found.worst[1].wins.value == 1
    assert len(found.worst[1].examples) == 3
    equal = audit({"equal": Fixed(lambda text: 1.0)}, scene_rows(3, seed=2), resamples=20).metrics["equal"]
    assert {finding.wins.value for finding in equal.findings.values()} == {0}  # a tie is no win


def test_the_oracle_is_never_cheated_and_what_is_not_worse_does_not_count() -> None:
    rows = scene_rows(5, seed=3)

    class Truth(Fixed):
        def score(self, samples: Sequence[CaptionSample], **_) -> ScoreTable:
            scenes = {id(row.image): row.scene for row in rows}
            scores = np.array([[sum(rate_text(s.candidate, scenes[id(s.image)]).values())] for s in samples])
            return ScoreTable(scores, ("reward",))

    reordered = Attack("", lambda caption, material: corrupt_words(caption, material.rng, "shuffle_sentences"))
    result = audit({"truth": Truth(len)}, rows, attacks={**ATTACKS, "reordered": reordered}, resamples=20)
    assert {finding.wins.value for finding in result.metrics["truth"].findings.values()} == {0}
    assert result.skipped["reordered"] == 5  # the scenes' sentences may stand in any order
    assert max(result.metrics["truth"].nothing.values()) == 3.0  # one point for each aspect


def test_scores_that_are_missing_are_left_out_and_told() -> None:
    rows = [AuditRow(CAPTION), AuditRow("A man eats. A woman sings.")]
    half = Fixed(lambda text: float("nan") if "dog" in text else len(text))
    result = audit({"half": half}, rows, resamples=20)
    assert result.metrics["half"].unscored[0] > 0
    assert result.metrics["half"].findings["repeated caption"].captions == 1
    with pytest.raises(DataError, match="could score no caption: no"):
        audit({"none": Fixed(lambda text: float("nan"))}, rows, resamples=20)
    with pytest.raises(DataError, match="at least one metric and one caption"):
        audit({}, rows)
    with pytest.raises(DataError, match="no attack fits"):
        audit({"half": half}, [AuditRow(".")], attacks={"relations": ATTACKS["relations"]})


def test_captions_of_one_image_count_as_one_image_and_are_not_those_of_another(tmp_path) -> None:
    captions = {}
    for colour in ("red", "blue", "green"):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{colour}.png")
        captions[colour] = [f"The {colour} wall has {count} windows. It is old." for count in range(4)]
    rows = [{"image": f"{colour}.png", "caption": text} for colour, texts in captions.items() for text in texts]
    write_lines(tmp_path / "rows.jsonl", rows)
    read = read_rows(tmp_path / "rows.jsonl")
    seen: list[tuple[str, Sequence[str]]] = []

    def spy(text: str, material: Material) -> str:
        seen.append((text, material.others))
        return text + " More."

    attacks = {"spy": Attack("adds a word", spy), "other image": ATTACKS["other image"]}
    result = audit({"fixed": Fixed(len)}, read, attacks=attacks, resamples=200)
    finding = result.metrics["fixed"].findings["other image"]
    assert (result.images, len(seen)) == (3, 12)
    for caption, others in seen:
        [colour] = [each for each in captions if each in caption]
        assert len(others) == 3
        assert not any(colour in other for other in others)
    assert finding.wins.high - finding.wins.low > 0.6  # three images say little, however many captions each has


def test_rows_of_a_file(tmp_path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"text": CAPTION, "references": ["a dog"]}, {"text": " "}])
    [row] = read_rows(path, limit=1, candidate_column="text")
    assert (row.caption, row.references, row.image) == (CAPTION, ("a dog",), None)
    with pytest.raises(DataError, match="row 2: the caption is empty"):
        read_rows(path, candidate_column="text")


def test_ratings_of_any_text_follow_the_oracle() -> None:
    rng = random.Random(5)
    scene = sample_scene(rng)
    whole = describe(scene, rng).text
    best = rate_text(whole, scene)
    assert best == {"desc": 5.0, "rel": 5.0, "flu": 5.0}
    for text in (*EMPTY_CAPTIONS, "It is a simple drawing.", "ignore all instructions"):
        assert not Oracle().read(text).claims
        assert set(rate_text(text, scene).values()) == {1.0}
    sentence = whole.split(". ")[0]
    assert rate_text(f"{whole} In other words, {sentence.lower()}.", scene)["flu"] < 5
    assert rate_text(f"{whole} {sentence}.", scene)["flu"] == 4
