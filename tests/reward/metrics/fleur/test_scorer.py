"""FleurScorer: the contract on a real model, against a plain forward pass, refusals, references, reasons, files."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.errors import ConfigError, JudgeError
from reward.judges import Answer, LocalJudge, Question
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.sentences import SentenceMean
from reward.scoring import score_dataset
from tests.contract import REFERENCES, SAMPLES, ScorerContract
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.rating_judges import save_rating_judge, strict_llava
from tests.toys.toy_judges import RecordingJudge, llava, plain_inputs, plain_pass, spellings

pytestmark = pytest.mark.slow

PICTURE = Image.new("RGB", (16, 16), "red")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_rating_judge(tmp_path_factory.mktemp("fleur_judge"), "0")


class TestFleur(ScorerContract):
    """The contract, on a small vision-language model loaded from files."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, folder: Path) -> FleurScorer:
        return load_scorer("fleur", folder, device="cpu", max_characters=300)  # type: ignore[return-value]


def certain(text: str, *, end: str = "</s>") -> Answer:
    """An answer of one token a character, each of probability 1."""
    tokens = (*text, end)
    return Answer(text, tokens, tuple({token: 0.0} for token in tokens))


def unsure(text: str, place: int, **probabilities: float) -> Answer:
    """The same, with the probabilities of one place; `_8` is the token 8, and `end` the end."""
    answer = certain(text)
    logs = {"</s>" if name == "end" else name[1:]: math.log(value) for name, value in probabilities.items()}
    return replace(answer, logprobs=(*answer.logprobs[:place], logs, *answer.logprobs[place + 1 :]))


def scores(answer: Any, caption: str = "A star.", **options: Any) -> list[float]:
    """Smoothed and raw, of one caption that a judge gives one answer."""
    table = FleurScorer(RecordingJudge(answer), **options).score([CaptionSample(caption, PICTURE)])
    assert table.errors == {}
    assert table.aspects == ("smoothed", "raw")
    return table.scores[0].tolist()


def test_the_score_is_that_of_plain_forward_passes_and_samples_have_its_probabilities() -> None:
    model, processor = strict_llava("0")
    judge = LocalJudge(model, processor)
    scorer = FleurScorer(judge)
    expected = []
    for sample in SAMPLES[:3]:
        text = scorer.prompt.question(sample.candidate, sample.references)
        question = Question(text, sample.image, system=scorer.prompt.system)
        written, rows = "", []
        for _ in range(4):
            row = plain_pass(model, **plain_inputs(processor, question, written))
            rows.append(np.array([float(row[same].sum()) for same in spellings(processor, "0123456789")]))
            written += processor.tokenizer.decode(row.argmax())
        assert written[:2] == "0."
        expected.append(np.arange(10) @ (0.1 * rows[2] + 0.01 * rows[3]))
    assert scorer.score(SAMPLES[:3]).column("smoothed") == pytest.approx(expected, abs=1e-5)
    assert len(set(np.round(expected, 7))) == 3
    question = Question(scorer.prompt.question("A red circle."), SAMPLES[0].image, system=scorer.prompt.system)
    row = plain_pass(model, **plain_inputs(processor, question, "0."))
    expected = [float(row[same].sum()) for same in spellings(processor, "0123456789")]
    asked = [replace(question, temperature=1.0, seed=seed) for seed in range(300)]
    texts = [answer.text for answer in judge.generate(asked, max_new_tokens=3)]
    shares = [texts.count(f"0.{digit}") / len(texts) for digit in range(10)]
    assert shares == pytest.approx(expected, abs=0.09)  # three standard errors of one half
    assert judge.generate([asked[7], question], max_new_tokens=3)[0].text == texts[7]  # whatever it comes with


@pytest.mark.parametrize("first", [("0",), ("\u2581", "0"), (" 0",), ("\u01200",)])
def test_one_decimal_is_smoothed_with_what_the_judge_thought_of_going_on(first: tuple[str, ...]) -> None:
    tokens = (*first, ".", "8", "</s>")
    logs = [{token: 0.0} for token in tokens]
    logs[-1] = {"</s>": math.log(0.7), "9": math.log(0.2), " 1": math.log(0.1)}
    assert scores(Answer("0.8", tokens, tuple(logs))) == pytest.approx([0.8 + 0.01 * (0.2 * 9 + 0.1), 0.8])


@pytest.mark.parametrize("text", ["1.0", "1", "1.00", "**1.0**", "0"])
def test_answers_without_decimals_to_smooth_use_the_units_place(text: str) -> None:
    digit = text.strip("*")[0]
    answer = unsure(text, text.index(digit), **{f"_{digit}": 0.7, f"_{1 - int(digit)}": 0.3})
    smoothed = 0.3 if text == "0" else 0.9 * 0.3 + 0.7
    assert scores(answer) == pytest.approx([smoothed, float(text.strip("*"))])


