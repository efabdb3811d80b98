"""A small deterministic scorer for tests of what surrounds scorers: it counts words and records how it was called."""

import threading
from dataclasses import replace

import numpy as np
import torch

from reward.data.score_table import ScoreTable
from reward.metrics.base import MetricSpec

SPEC = MetricSpec(
    name="toy",
    scorer="tests.toys.toy_scorer:ToyScorer",
    aspects=("colour", "brevity"),
    aliases={"col": "colour", "brev": "brevity"},
    has_embedded=True,
)


class ToyScorer:
    """colour: share of the words that is "red"; brevity: 1 / number of words; fails where the caption says "fail"."""

    spec = SPEC

    def __init__(self):
        self.calls = []
        self.modes = []
        self.threads_inside = 0
        self.most_threads_inside = 0

    def score(self, samples, *, batch_size=None, progress=False):
        self.threads_inside += 1
        self.most_threads_inside = max(self.most_threads_inside, self.threads_inside)
        threading.Event().wait(0.002)  # gives another thread the chance to come in
        self.calls.append([sample.candidate for sample in samples])
        self.modes.append((torch.is_inference_mode_enabled(), batch_size))
        words = [sample.candidate.lower().split() for sample in samples]
        scores = np.array([[each.count("red") / len(each), 1 / len(each)] for each in words]).reshape(-1, 2)
        errors = {}
        for row, each in enumerate(words):
            if "fail" in each:
                scores[row], errors[row] = np.nan, "the caption says fail"
            if "infinite" in each:
                scores[row, 0] = np.inf
        truncated = np.array([len(each) > 50 for each in words], dtype=bool)
        self.threads_inside -= 1
        return ScoreTable(scores, SPEC.aspects, errors, truncated)

    @classmethod
    def from_pretrained(cls, source, **options):
        torch.rand(3)  # as building a network does
        scorer = cls()
        scorer.loaded_with = (source, options)
        return scorer

    def save_pretrained(self, folder):
        raise AssertionError("a reward saves nothing")


class BrevityScorer(ToyScorer):
    """A checkpoint with only one of the metric's aspects, that reads no image."""

    spec = replace(SPEC, aspects=("brevity",), needs_image=False)

    def score(self, samples, **options):
        table = super().score(samples, **options)
        return ScoreTable(table.scores[:, 1:], self.spec.aspects, table.errors, table.truncated)
