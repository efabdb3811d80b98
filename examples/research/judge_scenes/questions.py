"""The judge's questions as token ids, rendered by the metrics' own prompts, with the answers and with faulty words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.research.embedded.facts import cell_labels
from examples.research.embedded.schedule import padded
from examples.research.judge_scenes.ratings import ASPECT_OF, grade, rate_style
from reward.judges.base import Question
from reward.judges.prompts import PromptWriter
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.harmoniceval.prompt import HarmonicPrompt
from reward.scenes import ASPECTS, Scene
from reward.scenes.samples import Candidate

__all__ = ["FLEUR_PROMPT", "HARMONIC_PROMPT", "Row", "RowMaker", "pad_rows"]

FLEUR_PROMPT = Path(__file__).with_name("fleur.yaml")
HARMONIC_PROMPT = Path(__file__).with_name("harmoniceval.yaml")
TASK = "captioning"
# How often each question is asked. Those that need the picture are harder.
SHARES = {"fleur": 4, "correctness": 3, "completeness": 2, "fluency": 2, "clarity": 1, "conciseness": 1}
_IGNORED = -100


@dataclass(frozen=True)
class Row:
    """A question with its answer.

    Args:
        ids: tokens of question and answer; the image is so many placeholders.
        answers: {place in `ids`: {token: probability}}, what the judge should say there; the token before it says it.
        wrong, damaged: 1 at tokens of the caption's words that are such, 0 at its others, -100 elsewhere. A word is
            wrong from the first false one of its sentence on, as who reads "a red disc" knows at "disc" what is red.
        cell: at words about an object that the sentence has named, the cell it is in; -100 elsewhere.
        sees_image: whether there are placeholders; where there are none, `wrong` and `cell` are -100 throughout.
        shown: what each cell of the scene shows, see `cell_labels`.
        truth: the ratings before the noise of raters, from 0 to 1, in the order of `ASPECTS`.
    """

    ids: list[int]
    answers: dict[int, dict[int, float]]
    wrong: list[int]
    damaged: list[int]
    cell: list[int]
    sees_image: bool
    shown: torch.Tensor
    truth: list[float]


class RowMaker:
    """Makes rows for a model.

    Args:
        processor: of the model, whose chat template and tokenizer count.
        image_tokens: placeholders an image.
    """

    def __init__(self, processor: Any, image_tokens: int) -> None:
        self.writer = PromptWriter(processor)
        self.tokenizer, self.image_token = self.writer.tokenizer, processor.image_token
        self.image_tokens = image_tokens
        self.fleur, self.harmonic = FleurPrompt.of(FLEUR_PROMPT), HarmonicPrompt.of(HARMONIC_PROMPT)
        self.digits = {digit: self.writer.answer_ids([digit])[0][0] for digit in "0123456789"}

    def prompt(self, kind: str, caption: str) -> tuple[str, bool]:
        """Text of a question, opened for the answer, placeholders written out; and whether it shows the image.

        Args:
            kind: "fleur" or a criterion of HarmonicEval.
            caption: the candidate.
        """
        prompt = self.fleur if kind == "fleur" else self.harmonic
        shown = prompt is self.fleur or self.harmonic.sees_image(kind)
        text = self.fleur.question(caption) if prompt is self.fleur else self.harmonic.question(kind, TASK, caption)
        question = Question(text, image=self.image_token if shown else None, system=prompt.system or None)
        return self.writer.text(question).replace(self.image_token, self.image_token * self.image_tokens), shown

    def row(self, kind: str, candidate: Candidate, scene: Scene, rng: random.Random) -> Row:
        """A question about a candidate and the answer of its raters.

        The digit that HarmonicEval asks for, and FLEUR's first decimal, have the distribution over the three raters.
        The second decimal follows on the first, so it is that of one rater, drawn at random.
        """
        caption = candidate.caption
        text, shown = self.prompt(kind, caption.text)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = list(encoded["input_ids"])
        wrong, damaged, cell = ([_IGNORED] * len(ids) for _ in range(3))
        start = text.index(f"> {caption.text}") + 2
        words = caption.words()
        ends = start + np.cumsum([len(word.text) + 1 for word in words]) - 1
        false, about = _read_along(candidate, scene)
        for place, (_, end) in enumerate(encoded["offset_mapping"]):
            if start < end <= ends[-1]:
                word = int(np.searchsorted(ends, end))
                damaged[place] = int(words[word].damaged)
                if shown:
                    wrong[place], cell[place] = int(false[word]), about[word]
        answers = self._answers(kind, candidate, len(ids), ids, rng)
        rest = [_IGNORED] * (len(ids) - len(wrong))
        truth = [(candidate.ratings.true[aspect] - 1) / 4 for aspect in ASPECTS]
        return Row(
            ids, answers, wrong + rest, damaged + rest, cell + rest, shown, shown=cell_labels(scene), truth=truth
        )

    def _answers(
        self, kind: str, candidate: Candidate, start: int, ids: list[int], rng: random.Random
    ) -> dict[int, dict[int, float]]:
        """Appends one rater's answer to `ids`; returns what to learn of it."""
        if kind == "fleur":
            raters = len(candidate.ratings.raters["desc"])
            grades = [grade(candidate.ratings, rater, rng) for rater in range(raters)]
            chosen, alternatives = rng.choice(grades), {start + 2: [text[2] for text in grades]}
        else:
            ratings = candidate.ratings if kind in ASPECT_OF else rate_style(candidate.caption.text, rng)
            digits = [str(rating) for rating in ratings.raters[ASPECT_OF.get(kind, kind)]]
            chosen, alternatives = rng.choice(digits), {start: digits}
        ids += [*self.tokenizer(chosen, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]
        answers = {place: {ids[place]: 1.0} for place in range(start, len(ids))}
        for place, digits in alternatives.items():
            answers[place] = {self.digits[digit]: digits.count(digit) / len(digits) for digit in digits}
        return answers

    def draw_kind(self, rng: random.Random) -> str:
        """A question, drawn by `SHARES`."""
        return rng.choices(list(SHARES), weights=list(SHARES.values()))[0]


def _read_along(candidate: Candidate, scene: Scene) -> tuple[list[bool], list[int]]:
    """For each word, whether its sentence is false so far, and the cell of the object it is about, or -100."""
    false: list[bool] = []
    about: list[int] = []
    for sentence in candidate.caption.sentences:
        untrue, named = False, set()
        for word in sentence.words:
            fact = word.fact
            untrue = untrue or (fact is not None and not scene.is_true(fact))
            false.append(untrue)
            if fact is not None and fact[0] == "object":
                named.add(fact[1])
            known = fact is not None and len(fact) < 4 and fact[1] in named & {entity.noun for entity in scene.entities}
            about.append(scene.entity(str(fact[1])).cell if fact is not None and known else _IGNORED)
    return false, about


def pad_rows(rows: Sequence[Row], pad: int, vocabulary: int) -> dict[str, torch.Tensor]:
    """Rows as tensors, padded on the right.

    Returns:
        input_ids, attention_mask (B, L); wrong, damaged, cell (B, L), -100 where there is nothing to say; shown
        (B, 9, kinds) and truth (B, 3); at (P, 2) the row and place of tokens that answer, and answers (P, V) their
        distributions.
    """
    places = [(index, place, says) for index, row in enumerate(rows) for place, says in row.answers.items()]
    answers = torch.zeros(len(places), vocabulary)
    for number, (_, _, says) in enumerate(places):
        for token, probability in says.items():
            answers[number, token] = probability
    return {
        "input_ids": padded([row.ids for row in rows], pad),
        "attention_mask": padded([[1] * len(row.ids) for row in rows], 0),
        "wrong": padded([row.wrong for row in rows], _IGNORED),
        "damaged": padded([row.damaged for row in rows], _IGNORED),
        "cell": padded([row.cell for row in rows], _IGNORED),
        "shown": torch.stack([row.shown for row in rows]),
        "truth": torch.tensor([row.truth for row in rows]),
        "at": torch.tensor([(index, place) for index, place, _ in places]),
        "answers": answers,
    }
