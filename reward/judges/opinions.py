"""Which of two captions is better, to a judge: opinions in one order, verdicts of both, what the position decided."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
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
    rows = [(a_first.first, a_first.second, a_first.tie)]
    reasons = [a_first.reason]
    if b_first is not None:
        rows.append((b_first.second, b_first.first, b_first.tie))
        reasons.append(b_first.reason and f"With the captions exchanged: {b_first.reason}")
    a, b, tie = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    choices = tuple(_winner(*row) for row in rows)
    return Verdict(_winner(a, b, tie), (a, b, tie), choices, "\n".join(filter(None, reasons)))


def _winner(a: float, b: float, tie: float) -> Winner:
    return "A" if a > max(b, tie) else "B" if b > max(a, tie) else "tie"


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
    choices = {match["choice"].lower()[0] for match in lines}
    if not choices:
        return f"the judge gave no line 'Verdict: 1', 'Verdict: 2' or 'Verdict: tie', but: {text.strip()[-200:]!r}"
    if len(choices) > 1:
        return f"the judge gave verdicts that disagree: {' / '.join(match[0].strip() for match in lines)!r:.200}"
    (choice,) = choices
    reason = _REASON.sub("", without_reasoning(text[: lines[0].start()]).strip()).strip()
    return Opinion(float(choice == "1"), float(choice == "2"), float(choice == "t"), reason)


@dataclass(frozen=True)
class PositionBias:
    """How much the positions of two captions decided, rather than the captions.

    Args:
        first, second, ties: answers for the caption shown first, the one shown second, and neither.
        both_orders: pairs that were asked in both orders.
        inconsistent: of those, pairs whose two answers differ.
        reversed: of those, pairs whose two orders name different winners, so that the position alone decided.
    """

    first: int = 0
    second: int = 0
    ties: int = 0
    both_orders: int = 0
    inconsistent: int = 0
    reversed: int = 0

    @property
    def first_share(self) -> float:
        """Share of the answers with a winner that name the caption shown first; 0.5 is no bias, NaN without any."""
        return _share(self.first, self.first + self.second)

    @property
    def inconsistency(self) -> float:
        """Share of the pairs asked in both orders whose two answers differ; NaN if there are none."""
        return _share(self.inconsistent, self.both_orders)

    @property
    def sentence(self) -> str:
        """The end of a sentence about the caption that came first."""
        line = f"won {100 * self.first_share:.1f}% of the answers with a winner"
        if self.both_orders:
            line += f"; the two orders disagree in {100 * self.inconsistency:.1f}% of the pairs"
        return line

    def to_json(self) -> dict[str, float | None]:
        """Plain values; shares of nothing are null."""
        shares = {"first_share": self.first_share, "inconsistency": self.inconsistency}
        return {**asdict(self), **{name: None if value != value else value for name, value in shares.items()}}


def measure_position_bias(choices: Iterable[Sequence[Winner]]) -> PositionBias:
    """Counts over many pairs.

    Args:
        choices: `Verdict.choices` of each pair. With one order a pair, that order must have been drawn at random for
            the shares to say anything.

    Example:
        >>> bias = measure_position_bias([combine(Opinion(1, 0, 0), Opinion(1, 0, 0)).choices])
        >>> bias.first_share, bias.inconsistency
        (1.0, 1.0)
    """
    first = second = ties = both = inconsistent = reverse = 0
    for pair in choices:
        for shown_first, named in zip("AB", pair, strict=False):
            first += named == shown_first
            second += named not in (shown_first, "tie")
            ties += named == "tie"
        if len(pair) == 2:
            both += 1
            inconsistent += pair[0] != pair[1]
            reverse += set(pair) == {"A", "B"}
    return PositionBias(first, second, ties, both, inconsistent, reverse)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
