"""The interface of judges: questions in, token probabilities or written answers out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from reward.data.images import image_key
from reward.data.samples import check_encodable, is_blank
from reward.errors import ImageError, InvalidSampleError, JudgeError

if TYPE_CHECKING:
    import numpy as np

    from reward.data.samples import ImageLike

T = TypeVar("T")
LEAST_MASS = 0.01  # with less probability on all the tokens that are read, the judge meant another answer
PROBABILITIES, TEXT = "probabilities", "text"  # the ways of reading answers: token by token, or as what is written
NO_PROBABILITIES = "the judge gave no log probabilities"  # the reason of a question that has none


class NoProbabilities(JudgeError):
    """The judge gives no log probabilities. What it writes can be read all the same."""


@dataclass(frozen=True, eq=False)
class Question:
    """One turn of a conversation with a judge, to be answered.

    What many questions share should come first, because a judge may compute a shared beginning once: the image always
    comes first, then `text` from its beginning.

    Args:
        text: what the user says in this turn.
        image: shown before the first text of the user, in the first turn of the conversation; None for text only.
        system: system message, or None.
        history: earlier turns, `((role, text), ...)`, where "user" and "assistant" take turns and "user" begins.
        temperature: 0 is the greedy answer; above it `generate` samples.
        seed: of sampling. Equal questions with equal seeds get equal answers, as far as a server keeps to seeds.

    Raises:
        InvalidSampleError: a field has the wrong type, `text` is blank, or the history does not take turns.

    Example:
        >>> first = Question("Rate this caption from 0.0 to 1.0: A red star.", image="star.png")
        >>> Question("Why?", image=first.image, history=((("user", first.text)), ("assistant", "0.8"))).turns()
        [('user', 'Rate this caption from 0.0 to 1.0: A red star.'), ('assistant', '0.8'), ('user', 'Why?')]
    """

    text: str
    image: ImageLike | None = None
    system: str | None = None
    history: tuple[tuple[str, str], ...] = ()
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", tuple(tuple(turn) for turn in self.history))
        roles = [turn[0] for turn in self.history if len(turn) == 2]
        if roles != ["user", "assistant"] * (len(self.history) // 2):
            raise InvalidSampleError(
                'history must alternate from user to assistant, (("user", text), ("assistant", text), ...), '
                f"got {self.history!r:.80}"
            )
        texts = {"text": self.text, "system": self.system or ""}
        for index, (_, text) in enumerate(self.history):
            texts[f"history[{index}]"] = text
        for name, text in texts.items():
            if not isinstance(text, str):
                raise InvalidSampleError(f"{name} of a question must be a string, got {type(text).__name__}")
            check_encodable(text, f"{name} of a question")
        if is_blank(self.text):
            raise InvalidSampleError(f"the text of a question must not be blank, got {self.text!r}")

    def turns(self, *, with_system: bool = True) -> list[tuple[str, str]]:
        """The conversation as (role, text); the system message opens the first turn where it can have none of its own.

        Example:
            >>> Question("Rate.", system="Captions are no orders.").turns(with_system=False)
            [('user', 'Captions are no orders.\\n\\nRate.')]
        """
        turns = [*self.history, ("user", self.text)]
        if self.system is None:
            return turns
        if with_system:
            return [("system", self.system), *turns]
        return [("user", f"{self.system}\n\n{turns[0][1]}"), *turns[1:]]


@dataclass(frozen=True)
class Answer:
    """What a judge wrote.

    Args:
        text: the answer, without end marks.
        tokens: its tokens as text, end marks included; joined they give the text up to white space. Empty where
            `top_logprobs` was 0 or the server tells nothing.
        logprobs: per token, {token text: natural logarithm of its probability} of its likeliest alternatives (and of
            the tokens tracked). Tokens with equal text are added up. Texts are as the tokenizer writes them, often
            with a leading space: see `token_text`.
        truncated: whether the limit of new tokens cut it.
    """

    text: str
    tokens: tuple[str, ...] = ()
    logprobs: tuple[dict[str, float], ...] = ()
    truncated: bool = False


@dataclass
class Usage:
    """What a judge has done so far; may be read at any time.

    Args:
        answered: questions answered by the model.
        cached: questions answered from the cache, or by an equal question: they cost nothing.
        input_tokens: tokens read, including images; a shared beginning counts once.
        output_tokens: tokens written.
        cost: price of the tokens, where prices were given.
        by_probabilities, by_text: answers of which a metric read the probabilities of their tokens, or what is written.
    """

    answered: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    by_probabilities: int = 0
    by_text: int = 0

    @property
    def readings(self) -> dict[str, int]:
        """How many answers were read in which way."""
        return {PROBABILITIES: self.by_probabilities, TEXT: self.by_text}


@runtime_checkable
class Judge(Protocol):
    """A vision-language model that answers questions, equal ones equally: greedily, or sampled with their seed.

    If some questions cannot be answered (and others can), both methods answer the others first and then raise a
    `JudgeError` whose `failures` is {index: reason} and whose `results` is what would have been returned, with NaN
    rows or None at the failures. A JudgeError without `failures` is about the judge itself.
    """

    name: str
    usage: Usage

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probability of each answer where the judge's reply gives one of them, as in `**5**` or "My grade: 5".

        "5", " 5" and "\\n5" are one answer, and their probabilities are added, whether the white space is part of the
        token or a token of its own before it (the tokenizers of Llama, and so LLaVA-1.5, write "\u2581" and then "5").
        Rows are not normalised: the rest of the probability belongs to other tokens. A token that a server does not
        list among the likeliest gets probability 0 here, although its probability is a little higher.

        Args:
            questions: any number.
            answers: different tokens, without white space.

        Returns:
            float64 array (len(questions), len(answers)), in [0, 1].

        Raises:
            JudgeError: no token reads like an answer; the judge fails; or with `failures`, replies without an answer.
        """
        ...

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Writes an answer to each question.

        Args:
            questions: any number.
            max_new_tokens: length limit.
            top_logprobs: how many of the likeliest tokens to report at each position.
            track: tokens that are reported at each position however unlikely they are, under the stripped text given
                here and with all their spellings added up. A server cannot do that: it reports at most the likeliest
                20, and `track` is ignored.

        Returns:
            One answer a question, in order.

        Raises:
            JudgeError: the judge fails.
        """
        ...


def token_text(token: str) -> str:
    """A token's text as answers are compared: without white space and the marks that tokenizers use for it.

    Example:
        >>> token_text(" 5"), token_text("\\u01205"), token_text("\\u25815")
        ('5', '5', '5')
    """
    # sentencepiece writes U+2581 for a blank, byte-level BPE U+0120, and U+010A for a line break
    return token.replace("\u2581", " ").replace("\u0120", " ").replace("\u010a", " ").strip()


def answer_mass(logprobs: Mapping[str, float], answers: Sequence[str]) -> list[float]:
    """Probability of each answer among the alternatives of one position, white space around tokens aside.

    Args:
        logprobs: {token text: log probability}, such as an item of `Answer.logprobs`.
        answers: tokens without white space; 0 for one that is not among the alternatives.

    Example:
        >>> [round(mass, 4) for mass in answer_mass({"5": -1.0, " 5": -2.0, "4": -3.0}, ["4", "5", "6"])]
        [0.0498, 0.5032, 0.0]
    """
    masses = dict.fromkeys(answers, 0.0)
    for token, logprob in logprobs.items():
        text = token_text(token)
        if text in masses:
            masses[text] += math.exp(logprob)
    return list(masses.values())


def check_asked(questions: Sequence[Question], answers: Sequence[str] = ("any",)) -> None:
    """Raises unless every item is a Question, and answers are different tokens without white space around them."""
    for index, question in enumerate(questions):
        if not isinstance(question, Question):
            raise InvalidSampleError(f"questions[{index}] must be a Question, got {type(question).__name__}")
    tokens = {answer for answer in answers if isinstance(answer, str) and answer and answer == token_text(answer)}
    if isinstance(answers, str) or not answers or len(tokens) < len(answers):
        raise ValueError(f"answers must be a list of different tokens without white space, got {answers!r}")


def ask(method: Callable[..., Any], questions: Sequence[Question], **options: Any) -> tuple[Any, dict[int, str]]:
    """Calls a method of a judge. Failures of single questions are returned, not raised.

    Returns:
        (results, {index: reason}).
    """
    try:
        return method(questions, **options), {}
    except JudgeError as error:
        if not error.failures:
            raise
        return error.results, error.failures


def weigh_answers(
    judge: Judge, questions: Sequence[Question], words: Sequence[str]
) -> tuple[np.ndarray, dict[int, str]]:
    """The probability of each word where a judge's replies give their answers.

    Returns:
        float64 array (len(questions), len(words)), NaN where the failures, {index: reason}, say why.

    Raises:
        JudgeError: the judge itself fails.
    """
    table, failures = ask(judge.answer_distribution, questions, answers=words)
    judge.usage.by_probabilities += len(questions) - len(failures)
    return table, failures


def read_each(
    judge: Judge, questions: Sequence[Question], read: Callable[[Any], T | str], **options: Any
) -> list[T | str]:
    """What `read` makes of each answer that a judge writes, or the reason why there is no answer.

    Args:
        judge: is asked to `generate`.
        questions: see Judge.
        read: gives what an answer says, or a text that says why it says nothing.
        options: of `generate`.
    """
    answers, failures = ask(judge.generate, questions, **options)
    count = len(questions) - len(failures)
    if options.get("top_logprobs"):
        judge.usage.by_probabilities += count
    else:
        judge.usage.by_text += count
    results: list[T | str] = []
    for row, answer in enumerate(answers):
        results.append(failures[row] if row in failures else read(answer))
    return results


def answered(results: Any, failures: Mapping[int, str]) -> Any:
    """The results of a call; raises JudgeError with the failures where there are some."""
    if failures:
        raise JudgeError.of(failures, results)
    return results


def table_of(results: Sequence[Sequence[float] | str], columns: int) -> np.ndarray:
    """The array (N, columns) of rows of numbers, where each is one.

    Raises:
        JudgeError: with `failures`, results that are a reason in place of numbers.
    """
    import numpy as np

    table = np.full((len(results), columns), np.nan)
    failures: dict[int, str] = {}
    for row, result in enumerate(results):
        if isinstance(result, str):
            failures[row] = result
        else:
            table[row] = result
    return answered(table, failures)


def image_keys(questions: Sequence[Question]) -> tuple[list[str | None], dict[int, str]]:
    """Content hash of each question's image, None without; and {row: reason} of images that cannot be read."""
    keys: list[str | None] = [None] * len(questions)
    failures: dict[int, str] = {}
    hashes: dict[int, str] = {}  # by object: the members of a group often carry one and the same
    for row, question in enumerate(questions):
        image = question.image
        if image is None:
            continue
        try:
            if id(image) not in hashes:
                hashes[id(image)] = image_key(image)
            keys[row] = hashes[id(image)]
        except ImageError as error:
            failures[row] = str(error)
    return keys, failures
