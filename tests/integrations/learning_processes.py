"""What rewards that learn have learnt after one call, alone or as one of two processes. Loads little: it is spawned."""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from reward import AsyncReward, ConstrainedReward, MetricReward, StandardisedReward
from reward.errors import ConfigError

__all__ = ["learn_on", "learnt"]


class State:
    """What a trainer hands to rewards."""

    def __init__(self) -> None:
        self.global_step, self.max_steps, self.stateful_callbacks = 0, 10, {}


def learn_on(rank: int, address: str, captions: list[str], answers: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    answers.put((learnt(captions), refusal(captions)))
    torch.distributed.destroy_process_group()


def learnt(captions: list[str]) -> dict[str, Any]:
    length = MetricReward("length")
    rewards = [StandardisedReward(length, name="z"), ConstrainedReward(length, [(length, 9)], name="c")]
    state = State()
    for reward in rewards:
        reward(["p"] * len(captions), captions, trainer_state=state)
    return state.stateful_callbacks


def refusal(captions: list[str]) -> str:
    """What a reward that learns says in a thread, where processes could wait for each other in different orders."""
    reward = AsyncReward(StandardisedReward(MetricReward("length"), name="in_a_thread"))
    try:
        asyncio.run(reward(["p"] * len(captions), captions, trainer_state=State()))
    except ConfigError as error:
        return str(error)
    return ""
