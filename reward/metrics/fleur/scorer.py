"""FleurScorer: asks a vision-language model for a number from 0.0 to 1.0 and smooths its digits."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reward.errors import ConfigError, JudgeError
from reward.judges.base import NO_PROBABILITIES, Judge, Question, read_each
from reward.judges.prompts import PromptWriter
from reward.judges.wording import pad_to_square, quoted
from reward.metrics.fleur import SPEC
from reward.metrics.fleur.parse import DIGITS, merged_message, read_grade, written_grade
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.judge_metric.base import JudgedCaption, JudgedScorer, Rating

if TYPE_CHECKING:
    from PIL.Image import Image

logger = logging.getLogger(__name__)

_TOP = 20  # the most that servers report; a local judge reports all ten digits anyway


class FleurScorer(JudgedScorer):
    """FLEUR, and RefFLEUR for samples that have references.

    The judge writes a number with greedy decoding. The aspect `raw` is that number. The aspect `smoothed` is FLEUR: the
    expected value under the probabilities of the digits. By default the reward is `smoothed` alone. To an answer with
    one decimal, such as 0.8, the probabilities of a second one at the place where the judge stopped are added; the
    authors' code adds them only where two were written.

    Source: Lee et al., "FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large
    Multimodal Model", with our own prompts.

    Args:
        judge: a vision-language model whose tokenizer writes digits one by one.
        use_references: False hides references from the judge, which gives FLEUR for samples with references too.
        prompt: a FleurPrompt, its fields, or a YAML file (start from a copy of `prompt.yaml` in this folder); None
            is the default.
        max_new_tokens: length limit of the answer.
        max_characters: see `JudgedScorer`.
        pad_images: whether images are padded to squares before the judge sees them, as the authors do (LLaVA's aspect
            ratio "pad"). Otherwise the judge prepares images: LLaVA-1.5's processor in transformers crops the longer
            side.
        draws: instead of smoothing, the score is the mean of this many sampled grades (section 5.2.2 of the paper, up
            to 20); the only aspect is then `sampled`. This needs no probabilities, and any tokenizer will do.
        temperature, seed: of sampling. The paper does not give its own; at 1 the mean tends to the expected grade.
        explain: True asks for the reason after the score, in a second turn, as in the paper, see `JudgedScorer`.
            "before" has the judge explain first and grade in the second turn (appendix G); a caption without
            explanation has no score then.

    Raises:
        JudgeError: the judge's tokenizer merges digits.
        ConfigError: the prompt is invalid, or a setting is none of those named here.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> from reward.judges import Answer, ScriptedJudge
        >>> logs = [{"0": 0.0}, {".": 0.0}, {"8": math.log(0.5), "7": math.log(0.5)}, {"5": 0.0}]
        >>> judge = ScriptedJudge(lambda question: Answer("0.85", ("0", ".", "8", "5"), tuple(logs)))
        >>> table = FleurScorer(judge).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))])
        >>> table.aspects, table.scores.round(3).tolist()
        (('smoothed', 'raw'), [[0.8, 0.85]])
    """

    spec = SPEC
    prompt_class = FleurPrompt
    saved = ("use_references", "max_new_tokens", "pad_images", "draws", "temperature", "seed")

    def __init__(
        self,
        judge: Judge,
        *,
        use_references: bool = True,
        prompt: FleurPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 16,
        max_characters: int = 4000,
        pad_images: bool = False,
        draws: int | None = None,
        temperature: float = 1.0,
        seed: int = 0,
        explain: bool | str = False,
    ) -> None:
        if explain not in (False, True, "before"):
            raise ConfigError(f"explain must be true, false or 'before', got {explain!r:.80}")
        super().__init__(judge, prompt=prompt, max_characters=max_characters, explain=bool(explain))
        self.pad_images = self.decodes_images = pad_images
        self.explain = explain
        if (draws is not None and draws < 1) or not 0 < temperature < math.inf:
            raise ConfigError(f"draws must be at least 1 and temperature above 0, got {draws!r} and {temperature!r}")
        self.use_references = use_references
        self.max_new_tokens = max_new_tokens
        self.draws = draws
        self.temperature = temperature
        self.seed = seed
        aspects = SPEC.aspects if draws is None else ("sampled",)
        self.spec = replace(self.spec, aspects=aspects, default_weights={aspects[0]: 1.0})
        if draws is not None:
            return
        # A judge on this machine whose tokenizer writes several digits as one token is refused.
        # Others do not tell: their answers do, see `read_grade`.
        if isinstance(writer := getattr(self.judge, "writer", None), PromptWriter):
            pieces = writer.pieces(" ".join(f"0.{number:02}" for number in range(100)))
            if any(len(piece) > 1 and not {*piece}.isdisjoint(DIGITS) for piece in pieces):
                example = f"it cuts 0.85 into {list(writer.pieces('0.85'))}"
                raise JudgeError(merged_message(self.judge.name, example))

    @property
    def reads_references(self) -> bool:
        return self.use_references

    def preprocess(self, image: Image) -> Image:
        return pad_to_square(image)

    def rate(self, captions: list[JudgedCaption]) -> list[Rating | str]:
        """See `JudgedScorer.rate`."""
        questions = [self._question(caption) for caption in captions]
        if self.explain != "before":
            return self._grades(questions)
        # The judge explains first. Where it does, the question for the grade is its second turn.
        first_turns = {row: self._question(caption, reason=True) for row, caption in enumerate(captions)}
        reasons, failures = self.ask_reasons(first_turns)
        second_turns = []
        for row, reason in reasons.items():
            # The reason may quote the caption, and so a chat marker of it.
            history = (("user", first_turns[row].text), ("assistant", quoted(reason, quote=False)))
            second_turns.append(replace(first_turns[row], text=self.prompt.ask, history=history))
        ratings: dict[int, Rating | str] = dict(failures)
        for row, rating in zip(reasons, self._grades(second_turns), strict=True):
            if isinstance(rating, str):
                ratings[row] = rating
            else:
                ratings[row] = rating._replace(explanation=reasons[row])
        return [ratings[row] for row in range(len(captions))]

    def _question(self, caption: JudgedCaption, *, reason: bool = False) -> Question:
        """The question for the grade of a caption, or for a reason before there is one."""
        text = self.prompt.question(caption.candidate, caption.references, reason=reason)
        return Question(text, image=caption.image, system=self.prompt.system or None)

    def _grades(self, questions: list[Question]) -> list[Rating | str]:
        """The judge's grades in answer to questions for them."""
        if self.draws is not None:
            return self._sampled_grades(questions, self.draws)
        grades = read_each(
            self.judge,
            questions,
            read_grade,
            max_new_tokens=self.max_new_tokens,
            top_logprobs=_TOP,
            track=DIGITS,
        )
        if set(grades) == {NO_PROBABILITIES}:
            raise JudgeError(NO_PROBABILITIES)  # it is the judge, and no single answer
        ratings: list[Rating | str] = []
        partial_count = 0
        for question, grade in zip(questions, grades, strict=True):
            if isinstance(grade, str):
                ratings.append(grade)
                continue
            partial_count += grade.is_partial
            ratings.append(Rating((grade.smoothed, grade.raw), [(question, f"{grade.smoothed:.2f}")]))
        if partial_count:
            logger.warning(
                "fleur: %d answers with one decimal are smoothed over that decimal alone, because the server does not "
                "report what follows it",
                partial_count,
            )
        return ratings

    def _sampled_grades(self, questions: list[Question], draws: int) -> list[Rating | str]:
        """The mean of some sampled grades in answer to each question."""
        sampled = []
        for question in questions:
            for seed in range(self.seed, self.seed + draws):
                sampled.append(replace(question, temperature=self.temperature, seed=seed))
        numbers = read_each(
            self.judge, sampled, lambda answer: written_grade(answer.text), max_new_tokens=self.max_new_tokens
        )
        ratings: list[Rating | str] = []
        unread_count = 0
        for index, question in enumerate(questions):
            # A grade that cannot be read says nothing of the others: the mean is over those that can.
            drawn = numbers[index * draws : (index + 1) * draws]
            values = [number.value for number in drawn if not isinstance(number, str)]
            unread_count += draws - len(values)
            if values:
                mean = math.fsum(values) / len(values)
                ratings.append(Rating([mean], [(question, f"{mean:.2f}")]))
            else:
                ratings.append(str(drawn[0]))
        if unread_count:
            logger.warning(
                "fleur: %d of %d sampled grades could not be read and are left out", unread_count, len(numbers)
            )
        return ratings
