"""Rewards for command lines that take the place of a reward function and construct nothing, such as `trl grpo`.

`trl grpo --reward_funcs reward.vela_reward reward.beitscore_reward ...` takes these objects. Their models load at the
first call. Environment variables set what a constructor would be given:

- `CAPREWARD_VELA_SOURCE`, `CAPREWARD_BEITSCORE_SOURCE`: a checkpoint folder or Hub id, else the embedded one is used;
- `CAPREWARD_VELA_WEIGHTS`: weights of the aspects, such as `desc=1,rel=2,flu=1`, else all weigh alike.

For anything else write a module with `my_reward = VelaReward(...)` in the working directory, and give
`--reward_funcs module.my_reward`.
"""

from __future__ import annotations

import os

from reward.functions.beitscore_reward import BeitScoreReward
from reward.functions.vela_reward import VelaReward
from reward.weights import parse_weights

__all__ = ["beitscore_reward", "vela_reward"]

_weights = os.environ.get("CAPREWARD_VELA_WEIGHTS")
vela_reward = VelaReward(
    os.environ.get("CAPREWARD_VELA_SOURCE") or "embedded", parse_weights(_weights) if _weights else None
)
beitscore_reward = BeitScoreReward(os.environ.get("CAPREWARD_BEITSCORE_SOURCE") or "embedded")
