"""White space as a token of its own before an answer, as Llama's tokenizers write it, is stepped over exactly."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from reward.judges import Answer, LocalJudge, Question, ServerJudge
from reward.judges.base import answer_mass_after_blanks, ask
from tests.toys.loopback_judge import loopback_judge
from tests.toys.rating_judges import blank_first_llava
from tests.toys.toy_judges import pictures, plain_inputs, plain_pass

RATINGS = list("12345")
MOSTLY, OFTEN, SELDOM, HARDLY = 3.0, 0.2, 0.0, -0.7  # how strongly the judge begins with a blank


def questions() -> list[Question]:
    return [
        Question(f"Rate this: {text}", image=pictures(2)[at % 2]) for at, text in enumerate(("A dog.", "Two stars"))
    ]


def by_hand(model: Any, processor: Any, question: Question) -> tuple[np.ndarray, float]:
    """Probabilities of the ratings over all paths with up to two blanks, one plain forward pass each; P(blank)."""
    ids = processor.tokenizer.convert_tokens_to_ids
    inputs = plain_inputs(processor, question, add_special_tokens=True)
    blanks = ids(["▁", "▁▁", "<0x09>", "<0x0A>", "<0x20>"])
    digits = [ids([digit, f"<0x3{digit}>"]) for digit in RATINGS]

    def walk(written: list[int], weight: float) -> np.ndarray:
        tokens = torch.cat([inputs["input_ids"], torch.tensor([written], dtype=torch.long)], dim=1)
        row = plain_pass(model, input_ids=tokens, pixel_values=inputs["pixel_values"])
        if not written:
            first.extend(row[blanks].tolist())
        masses = weight * np.array([float(row[same].sum()) for same in digits])
        for blank in blanks:
            if len(written) < 2 and weight * row[blank] > 1e-6:
                masses += walk([*written, blank], weight * float(row[blank]))
        return masses

    first: list[float] = []
    return walk([], 1.0), sum(first)


@pytest.mark.parametrize(
    ("strength", "least", "most"), [(MOSTLY, 0.9, 1.0), (OFTEN, 0.2, 0.9), (SELDOM, 0.02, 0.5), (HARDLY, 0.001, 0.1)]
)
def test_paths_with_and_without_the_blank_are_added(strength: float, least: float, most: float) -> None:
    model, processor = blank_first_llava(strength=strength)
    expected, blank = zip(*(by_hand(model, processor, question) for question in questions()), strict=True)
    assert all(least < one < most for one in blank)
    judge = LocalJudge(model, processor)
    np.testing.assert_allclose(judge.answer_distribution(questions(), RATINGS), expected, atol=3e-4)
    one_by_one = [judge.answer_distribution([question], RATINGS)[0] for question in questions()]
    np.testing.assert_allclose(one_by_one, expected, atol=3e-4)


def test_a_cache_that_cannot_be_shared_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    model, processor = blank_first_llava(strength=MOSTLY)
    expected = LocalJudge(model, processor).answer_distribution(questions(), RATINGS)
    monkeypatch.setattr("reward.judges.prefixes.can_share", lambda cache: False)
    given = LocalJudge(model, processor).answer_distribution(questions(), RATINGS)
    np.testing.assert_allclose(given, expected, atol=1e-5)


@pytest.mark.parametrize("strength", [MOSTLY, HARDLY, OFTEN])
def test_a_server_gives_what_the_model_gives_or_says_what_it_cannot_know(
    strength: float, caplog: pytest.LogCaptureFixture
) -> None:
    model, processor = blank_first_llava(strength=strength)
    with loopback_judge(model, processor) as server:
        judge = ServerJudge("tiny", server.endpoint)
        table, failures = ask(judge.answer_distribution, questions(), answers=RATINGS)
        assert len(server.requests) == len(questions()), "one request a question"
    if strength == MOSTLY:
        here = LocalJudge(model, processor).answer_distribution(questions(), RATINGS)
        np.testing.assert_allclose(table, here, atol=2e-3)
    told = "distributions leave out what follows white space that the server did not write"
    assert (told in caplog.text) == (strength == HARDLY)
    assert sorted(failures) == ([0, 1] if strength == OFTEN else [])
    for row, reason in failures.items():
        assert re.search(r"white space a probability of 0\.\d+ and did not go on", reason)
        assert np.isnan(table[row]).all()


def listed(**probabilities: float) -> dict[str, float]:
    return {
        {"blank": "", "line": "\n"}.get(token, token[-1]): math.log(value) for token, value in probabilities.items()
    }


@pytest.mark.parametrize(
    ("tokens", "positions", "expected", "unknown"),
    [
        (("4",), [listed(_4=0.6, _5=0.4)], [0.6, 0.4], 0),
        (("", "4"), [listed(blank=0.97, _5=0.03), listed(_4=1.0)], [0.97, 0.03], 0),
        (("", "\n", "4"), [listed(blank=0.9), listed(line=0.5, _5=0.5), listed(_4=0.8)], [0.36, 0.45], 0),
        (("4", ""), [listed(_4=0.6, blank=0.3), listed(blank=1.0)], [0.6, 0], 0.3),
        (("", ""), [listed(blank=0.9, _4=0.1), listed(blank=0.7, _5=0.3)], [0.1, 0.27], 0.63),
        (("",), [listed(blank=1.0)], [0, 0], 1.0),
    ],
)
def test_what_is_read_from_written_tokens(
    tokens: tuple[str, ...], positions: list[dict[str, float]], expected: list[float], unknown: float
) -> None:
    masses, missing = answer_mass_after_blanks(Answer("", tokens, tuple(positions)), ["4", "5"])
    assert masses == pytest.approx(expected)
    assert missing == pytest.approx(unknown)
