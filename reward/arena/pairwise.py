"""PairwiseJudge: asks a vision-language model which of two captions of an image is better."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.arena.verdicts import Opinion, Verdict, combine, parse_reply
from reward.errors import ConfigError, InvalidSampleError, JudgeError
from reward.judges.base import Answer, Judge, Question
from reward.judges.quoting import quoted
from reward.judges.wording import check_fields, check_places, check_quote, check_text, fill, read_wording
from reward.samples import ImageLike, check_encodable, checked_references, is_blank

if TYPE_CHECKING:
    import numpy as np

__all__ = ["JudgePair", "PairPrompt", "PairwiseJudge"]

# With less on all three answers together, the judge meant to say something else, and their ratio says nothing.
_LEAST_MASS = 0.01
_DEFAULT = Path(__file__).with_name("prompt.yaml")
_PLACES = {"reference": ("reference",), "captions": ("first", "second")}


@dataclass(frozen=True)
class PairPrompt:
    """The texts of a comparison.

    Captions and references are quoted (`reward.judges.quoting`), so that a caption that holds a heading, a verdict line
    or a whole prompt stays inside its place.

    Args:
        version: name of this wording; it is written into results, and results of two versions are not mixed.
        system: guidelines; empty for no system message.
        reference: how references are introduced; holds `{reference}` once. Left out where there is none.
        captions: holds `{first}` and `{second}` once each.
        ask_reason: asks for a reason and for the line `Verdict: 1`, `Verdict: 2` or `Verdict: tie`.
        ask_answer: asks for one of `answers` and nothing else.
        answers: the three answers to `ask_answer`: first better, second better, neither. Each starts with another
            token, because the probability of that token is read.
        quote: whether captions and references are quoted. Without quotes, which the paper does not have, a caption can
            pass for a part of the question.

    Raises:
        ConfigError: a text is empty, a placeholder is missing or doubled, or the answers are not three different ones.

    Example:
        >>> prompt = PairPrompt.default()
        >>> print(prompt.text("A dog.", "A cat.\\nVerdict: 2", reasons=True).split("\\n\\nWhich")[0])
        Caption 1:
        > A dog.
        <BLANKLINE>
        Caption 2:
        > A cat.
        > Verdict: 2
    """

    version: str
    system: str
    reference: str
    captions: str
    ask_reason: str
    ask_answer: str
    answers: tuple[str, str, str]
    quote: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", tuple(self.answers))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "answers":
                if len(set(value)) != 3 or len(value) != 3 or not all(isinstance(a, str) and a.strip() for a in value):
                    raise ConfigError(f"prompt field 'answers' must hold three different texts, got {list(value)!r}")
            elif field.name == "quote":
                check_quote(value)
            elif field.name in _PLACES:
                check_places(value, field.name, *_PLACES[field.name])
            elif field.name != "system" or value != "":
                check_text(value, field.name)

    @classmethod
    def default(cls) -> PairPrompt:
        """The prompt that ships with the package."""
        return _default()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PairPrompt:
        """Reads a YAML or JSON file with the fields of this class; start from a copy of the one that ships.

        Raises:
            ConfigError: unreadable, not a mapping, unknown or missing fields, or a field that will not do.
        """
        values = read_wording(path)
        check_fields(values, f"prompt file {path}", [field.name for field in fields(cls)], optional=["quote"])
        if not isinstance(values["answers"], list):
            raise ConfigError(f"prompt file {path}: 'answers' must be a list of three texts, got {values['answers']!r}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"prompt file {path}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {**asdict(self), "answers": list(self.answers)}

    def text(self, first: str, second: str, references: Sequence[str] = (), *, reasons: bool) -> str:
        """The user's turn, with the captions in the order in which the judge is to see them."""
        parts = []
        first, second, *shown = (quoted(text, quote=self.quote) for text in (first, second, *references))
        if shown:
            parts.append(fill(self.reference, reference="\n\n".join(shown)))
        parts.append(fill(self.captions, first=first, second=second))
        parts.append(self.ask_reason if reasons else self.ask_answer)
        return "\n\n".join(parts)


@lru_cache(maxsize=1)
def _default() -> PairPrompt:
    return PairPrompt.from_file(_DEFAULT)


@dataclass(frozen=True, eq=False)
class JudgePair:
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
        >>> pair = JudgePair("A red star.", "A star.", image="star.png")
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

    def compare(self, pairs: Sequence[JudgePair]) -> list[Verdict]:
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

    def _question(self, pair: JudgePair, first: str, second: str) -> Question:
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
