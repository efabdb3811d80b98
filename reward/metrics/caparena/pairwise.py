"""PairwiseJudge: asks a vision-language model which of two captions of an image is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reward.errors import InvalidSampleError, JudgeError
from reward.judges.base import Answer, Judge, Question
from reward.metrics.caparena.prompts import PairPrompt
from reward.metrics.caparena.verdicts import Opinion, Verdict, combine, parse_reply
from reward.samples import ImageLike, check_encodable, checked_references, is_blank

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CaptionPair", "PairwiseJudge"]

# With less on all three answers together, the judge meant to say something else, and their ratio says nothing.
_LEAST_MASS = 0.01


@dataclass(frozen=True, eq=False)
class CaptionPair:
    """Two captions of one image to be compared.

    Args:
        a, b: the captions; a blank one loses without being judged, two blank ones tie.
        image: the image.
        references: captions written by people, zero or more, that the judge may rely on.

    Raises:
        InvalidSampleError: a caption is no text, or the references are no list of texts.
    """

    a: str
    b: str
    image: ImageLike
    references: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, caption in (("a", self.a), ("b", self.b)):
            if not isinstance(caption, str):
                raise InvalidSampleError(f"caption {name} must be a string, got {type(caption).__name__}")
            check_encodable(caption, f"caption {name}")
        if self.image is None:
            raise InvalidSampleError("a comparison needs an image, got None")
        object.__setattr__(self, "references", checked_references(self.references))


class PairwiseJudge:
    """Says which of two captions is better, or that neither is.

    Each pair is asked twice, with the captions exchanged, because judges favour a place; `combine` says how two
    opinions become a verdict, and `measure_position_bias` how far the place decides.

    Source: Cheng et al., "CapArena: Benchmarking and Analyzing Detailed Image Captioning in the LLM Era", with
    guidelines and prompt in our own words.

    Args:
        judge: the model.
        reasons: True has it write a reason and then a verdict. False reads the probabilities of the three verdicts as
            its next token: one token a question, finer than a word, and the cheaper way for rewards. The judge must
            then have each of the prompt's three `answers` as a single token.
        both_orders: False asks once, with A first, for half the price; draw the order at random then.
        prompt: the wording; None is the one that ships.
        max_new_tokens: limit of a reply with a reason.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> likes_red = ScriptedJudge(distribution=lambda q: {"1": 0.9} if "1:\\n> A red" in q.text else {"2": 0.9})
        >>> pair = CaptionPair("A red star.", "A star.", image="star.png")
        >>> PairwiseJudge(likes_red, reasons=False).compare([pair])[0].winner
        'A'
    """

    def __init__(
        self,
        judge: Judge,
        *,
        reasons: bool = True,
        both_orders: bool = True,
        prompt: PairPrompt | None = None,
        max_new_tokens: int = 512,
    ) -> None:
        if not isinstance(judge, Judge):
            raise TypeError(f"judge must be a Judge (see reward.judges), got {type(judge).__name__}")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        self.judge = judge
        self.reasons, self.both_orders = reasons, both_orders
        self.prompt = PairPrompt.default() if prompt is None else prompt
        self.max_new_tokens = max_new_tokens

    def compare(self, pairs: Sequence[CaptionPair]) -> list[Verdict]:
        """One verdict a pair, in order; all questions go to the judge in one call.

        A pair whose reply cannot be read, or that the judge could not answer, gets a verdict without a winner and with
        an error; the others are not affected.

        Raises:
            JudgeError: the judge itself fails, not single questions.
        """
        verdicts: dict[int, Verdict] = {}
        questions: list[Question] = []
        asked: list[int] = []
        for index, pair in enumerate(pairs):
            if is_blank(pair.a) or is_blank(pair.b):
                verdicts[index] = _without_asking(is_blank(pair.a), is_blank(pair.b))
                continue
            asked.append(index)
            questions.append(self._question(pair, pair.a, pair.b))
            if self.both_orders:
                questions.append(self._question(pair, pair.b, pair.a))
        opinions = iter(self._opinions(questions) if questions else ())
        for index in asked:
            a_first = next(opinions)
            b_first = next(opinions) if self.both_orders else None
            verdicts[index] = _verdict(a_first, b_first)
        return [verdicts[index] for index in range(len(pairs))]

    def _question(self, pair: CaptionPair, first: str, second: str) -> Question:
        text = self.prompt.text(first, second, pair.references, reasons=self.reasons)
        return Question(text, image=pair.image, system=self.prompt.system or None)

    def _opinions(self, questions: Sequence[Question]) -> list[Opinion | _Problem]:
        failures: dict[int, str] = {}
        given: Any
        try:
            if self.reasons:
                given = self.judge.generate(questions, max_new_tokens=self.max_new_tokens)
            else:
                given = self.judge.answer_distribution(questions, self.prompt.answers)
        except JudgeError as error:
            if not error.failures:
                raise
            given, failures = error.results, error.failures
        read = self._read_reply if self.reasons else self._read_row
        return [
            _Problem(failures[index], unanswered=True) if index in failures else read(given[index])
            for index in range(len(questions))
        ]

    def _read_reply(self, answer: Answer) -> Opinion | _Problem:
        found = parse_reply(answer.text)
        if isinstance(found, Opinion):
            return found
        if answer.truncated:
            found += f"; the reply was cut at max_new_tokens={self.max_new_tokens}"
        return _Problem(found)

    def _read_row(self, row: np.ndarray) -> Opinion | _Problem:
        mass = float(row.sum())
        if mass < _LEAST_MASS:
            answers = ", ".join(map(repr, self.prompt.answers))
            return _Problem(f"the judge gave the answers {answers} a probability of {mass:.2g} in all")
        first, second, tie = (float(value) / mass for value in row)
        return Opinion(first, second, tie)


@dataclass(frozen=True)
class _Problem:
    message: str
    unanswered: bool = False


def _verdict(a_first: Opinion | _Problem, b_first: Opinion | _Problem | None) -> Verdict:
    """Half an answer is none: with one order missing, the place would decide."""
    problems = [opinion for opinion in (a_first, b_first) if isinstance(opinion, _Problem)]
    if problems:
        return Verdict(None, error=problems[0].message, unanswered=any(problem.unanswered for problem in problems))
    assert not isinstance(a_first, _Problem)  # there are no problems
    assert not isinstance(b_first, _Problem)
    return combine(a_first, b_first)


def _without_asking(a_blank: bool, b_blank: bool) -> Verdict:
    if a_blank and b_blank:
        return Verdict("tie", (0.0, 0.0, 1.0))
    return Verdict("B", (0.0, 1.0, 0.0)) if a_blank else Verdict("A", (1.0, 0.0, 0.0))
