"""GatheredReward: what is asked for one by one is rated in few calls, and faults reach whoever asked."""

import asyncio
import math

import pytest

from reward.errors import InvalidSampleError, WeightsError
from reward.metrics.base import MetricSpec
from reward.rewards.gathering import GatheredReward, configured_reward, make_reward
from reward.rewards.metric_reward import MetricReward
from reward.rewards.named_rewards import RemoteReward
from tests.toys.toy_scorer import ToyScorer


@pytest.fixture
def scorer():
    return ToyScorer()


@pytest.fixture
def gathered(scorer):
    return GatheredReward(MetricReward(scorer), wait=0.05)


def test_coroutines_share_a_call_in_any_event_loop(gathered, scorer):
    async def together():
        asked = [asyncio.wrap_future(gathered.ask(text, "a.png")) for text in ("red star", "a star", "fail")]
        return await asyncio.gather(*asked)

    for _ in range(2):  # ms-swift and others make a loop for every call
        rows = asyncio.run(together())
        assert [row.value for row in rows] == [0.5, 0.25, None]
        assert rows[0].aspects == {"colour": 0.5, "brevity": 0.5}
        assert math.isnan(rows[2].aspects["colour"])
    assert len(scorer.calls) == 2


def test_an_error_reaches_all_who_asked_and_the_next_call_works_without_what_is_cancelled(gathered, scorer):
    for future in [gathered.ask("a star") for _ in range(3)]:  # no image
        with pytest.raises(InvalidSampleError, match="none of the 3 rows"):
            future.result()
    first, second = gathered.ask("red star", "a.png"), gathered.ask("a star", "a.png")
    assert first.cancel()
    assert second.result().value == 0.25
    assert scorer.calls == [["a star"]]


def test_the_columns_that_a_metric_needs_come_from_the_row():
    calls = []

    def reward(completions, **columns):
        calls.append(columns)
        return [1.0] * len(completions)

    reward.spec = MetricSpec("rubric", "rubric:Rubric", ("score",), columns=("rubric",))
    gathered = GatheredReward(reward, wait=0.05)
    asked = [gathered.ask("a", "a.png", row={"criteria": ["It is red."], "index": 3}), gathered.ask("b", row={})]
    assert [future.result().value for future in asked] == [1.0, 1.0]
    assert calls[0]["criteria"] == [["It is red."], None]
    assert set(calls[0]) == {"prompts", "images", "references", "criteria", "log_extra"}


def test_settings_make_one_reward_and_wrong_ones_are_refused():
    settings = {"metric": "vela", "source": "a/b", "weights": {"rel": 2}}
    assert configured_reward(**settings) is configured_reward(**settings)
    assert configured_reward(**settings) is not configured_reward(**{**settings, "source": "a/c"})
    with pytest.raises(WeightsError):
        configured_reward(weights="colour=1")
    remote = make_reward("remote", "http://127.0.0.1:9#vela", "rel=2,flu=2")
    assert isinstance(remote, RemoteReward)
    assert remote.weights.tolist() == [0.0, 0.5, 0.5]
