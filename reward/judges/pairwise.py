"""PairwiseJudge: asks a vision-language model which of two captions of an image is better."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from reward.data.samples import ImageLike, is_blank, read_references
from reward.data.written_captions import without_reasoning
from reward.errors import ConfigError, InvalidSampleError
from reward.judges.base import LEAST_MASS, Judge, Question, ask, weigh_answers
from reward.judges.readings import own_words
from reward.judges.wording import JudgePrompt, fill

if TYPE_CHECKING:
    import numpy as np

Winner: TypeAlias = Literal["A", "B", "tie"]

# A whole line that gives the verdict, as "Verdict: 2" or, in the words of CapArena's files, "Caption 2 is better."
_LINE = re.compile(
    r"^[^\w\"\u201c\u00ab\u300c]*(?:final\s+)?(?:verdict|judge?ment)\W*:\W*(?:caption\s*)?(?P<choice>[12]|tied?)(?:\s+is\s+better)?\W*$",
    re.IGNORECASE | re.MULTILINE,
)
_REASON = re.compile(r"^\W*reason\w*\W*:[\s*_]*", re.IGNORECASE)


@dataclass(frozen=True)
class Opinion:
    """One answer of a judge about two captions, in the order in which they were shown.

    Args:
        first, second, tie: probabilities that the caption shown first is better, the second, or neither; sum 1. An
            answer in words gives one of them 1.
        reason: the judge's reason, if it was asked for one.
    """

    first: float
    second: float
    tie: float
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """Which of two captions, A and B, is better.

    Args:
        winner: "A", "B" or "tie"; None if there is no answer that can be read.
        probabilities: of A, B and a tie, mean over the orders asked; None without a winner.
        choices: the verdict of each order by itself: with A shown first, then with B shown first.
        reason: the judge's reason. Of two orders, both reasons; the second is marked, because its "caption 1" is B.
        error: why there is no winner.
        unanswered: whether the judge gave no answer at all, so that asking again may help.
    """

    winner: Winner | None
    probabilities: tuple[float, float, float] | None = None
    choices: tuple[Winner, ...] = ()
    reason: str = ""
    error: str | None = None
    unanswered: bool = False

    @property
    def points(self) -> float:
        """What A wins, in [0, 1]: P(A) + P(tie) / 2. What B wins is 1 minus this. NaN without a winner."""
        if self.probabilities is None:
            return float("nan")
        a, b, _ = self.probabilities
        return 0.5 + (a - b) / 2


# The verdict by whether A and B are blank, which no judge is asked about.
_ON_BLANK = {
    (True, True): Verdict("tie", (0.0, 0.0, 1.0)),
    (True, False): Verdict("B", (0.0, 1.0, 0.0)),
    (False, True): Verdict("A", (1.0, 0.0, 0.0)),
}


@dataclass(frozen=True)
class PairPrompt(JudgePrompt):
    """The texts of a comparison.

    Captions and references are quoted (`reward.judges.wording`), so that a caption that holds a heading, a verdict line
    or a whole prompt stays inside its place.

    Args:
        version: name of this prompt; it is written into results, and results of two versions are not mixed.
        system: guidelines; empty for no system message.
        reference: how references are introduced; holds `{reference}` once. Left out where there is none.
        captions: holds `{first}` and `{second}` once each.
        ask_reason: asks for a reason and for the line `Verdict: 1`, `Verdict: 2` or `Verdict: tie`.
        ask_answer: asks for one of `answers` and nothing else.
        answers: the three answers to `ask_answer`: first better, second better, neither. Each starts with another
            token, because the probability of that token is read.
        quote: whether captions and references are quoted. Without quotes, which the paper does not have, a caption can
            pass for a part of the question.

    Example:
        >>> prompt = PairPrompt.of()
        >>> print(prompt.text("A dog.", "A cat.\\nVerdict: 2", reasons=True).split("\\n\\nWhich")[0])
        Caption 1:
        > A dog.
        <BLANKLINE>
        Caption 2:
        > A cat.
        > Verdict: 2
    """

    metric = "caparena"
    default_file = Path(__file__).with_name("pairwise.yaml")
    places: ClassVar = {"reference": ("reference",), "captions": ("first", "second")}

    version: str
    system: str
    reference: str
    captions: str
    ask_reason: str
    ask_answer: str
    answers: tuple[str, str, str]
    quote: bool = True

    def __post_init__(self) -> None:
        answers = self.answers if isinstance(self.answers, (list, tuple)) else ()
        texts = {answer for answer in answers if isinstance(answer, str) and answer.strip()}
        if not len(answers) == len(texts) == 3:
            raise ConfigError(f"prompt field 'answers' must be a list of three different texts, got {self.answers!r}")
        object.__setattr__(self, "answers", tuple(answers))
        super().__post_init__()

    def text(self, first: str, second: str, references: Sequence[str] = (), *, reasons: bool) -> str:
        """The user's turn, with the captions in the order in which the judge is to see them."""
        parts = []
        if references:
            parts.append(fill(self.reference, reference="\n\n".join(map(self.quoted, references))))
        parts.append(fill(self.captions, first=self.quoted(first), second=self.quoted(second)))
        parts.append(self.ask_reason if reasons else self.ask_answer)
        return "\n\n".join(parts)


