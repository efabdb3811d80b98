"""caprl, claims and claimdiff: their arithmetic, what a policy could earn by tricks, answers that cannot be read."""

from __future__ import annotations

import json
import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward import CaptionSample, MetricReward
from reward.errors import ConfigError, DataError, JudgeError
from reward.judges import Answer, LocalJudge, Question, ScriptedJudge
from reward.metrics.caprl.scorer import CapRLScorer
from reward.metrics.claimdiff.scorer import FORMS, ClaimDiffScorer, Differences
from reward.metrics.claims.scorer import ClaimsScorer, agreement
from reward.scenes import Oracle, describe, make_candidate, make_references, render, sample_scene
from reward.scenes.judge import OracleJudge
from tests.rating_judges import strict_llava
from tests.reward.metrics.test_judge_prompts import ATTACKS, own_lines
from tests.toy_judges import RecordingJudge

RED, BLUE = (Image.new("RGB", (16, 16), colour) for colour in ("red", "blue"))
CANNOT = "The description does not tell."
SCORERS: list[Any] = [CapRLScorer, ClaimsScorer, ClaimDiffScorer]
RANDOM = random.Random("judged rewards")
SCENES = [sample_scene(RANDOM) for _ in range(8)]
SAMPLES = [
    CaptionSample(make_candidate(scene, RANDOM).caption.text, render(scene), make_references(scene, RANDOM, 2))
    for scene in SCENES
    for _ in range(3)
]


@pytest.mark.parametrize("make", SCORERS)
@settings(max_examples=6, deadline=None)
@given(rows=st.lists(st.integers(0, len(SAMPLES) - 1), min_size=1, max_size=9), size=st.sampled_from([None, 1, 4]))
def test_scores_do_not_depend_on_order_or_company(make: Any, rows: list[int], size: int | None) -> None:
    samples = [SAMPLES[row] for row in rows]
    table = make(OracleJudge(SCENES)).score(samples, batch_size=size)
    assert not table.errors
    alone = np.concatenate([make(OracleJudge(SCENES)).score([sample]).scores for sample in samples])
    assert np.array_equal(table.scores, alone)
    assert ((alone >= 0) & (alone <= 1)).all()


