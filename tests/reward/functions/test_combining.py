"""Rewards made of others: what they give for any numbers of their parts, and what they refuse when they are made."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward import (
    CaptionSample,
    ClippedReward,
    CombinedReward,
    ConstrainedReward,
    EnsembleReward,
    GatedReward,
    MetricReward,
    Ramp,
    SigmoidReward,
    StandardisedReward,
    WeightedReward,
)
from reward.errors import CapRewardError, ConfigError, InvalidSampleError, WeightsError
from tests.toy_scorer import ToyScorer

quick = settings(max_examples=40, deadline=None)
share = st.floats(0, 1)
tables = st.integers(2, 4).flatmap(
    lambda parts: st.lists(st.lists(share, min_size=parts, max_size=parts), min_size=1, max_size=6)
)


class Column:
    """A reward that gives what the data set's column of its name says."""

    def __init__(self, name: str, range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.__name__, self.range = name, range

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return columns[self.__name__]


def call(reward: Any, *values: list[Any], **columns: Any) -> list[Any]:
    """Rewards of captions to which the columns a, b, ... are given."""
    count = len(values[0])
    given = {name: list(column) for name, column in zip("abcd", values, strict=False)}
    return reward(prompts=["Describe."] * count, completions=["A star."] * count, **given, **columns)


def state(step: int = 0, steps: int = 10) -> Any:
    """What a trainer hands to its rewards."""
    return type("State", (SimpleNamespace,), {"__hash__": object.__hash__})(
        global_step=step, max_steps=steps, stateful_callbacks={}
    )


A, B, C = map(Column, "abc")


@quick
@given(tables)
def test_product_min_harmonic_geometric_mean_are_in_this_order_between_0_and_1(rows: list[list[float]]) -> None:
    columns = list(map(list, zip(*rows, strict=True)))
    parts = [Column(name) for name in "abcd"[: len(columns)]]
    made: list[Any] = [CombinedReward(parts, how) for how in ("product", "min", "harmonic", "geometric")]  # type: ignore[arg-type]
    means = [np.array(call(reward, *columns)) for reward in (*made, WeightedReward([(part, 1) for part in parts]))]
    for lower, higher in pairwise(means):
        assert (lower <= higher + 1e-12).all()
    assert (means[0] >= 0).all()
    assert (means[-1] <= 1 + 1e-12).all()
    assert all(reward.range == (0.0, 1.0) for reward in made)


@quick
@given(value=share, k=st.floats(0, 5), members=st.integers(2, 4))
def test_equal_members_give_what_one_gives(value: float, k: float, members: int) -> None:
    parts = [Column("a") for _ in range(members)]
    rewards: list[Any] = [CombinedReward(parts, how) for how in ("min", "harmonic", "geometric")]  # type: ignore[arg-type]
    rewards += [EnsembleReward(parts, k=k), EnsembleReward(parts, k=k, spread="variance")]
    for reward in rewards:
        assert call(reward, [value]) == pytest.approx([value], abs=1e-9)


def test_an_ensemble_says_which_spread_it_takes() -> None:
    logged: dict[str, float] = {}
    values = [[0.2], [0.6]]
    assert call(EnsembleReward([A, B], k=1), *values) == pytest.approx([0.2])
    reward = EnsembleReward([A, B], k=1, spread="variance", name="both")
    assert call(reward, *values, log_metric=logged.__setitem__) == pytest.approx([0.36])
    assert logged == pytest.approx({"both/a": 0.2, "both/b": 0.6, "both/variance": 0.04, "both/unscored": 0.0})


@quick
@given(rewards=st.lists(st.tuples(share, share, share), min_size=2, max_size=8), low=st.floats(0.01, 1))
def test_a_caption_that_is_vetoed_ranks_below_all_that_pass(
    rewards: list[tuple[float, float, float]], low: float
) -> None:
    columns = list(map(list, zip(*rewards, strict=True)))
    gated = GatedReward(A, [(B, low), (C, 0.5)])
    result = np.array(call(gated, *columns))
    table = np.array(columns).T
    passes = (table[:, 1] >= low) & (table[:, 2] >= 0.5)
    assert (result[passes] == table[passes, 0]).all()
    assert (result[~passes] < 0).all()
    short = np.maximum(low - table[:, 1], 0) + np.maximum(0.5 - table[:, 2], 0)
    assert result[~passes] == pytest.approx(-short[~passes])  # coming closer pays
    assert ((gated.range[0] <= result) & (result <= gated.range[1])).all()
    soft = np.array(call(GatedReward(A, [(B, low)], soft=0.1), *columns[:2]))
    assert ((soft >= 0) & (soft <= table[:, 0])).all()


def test_the_soft_gate_halves_at_the_threshold_and_logs_who_is_below() -> None:
    logged: dict[str, float] = {}
    gated = GatedReward(A, [(B, 0.5)], soft=0.05, name="g")
    result = call(gated, [0.8] * 3, [0.5, 1.0, 0.0], log_metric=logged.__setitem__)
    assert result == pytest.approx([0.4, 0.8, 0.0], abs=1e-3)
    assert logged["g/vetoed"] == pytest.approx(1 / 3)


@quick
@given(value=share, references=st.lists(share, min_size=1, max_size=4), k=st.floats(0.1, 50))
def test_the_sigmoid_is_a_half_at_the_reference_and_rises(value: float, references: list[float], k: float) -> None:
    reward = SigmoidReward(A, k=k, scores_column="known")
    assert call(reward, [value], known=[value]) == [0.5]
    low, high = call(reward, [value, value + 0.1], known=[references] * 2)
    assert 0 <= low <= high <= 1
    among = call(reward, references, known=[references] * len(references))
    assert np.mean(among) == pytest.approx(0.5)


def test_the_references_are_scored_by_the_same_reward_with_the_others_beside_them() -> None:
    samples: list[CaptionSample] = []

    class Watched(ToyScorer):
        def score(self, given: Any, **options: Any) -> Any:
            samples.extend(given)
            return super().score(given, **options)

    reward = SigmoidReward(MetricReward(Watched(), weights={"brev": 1}), k=1.0)
    image = Image.new("RGB", (4, 4))
    columns: dict[str, Any] = {"image": [image] * 2, "references": [["a b", "a b c d"], []]}
    first, second = reward(["p"] * 2, ["a b", "a"], **columns)
    assert first == pytest.approx((0.5 + 1 / (1 + math.exp(-0.25))) / 2)
    assert second is None  # no reference to compare with
    assert {(each.candidate, tuple(each.references)) for each in samples[2:]} == {
        ("a b", ("a b c d",)),
        ("a b c d", ("a b",)),
    }
    assert reward.rewards([CaptionSample("a b", image, ["c d"])]) == [0.5]
    with pytest.raises(InvalidSampleError, match="no row of the first call has a reference's score"):
        SigmoidReward(MetricReward(ToyScorer()))(["p"], ["a b"], image=[image])


SOME: list[Any] = [
    CombinedReward([A, B], "product"),
    CombinedReward([A, B], "min"),
    EnsembleReward([A, B]),
    GatedReward(A, [(B, 0.9)]),
    ConstrainedReward(A, [(B, 0.9)], start=1.0),
    ClippedReward(CombinedReward([A, B], "min"), high=0.5),
    StandardisedReward(CombinedReward([A, B], "min")),
    StandardisedReward(CombinedReward([A, B], "min"), over="group"),
    SigmoidReward(CombinedReward([A, B], "min"), scores_column="a"),
    WeightedReward([(A, 1), (B, Ramp(0.5, 1))]),
]


@pytest.mark.parametrize("reward", SOME, ids=lambda reward: reward.__name__)
def test_none_stays_none_and_everything_pickles(reward: Any) -> None:
    values = [[0.25, None, 0.5, 1.0], [0.5, 0.5, math.nan, 0.75]]
    copy = pickle.loads(pickle.dumps(reward))
    now = state()
    result = call(reward, *values, trainer_state=now)
    assert [value is None for value in result] == [False, True, True, False]
    assert call(copy, *values, trainer_state=state()) == result
    reward = pickle.loads(pickle.dumps(copy))
    nothing = reward(prompts=[], completions=[], a=[], b=[], trainer_state=now)
    assert nothing == []
    assert repr(reward).startswith(type(reward).__name__)


def test_clipping_stops_both_ways_and_says_how_often() -> None:
    logged: dict[str, float] = {}
    clipped = ClippedReward(A, 0.25, 0.75, name="c")
    assert call(clipped, [0.0, 0.5, 1.0], log_metric=logged.__setitem__) == [0.25, 0.5, 0.75]
    assert logged["c/clipped"] == pytest.approx(2 / 3)
    assert clipped.range == (0.25, 0.75)


@quick
@given(batches=st.lists(st.lists(st.floats(-5, 5), max_size=5), min_size=1, max_size=5), cut=st.integers(0, 5))
def test_running_standardisation_knows_all_rewards_so_far_also_after_a_resume(
    batches: list[list[float]], cut: int
) -> None:
    first = now = state()
    reward = unbroken = StandardisedReward(A)
    seen: list[float] = []
    for number, batch in enumerate(batches):
        if number == cut:  # a new process reads the trainer's state from its checkpoint
            now = state(step=number)
            now.stateful_callbacks = pickle.loads(pickle.dumps(first.stateful_callbacks))
            first, reward = now, StandardisedReward(A)
        seen += batch
        expected = [(value - np.mean(seen)) / max(np.std(seen), 1e-4) for value in batch]
        assert call(reward, batch, trainer_state=now) == pytest.approx(expected, abs=1e-6)
    if cut >= len(batches):
        assert unbroken.state_dict()["count"] == len(seen)


def test_a_new_training_starts_anew_and_a_lost_state_is_told(caplog: pytest.LogCaptureFixture) -> None:
    reward = ConstrainedReward(A, [(B, 0.75)], rate=1.0, name="held")
    call(reward, [1.0], [0.25], trainer_state=state())
    assert reward.state_dict() == {"weights": [0.5]}
    call(reward, [1.0], [0.75], trainer_state=state())
    assert reward.state_dict() == {"weights": [0.0]}
    assert not caplog.text
    call(reward, [1.0], [0.75], trainer_state=state(step=3))
    assert "after step 3, and its checkpoint holds no state" in caplog.text
    reward.load_state_dict({"weights": [2.0]})
    call(reward, [1.0], [0.75], trainer_state=state())
    assert reward.state_dict() == {"weights": [2.0]}  # at the threshold a weight stands still
    with pytest.raises(ConfigError, match="the state must be like"):
        reward.load_state_dict({"weights": [1.0, 2.0]})


def test_the_weight_of_a_constraint_grows_while_it_is_broken_and_falls_to_0_when_it_holds() -> None:
    logged: dict[str, float] = {}
    reward = ConstrainedReward(A, [(B, 0.5)], rate=1.0, most=0.6, name="held")
    broken = [call(reward, [1.0, 0.0], [0.25, 0.25], log_metric=logged.__setitem__) for _ in range(4)]
    assert logged["held/weight_b"] == pytest.approx(0.6)
    assert broken[0] == [1.0, 0.0]
    assert broken[1] == pytest.approx([(1 - 0.0625) / 1.25, -0.0625 / 1.25])
    for _ in range(3):
        call(reward, [1.0], [0.9])
    assert reward.state_dict() == {"weights": [0.0]}


def test_group_standardisation_knows_groups_by_image_and_prompt_and_leaves_noise_small() -> None:
    red, blue = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
    images = [red, blue, red.copy(), blue]
    reward = StandardisedReward(A, over="group")
    assert call(reward, [0.0, 5.0, 1.0, 7.0], image=images) == pytest.approx([-1, -1, 1, 1])
    prompts = [[{"role": "user", "content": [{"type": "text", "text": text}]}] for text in ("one", "two")]
    assert reward(prompts, ["x", "x"], a=[0.0, 1.0], image=[red, red]) == [0.0, 0.0]
    quiet = StandardisedReward(A, over="group", least_std=0.1)
    assert call(quiet, [0.5, 0.501], image=[red, red]) == pytest.approx([-0.005, 0.005])


def test_weights_follow_the_progress_of_training() -> None:
    logged: dict[str, float] = {}
    reward = WeightedReward([(A, 1), (B, Ramp(0, 1, end=0.5))], name="w")
    values = [[1.0], [0.0]]
    results = [call(reward, *values, trainer_state=state(step), log_metric=logged.__setitem__) for step in (0, 5, 10)]
    assert results == [[1.0], [0.5], [0.5]]
    assert logged["w/weight_b"] == 0.5
    with pytest.raises(ConfigError, match="does not say how far it is"):
        call(reward, *values)


VELA = MetricReward("vela")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VELA.aspect("style"), "no aspect 'style'; known: descriptiveness, relevance, fluency, desc"),
        (lambda: CombinedReward([A, B], "median"), "how must be one of product, min"),  # type: ignore[arg-type]
        (lambda: CombinedReward([], "min"), "at least one reward"),
        (lambda: CombinedReward([Column("a", (-1, 1)), B], "product"), r"'a' lies in \[-1, 1\]"),
        (lambda: EnsembleReward([A]), "at least two"),
        (lambda: EnsembleReward([Column("a", (0, 10)), B]), "Wrap each in StandardisedReward"),
        (lambda: EnsembleReward([A, B], k=-1), "k must be"),
        (lambda: GatedReward(A, []), "at least one"),
        (lambda: GatedReward(A, [(VELA.aspect("flu"), 1.5)]), "above 0 and at most 1.*no caption would reach it"),
        (lambda: GatedReward(A, [(VELA.aspect("flu"), 0)]), "every caption would reach it"),
        (lambda: GatedReward(lambda completions, **_: [1.0], [(A, 0.5)]), "give lowest="),
        (lambda: GatedReward(A, [(B, 0.5)], soft=0), "soft must be"),
        (lambda: ConstrainedReward(A, [(B, 2)]), "no caption would reach it"),
        (lambda: ConstrainedReward(A, [(B, 0.5)], rate=0), "rate > 0"),
        (lambda: ClippedReward(A), "low < high"),
        (lambda: ClippedReward(A, high=0), "all rewards would be the same"),
        (lambda: SigmoidReward(A, k=0), "k must be"),
        (lambda: SigmoidReward(lambda completions, solution: [1.0]), "needs solution"),
        (lambda: StandardisedReward(A, over="week"), "over must be"),  # type: ignore[arg-type]
        (lambda: StandardisedReward(A, least_std=0), "least_std must be"),
        (lambda: Ramp(0, 1, begin=0.5, end=0.2), "begin <= end"),
        (lambda: WeightedReward([(A, lambda progress: math.nan)]), "must be a finite number"),
        (lambda: WeightedReward([(A, Ramp(1, 0))]), "sum to a positive number"),
        (lambda: call(CombinedReward([A, lambda completions, **_: [-1.0]], "product"), [0.5]), "never negative"),
        (lambda: call(GatedReward(A, [(B, 0.5)], lowest=0.5), [0.2], [1.0]), "below lowest=0.5"),
        (lambda: call(SigmoidReward(A, scores_column="known"), [0.2]), "no column 'known'.*columns are: a"),
        (lambda: StandardisedReward(MetricReward("length")).rewards([CaptionSample("a")]), "no rewards yet"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises((CapRewardError, WeightsError), match=message):
        make()
