"""The judge of the scenes: what it is taught, that it learns it, and what is said about it."""

from __future__ import annotations

import random

import pytest
import torch

from examples.research.embedded.vision import pixels
from examples.research.judge_scenes import ratings, train
from examples.research.judge_scenes.questions import FLEUR_PROMPT, HARMONIC_PROMPT, RowMaker, pad_rows
from integrations.demo.captioner import load_captioner
from reward import CaptionSample, load_scorer
from reward.judges import LocalJudge, ScriptedJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.prompt import CRITERIA
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.scenes import Ratings, make_candidate, render, sample_scene


@pytest.fixture(scope="module")
def captioner(captioner_folder):
    return load_captioner(captioner_folder)


@pytest.fixture(scope="module")
def rated():
    """A scene and a candidate with a wrong and a damaged word."""
    for seed in range(100):
        rng = random.Random(f"judge test {seed}")
        scene = sample_scene(rng)
        candidate = make_candidate(scene, rng)
        words = candidate.caption.words()
        if any(word.damaged for word in words) and any(word.fact and not scene.is_true(word.fact) for word in words):
            return scene, candidate
    raise AssertionError("no such candidate")


def test_it_is_asked_in_training_what_the_metrics_ask(captioner, rated):
    """Token by token, image included, and in the order of the criteria."""
    scene, candidate = rated
    maker = RowMaker(captioner[1], captioner[0].config.image_seq_length)
    judge = LocalJudge(*captioner)
    asked = []

    class Spy(ScriptedJudge):
        def generate(self, questions, **options):
            asked.extend(questions)
            return judge.generate(questions, **options)

        def answer_distribution(self, questions, answers):
            asked.extend(questions)
            return judge.answer_distribution(questions, answers)

    sample = CaptionSample(candidate.caption.text, render(scene))
    FleurScorer(Spy(pieces=judge.pieces), prompt=FLEUR_PROMPT).score([sample])
    HarmonicScorer(Spy(pieces=judge.pieces), prompt=HARMONIC_PROMPT).score([sample])
    assert len(asked) == 6
    for kind, question in zip(("fleur", *CRITERIA), asked, strict=True):
        row = maker.row(kind, candidate, scene, random.Random(0))
        text = maker.writer.text(question)
        images = [render(scene)] if question.image is not None else None
        read = captioner[1](text=text, images=images)["input_ids"][0]
        assert row.ids[: min(row.answers)] == list(read), kind
        assert row.sees_image == (question.image is not None), kind


def test_what_is_trained_is_what_the_judge_computes(captioner, rated):
    scene, candidate = rated
    model, processor = captioner
    trainer = train.JudgeTrainer(model, processor, batch=4, seed=0)
    row = trainer.rows.row("correctness", candidate, scene, random.Random(0))
    batch = pad_rows([row], processor.tokenizer.pad_token_id, model.config.text_config.vocab_size)
    with torch.no_grad():
        model.eval()
        seen = model.model.vision_tower(pixels([scene]), output_hidden_states=True).hidden_states[-1]
        loss = trainer.losses(batch | {"features": seen})["answer"]
        hidden = model.model(input_ids=batch["input_ids"], pixel_values=pixels([scene])).last_hidden_state
        logs = model.lm_head(hidden[0]).log_softmax(-1)
    expected = -sum(
        share * logs[place - 1, token] for place, says in row.answers.items() for token, share in says.items()
    )
    assert float(loss) == pytest.approx(float(expected), abs=1e-4)
    asked = []
    scorer = HarmonicScorer(
        ScriptedJudge(distribution=lambda question: asked.append(question) or {"1": 1.0}), prompt=HARMONIC_PROMPT
    )
    scorer.score([CaptionSample(candidate.caption.text, render(scene))])
    judged = LocalJudge(model, processor).answer_distribution(asked[:1], list("12345"))[0]
    trained = [float(logs[min(row.answers) - 1, trainer.rows.digits[digit]].exp()) for digit in "12345"]
    # the judge adds what digits have after a blank: 4e-5 at most with these weights
    assert judged == pytest.approx(trained, abs=1e-4)