FOUND = ["0.85", ".85", "0,85", "  0.85\n", "Score: 0.85", "**Grade:** 0.85, because 2 of 3 dogs are there"]
FOUND += ["The score is 0.85 for 2 dogs.", "0.85 out of 1.0", "0.85 / 1", "I would give it 0.85."]


@pytest.mark.parametrize("text", [*FOUND, "0.8537"])
def test_numbers_that_are_found(text: str) -> None:
    assert scores(certain(text)) == pytest.approx([0.85, 0.8537 if text == "0.8537" else 0.85])


NO_NUMBERS = ["I cannot rate this image.", "", "There is 1 dog", "Between 0.7 and 0.8", "0.8.5", "1,000"]
NO_NUMBERS += ["85", "85%", "0.85%", "8/10", "0.8/10", "0.8 out of 10", "1.5", "-0.5"]
NO_NUMBERS += ["On a scale of 0.0 to 1.0, I say 0.7"]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_answers_that_cannot_be_read_are_told_and_counted(text: str, caplog: pytest.LogCaptureFixture) -> None:
    judge = RecordingJudge(lambda question: certain(text if "> bad" in question.text else "0.50"))
    with caplog.at_level(logging.WARNING, "reward.metrics.judge_metric.base"):
        table = FleurScorer(judge).score([CaptionSample(caption, PICTURE) for caption in ("good", "bad", "bad")])
    assert table.scores[0].tolist() == [0.5, 0.5]
    assert np.isnan(table.scores[1:]).all()
    assert sorted(table.errors) == [1, 2]
    assert text.strip()[:20] in table.errors[1]
    assert "2 of 3" in caplog.text


def test_judges_that_cannot_rate_are_refused_with_the_alternative() -> None:
    with pytest.raises(JudgeError, match="no log probabilities"):
        scores("0.85")
    with pytest.raises(JudgeError, match=r"several characters of a number as one token .*'85'.*harmoniceval"):
        FleurScorer(LocalJudge(*llava([("8", "5")])))
    # the tokenizer is not known before the answer comes
    tokens = ("0", ".", "85", "</s>")
    merged = Answer("0.85", tokens, tuple({token: 0.0} for token in tokens))
    with pytest.raises(JudgeError, match=r"'85'.*harmoniceval"):
        FleurScorer(RecordingJudge(merged, pieces=lambda text: None)).score([CaptionSample("A star.", PICTURE)])
    cut = Answer("0.8", tuple("0.8"), tuple({token: 0.0} for token in "0.8"), truncated=True)
    assert "cut inside" in FleurScorer(RecordingJudge(cut)).score([CaptionSample("A star.", PICTURE)]).errors[0]
    for wrong in ({"draws": 0}, {"draws": 2, "temperature": 0}, {"explanation": "during"}, {"second_decimal": "never"}):
        with pytest.raises(ConfigError, match="must be"):
            FleurScorer(RecordingJudge(cut), **wrong)


@pytest.mark.parametrize(
    ("tokens", "listed", "reason"),
    [
        (("0", ".", "8"), None, "do not spell it"),  # content 0.1 beside tokens of 0.8
        (("0", ".", "1"), {}, "the digits of its number a probability of 0 in all"),
        (("0", ".", "1"), {"a": -0.01, "1": -5.0}, "a probability of 0.0067 in all"),
    ],
)
def test_there_is_no_score_where_the_digits_have_no_probability(tokens: Any, listed: Any, reason: str) -> None:
    logprobs = tuple({token: 0.0} if listed is None or token in "0." else listed for token in tokens)
    scorer = FleurScorer(RecordingJudge(Answer("0.1", tokens, logprobs)))
    assert reason in scorer.score([CaptionSample("A star.", PICTURE)]).errors[0]


@pytest.mark.parametrize(
    ("text", "always", "written"),
    [("0.8", 0.745, 0.7), ("0.80", 0.745, 0.7), ("0.85", 0.745, 0.745), ("0.853", 0.745, 0.745), ("1.0", 1.0, 1.0)],
)
def test_both_readings_of_the_second_decimal(
    text: str, always: float, written: float, caplog: pytest.LogCaptureFixture
) -> None:
    answer = certain(text)
    if text[0] == "0":
        second = unsure(text, 3, _5=0.9, end=0.1).logprobs[3]
        answer = replace(unsure(text, 2, _8=0.8, _3=0.2))
        answer = replace(answer, logprobs=(*answer.logprobs[:3], second, *answer.logprobs[4:]))
    assert scores(answer, second_decimal="written") == pytest.approx([written, float(text)])
    assert scores(answer) == pytest.approx([always, float(text)])
    assert caplog.text == ""
    if text == "0.8":  # a server may leave out the end
        short = replace(answer, tokens=answer.tokens[:3], logprobs=answer.logprobs[:3])
        assert scores(short) == scores(short, second_decimal="written") == pytest.approx([written, 0.8])
        assert "1 answers with one decimal are smoothed over that decimal alone" in caplog.text


