"""Position bias: how much the positions of two captions decided a comparison, rather than the captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from reward.judges.opinions import Winner


@dataclass(frozen=True)
class PositionBias:
    """How often the captions in both positions won.

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
        values: dict[str, float | None] = asdict(self)
        for name, share in (("first_share", self.first_share), ("inconsistency", self.inconsistency)):
            values[name] = None if math.isnan(share) else share
        return values


def measure_position_bias(choices: Iterable[Sequence[Winner]]) -> PositionBias:
    """Counts over many pairs.

    Args:
        choices: `Verdict.choices` of each pair. With one order a pair, that order must have been drawn at random for
            the shares to say anything.

    Example:
        >>> bias = measure_position_bias([("A", "B")])  # whichever caption was shown first has won
        >>> bias.first_share, bias.inconsistency
        (1.0, 1.0)
    """
    first = second = ties = both_orders = inconsistent = reverse = 0
    for pair in choices:
        for shown_first, winner in zip("AB", pair, strict=False):
            if winner == "tie":
                ties += 1
            elif winner == shown_first:
                first += 1
            else:
                second += 1
        if len(pair) == 2:
            both_orders += 1
            inconsistent += pair[0] != pair[1]
            reverse += set(pair) == {"A", "B"}
    return PositionBias(first, second, ties, both_orders, inconsistent, reverse)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
