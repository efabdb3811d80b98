"""FLEUR: its scorer beside plain forward passes, what is read from an answer, explanations; exact arithmetic."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward import CaptionSample
from reward.errors import ConfigError, JudgeError
from reward.judges import Answer, LocalJudge, Question
from reward.metrics.fleur import smoothed_score
from reward.metrics.fleur.scorer import FleurScorer
from tests.contract import REFERENCES, SAMPLES
from tests.toys.toy_judges import (
    RecordingJudge,
    llava,
    plain_inputs,
    plain_pass,
    save_rating_judge,
    spellings,
    strict_llava,
)

PICTURE = Image.new("RGB", (16, 16), "red")


def certain(text):
    """An answer of one token a character, each of probability 1."""
    tokens = (*text, "</s>")
    return Answer(text, tokens, tuple({token: 0.0} for token in tokens))


def unsure(answer, place, **probabilities):
    """The same, with other probabilities at one place; `_8` is the token 8, and `end` the end."""
    logs = {"</s>" if name == "end" else name[1:]: math.log(value) for name, value in probabilities.items()}
    return replace(answer, logprobs=(*answer.logprobs[:place], logs, *answer.logprobs[place + 1 :]))


def scored(answer, **options):
    """Smoothed and raw of one caption that a judge gives one answer; or why there are none."""
    table = FleurScorer(RecordingJudge(answer), **options).score([CaptionSample("A star.", PICTURE)])
    return table.errors.get(0) or table.scores[0].tolist()


@pytest.mark.slow
def test_the_score_is_that_of_plain_forward_passes_and_samples_have_its_probabilities():
    model, processor = strict_llava("0")
    judge = LocalJudge(model, processor)
    scorer = FleurScorer(judge)

    def digits(question, written):
        row = plain_pass(model, **plain_inputs(processor, question, written))
        masses = np.array([float(row[same].sum()) for same in spellings(processor, "0123456789")])
        return masses, processor.tokenizer.decode(row.argmax())

    expected = []
    for sample in SAMPLES[:3]:
        text = scorer.prompt.question(sample.candidate, sample.references)
        question = Question(text, sample.image, system=scorer.prompt.system)
        first, digit = digits(question, "0.")
        second, _ = digits(question, f"0.{digit}")
        expected.append(np.arange(10) @ (0.1 * first + 0.01 * second))
    assert scorer.score(SAMPLES[:3]).column("smoothed") == pytest.approx(expected, abs=1e-5)
    assert len(set(np.round(expected, 7))) == 3
    asked = [replace(question, temperature=1.0, seed=seed) for seed in range(300)]
    texts = [answer.text for answer in judge.generate(asked, max_new_tokens=3)]
    begun = sum(text.startswith("0.") for text in texts)
    shares = [texts.count(f"0.{digit}") / begun for digit in range(10)]
    assert shares == pytest.approx(first.tolist(), abs=0.09)  # three standard errors of one half
    assert judge.generate([asked[7], question], max_new_tokens=3)[0].text == texts[7], "whatever it comes with"


def going_on(*first):
    """An answer of 0.8, whose judge thought of going on with a 9 or a 1."""
    tokens = (*first, ".", "8", "</s>")
    end = {"</s>": math.log(0.7), "9": math.log(0.2), " 1": math.log(0.1)}
    return Answer("0.8", tokens, (*({token: 0.0} for token in tokens[:-1]), end))


CUT = replace(certain("0.8"), tokens=("0", ".", "8"), logprobs=({},) * 3, truncated=True)
UNLIKELY = replace(certain("0.1"), logprobs=({"0": 0.0}, {".": 0.0}, {"a": -0.01, "1": -5.0}, {}))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *((going_on(*first), [0.8 + 0.01 * (0.2 * 9 + 0.1), 0.8]) for first in (["0"], ["\u2581", "0"], ["\u01200"])),
        # without decimals to smooth, the units count
        (unsure(certain("1.0"), 0, _1=0.7, _0=0.3), [0.9 * 0.3 + 0.7, 1]),
        (unsure(certain("1"), 0, _1=0.7, _0=0.3), [0.9 * 0.3 + 0.7, 1]),
        (unsure(certain("**1.00**"), 2, _1=0.7, _0=0.3), [0.9 * 0.3 + 0.7, 1]),
        (unsure(certain("0"), 0, _0=0.7, _1=0.3), [0.3, 0]),
        (replace(certain("0.8"), text="0.1"), "do not spell it"),
        (UNLIKELY, "of 0.0067 in all"),
        (CUT, "cut inside the number"),
    ],
)
def test_a_grade_is_smoothed_by_the_digits_that_the_judge_thought_of_or_has_a_reason(answer, expected):
    result = scored(answer)
    assert expected in result if isinstance(expected, str) else result == pytest.approx(expected)


@pytest.mark.parametrize("text", ["0.8", "0.80", "0.85", "0.853"])
def test_both_decimals_are_smoothed_where_they_are_reported(text, caplog):
    answer = unsure(unsure(certain(text), 2, _8=0.8, _3=0.2), 3, _5=0.9, end=0.1)
    assert scored(answer) == pytest.approx([0.745, float(text)])
    assert caplog.text == ""
    if text == "0.8":  # a server may leave out the end
        short = replace(answer, tokens=answer.tokens[:3], logprobs=answer.logprobs[:3])
        assert scored(short) == pytest.approx([0.7, 0.8])
        assert "1 answers with one decimal are smoothed over that decimal alone" in caplog.text


def test_judges_that_cannot_rate_are_refused_with_the_alternative():
    with pytest.raises(JudgeError, match="no log probabilities"):
        scored("0.85")
    some = RecordingJudge(lambda question: certain("0.85") if "> A dog" in question.text else "0.85")
    assert list(FleurScorer(some).score(PICTURE, ["A dog.", "A star."]).errors) == [1], "one reply costs its own row"
    with pytest.raises(JudgeError, match=r"several characters of a number as one token .*'85'.*harmoniceval"):
        FleurScorer(LocalJudge(*llava([("8", "5")])))
    merged = Answer("0.85", ("0", ".", "85"), ({"0": 0.0}, {".": 0.0}, {"85": 0.0}))
    with pytest.raises(JudgeError, match=r"'85'.*harmoniceval"):  # the tokenizer is not known before the answer comes
        FleurScorer(RecordingJudge(merged)).score([CaptionSample("A star.", PICTURE)])
    for wrong in ({"draws": 0}, {"draws": 2, "temperature": 0}, {"explain": "during"}):
        with pytest.raises(ConfigError, match="must be"):
            FleurScorer(RecordingJudge("0.8"), **wrong)


def test_references_are_shown_unless_switched_off_and_pictures_padded_where_wanted():
    judge = RecordingJudge(certain("0.50"))
    wide = Image.new("RGB", (16, 8), "red")
    for use_references in (True, False):
        scorer = FleurScorer(judge, use_references=use_references, pad_images=True)
        scorer.score([CaptionSample("A star.", wide, REFERENCES)])
    shown, hidden = judge.asked
    assert shown.image.size == (16, 16)
    assert shown.image.getpixel((0, 0)) == (122, 116, 104)
    assert shown.image.getpixel((8, 8)) == (255, 0, 0)
    assert all(f"> {reference}" in shown.text for reference in REFERENCES)
    assert "eference" not in hidden.text


def test_an_explanation_may_come_before_the_grade_which_needs_it_then():
    def answer(question):
        if not question.text.endswith(scorer.prompt.explain_first):
            return certain("0.50")
        if "> large" in question.text:
            raise JudgeError("the picture is too large")
        return " \n" if "> empty" in question.text else " It fits.\n"

    judge = RecordingJudge(answer)
    scorer = FleurScorer(judge, explain="before")
    samples = [CaptionSample(text, PICTURE, ["ours"]) for text in ("good", "large", "empty")]
    table = scorer.score([*samples, CaptionSample("good", None)])
    assert table.texts["explanation"] == ["It fits.", None, None, None]
    assert np.isfinite(table.scores[:, 0]).tolist() == [True, False, False, False]
    for row, reason in ((1, "no explanation: the picture is too large"), (2, "answer is empty"), (3, "needs an image")):
        assert reason in table.errors[row]
    (second,) = (question for question in judge.asked if question.history)
    assert second.text == scorer.prompt.ask
    assert second.history[1] == ("assistant", "It fits.")
    assert "> ours" in second.history[0][1]


def test_sampled_grades_are_averaged_instead_of_smoothed(caplog):
    grades = {7: "0.8", 8: "0.95", 9: "no idea", 10: "0.5"}  # by seed, without log probabilities
    judge = RecordingJudge(lambda question: "?" if "> bad" in question.text else grades[question.seed])
    scorer = FleurScorer(judge, draws=4, temperature=0.7, seed=7)
    table = scorer.score([CaptionSample("good", PICTURE), CaptionSample("bad", PICTURE)])
    assert table.column("sampled")[0] == pytest.approx((0.8 + 0.95 + 0.5) / 3)
    assert "no number" in table.errors[1]
    assert "5 of 8 sampled grades could not be read" in caplog.text


@pytest.mark.slow
def test_a_saved_scorer_loads_the_same_commit_of_its_judge_from_the_hub(hub, tmp_path):
    commit = hub.add_folder("name/judge", save_rating_judge(tmp_path / "judge", "0"))
    scorer = FleurScorer.from_pretrained("name/judge", revision=commit, device="cpu")
    scorer.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert saved["judge"] == {"source": "name/judge", "revision": commit}
    again = FleurScorer.from_pretrained(tmp_path / "saved", device="cpu")
    assert again.fingerprint == scorer.fingerprint
    assert again.score(SAMPLES).scores == pytest.approx(scorer.score(SAMPLES).scores, abs=1e-6)


# Appendix B of the paper: LLaVA answers 0.85.
FIRST = [
    0.003021240234375, 0.00128936767578125, 0.0018758773803710938, 0.00353240966796875, 0.00827789306640625,
    0.03350830078125, 0.07672119140625, 0.2117919921875, 0.383544921875, 0.2763671875,
]  # fmt: skip
SECOND = [
    0.0450439453125, 0.035614013671875, 0.050628662109375, 0.044342041015625, 0.0400390625,
    0.3515625, 0.048309326171875, 0.041961669921875, 0.04681396484375, 0.035888671875,
]  # fmt: skip

_parts = st.lists(st.integers(0, 1000), min_size=11, max_size=11).filter(any)  # the eleventh: what is no digit


def test_the_worked_example_of_the_paper():
    # Printed is 0.80664, which is a half-precision number: the authors' sum ran in half precision.
    assert smoothed_score(FIRST, SECOND, dtype=np.float16) == pytest.approx(0.80664, abs=1e-5)
    exact = sum(
        Fraction(digit) * (Fraction(p) / 10 + Fraction(q) / 100)
        for digit, (p, q) in enumerate(zip(FIRST, SECOND, strict=True))
    )
    assert smoothed_score(FIRST, SECOND) == pytest.approx(float(exact), abs=1e-12)
    assert smoothed_score(FIRST, SECOND) == pytest.approx(0.80617, abs=1e-5)


@settings(deadline=None)
@given(first=_parts, second=_parts)
def test_the_score_is_the_expected_decimals_in_exact_fractions(first, second):
    exact = sum(Fraction(digit * part, 10 * sum(first)) for digit, part in enumerate(first[:10]))
    exact += sum(Fraction(digit * part, 100 * sum(second)) for digit, part in enumerate(second[:10]))
    probabilities = [[part / sum(parts) for part in parts[:10]] for parts in (first, second)]
    assert smoothed_score(*probabilities) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("bad", [[0.1] * 9, [0.2] * 10, [-0.1, *[0.1] * 9], [float("nan"), *[0.1] * 9]])
def test_what_are_no_ten_probabilities_is_refused(bad):
    with pytest.raises(ValueError, match="first must"):
        smoothed_score(bad, [0.1] * 10)
    with pytest.raises(ValueError, match="second must"):
        smoothed_score([0.1] * 10, bad)