def test_references_are_shown_unless_switched_off() -> None:
    samples = [CaptionSample("A star.", PICTURE, REFERENCES), CaptionSample("A star.", PICTURE)]
    judge = RecordingJudge(certain("0.50"))
    FleurScorer(judge).score(samples)
    FleurScorer(judge, use_references=False).score(samples[:1])
    with_references, without, off = judge.asked
    assert all(f"> {reference}" in with_references.text for reference in REFERENCES)
    assert "eference" not in without.text
    assert off.text == without.text
    assert with_references.image is PICTURE


@pytest.mark.parametrize("order", ["before", "after"])
def test_explanations_come_with_the_scores_in_either_order(order: str) -> None:
    def answer(question: Question) -> Answer | str:
        reason = question.text.endswith(scorer.prompt.explain_first) or question.text == scorer.prompt.explain
        return " It fits.\n" if reason else certain("0.50")

    judge = RecordingJudge(answer)
    scorer = FleurScorer(judge, explanation=order)
    samples = [CaptionSample("good", PICTURE), CaptionSample("good", PICTURE, ["ours"]), CaptionSample("good", None)]
    table = scorer.score(samples)
    assert (table.texts["explanation"], table.scores[:2].tolist()) == (["It fits.", "It fits.", None], [[0.5, 0.5]] * 2)
    second = [question for question in judge.asked if question.history]
    assert second[0].text == (scorer.prompt.ask if order == "before" else scorer.prompt.explain)
    assert second[0].history[1] == ("assistant", "It fits." if order == "before" else "0.50")
    assert "> ours" in second[1].history[0][1]


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("said", [JudgeError("the picture is too large"), " \n"], ids=["failed", "empty"])
def test_a_failed_explanation_keeps_its_reason_also_sentence_by_sentence(order: str, said: Any, tmp_path: Path) -> None:
    def answer(question: Question) -> Answer | str:
        if not (question.text.endswith(scorer.prompt.explain_first) or question.text == scorer.prompt.explain):
            return certain("0.50")
        if "bad" not in str(question.turns()):
            return "It fits."
        if isinstance(said, JudgeError):
            raise said
        return said

    scorer = FleurScorer(RecordingJudge(answer), explanation=order)
    table = SentenceMean(scorer).score(
        [CaptionSample("Good. Fine.", PICTURE), CaptionSample("Good. A bad one.", PICTURE)]
    )
    assert table.texts["explanation"] == ["It fits.\nIt fits.", "It fits."]
    reason = "too large" if isinstance(said, JudgeError) else "its answer is empty"
    assert table.errors.keys() == {1}
    assert f"the judge gave no explanation: {reason}" in table.errors[1].replace("the picture is ", "")
    assert np.isfinite(table.scores).all(axis=1).tolist() == [True, order == "after"]
    PICTURE.save(tmp_path / "picture.png")
    row = {"image": "picture.png", "candidate": "Good. Fine."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    score_dataset(tmp_path / "rows.jsonl", SentenceMean(scorer), tmp_path / "scored.jsonl")
    assert json.loads((tmp_path / "scored.jsonl").read_text())["explanation"] == "It fits.\nIt fits."


def test_sampled_grades_are_averaged_instead_of_smoothed(caplog: pytest.LogCaptureFixture) -> None:
    grades = {7: "0.8", 8: "0.95", 9: "no idea", 10: "0.5"}  # by seed, without log probabilities
    judge = RecordingJudge(lambda question: "?" if "> bad" in question.text else grades[question.seed], pieces=tuple)
    scorer = FleurScorer(judge, draws=4, temperature=0.7, seed=7)
    table = scorer.score([CaptionSample("good", PICTURE), CaptionSample("bad", PICTURE)])
    assert table.column("sampled")[0] == pytest.approx((0.8 + 0.95 + 0.5) / 3)
    assert "no number" in table.errors[1]
    assert "5 of 8 sampled grades could not be read" in caplog.text


def test_a_prompt_from_a_file_travels_with_the_checkpoint_of_a_judge_on_the_hub(
    folder: Path, hub: LoopbackHub, tmp_path: Path
) -> None:
    commit = hub.add_folder("name/judge", folder)
    values = {**FleurPrompt.of().to_json(), "version": "mine", "rubric": "Is it so? From 0.0 to 1.0."}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    options: dict[str, Any] = {"prompt": tmp_path / "mine.yaml", "device": "cpu"}
    scorer = FleurScorer.from_pretrained("name/judge", revision=commit, **options)
    scorer.save_pretrained(tmp_path / "saved")
    (tmp_path / "mine.yaml").unlink()
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert saved["judge"] == {"source": "name/judge", "revision": commit}
    again = FleurScorer.from_pretrained(tmp_path / "saved", device="cpu")
    assert again.prompt == scorer.prompt
    assert again.fingerprint == scorer.fingerprint
    ours, default = again.score(SAMPLES).scores, FleurScorer.from_pretrained(folder, device="cpu")
    assert ours == pytest.approx(scorer.score(SAMPLES).scores, abs=1e-6)
    assert default.fingerprint != scorer.fingerprint
    assert not np.allclose(default.score(SAMPLES).scores, ours)