def test_claims_with_the_oracle_are_what_the_oracle_counts() -> None:
    scores = ClaimsScorer(OracleJudge(SCENES)).score(SAMPLES).scores
    for sample, row, (f1, precision, recall) in zip(SAMPLES, range(len(SAMPLES)), scores, strict=True):
        claims = Oracle().read(sample.candidate).claims
        wanted = Oracle().read(" ".join(sample.references)).claims
        assert precision == pytest.approx(Oracle().score(sample.candidate, SCENES[row // 3]).precision)
        assert recall == pytest.approx(len(claims & wanted) / len(wanted))
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall) if precision + recall else 0)
    alone = ClaimsScorer(OracleJudge(SCENES), use_references=False).score(SAMPLES)
    assert alone.aspects == ("precision",)
    assert np.array_equal(alone.scores[:, 0], scores[:, 1])
    assert agreement([], [False]) == (0, 0, 0)


def claims_judge(listed: list[str], made: list[int]) -> RecordingJudge:
    """Lists the same claims of every text; those that end in "true" are true."""
    answer = lambda asked: json.dumps(made if "numbered" in asked.text else listed)  # noqa: E731
    return RecordingJudge(answer, lambda asked: {str(int("true" in asked.text.split("> ")[1].splitlines()[0])): 0.7})


@given(claims=st.lists(st.sampled_from(["a true", "b true", "c", "d"]), min_size=1), again=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_repeated_claims_earn_nothing(claims: list[str], again: int) -> None:
    shown = [f" {claim.upper()}. " if turn else claim for turn in range(again) for claim in claims]
    once, often = (ClaimsScorer(claims_judge(each, [1])) for each in (list(dict.fromkeys(claims)), shown))
    table = often.score([CaptionSample("Any.", RED, ["Other."])])
    assert np.array_equal(table.scores, once.score([CaptionSample("Any.", RED, ["Other."])]).scores)
    assert table.column("precision")[0] == sum("true" in claim for claim in set(claims)) / len(set(claims))
    assert table.column("recall")[0] == 1 / len(set(claims))


def test_a_claim_about_an_image_is_verified_once() -> None:
    judge = claims_judge(["a true", "b"], [])
    scorer = ClaimsScorer(judge, use_references=False)
    samples = [CaptionSample(text, image) for image in (RED, BLUE) for text in ("One.", "Two.")]
    scorer.score(samples)
    assert sum(question.image is not None for question in judge.asked) == 4  # two claims of two images
    asked = len(judge.asked)
    assert scorer.score(samples).scores.tolist() == [[0.5]] * 4
    assert len(judge.asked) == asked
    assert judge.usage.cached > 0
    copy = pickle.loads(pickle.dumps(ClaimsScorer(OracleJudge(SCENES))))
    assert not copy.score(SAMPLES[:1]).errors


def test_forms_by_hand() -> None:
    found = Differences(total=8, caption=2, reference=4, false=1, missing=2, better=1)
    values = {name: form(found) for name, form in FORMS.items()}
    wanted = {"a_only": 0.8, "normalized_diff": 0.625, "judgment": 0.675, "hall_vs_miss": 0.625}
    wanted["normalized_a_only"] = (0.05 + 0.95 * 0.5625) * np.exp(-0.5) * (0.7 + 0.3 * np.log(9) / np.log(11))
    assert values == pytest.approx(wanted)
    nothing = [form(Differences(0, 0)) for form in FORMS.values()]
    assert nothing == [1, 0.5, 0.5, 1, 1]
    assert FORMS["normalized_a_only"](Differences(1, 0)) == pytest.approx(
        0.787, abs=1e-3
    )  # not monotone: why not default
    assert FORMS["a_only"](Differences(30, 25)) == 0


@given(total=st.integers(1, 40), errors=st.integers(0, 39), more=st.integers(1, 20))
def test_every_form_falls_in_errors_and_only_the_default_ignores_the_number_of_differences(
    total: int, errors: int, more: int
) -> None:
    errors = min(errors, total - 1)
    for form in FORMS.values():
        few, many = (form(Differences(total, count, false=count)) for count in (errors, errors + 1))
        assert 0 <= many <= few <= 1
        assert many < few or form is FORMS["a_only"]  # which is 0 from ten errors on
    padded = {name: form(Differences(total + more, errors, false=errors)) for name, form in FORMS.items()}
    assert padded["a_only"] == FORMS["a_only"](Differences(total, errors))
    diluted = ("normalized_diff", "judgment", "hall_vs_miss")
    assert all(padded[name] > FORMS[name](Differences(total, errors, false=errors)) for name in diluted if errors)


def test_claimdiff_with_the_oracle_counts_errors_and_omissions() -> None:
    for scene in SCENES:
        whole = describe(scene, RANDOM).text
        samples = [
            CaptionSample(text, render(scene), [whole]) for text in (whole, "A drawing.", describe(scene, RANDOM).text)
        ]
        assert ClaimDiffScorer(OracleJudge([scene])).score(samples).scores[:, 0].tolist() == [1, 0, 1]


QUIZ = [{"question": f"What is {where}?", "options": ["star", "ring", "disc"]} for where in ("here", "there", "left")]


def letter(question: Question, option: str) -> dict[str, float]:
    return {next(line[0] for line in question.text.splitlines() if line[1:] == f") {option}"): 0.9}


def sees(question: Question) -> dict[str, float]:
    """Sees all but what is left, guesses what is there, and reads what is written."""
    if "> " in question.text:
        return letter(question, "star" if "> star" in question.text else CANNOT)
    seen = question.image is not None and "left" not in question.text
    return letter(question, "star" if seen or "there" in question.text else "ring")


def test_questions_are_kept_if_the_image_is_needed_and_a_group_gets_the_same() -> None:
    judge, answerer = RecordingJudge(f"Sure:\n```json\n{json.dumps(QUIZ)}\n```", sees), RecordingJudge(None, sees)
    scorer = CapRLScorer(judge, answerer=answerer, shuffles=6)
    samples = [CaptionSample("star", RED), CaptionSample(".", RED), CaptionSample("star", BLUE)]
    assert scorer.score(samples).scores.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert len(judge.asked) == 2 * (1 + 2 * 3)  # for each image: written once, each tried with and without the image
    assert all(question.image is None and "What is here?" in question.text for question in answerer.asked)
    asked = {text: [q.text.split("\n\n")[1] for q in answerer.asked if f"> {text}" in q.text] for text in ("star", ".")}
    assert asked["."] in (asked["star"][:6], asked["star"][6:])  # the other image's come first or last
    assert len({text.index("star") for text in asked["."]}) > 1
    scorer.score([CaptionSample("ring", RED)])
    assert len(judge.asked) == 14
    assert (
        "answered correctly with the image"
        in CapRLScorer(ScriptedJudge(lambda asked: json.dumps(QUIZ[1:]), sees)).score(samples[:1]).errors[0]
    )


def test_given_questions(tmp_path: Path) -> None:
    RED.save(tmp_path / "red.png")
    file = tmp_path / "quiz.json"
    file.write_text(json.dumps({"red.png": QUIZ[:1]}))
    scorer = CapRLScorer(ScriptedJudge(None, sees), questions=file)
    table = scorer.score([CaptionSample("star", image) for image in (RED, tmp_path / "red.png", BLUE)])
    assert table.scores[:2].tolist() == [[1, 1]] * 2
    assert "has no questions about the image" in table.errors[2]
    local = LocalJudge(*strict_llava("ABCDE"))
    for check in (True, False):  # a model of random weights answers something; whether it is right, is chance
        table = CapRLScorer(local, questions=file, check=check).score([CaptionSample("star", RED)])
        assert not table.errors or (check and "correctly with the image" in table.errors[0])
    before = scorer.fingerprint
    for values, message in [
        ({"red.png": [{"question": "Who?", "options": ["a"]}]}, "2 to 8 different options"),
        ({"red.png": [{"question": "Who?"}]}, 'must hold "question" and "options"'),
        ({"absent.png": QUIZ}, "does not exist"),
        ([], "JSON object"),
    ]:
        file.write_text(json.dumps(values))
        with pytest.raises(DataError, match=message):
            CapRLScorer(ScriptedJudge(None, sees), questions=file)
    assert scorer.fingerprint != before


@pytest.mark.parametrize(
    ("make", "answer", "reason"),
    [
        (CapRLScorer, "I will not.", "holds no JSON list"),
        (CapRLScorer, "[]", "must be a list of questions"),
        (CapRLScorer, '[{"question": "Who?", "options": ["a", "A", "b"]}]', "different options"),
        (CapRLScorer, json.dumps(QUIZ), "a probability of 0 in all"),
        (ClaimsScorer, Answer('["A star is', truncated=True), r"raise max_new_tokens="),
        (ClaimsScorer, Answer("[" + "\n" * 40, truncated=True), "disable_any_whitespace"),
        (ClaimsScorer, '["A star.", 3]', "a claim must be a text"),
        (ClaimsScorer, '["\\ud800"]', "holds no JSON list"),
        (ClaimsScorer, '["A star."]', "a probability of 0 in all"),
        (partial(ClaimsScorer, use_references=False), "[" * 100_000, "holds no JSON list"),
        (ClaimDiffScorer, "[]", "holds no JSON object"),
        (ClaimDiffScorer, '{"differences": [], "better": "me"}', '"better" as A, B or equal'),
        (ClaimDiffScorer, '{"differences": [{"wrong": ["A"], "kind": "false"}], "better": "A"}', "in the words"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_gives_no_score(make: Any, answer: Any, reason: str) -> None:
    scorer = make(
        ScriptedJudge(lambda asked: answer, lambda asked: {}), **({"check": False} if make is CapRLScorer else {})
    )
    table = scorer.score([CaptionSample("A star.", RED, ["A star."])])
    assert np.isnan(table.scores).all()
    assert reason in table.errors[0]
    assert MetricReward(scorer).rewards([CaptionSample("A star.", RED, ["A star."])]) == [None]


@pytest.mark.parametrize("named", ["[3]", "[true]", '["1"]'])
def test_numbers_of_no_claim_and_failing_questions_are_told(named: str) -> None:
    answer = lambda asked: named if "numbered" in asked.text else '["a", "b"]'  # noqa: E731
    sample = CaptionSample("A star.", RED, ["A star."])
    table = ClaimsScorer(ScriptedJudge(answer, lambda asked: {"1": 1.0})).score([sample])
    assert "numbered from 1 to 2" in table.errors[0]

    def fails(asked: Question) -> dict[str, float]:
        if "> b" in asked.text:
            raise JudgeError("too long")
        return {"1": 1.0}

    broken = ClaimsScorer(
        ScriptedJudge(lambda asked: '["b"]' if "> A ring" in asked.text else '["a"]', fails), use_references=False
    )
    table = broken.score([sample, CaptionSample("A ring.", RED)])
    assert table.scores[0] == [1]
    assert table.errors == {1: "too long"}


@pytest.mark.parametrize("make", SCORERS)
def test_settings_are_saved_and_wrong_ones_refused(make: Any, tmp_path: Path) -> None:
    judge = OracleJudge(SCENES)
    scorer = make(judge, max_new_tokens=99)
    scorer.save_pretrained(tmp_path)
    again = make.from_pretrained(tmp_path, judge=judge)
    assert again.max_new_tokens == 99
    assert again.fingerprint == scorer.fingerprint != make(judge).fingerprint
    assert again.score(SAMPLES).scores.tolist() == scorer.score(SAMPLES).scores.tolist()
    missing = make(judge).score(
        [CaptionSample("A star.", SAMPLES[0].image), CaptionSample("A star.", None, ["A star."])]
    )
    assert "needs an image" in missing.errors[1]
    assert ("needs references" in missing.errors.get(0, "")) == (make is not CapRLScorer)


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    judge = OracleJudge(SCENES)
    with pytest.raises(ConfigError, match="form must be one of a_only, normalized_diff"):
        ClaimDiffScorer(judge, form="mine")
    with pytest.raises(ConfigError, match="count and shuffles must be at least 1"):
        CapRLScorer(judge, count=0)
    with pytest.raises(ConfigError, match=r"must hold \{text\} exactly once"):
        ClaimsScorer(judge, prompt={**ClaimsScorer(judge).prompt.to_json(), "list": "List it."})
    CapRLScorer(judge, answerer=OracleJudge([])).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="give it again"):
        CapRLScorer.from_pretrained(tmp_path, judge=judge)
    with pytest.raises(JudgeError, match="only the default prompts"):
        OracleJudge([]).generate([Question("Well?")])


@pytest.mark.parametrize("make", SCORERS)
def test_no_caption_adds_a_line_to_a_question(make: Any) -> None:
    answers = {CapRLScorer: json.dumps(QUIZ), ClaimsScorer: '["A star."]', ClaimDiffScorer: "{}"}
    lines = []
    for text in ("A dog.", *ATTACKS):
        judge = RecordingJudge(answers[make], {"A": 1.0, "1": 1.0})
        options = {"check": False} if make is CapRLScorer else {}
        make(judge, **options).score([CaptionSample(text, RED, [text])])
        lines.append([own_lines(question.text) for question in judge.asked])
    assert all(each == lines[0] for each in lines)
