"""White space as a token of its own before an answer, as Llama's tokenizers write it, is stepped over exactly."""

import math
import re

import numpy as np
import pytest
import torch

from reward.judges import LocalJudge, Question, ServerJudge
from reward.judges.base import Answer, ask
from reward.judges.replies import first_masses
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import blank_first_llava, pictures, plain_inputs, plain_pass

RATINGS = list("12345")
MOSTLY, OFTEN, HARDLY = 3.0, 0.2, -0.7  # how strongly the judge begins with a blank
QUESTIONS = [
    Question(f"Rate this: {text}", image) for text, image in zip(("A dog.", "Two stars"), pictures(2), strict=True)
]


def by_hand(model, processor, question):
    """Probabilities of the ratings over all paths with up to two blanks, one plain forward pass each."""
    ids = processor.tokenizer.convert_tokens_to_ids
    inputs = plain_inputs(processor, question, add_special_tokens=True)
    blanks = ids(["▁", "▁▁", "<0x09>", "<0x0A>", "<0x20>"])
    digits = [ids([digit, f"<0x3{digit}>"]) for digit in RATINGS]

    def walk(written, weight):
        tokens = torch.cat([inputs["input_ids"], torch.tensor([written], dtype=torch.long)], dim=1)
        row = plain_pass(model, input_ids=tokens, pixel_values=inputs["pixel_values"])
        masses = weight * np.array([float(row[same].sum()) for same in digits])
        for blank in blanks:
            if len(written) < 2 and weight * row[blank] > 1e-6:
                masses += walk([*written, blank], weight * float(row[blank]))
        return masses

    return walk([], 1.0)


def test_what_follows_several_blanks_counts_as_often_as_all_of_them_come():
    blank, four = {"\n": math.log(0.9)}, {"4": math.log(0.5)}
    answer = Answer("4", ("\n", "\n", "4"), (blank, blank, four))
    assert first_masses(answer, ["4"]) == pytest.approx([0.9 * 0.9 * 0.5])


@pytest.mark.parametrize("strength", [MOSTLY, OFTEN, HARDLY])
def test_paths_with_and_without_the_blank_are_added(strength, monkeypatch):
    model, processor = blank_first_llava(strength=strength)
    expected = [by_hand(model, processor, question) for question in QUESTIONS]
    np.testing.assert_allclose(
        LocalJudge(model, processor).answer_distribution(QUESTIONS, RATINGS), expected, atol=3e-4
    )
    monkeypatch.setattr("reward.judges.prefixes.can_share", lambda cache: False)  # then it is copied
    np.testing.assert_allclose(
        LocalJudge(model, processor).answer_distribution(QUESTIONS, RATINGS), expected, atol=3e-4
    )


@pytest.mark.parametrize(("strength", "fails"), [(MOSTLY, False), (HARDLY, False), (OFTEN, True)])
def test_a_server_gives_what_the_model_gives_or_says_what_it_cannot_know(strength, fails):
    model, processor = blank_first_llava(strength=strength)
    with loopback_judge(model, processor) as server:
        table, failures = ask(ServerJudge("tiny", server.endpoint).answer_distribution, QUESTIONS, answers=RATINGS)
        assert len(server.requests) == len(QUESTIONS), "one request a question"
    if strength == MOSTLY:
        here = LocalJudge(model, processor).answer_distribution(QUESTIONS, RATINGS)
        np.testing.assert_allclose(table, here, atol=2e-3)
    assert (sorted(failures), np.isnan(table).all()) == ([0, 1] if fails else [], fails)
    for reason in failures.values():
        assert re.search(r"white space a probability of 0\.\d+ and did not go on", reason)
