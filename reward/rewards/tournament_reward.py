"""TournamentReward: captions of one image against each other, as a reward function."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.judges.base import Judge
from reward.judges.loading import LazyJudge
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metrics.base import MetricSpec
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group
from reward.registry import check_loading
from reward.rewards.loading import load_beside_a_trainer
from reward.rewards.metric_reward import MetricReward

if TYPE_CHECKING:
    from typing_extensions import Self


class TournamentReward(MetricReward):
    """Rewards in [0, 1] from comparisons of the captions of one image with each other, by a judge that sees it.

    The captions of a call with equal image (by content) and equal references are a group, as GRPO and RLOO sample
    them. In each group at most `max_comparisons` pairs are drawn, evenly, and compared; equal captions share a
    place and a reward. The draw depends on the seed, the image and the captions, not on their order.

    A reward is relative to the group: the win rate, the mean of what the caption won (the probability that it is
    better, plus half of that of a tie, by the judge). Captions without a word get 0 and are not compared; if nothing
    is left to compare with (one different caption), the reward is 0.5.
    None goes to rows as in `MetricReward`, and to captions of which no comparison has an answer.

    A trainer calls its rewards in each process with that process's own completions, so a group must not be split over
    processes. It is not split if `per_device_train_batch_size` (times `steps_per_generation`) is a multiple of
    `num_generations`. If it is split, only the captions in the same process are compared, and a single one gets 0.5.

    A judge behind a server can be asked while other rewards are computed: `AsyncReward(TournamentReward(...))`.

    Args:
        judge: folder or Hub id of a vision-language model, which is loaded at the first call and left out when pickled;
            or a judge such as `ServerJudge`; or a `PairwiseJudge`, which knows how to ask. The first two are asked for
            a token instead of a reason, in both orders.
        max_comparisons: most pairs per group. Each is two questions (one for a PairwiseJudge with one order). Half as
            many as there are captions in a group are enough to compare every caption once.
        seed: of the draw.
        revision, device, dtype: for loading a model by name.
        options: further arguments of `MetricReward`. References are shown to the judge.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> likes_red = ScriptedJudge(distribution=lambda q: {"1": 0.9} if "1:\\n> red" in q.text else {"2": 0.9})
        >>> reward = TournamentReward(likes_red)
        >>> from PIL import Image
        >>> reward(["Describe."] * 3, ["red", "blue", " "], image=[Image.new("RGB", (4, 4))] * 3)
        [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        judge: str | os.PathLike[str] | Judge | PairwiseJudge,
        *,
        max_comparisons: int = 16,
        seed: int = 0,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if max_comparisons < 1:
            raise ValueError(f"max_comparisons must be at least 1, got {max_comparisons}")
        if isinstance(judge, (str, os.PathLike)):
            check_loading(judge)
            checkpoint = os.fspath(judge)
            judge = LazyJudge(partial(_load_local, checkpoint, revision, device, dtype), checkpoint)
        pairwise = judge if isinstance(judge, PairwiseJudge) else PairwiseJudge(judge, reasons=False)
        self.tournament = _Tournament(pairwise, max_comparisons, seed)
        # the scorer is made from a judge, and is neither loaded nor saved
        super().__init__(self.tournament, pairwise.judge.name, **options)

    def load(self) -> Self:
        """Loads the judge now, see `MetricReward.load`."""
        judge = self.tournament.judge.judge
        if isinstance(judge, LazyJudge):
            judge.load()
        return self


class _Tournament(CaptionScorer):
    """The scorer behind the reward. Scores depend on the other captions of the call, so it is no metric by itself."""

    window_size = sys.maxsize  # a group must not be split
    reads_references = True  # they tell groups apart, and are shown

    def __init__(self, judge: PairwiseJudge, max_comparisons: int, seed: int) -> None:
        self.judge, self.max_comparisons, self.seed = judge, max_comparisons, seed
        self.spec = MetricSpec("tournament", f"{__name__}:_Tournament", ("win_rate",))
        self.judges = (judge.judge,)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """One tournament a group; the pairs of all groups go to the judge in one call."""
        captions_of = [sorted(group.rows) for group in groups]
        pairs_of: list[list[tuple[int, int]]] = []  # two positions in a group's captions
        questions = []
        for group, captions in zip(groups, captions_of, strict=True):
            # The draw depends on image and captions, not on where in a call the group stands.
            seed = f"{self.seed}/{group.image_key}/{captions!r}"
            pairs = draw_pairs(len(captions), self.max_comparisons, seed)
            pairs_of.append(pairs)
            for first, second in pairs:
                questions.append(JudgePair(captions[first], captions[second], group.features, group.references))
        verdicts = iter(self.judge.compare(questions))
        scores: list[list[float]] = []
        errors: dict[int, str] = {}
        for group, captions, pairs in zip(groups, captions_of, pairs_of, strict=True):
            results = []
            unanswered: dict[int, str] = {}  # {position of a caption: why its first comparison has no answer}
            for first, second in pairs:
                verdict = next(verdicts)
                if verdict.winner is not None:
                    results.append((first, second, verdict.points))
                    continue
                for position in (first, second):
                    unanswered.setdefault(position, str(verdict.error))
            rates = np.array([0.5]) if len(captions) == 1 else win_rates(len(captions), results)
            for caption in group.rows:
                position = captions.index(caption)
                if np.isnan(rates[position]):
                    left_out = f"max_comparisons={self.max_comparisons} left the caption out of {len(captions)}"
                    errors[len(scores)] = unanswered.get(position, left_out)
                scores.append([float(rates[position])])
        return CandidateScores(scores, errors=errors)


def _load_local(checkpoint: str, revision: str | None, device: Any, dtype: Any) -> Judge:
    from reward.judges import LocalJudge

    return load_beside_a_trainer(
        partial(LocalJudge.from_pretrained, checkpoint, revision=revision, dtype=dtype), device
    )


def draw_pairs(players: int, limit: int, seed: int | str) -> list[tuple[int, int]]:
    """Draws who plays whom: all pairs if the limit allows, else as many as it allows, spread evenly.

    The players are put on a circle at random. They meet their neighbours first, then the players two places on, and so
    on. So `players / 2` games suffice for everybody to play, and `players - 1` to link everybody. The numbers of games
    of two players differ by at most 2, and nobody is first in a pair more often than others.

    Args:
        players: how many, at least 0.
        limit: most pairs, at least 1.
        seed: of the draw.

    Returns:
        Different pairs (i, j) of different players; each i, j in 0..players-1.

    Example:
        >>> len(draw_pairs(8, 10, seed=0)), len(draw_pairs(4, 10, seed=0))
        (10, 6)
    """
    circle = list(range(players))
    random.Random(seed).shuffle(circle)
    pairs: list[tuple[int, int]] = []
    for distance in range(1, players // 2 + 1):
        starts = list(range(players))
        if 2 * distance == players:  # who is opposite meets once
            starts = starts[:distance]
        # Blocks of `distance` starts in turn: within the even blocks, no player is in two pairs.
        starts.sort(key=lambda start: (start // distance % 2, start))
        pairs += [(circle[start], circle[(start + distance) % players]) for start in starts]
    return pairs[:limit]


def win_rates(players: int, results: Sequence[tuple[int, int, float]]) -> np.ndarray:
    """Mean of the points of each player, (players,) in [0, 1]; NaN for a player without a game.

    A result is two players and what the first one won: 1 a win, 0.5 a tie, 0 a loss.

    Example:
        >>> win_rates(3, [(0, 1, 1.0), (1, 2, 0.5)])
        array([1.  , 0.25, 0.5 ])
    """
    won, games = np.zeros(players), np.zeros(players)
    for first, second, points in results:
        won[[first, second]] += points, 1 - points
        games[[first, second]] += 1
    return np.divide(won, games, out=np.full(players, np.nan), where=games > 0)
