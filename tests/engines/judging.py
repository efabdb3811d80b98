"""What every engine's judges are asked: scores and verdicts that must be those of the same weights here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import CaptionSample
from reward.arena.pairwise import JudgePair, PairwiseJudge
from reward.judges import Answer, Judge, Question, Usage
from reward.metrics.claimdiff.scorer import ClaimDiffScorer
from reward.metrics.claims.scorer import ClaimsScorer
from reward.metrics.one_question.scorer import ClairScorer

__all__ = ["CAPTIONS", "check_lists", "check_scores", "check_verdicts", "samples"]

CAPTIONS = ("A red star.", "Two blue rings on a beach.", "A dog.", "Nothing is here, but a big sign says STOP.")

_WORDS = {"type": "string", "pattern": "^[a-z]{4,9}$"}
_DIFFERENCE = {"what": _WORDS, "wrong": {"enum": ["A", "both"]}, "kind": {"enum": ["false", "missing"]}}
_FORMS: dict[str, dict[str, Any]] = {  # by words of the question that asks for it
    "JSON list of strings": {"type": "array", "items": _WORDS, "minItems": 2, "maxItems": 4},
    "JSON list of their numbers": {"type": "array", "items": {"enum": [1]}, "maxItems": 2},
    '"differences"': {
        "differences": {
            "type": "array",
            "items": {"type": "object", "properties": _DIFFERENCE, "required": list(_DIFFERENCE)},
            "minItems": 1,
            "maxItems": 4,
        },
        "better": {"enum": ["A", "B", "equal"]},
    },
    '"score"': {"score": {"type": "integer", "minimum": 1, "maximum": 99}, "reason": _WORDS},
}


class _Guided:
    """A judge that is told the form of what it writes, as JSON schema; another one weighs answers.

    Attributes:
        weighed: probabilities of the answers.
    """

    name = "guided"

    def __init__(self, served: Callable[..., Judge], other: Judge) -> None:
        self.usage, self.weighed, self._served, self._other = Usage(), list[np.ndarray](), served, other

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        self.weighed.append(self._other.answer_distribution(questions, answers))
        return self.weighed[-1]

    def generate(self, questions: Sequence[Question], **settings: Any) -> list[Answer]:
        form = next(form for words, form in _FORMS.items() if words in questions[0].text)
        if "type" not in form:
            form = {"type": "object", "properties": form, "required": list(form), "additionalProperties": False}
        told = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
        return self._served(extra_body={"response_format": told}).generate(questions, **settings)

    def pieces(self, text: str) -> None:
        return None


def samples(photos: Path) -> list[CaptionSample]:
    """Four captions of each of four pictures."""
    return [CaptionSample(text, image) for text in CAPTIONS for image in sorted(photos.iterdir())[:4]]


def check_scores(scorer: Callable[[Judge], Any], here: Judge, there: Judge, photos: Path, close: float) -> None:
    """The scores by a judge here and a served one are equal, and differ between captions and pictures."""
    own, served = (scorer(judge).score(samples(photos)).scores for judge in (here, there))
    print(f"{scorer.__name__}: at most {np.abs(own - served).max():.1e} apart over {own.size} scores")
    assert own.std(0).max() > 1e-3
    assert served == pytest.approx(own, abs=close)


def check_verdicts(here: Judge, there: Judge, photos: Path, close: float) -> None:
    """The verdicts on pairs of captions are equal, and their probabilities."""
    images = sorted(photos.iterdir())[:4]
    pairs = [JudgePair(one, other, image) for image in images for one in CAPTIONS for other in CAPTIONS if one < other]
    own, served = (PairwiseJudge(judge, reasons=False).compare(pairs) for judge in (here, there))
    assert [verdict.winner for verdict in served] == [verdict.winner for verdict in own]
    told = [np.array([verdict.probabilities for verdict in verdicts]) for verdicts in (own, served)]
    print(f"pairwise: at most {np.abs(told[0] - told[1]).max():.1e} apart over {len(pairs)} verdicts")
    assert told[1] == pytest.approx(told[0], abs=close)


def check_lists(served: Callable[..., Judge], here: Judge, photos: Path, close: float) -> None:
    """Metrics that read what a judge writes: its lists by JSON schema, and what it writes without one.

    Args:
        served: makes judges of the server, `extra_body` given or not.
        here: the same weights.
        photos: folder of pictures.
        close: largest difference of probabilities.
    """
    asked = [CaptionSample(each.candidate, each.image, ["A red star.", "It is big."]) for each in samples(photos)]
    scorers: list[Callable[..., Any]] = [ClaimsScorer, ClaimDiffScorer, ClairScorer]
    for scorer in scorers:
        guided = [_Guided(served, judge) for judge in (here, served())]
        own, told = (scorer(judge, max_new_tokens=600).score(asked) for judge in guided)
        assert (own.errors, told.errors) == ({}, {})
        assert told.scores == pytest.approx(own.scores, abs=1e-9)
        print(f"{scorer.__name__}: scores from {told.scores.min(0)} to {told.scores.max(0)}")
        if scorer is ClaimsScorer:
            weighed = [np.concatenate(each.weighed) for each in guided]
            print(f"claims: {len(weighed[0])} verdicts at most {np.abs(weighed[0] - weighed[1]).max():.1e} apart")
            assert weighed[1] == pytest.approx(weighed[0], abs=close)
        errors = [scorer(judge, max_new_tokens=8).score(asked).errors for judge in (here, served())]
        assert errors[0] == errors[1]
        assert all("the answer holds no JSON" in reason for reason in errors[1].values())
        assert len(errors[1]) == len(asked)
