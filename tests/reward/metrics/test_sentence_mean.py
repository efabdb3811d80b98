"""Means over the sentences of a caption, for any metric."""

from dataclasses import replace

import numpy as np
import pytest

from reward import CaptionSample, ScoreTable, load_scorer
from reward.metrics.sentence_mean import SentenceMean
from reward.metrics.words.scorer import LengthScorer, UnigramScorer
from tests.contract import ScorerContract

TWO = "A red star shines. Dr. Who waves!"


class TestSentenceMean(ScorerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls):
        return SentenceMean(UnigramScorer())

    def load(self, scorer, source):
        return load_scorer("unigram_avg", source, device="cpu")


class PickyScorer(LengthScorer):
    """Cannot score sentences with "bad" in them, cuts after two words, and remembers what it was asked."""

    spec = replace(LengthScorer.spec, needs_corpus=True)

    def __init__(self):
        self.asked = []
        self.corpus = []

    def fit(self, corpus):
        fitted = PickyScorer()
        fitted.corpus = list(corpus)
        return fitted

    def score(self, samples, **options):
        self.asked += samples
        lengths = [float("nan") if "bad" in s.candidate else min(2.0, len(s.candidate.split())) for s in samples]
        errors = {row: "bad word" for row, length in enumerate(lengths) if np.isnan(length)}
        cut = np.array([len(sample.candidate.split()) > 2 for sample in samples], dtype=bool)
        texts = {"why": [sample.candidate if cut[row] else None for row, sample in enumerate(samples)]}
        return ScoreTable(np.array(lengths).reshape(-1, 1), ("length",), errors, cut, texts=texts)


def test_candidate_and_references_are_cut_and_the_scores_averaged():
    scorer = PickyScorer()
    rows = [(TWO, "photo.png", ["One. Two.", "Three"]), ("So.\n\nShort",), ("Good. A bad one. Bad bad.",)]
    table = SentenceMean(scorer).score([CaptionSample(*row) for row in [*rows, ("x",)]])
    asked = ["A red star shines.", "Dr. Who waves!", "So.", "Short", "Good.", "A bad one.", "Bad bad.", "x"]
    assert [sample.candidate for sample in scorer.asked] == asked
    assert [sample.references for sample in scorer.asked[:2]] == [("One.", "Two.", "Three")] * 2
    assert [sample.image for sample in scorer.asked] == ["photo.png"] * 2 + [None] * 6
    assert table.scores[:, 0] == pytest.approx([2.0, 1.0, np.nan, 1.0], nan_ok=True)
    assert table.errors == {2: "bad word"}
    assert table.truncated.tolist() == [True, False, True, False]
    assert table.texts["why"] == ["A red star shines.\nDr. Who waves!", None, "A bad one.", None]


def test_a_corpus_reaches_the_metric_cut_into_sentences():
    fitted = SentenceMean(PickyScorer()).fit([[TWO], ["One"]])
    assert fitted.scorer.corpus == [["A red star shines.", "Dr. Who waves!"], ["One"]]
