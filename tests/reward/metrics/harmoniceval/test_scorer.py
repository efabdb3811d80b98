"""HarmonicEval: the scorer beside plain forward passes, tasks and criteria; its arithmetic beside exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward import CaptionSample
from reward.errors import ConfigError, JudgeError
from reward.judges import LocalJudge, Question, ScriptedJudge
from reward.metrics.harmoniceval import aggregate
from reward.metrics.harmoniceval.aggregate import harmonic_weights
from reward.metrics.harmoniceval.prompt import CRITERIA
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from tests.contract import SAMPLES
from tests.toys.toy_judges import RecordingJudge, plain_inputs, plain_pass, spellings, strict_llava

PICTURE = Image.new("RGB", (16, 16), "red")
TASKS = {"captioning": "caption", "question_answering": "answer", "referring": "expression", "documents": "answer"}


def criterion_of(question):
    if "Overall quality" in question.text:
        return "overall"
    return next(name for name in CRITERIA if name.capitalize() in question.text)


def test_scores_are_those_of_plain_forward_passes():
    model, processor = strict_llava("12345")
    scorer = HarmonicScorer(LocalJudge(model, processor), gamma=0.6)
    sample, rows = SAMPLES[0], []
    for criterion in CRITERIA:
        text = scorer.prompt.question(criterion, "captioning", sample.candidate)
        image = sample.image if criterion in ("correctness", "completeness") else None
        row = plain_pass(model, **plain_inputs(processor, Question(text, image, system=scorer.prompt.system)))
        rows.append([float(row[same].sum()) for same in spellings(processor, "12345")])
    expected = aggregate(rows, 0.6)
    assert scorer.score([sample]).scores[0] == pytest.approx([expected.overall, *expected.scores], abs=1e-5)
    assert len(set(np.round(expected.scores, 4))) == 5


def test_the_table_holds_scores_of_each_criterion_and_three_are_judged_without_the_image():
    given = {
        "correctness": {"4": 0.45, "5": 0.45},  # the rest is on no rating
        "completeness": {"1": 0.5, "5": 0.5},
        "clarity": {"3": 1.0},
        "fluency": {"2": 0.25, "4": 0.75},
        "conciseness": dict.fromkeys("12345", 0.2),
        "overall": {"2": 0.25, "3": 0.25, "5": 0.5},
    }
    judge = RecordingJudge(distribution=lambda question: given[criterion_of(question)])
    sample = CaptionSample("A star.", PICTURE, ["never shown"])
    table = HarmonicScorer(judge, gamma=1).score([sample])
    assert table.aspects == ("overall", *CRITERIA)
    assert table.scores[0] == pytest.approx([17 / 5, 4.5, 3, 3, 3.5, 3])
    images = {criterion_of(question): question.image for question in judge.asked}
    assert {name for name, image in images.items() if image is PICTURE} == {"correctness", "completeness"}
    assert not any("never shown" in question.text for question in judge.asked)
    harmonic = HarmonicScorer(judge).score([sample]).scores[0]
    assert harmonic[0] == pytest.approx(float(harmonic_weights(np.array([0.25, 4, 0, 0.75, 2]), 0.75) @ harmonic[1:]))
    table = HarmonicScorer(judge, gamma=0.5, criteria=["correctness", "completeness"]).score([sample])
    assert table.scores[0] == pytest.approx([(16 * 4.5 + 3) / 17, 4.5, 3])  # variances 1/4 and 4, by their inverses
    table = HarmonicScorer(judge, criteria=["overall"]).score([sample])
    assert (table.aspects, judge.asked[-1].image) == (("overall",), PICTURE)
    assert table.scores[0] == pytest.approx([2 * 0.25 + 3 * 0.25 + 5 * 0.5])


@pytest.mark.parametrize("task", TASKS)
def test_the_task_chooses_the_words_and_the_question(task):
    judge = RecordingJudge(distribution=lambda question: {"5": 1.0} if "colour?" in question.text else {"1": 1.0})
    asks = TASKS[task] == "answer"
    asked = [f"Which {what}?" if asks else None for what in ("shape", "colour", "shape")]
    table = HarmonicScorer(judge, task=task).score([CaptionSample("Red.", PICTURE, question=each) for each in asked])
    assert table.column("correctness").tolist() == ([1, 5, 1] if asks else [1, 1, 1])
    seen = {(criterion_of(question), "colour?" in question.text): question.text for question in judge.asked}
    assert all(f"The {TASKS[task]} to be rated:\n> Red." in text and "{" not in text for text in seen.values())
    assert {name for name, shown in seen if shown} == ({"correctness", "completeness"} if asks else set())
    assert ("red box" in seen["correctness", False]) == (task == "referring")


@pytest.mark.parametrize(
    ("task", "question", "message"),
    [("documents", None, "needs the question"), ("captioning", "Which?", "has no questions, but the text answers one")],
)
def test_questions_must_fit_the_task(task, question, message):
    scorer = HarmonicScorer(RecordingJudge(distribution={"3": 1.0}), task=task)
    assert message in scorer.score([CaptionSample("Red.", PICTURE, question=question)]).errors[0]


@pytest.mark.parametrize("criteria", [(), ("overall", "clarity"), ("clarity", "clarity"), ("taste",)])
def test_criteria_and_tasks_that_are_not_there_are_refused(criteria):
    judge = RecordingJudge(distribution={"3": 1.0})
    with pytest.raises(ConfigError, match="criteria must be 'overall' alone, or different ones of correctness"):
        HarmonicScorer(judge, criteria=criteria)
    with pytest.raises(ConfigError, match="task 'poetry' is unknown; the prompt has captioning, question_answering"):
        HarmonicScorer(judge, task="poetry")


def test_missing_mass_and_failures_are_told_by_criterion():
    def rate(question):
        if "> broken" in question.text and criterion_of(question) == "clarity":
            raise JudgeError("the server said no")
        return {"3": 0.001 if "> lost" in question.text and criterion_of(question) == "fluency" else 0.02}

    samples = [CaptionSample(text, PICTURE) for text in ("lost", "broken", "fine")]
    table = HarmonicScorer(ScriptedJudge(distribution=rate)).score(samples)
    assert "fluency: the judge gave the answers 1, 2, 3, 4, 5 a probability of 0.001 in all" in table.errors[0]
    assert table.errors[1] == "clarity: the server said no"
    assert table.scores[2] == pytest.approx([3] * 6)


# Integer parts of a whole, so that fractions are exact; every rating has some, so that no variance is 0.
_rows = st.lists(st.lists(st.integers(1, 10_000), min_size=5, max_size=5), min_size=1, max_size=6)


def _moments(parts):
    total = sum(parts)
    mean = sum(Fraction(rating * part, total) for rating, part in enumerate(parts, start=1))
    return mean, sum((rating - mean) ** 2 * Fraction(part, total) for rating, part in enumerate(parts, start=1))


@settings(deadline=None)
@given(rows=_rows, gamma=st.floats(0.2, 1) | st.sampled_from([0.5, 1.0]), scale=st.floats(1e-6, 1e3))
def test_the_formula_in_other_arithmetic(rows, gamma, scale):
    result = aggregate(np.array(rows) * scale, gamma)
    means, variances = ([float(moment) for moment in each] for each in zip(*map(_moments, rows), strict=True))
    raw = [math.pow(variance, -(1 - gamma) / gamma) for variance in variances]
    weights = [weight / math.fsum(raw) for weight in raw]
    assert result.scores == pytest.approx(means, abs=1e-9)
    assert result.variances == pytest.approx(variances, abs=1e-9)
    assert result.weights == pytest.approx(weights, abs=1e-9)
    assert result.overall == pytest.approx(math.fsum(map(float.__mul__, weights, means)), abs=1e-6)


@pytest.mark.parametrize("gamma", [0, 1e-12, 1e-3, 0.5, 1])
def test_certain_ratings_and_small_gammas_divide_by_nothing(gamma):
    certain, even = np.eye(5), [0.2] * 5
    assert aggregate(certain, gamma).weights == pytest.approx([0.2] * 5)
    mixed = aggregate([certain[4], even, certain[3]], gamma)
    assert mixed.weights[0] == mixed.weights[2] >= mixed.weights[1]
    assert mixed.weights.sum() == pytest.approx(1)
    if gamma < 0.01:
        assert aggregate([[0, 0, 0, 0.1, 0.9], even], gamma).weights.tolist() == [1, 0]
    samples = [[certain[4], even], [even, [0.1, 0.2, 0.4, 0.2, 0.1]]]
    assert aggregate(samples, gamma).overall == pytest.approx([aggregate(rows, gamma).overall for rows in samples])


@pytest.mark.parametrize(
    ("probabilities", "gamma", "message"),
    [
        ([[0.25] * 4], 0.75, "shape"),
        ([[0, 0, 0, 0, 0]], 0.75, "has none"),
        ([[-0.1, 0.5, 0.2, 0.2, 0.2]], 0.75, "not negative"),
        *(([[0.2] * 5], gamma, "gamma") for gamma in (-0.1, 1.1, float("nan"), "0.5", True)),
    ],
)
def test_what_are_no_ratings_or_no_gamma_is_refused(probabilities, gamma, message):
    with pytest.raises(ValueError, match=message):
        aggregate(probabilities, gamma)
