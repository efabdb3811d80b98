"""FleurScorer: asks a vision-language model for a number from 0.0 to 1.0 and smooths its digits."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.errors import ConfigError, ImageError, JudgeError
from reward.judges.base import Judge, Question, ask, read_each
from reward.judges.wording import pad_to_square
from reward.metrics.fleur import SPEC
from reward.metrics.fleur.parse import DIGITS, merged_message, read_grade, read_number
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.judge_metric.base import JudgedCaption, JudgedScorer
from reward.metrics.scorer import Group

logger = logging.getLogger(__name__)

_TOP = 20  # the most that servers report; a local judge reports all ten digits anyway


class FleurScorer(JudgedScorer):
    """FLEUR, and RefFLEUR for samples that have references.

    The judge writes a number with greedy decoding. The aspect `raw` is that number. The aspect `smoothed` is FLEUR: the
    expected value under the probabilities of the digits. By default the reward is `smoothed` alone.

    Source: Lee et al., "FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large
    Multimodal Model", with our own prompts.

    Args:
        judge: a vision-language model whose tokenizer writes digits one by one.
        use_references: False hides references from the judge, which gives FLEUR for samples with references too.
        prompt: a FleurPrompt, its fields, or a YAML file (start from a copy of `prompt.yaml` in this folder); None
            is the default.
        max_new_tokens: length limit of the answer.
        max_characters: most characters of a candidate that the judge sees; references together get twice as many.
            What is longer is cut and flagged in `ScoreTable.truncated`.
        second_decimal: how an answer with one decimal, such as 0.8, is smoothed. "always" adds the probabilities that
            the judge gave to a second decimal at the place where it stopped. "written" adds nothing, as the authors'
            code: only answers with two decimals have the second one smoothed (0.80 counts as 0.8). If a server does
            not report the place after the first decimal, nothing is added, and a warning is logged.
        pad_images: whether images are padded to squares, as by the authors (LLaVA's aspect ratio "pad"). Otherwise the
            judge prepares them: LLaVA-1.5's processor in transformers crops the longer side of an image.
        draws: instead of smoothing, the score is the mean of this many sampled grades (section 5.2.2 of the paper, up
            to 20); the only aspect is then `sampled`. This needs no probabilities, and any tokenizer will do.
        temperature, seed: of sampling. The paper does not give its own; at 1 the mean tends to the expected grade.
        explanation: "after" has the judge explain the score in a second turn, as in the paper; "before" has it explain
            first and grade then, in the second turn (appendix G). `ScoreTable.texts["explanation"]` has the texts. Why
            there is none is in `ScoreTable.errors`, with "after" beside the scores, which stay.

    Raises:
        JudgeError: the judge's tokenizer merges digits.
        ConfigError: the prompt is invalid, or a setting is none of those named here.

    Example:
        >>> from PIL import Image
        >>> from reward.judges import Answer, ScriptedJudge
        >>> logs = [{"0": 0.0}, {".": 0.0}, {"8": math.log(0.5), "7": math.log(0.5)}, {"5": 0.0}]
        >>> judge = ScriptedJudge(lambda question: Answer("0.85", ("0", ".", "8", "5"), tuple(logs)))
        >>> table = FleurScorer(judge).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))])
        >>> table.aspects, table.scores.round(3).tolist()
        (('smoothed', 'raw'), [[0.8, 0.85]])
    """

    spec = SPEC
    prompt_class = FleurPrompt
    saved = ("use_references", "max_new_tokens", "second_decimal", "draws", "temperature", "seed", "explanation")

    def __init__(
        self,
        judge: Judge,
        *,
        use_references: bool = True,
        prompt: FleurPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 16,
        max_characters: int = 4000,
        second_decimal: str = "always",
        pad_images: bool = False,
        draws: int | None = None,
        temperature: float = 1.0,
        seed: int = 0,
        explanation: str | None = None,
    ) -> None:
        super().__init__(judge, prompt=prompt, max_characters=max_characters, pad_images=pad_images)
        if second_decimal not in ("always", "written"):
            raise ConfigError(f"second_decimal must be 'always' or 'written', got {second_decimal!r}")
        if explanation not in (None, "before", "after"):
            raise ConfigError(f"explanation must be 'before', 'after' or None, got {explanation!r}")
        if (draws is not None and draws < 1) or not 0 < temperature < math.inf:
            raise ConfigError(f"draws must be at least 1 and temperature above 0, got {draws!r} and {temperature!r}")
        self.use_references, self.second_decimal, self.max_new_tokens = use_references, second_decimal, max_new_tokens
        self.draws, self.temperature, self.seed, self.explanation = draws, temperature, seed, explanation
        aspects = SPEC.aspects if draws is None else ("sampled",)
        texts = () if explanation is None else ("explanation",)
        self.spec = replace(SPEC, aspects=aspects, default_weights={aspects[0]: 1.0}, texts=texts)
        if draws is None:
            self._check_digits()

    def score_samples(
        self,
        samples: list[CaptionSample],
        batch_size: int | None = None,
        progress: bool = False,
        contexts: Any = None,
    ) -> ScoreTable:
        """Scores; with `explanation`, the table has the texts too, None where there is none."""
        if self.explanation is None:
            return super().score_samples(samples, batch_size, progress)
        if self.explanation == "after":
            table = super().score_samples(samples, batch_size, progress)
            reasons, why = self._reasons(samples, table.scores[:, 0])
        else:
            reasons, why = self._reasons(samples)
            table = super().score_samples(samples, batch_size, progress, reasons)
        errors = table.errors | {row: f"the judge gave no explanation: {reason}" for row, reason in why.items()}
        return replace(table, errors=dict(sorted(errors.items())), texts={"explanation": reasons})

    def _lack(self, group: Group) -> str | None:
        mute = self.explanation == "before" and group.context is None
        return super()._lack(group) or ("the judge gave no explanation, after which it was to grade" if mute else None)

    def _reasons(self, samples: Sequence[CaptionSample], scores: Any = None) -> tuple[list[str | None], dict[int, str]]:
        """Explanations of the scores, or before there are any; None where there is nothing to explain, or no answer.

        And for each row whose explanation was asked for in vain, why.
        """
        questions: dict[int, Question] = {}
        for row, sample in enumerate(samples):
            if sample.image is None or (scores is not None and not math.isfinite(scores[row])):
                continue
            with suppress(ImageError):  # which scoring reports
                image = pad_to_square(sample.image) if self.pad_images else sample.image
                caption = self.seen(sample.candidate, image, sample.references if self.use_references else ())
                questions[row] = first = self._question(caption, reason=scores is None)
                if scores is not None:
                    said = (("user", first.text), ("assistant", f"{scores[row]:.2f}"))
                    questions[row] = replace(first, text=self.prompt.explain, history=said)
        reasons: list[str | None] = [None] * len(samples)
        answers, failures = ask(self.judge.generate, list(questions.values()), max_new_tokens=256)
        lost = {row: failures.get(place, "its answer is empty") for place, row in enumerate(questions)}
        for row, answer in zip(questions, answers, strict=True):
            if answer is not None and answer.text.strip():
                reasons[row] = answer.text.strip()
                del lost[row]
        return reasons, lost

    def _check_digits(self) -> None:
        pieces = self.judge.pieces(" ".join(f"0.{number:02}" for number in range(100)))
        if any(len(piece) > 1 and not {*piece}.isdisjoint(DIGITS) for piece in pieces or ()):
            example = f"it cuts 0.85 into {list(self.judge.pieces('0.85') or ())}"
            raise JudgeError(merged_message(self.judge.name, example))

    @property
    def reads_references(self) -> bool:
        return self.use_references

    def _question(self, caption: JudgedCaption, *, reason: bool = False) -> Question:
        """The question for the grade, after the explanation that is the caption's context; or that for the reason."""
        text = self.prompt.question(caption.candidate, caption.references, reason=reason or caption.context is not None)
        asked = Question(text, image=caption.image, system=self.prompt.system or None)
        if caption.context is None:
            return asked
        return replace(asked, text=self.prompt.ask, history=(("user", text), ("assistant", caption.context)))

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        if self.draws is not None:
            return self._sampled([self._question(caption) for caption in captions], self.draws)
        grades = read_each(
            self.judge.generate,
            [self._question(caption) for caption in captions],
            partial(read_grade, second_decimal=self.second_decimal == "always"),
            max_new_tokens=self.max_new_tokens,
            top_logprobs=getattr(self.judge, "top_logprobs", _TOP),  # a server may list fewer
            track=DIGITS,
        )
        if ended := sum(not isinstance(grade, str) and grade.partial for grade in grades):
            logger.warning(
                "fleur: the server does not report what follows an answer's last digit. %d answers with one decimal "
                "are smoothed over that decimal alone, as with second_decimal='written'.",
                ended,
            )
        return [grade if isinstance(grade, str) else (grade.smoothed, grade.raw) for grade in grades]

    def _sampled(self, questions: list[Question], draws: int) -> list[Sequence[float] | str]:
        """The mean of the sampled grades of each question."""
        heat, seeds = self.temperature, range(self.seed, self.seed + draws)
        asked = [replace(question, temperature=heat, seed=seed) for question in questions for seed in seeds]
        generate, limit = self.judge.generate, self.max_new_tokens
        read = read_each(generate, asked, lambda answer: read_number(answer.text), max_new_tokens=limit)
        if lost := sum(isinstance(number, str) for number in read):
            logger.warning("fleur: %d of %d sampled grades could not be read and are left out", lost, len(read))
        rows: list[Sequence[float] | str] = []
        for start in range(0, len(read), draws):
            values = [number.value for number in read[start : start + draws] if not isinstance(number, str)]
            rows.append([math.fsum(values) / len(values)] if values else str(read[start]))
        return rows
