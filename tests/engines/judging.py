"""What every engine's judges are asked: scores and verdicts that must be those of the same weights here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import CaptionSample
from reward.judges import Judge
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metrics.judge_metric.scorer import ClairScorer

__all__ = ["CAPTIONS", "check_scores", "check_verdicts", "check_written", "samples"]

CAPTIONS = ("A red star.", "Two blue rings on a beach.", "A dog.", "Nothing is here, but a big sign says STOP.")

_FORM = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 99},
        "reason": {"type": "string", "pattern": "^[a-z]{4,9}$"},
    },
    "required": ["score", "reason"],
    "additionalProperties": False,
}


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


def check_written(served: Callable[..., Judge], here: Judge, photos: Path) -> None:
    """CLAIR reads what a judge writes: by JSON schema, and without one.

    Args:
        served: makes judges of the server, `extra_body` given or not.
        here: the same weights.
        photos: folder of pictures.
    """
    asked = [CaptionSample(each.candidate, each.image, ["A red star.", "It is big."]) for each in samples(photos)]
    told = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _FORM}}
    guided = ClairScorer(served(extra_body={"response_format": told}), max_new_tokens=600).score(asked)
    assert guided.errors == {}
    print(f"CLAIR: scores from {guided.scores.min(0)} to {guided.scores.max(0)}")
    errors = [ClairScorer(judge, max_new_tokens=8).score(asked).errors for judge in (here, served())]
    assert errors[0] == errors[1]
    assert all("the answer holds no JSON" in reason for reason in errors[1].values())
    assert len(errors[1]) == len(asked)