def test_marks_stand_at_the_words_they_are_about(captioner, rated):
    scene, candidate = rated
    maker = RowMaker(captioner[1], captioner[0].config.image_seq_length)
    row = maker.row("correctness", candidate, scene, random.Random(0))
    words, false, untrue = candidate.caption.words(), [], False
    for word in words:
        untrue = untrue or (word.fact is not None and not scene.is_true(word.fact))
        false += [word.text] if untrue else []
        untrue = untrue and not word.text.endswith(".")
    for marks, wanted in ((row.wrong, false), (row.damaged, [word.text for word in words if word.damaged])):
        told = [token for token, mark in zip(row.ids, marks, strict=True) if mark >= 0]
        assert maker.tokenizer.decode(told).strip() == candidate.caption.text
        marked = [token for token, mark in zip(row.ids, marks, strict=True) if mark == 1]
        assert maker.tokenizer.decode(marked).split() == wanted
    text_only = maker.row("fluency", candidate, scene, random.Random(0))
    assert set(text_only.wrong) == {-100}
    assert 1 in text_only.damaged


def test_answers_are_what_the_raters_said(captioner, rated):
    scene, candidate = rated
    maker = RowMaker(captioner[1], captioner[0].config.image_seq_length)
    row = maker.row("completeness", candidate, scene, random.Random(0))
    digits = [str(rating) for rating in candidate.ratings.raters["desc"]]
    first, end = row.answers.items()
    assert first[1] == pytest.approx({maker.digits[digit]: digits.count(digit) / 3 for digit in digits})
    assert end == (len(row.ids) - 1, {maker.tokenizer.eos_token_id: 1.0})

    row = maker.row("fleur", candidate, scene, random.Random(0))
    start = min(row.answers)
    answer = maker.tokenizer.decode(row.ids[start:], skip_special_tokens=True)
    sums = [sum(candidate.ratings.raters[aspect][rater] - 1 for aspect in ("desc", "rel", "flu")) for rater in range(3)]
    assert any(points / 13 - 0.01 < float(answer) < (points + 1) / 13 for points in sums)
    assert sum(row.answers[start + 2].values()) == pytest.approx(1)
    assert row.answers[start + 3] == {row.ids[start + 3]: 1.0}


def test_grades_leave_no_decimals_out():
    rng = random.Random(0)
    made = Ratings({}, dict.fromkeys(("desc", "rel", "flu"), (1, 2, 3, 4, 5)))
    grades = [ratings.grade(made, rater, rng) for rater in range(5) for _ in range(200)]
    assert all(len(grade) == 4 and grade.startswith("0.") for grade in grades)
    assert {grade[3] for grade in grades} == set("0123456789")
    means = [sum(float(grade) for grade in grades[200 * rater : 200 * rater + 200]) / 200 for rater in range(5)]
    assert means == pytest.approx([(3 * rater + 0.5) / 13 for rater in range(5)], abs=0.01)


def test_style_is_read_off_the_text():
    plain = "There is a red star. There is a big blue circle."
    padded = "There is a red star. It is a simple drawing. The mood is calm and friendly."
    broken = "There star a red is. There is a big blue circle."
    styles = [tuple(ratings.style_of(text).values()) for text in (plain, padded, broken)]
    assert styles == [(5, 5), (5, 1), (3.5, 5)]  # clarity and conciseness


def test_train(captioner_folder, tmp_path):
    """From a captioner without knowledge to a judge that answers in form."""
    sizes = ["--steps", "50", "--batch", "8", "--lr", "0.01"]
    train.main(["--captioner", str(captioner_folder), "--output", str(tmp_path / "judge"), *sizes])
    sample = CaptionSample("There is a red star.", render(sample_scene(random.Random(0))))
    fleur = load_scorer("fleur", tmp_path / "judge" / "fleur", device="cpu")
    assert fleur.prompt.version == "scenes-fleur-1"
    assert not fleur.score([sample]).errors
    harmonic = load_scorer("harmoniceval", tmp_path / "judge" / "harmoniceval", device="cpu")
    assert harmonic.prompt.version != fleur.prompt.version
