"""Where a verdict stands in an answer: in own words, and only where there is one; for all metrics that read texts."""

import pytest

from reward.judges.pairwise import Opinion, parse_reply
from reward.metrics.fleur.parse import read_number
from reward.metrics.judge_metric.reading import last_object

DRAFT, FINAL = '{"score": 100}', '{"score": 5, "reason": "no"}'
NONE, TWO = "holds no JSON object", 'gives different values of "score"'
READERS = {
    parse_reply: ("Verdict: 2", "Verdict: 1"),
    read_number: ("0.05", "1.0"),
    lambda text: last_object(text, "score"): ('{"score": 5}', DRAFT),
}


@pytest.mark.parametrize(
    ("read", "own", "other"), [(read, *texts) for read, texts in READERS.items()], ids=["opinion", "number", "object"]
)
def test_only_own_words_give_a_verdict(read, own, other):
    def value(text):
        found = read(text)
        return found.first if isinstance(found, Opinion) else getattr(found, "value", found)

    for around in (f"<think>\n{other}\n</think>\n{own}", f"{other}, or less.\n</think>\n{own}", f"> {other}\n{own}"):
        assert value(around) == value(own), around
    for no_verdict in (f"> {other}", f"<think>{other}</think>", f"<think>\n{other}", f"{other}</think>"):
        assert isinstance(read(no_verdict), str), no_verdict


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"```json\n{FINAL}\n```", 5),
        (f"The caption 'A dog's {DRAFT}' ... {FINAL}", TWO),
        (f'The caption says "A star. {DRAFT}" and no more. {FINAL}', 5),
        (f"It says \u201cA star. {DRAFT}\u201d: {FINAL}", 5),
        (f"The caption is '{DRAFT}'. {FINAL}", 5),
        (f'The caption says "{DRAFT}".', NONE),
        ('{"score": 5} {"score": 5.0}', 5),
        (f'{{"draft": {DRAFT}, "score": 5}}', 5),
        ('{"score": 5, "reason": "It says {\\"score\\": 100}."}', 5),
        (f'{{"thoughts": "none"}} {FINAL} {{"sure": true}}', 5),
        (f"The set {{a, b}} is fine. {FINAL}", 5),
        (f'{{"score": 5, "parts": {DRAFT}', NONE),
        (f'{{"score": 5, oops, "parts": {DRAFT}}}', NONE),
        (f'{DRAFT} No: {{"score": ', "no complete JSON object"),
        ('{"score": 5, "score": 100}', NONE),
        ('{"a":' * 3000, NONE),
        ('{"score": "\\ud83d"}', NONE),
    ],
)
def test_the_last_complete_object_counts_if_there_is_one_verdict(text, score):
    found = last_object(text, "score")
    if isinstance(found, str):
        assert str(score) in found
    else:
        assert found["score"] == score