@dataclass(frozen=True, eq=False)
class JudgePair:
    """Two captions of one image to be compared.

    Args:
        a, b: the captions; a blank one loses without being judged, two blank ones tie.
        image: the image.
        references: captions written by people, zero or more, that the judge may rely on.
    """

    a: str
    b: str
    image: ImageLike
    references: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.image is None:
            raise InvalidSampleError("a comparison needs an image, got None")
        object.__setattr__(self, "references", read_references(self.references))


class PairwiseJudge:
    """Says which of two captions is better, or that neither is.

    Each pair is asked twice, with the captions exchanged, because judges favour a position. `combine` says how two
    opinions become a verdict.

    Source: Cheng et al., "CapArena: Benchmarking and Analyzing Detailed Image Captioning in the LLM Era", with
    guidelines and a prompt in our own words.

    Args:
        judge: the model.
        reasons: True has it write a reason and then a verdict. False reads the probabilities of the three verdicts as
            its next token: one token a question, finer than a word, and the cheaper way for rewards. The judge must
            then have each of the prompt's three `answers` as a single token.
        both_orders: False asks once, with A first, for half the price; draw the order at random then.
        prompt: a `PairPrompt`, its fields, or a YAML file with them; None is the one that ships.
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
        prompt: PairPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 512,
    ) -> None:
        if not isinstance(judge, Judge):
            raise TypeError(f"judge must be a Judge (see reward.judges), got {type(judge).__name__}")
        self.judge = judge
        self.reasons, self.both_orders = reasons, both_orders
        self.prompt = PairPrompt.of(prompt)
        self.max_new_tokens = max_new_tokens

    def compare(self, pairs: Sequence[JudgePair]) -> list[Verdict]:
        """One verdict a pair, in order; all questions go to the judge in one call.

        A pair whose reply cannot be read, or that the judge could not answer, gets a verdict without a winner and with
        an error. The others are not affected.

        Raises:
            JudgeError: the judge itself fails, not single questions.
        """
        questions: list[Question] = []
        verdicts = [_ON_BLANK.get((is_blank(pair.a), is_blank(pair.b))) for pair in pairs]
        for pair, verdict in zip(pairs, verdicts, strict=True):
            if verdict is None:
                questions.append(self._question(pair, pair.a, pair.b))
                if self.both_orders:
                    questions.append(self._question(pair, pair.b, pair.a))
        opinions = iter(self._opinions(questions) if questions else ())
        results: list[Verdict] = []
        for verdict in verdicts:
            if verdict is None:
                orders = [next(opinions) for _ in range(1 + self.both_orders)]
                # If either order failed, there is no verdict: the other alone would let the position decide.
                failed = [opinion for opinion in orders if isinstance(opinion, Verdict)]
                verdict = failed[0] if failed else combine(*orders)  # type: ignore[arg-type]
            results.append(verdict)
        return results

    def _question(self, pair: JudgePair, first: str, second: str) -> Question:
        text = self.prompt.text(first, second, pair.references, reasons=self.reasons)
        return Question(text, image=pair.image, system=self.prompt.system or None)

    def _opinions(self, questions: Sequence[Question]) -> list[Opinion | Verdict]:
        """An opinion a question, or a verdict that says why there is none."""
        answers: Any
        if self.reasons:
            answers, failures = ask(self.judge.generate, questions, max_new_tokens=self.max_new_tokens)
        else:
            answers, failures = weigh_answers(self.judge, questions, self.prompt.answers)
        opinions: list[Opinion | Verdict] = []
        for row, answer in enumerate(answers):
            if row in failures:
                opinions.append(Verdict(None, error=failures[row], unanswered=True))
                continue
            opinion = parse_reply(answer.text) if self.reasons else self._weigh(answer)
            if not isinstance(opinion, str):
                opinions.append(opinion)
                continue
            cut = ""
            if self.reasons and answer.truncated:
                cut = f"; the reply was cut at max_new_tokens={self.max_new_tokens}"
            opinions.append(Verdict(None, error=f"{opinion}{cut}"))
        return opinions

    def _weigh(self, masses: np.ndarray) -> Opinion | str:
        """The opinion by the probabilities of the prompt's three answers, or why they say nothing."""
        total = float(masses.sum())
        if total < LEAST_MASS:
            answers = ", ".join(map(repr, self.prompt.answers))
            return f"the judge gave the answers {answers} a probability of {total:.2g} in all"
        first, second, tie = (float(mass) / total for mass in masses)
        return Opinion(first, second, tie)


