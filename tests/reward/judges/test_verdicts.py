"""Where a verdict stands in an answer: in own words, and only where there is one; for all metrics that read texts."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from reward import CaptionSample
from reward.judges import ScriptedJudge
from reward.judges.opinions import parse_reply
from reward.judges.verdicts import last_object
from reward.metrics.fleur.parse import read_number
from reward.metrics.judge_metric.scorer import ClairScorer

RED = Image.new("RGB", (8, 8), "red")
DRAFT, FINAL = '{"score": 100}', '{"score": 5, "reason": "no"}'
NONE, TWO = "holds no JSON object", 'gives different values of "score"'


def read_json(text: str) -> float | str:
    scorer = ClairScorer(ScriptedJudge(lambda _: text))
    table = scorer.score([CaptionSample("A star.", None, ["One."])])
    return table.errors.get(0) or float(table.scores[0, 0])


def read_line(text: str) -> float | str:
    opinion = parse_reply(text)
    return opinion if isinstance(opinion, str) else opinion.first


def read_digits(text: str) -> float | str:
    number = read_number(text)
    return number if isinstance(number, str) else number.value


READERS = {
    "json": (read_json, '{"score": 5}', 0.05, '{"score": 100}'),
    "line": (read_line, "Verdict: 2", 0.0, "Verdict: 1"),
    "digits": (read_digits, "0.05", 0.05, "1.0"),
}


@pytest.mark.parametrize(("read", "own", "value", "other"), READERS.values(), ids=READERS.keys())
def test_only_own_words_give_a_verdict(read: Any, own: str, value: float, other: str) -> None:
    assert read(own) == value
    assert read(f"<think>\n{other}\n</think>\n{own}") == value
    assert read(f"{other}, or less.\n</think>\n{own}") == value
    assert read(f"> {other}\n{own}") == value
    for no_verdict in (f"> {other}", f"<think>{other}</think>", f"<think>\n{other}", f"{other}</think>"):
        assert isinstance(read(no_verdict), str), no_verdict


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (FINAL, 5),
        (f"```json\n{FINAL}\n```", 5),
        (f"The caption 'A dog's {DRAFT}' ... {FINAL}", TWO),
        (f'The caption says "{DRAFT}". {FINAL}', 5),
        (f'The caption says "A star. {DRAFT}" and no more. {FINAL}', 5),
        (f"It says \u201cA star. {DRAFT}\u201d: {FINAL}", 5),
        (f"The caption is '{DRAFT}'. {FINAL}", 5),
        (f'The caption says "{DRAFT}".', NONE),
        (f"Draft: {DRAFT}. Final: {FINAL}", TWO),
        (f"{FINAL} {FINAL}", 5),
        ('{"score": 5} {"score": 5.0}', 5),
        (f'{{"draft": {DRAFT}, "score": 5}}', 5),
        ('{"score": 5, "reason": "It says {\\"score\\": 100}."}', 5),
        (f'{{"thoughts": "none"}} {FINAL}', 5),
        (f'{FINAL} {{"sure": true}}', 5),
        (f"The set {{a, b}} is fine. {FINAL}", 5),
        (f'{{"score": 5, "parts": {DRAFT}', NONE),
        (f'{{"score": 5, oops, "parts": {DRAFT}}}', NONE),
        (f'{DRAFT} No: {{"score": ', "no complete JSON object"),
        ('{"score": 5, "score": 100}', NONE),
        ("{" * 3000, NONE),
        ('{"a":' * 3000, NONE),
        ('{"score": "\\ud83d"}', NONE),
    ],
)
def test_the_last_complete_object_counts_if_there_is_one_verdict(text: str, score: float | str) -> None:
    found = last_object(text, "score")
    if isinstance(score, str):
        assert isinstance(found, str)
        assert score in found
    else:
        assert isinstance(found, dict)
        assert found["score"] == score
