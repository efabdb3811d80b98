"""Means over the sentences of a caption, for any metric."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import CaptionSample, ScoreTable, list_metrics, load_scorer, metric_spec
from reward.errors import CheckpointError, InvalidSampleError, UnknownMetricError
from reward.metrics.base import MetricSpec, Scorer
from reward.metrics.sentences import SentenceMean
from reward.metrics.words.scorer import LengthScorer, UnigramScorer
from tests.contract import ScorerContract

TWO = "A red star shines. Dr. Who waves!"


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return SentenceMean(UnigramScorer())


class TestSentenceMean(ScorerContract):
    """The contract, for a metric that reads references."""

    def load(self, scorer: Any, source: Path) -> Scorer:
        return load_scorer("unigram_avg", source, device="cpu")


class PickyScorer(LengthScorer):
    """Cannot score sentences with "bad" in them, cuts after two words, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[CaptionSample] = []

    def score(self, samples: Sequence[CaptionSample], **options: Any) -> ScoreTable:
        self.asked += samples
        lengths = [float("nan") if "bad" in s.candidate else min(2.0, len(s.candidate.split())) for s in samples]
        errors = {row: "bad word" for row, length in enumerate(lengths) if np.isnan(length)}
        cut = np.array([len(sample.candidate.split()) > 2 for sample in samples], dtype=bool)
        return ScoreTable(np.array(lengths).reshape(-1, 1), ("length",), errors, cut)


def test_candidate_and_references_are_cut_and_the_scores_averaged() -> None:
    scorer = PickyScorer()
    samples = [
        CaptionSample(TWO, "photo.png", ["One. Two.", "Three"]),
        CaptionSample("So.\n\nShort"),
        CaptionSample("x"),
    ]
    table = SentenceMean(scorer).score(samples)
    cut = ["A red star shines.", "Dr. Who waves!", "So.", "Short", "x"]
    assert [sample.candidate for sample in scorer.asked] == cut
    assert [sample.references for sample in scorer.asked[:2]] == [("One.", "Two.", "Three")] * 2
    assert [sample.image for sample in scorer.asked] == ["photo.png", "photo.png", None, None, None]
    assert table.scores[:, 0].tolist() == [2.0, 1.0, 1.0]
    assert table.truncated.tolist() == [True, False, False]


def test_one_sentence_without_a_score_leaves_its_caption_and_no_other_without() -> None:
    samples = [CaptionSample("Good. A bad one. Bad bad."), CaptionSample("Good. So good.")]
    table = SentenceMean(PickyScorer()).score(samples)
    assert np.isnan(table.scores[0, 0])
    assert table.scores[1, 0] == 1.5
    assert table.errors == {0: "bad word"}
    with pytest.raises(InvalidSampleError, match=r"samples\[1\]"):
        SentenceMean(PickyScorer()).score([CaptionSample("a"), "b"])  # type: ignore[list-item]


def test_every_metric_has_a_name_for_it_that_the_list_does_not_repeat() -> None:
    spec = metric_spec("vela_avg")
    assert spec == replace(metric_spec("vela"), name="vela_avg")
    assert isinstance(load_scorer("unigram_avg"), SentenceMean)
    assert not any(name.endswith("_avg") for name in list_metrics())
    for name in ("nothing_avg", "_avg", "vela_avg_avg"):
        with pytest.raises(UnknownMetricError, match=f"'{name}'"):
            metric_spec(name)


def test_a_corpus_reaches_the_metric_cut_into_sentences() -> None:
    class Weighing(PickyScorer):
        spec: MetricSpec = replace(LengthScorer.spec, needs_corpus=True)

        def fit(self, corpus: Any) -> PickyScorer:
            fitted = PickyScorer()
            fitted.corpus = list(corpus)  # type: ignore[attr-defined]
            return fitted

    scorer = SentenceMean(Weighing())
    assert scorer.spec.needs_corpus
    with_corpus = scorer.fit([[TWO], ["One"]])
    assert not with_corpus.spec.needs_corpus
    assert with_corpus.scorer.corpus == [["A red star shines.", "Dr. Who waves!"], ["One"]]  # type: ignore[attr-defined]


def test_checkpoints_are_those_of_the_metric(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"metric": "unigram"}))
    scorer, sample = load_scorer("unigram_avg", tmp_path), CaptionSample(TWO, references=["A red star"])
    assert scorer.spec.name == "unigram_avg"
    assert scorer.score([sample]).scores.tolist() == load_scorer("unigram_avg").score([sample]).scores.tolist()
    with pytest.raises(CheckpointError, match="of metric 'unigram', but a checkpoint of 'length'"):
        load_scorer("length_avg", tmp_path)
