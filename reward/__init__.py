"""capreward: learned image-caption metrics as rewards. Public names load on first use, so that importing is cheap."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.functions.combining import CombinedReward, WeightedReward
    from reward.functions.metric_reward import MetricReward
    from reward.functions.named_rewards import (
        BeitScoreReward,
        FleurReward,
        HarmonicReward,
        VelaReward,
        beitscore_reward,
        vela_reward,
    )
    from reward.functions.remote_reward import RemoteReward
    from reward.functions.text_rewards import LengthReward, RepetitionReward
    from reward.functions.tournament_reward import TournamentReward
    from reward.functions.wrappers import AsyncReward
    from reward.registry import list_metrics, load_scorer, metric_spec
    from reward.samples import CaptionSample, ScoreTable

__version__ = "0.1.0"

_HOMES = {
    "AsyncReward": "reward.functions.wrappers",
    "BeitScoreReward": "reward.functions.named_rewards",
    "CaptionSample": "reward.samples",
    "CombinedReward": "reward.functions.combining",
    "FleurReward": "reward.functions.named_rewards",
    "HarmonicReward": "reward.functions.named_rewards",
    "LengthReward": "reward.functions.text_rewards",
    "MetricReward": "reward.functions.metric_reward",
    "RemoteReward": "reward.functions.remote_reward",
    "RepetitionReward": "reward.functions.text_rewards",
    "ScoreTable": "reward.samples",
    "TournamentReward": "reward.functions.tournament_reward",
    "VelaReward": "reward.functions.named_rewards",
    "WeightedReward": "reward.functions.combining",
    "beitscore_reward": "reward.functions.named_rewards",
    "list_metrics": "reward.registry",
    "load_scorer": "reward.registry",
    "metric_spec": "reward.registry",
    "vela_reward": "reward.functions.named_rewards",
}
__all__ = [
    "AsyncReward",
    "BeitScoreReward",
    "CaptionSample",
    "CombinedReward",
    "FleurReward",
    "HarmonicReward",
    "LengthReward",
    "MetricReward",
    "RemoteReward",
    "RepetitionReward",
    "ScoreTable",
    "TournamentReward",
    "VelaReward",
    "WeightedReward",
    "beitscore_reward",
    "list_metrics",
    "load_scorer",
    "metric_spec",
    "vela_reward",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'reward' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
