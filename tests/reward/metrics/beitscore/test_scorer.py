"""BeitScoreScorer: the scorers' contract, sharing by image, cut captions, publishing."""

from __future__ import annotations

import pytest

from reward.metrics.beitscore.scorer import BeitScoreScorer
from tests.contract import ScorerContract
from tests.reward.metrics.beitscore.tiny_beitscore import make_scorer


class TestBeitScore(ScorerContract):
    """The contract, on a small model with random weights."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls) -> BeitScoreScorer:
        return make_scorer()