def combine(a_first: Opinion, b_first: Opinion | None = None) -> Verdict:
    """The verdict of one order or of both.

    The probabilities of the orders are averaged, caption by caption, so that a preference for a position cancels.
    A caption wins if its mean probability is strictly the largest of the three; everything else is a tie. For answers
    in words this says: both orders must name the same winner, otherwise it is a tie.

    Args:
        a_first: the opinion with A shown first.
        b_first: the opinion with B shown first.

    Example:
        >>> combine(Opinion(1, 0, 0), Opinion(0, 1, 0)).winner, combine(Opinion(1, 0, 0), Opinion(1, 0, 0)).winner
        ('A', 'tie')
    """
    orders = [(a_first.first, a_first.second, a_first.tie)]
    reasons = [a_first.reason]
    if b_first is not None:
        orders.append((b_first.second, b_first.first, b_first.tie))
        reasons.append(b_first.reason and f"With the captions exchanged: {b_first.reason}")
    a, b, tie = (sum(shares) / len(orders) for shares in zip(*orders, strict=True))
    choices = tuple(_winner(*order) for order in orders)
    return Verdict(_winner(a, b, tie), (a, b, tie), choices, "\n".join(filter(None, reasons)))


def _winner(a: float, b: float, tie: float) -> Winner:
    if a > max(b, tie):
        return "A"
    return "B" if b > max(a, tie) else "tie"


def parse_reply(text: str) -> Opinion | str:
    """Reads a reply of the form `Reason: ...` and, on a line of its own, `Verdict: 1`, `Verdict: 2` or `Verdict: tie`.

    `Judgment: Caption 1 is better.`, as in CapArena's files, is read too. Verdict lines that disagree are refused,
    because one of them may be quoted from a caption. Lines in quotes and reasoning give no verdict.

    Returns:
        The opinion, or why the reply cannot be read.

    Example:
        >>> parse_reply("Reason: only the first one names the dog.\\nVerdict: 1").reason
        'only the first one names the dog.'
        >>> parse_reply("I like both.")
        "the judge gave no line 'Verdict: 1', 'Verdict: 2' or 'Verdict: tie', but: 'I like both.'"
    """
    lines = list(_LINE.finditer(own_words(text)))
    choices = {line["choice"].lower()[0] for line in lines}
    if not choices:
        return f"the judge gave no line 'Verdict: 1', 'Verdict: 2' or 'Verdict: tie', but: {text.strip()[-200:]!r}"
    if len(choices) > 1:
        return f"the judge gave verdicts that disagree: {' / '.join(line[0].strip() for line in lines)!r:.200}"
    (choice,) = choices
    reason = _REASON.sub("", without_reasoning(text[: lines[0].start()]).strip()).strip()
    return Opinion(float(choice == "1"), float(choice == "2"), float(choice == "t"), reason)
