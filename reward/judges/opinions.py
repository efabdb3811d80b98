"""Which of two captions is better, to a judge: opinions in one order, and verdicts of one order or both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from reward.data.written_captions import without_reasoning
from reward.judges.verdicts import own_words

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
