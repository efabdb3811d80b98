"""capreward: learned image-caption metrics as rewards. Public names load on first use, so that importing is cheap."""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integrations.hf_generate.best_of_n import BestOfN as BestOfN
    from reward.data.samples import CaptionSample
    from reward.data.score_table import ScoreTable
    from reward.decoding.selection import rerank
    from reward.registry import list_metrics, load_scorer, metric_spec
    from reward.rewards.async_reward import AsyncReward
    from reward.rewards.combined_reward import CombinedReward
    from reward.rewards.metric_reward import MetricReward
    from reward.rewards.named_rewards import (
        BeitScoreReward,
        FleurReward,
        HarmonicReward,
        VelaReward,
        beitscore_reward,
        vela_reward,
    )
    from reward.rewards.remote_reward import RemoteReward
    from reward.rewards.text_rewards import LengthReward, RepetitionReward
    from reward.rewards.tournament_reward import TournamentReward

__version__ = "0.2.0"

_HOMES = {
    "AsyncReward": "reward.rewards.async_reward",
    "BeitScoreReward": "reward.rewards.named_rewards",
    "BestOfN": "integrations.hf_generate.best_of_n",  # from above, and heavy: not in __all__
    "CaptionSample": "reward.data.samples",
    "CombinedReward": "reward.rewards.combined_reward",
    "FleurReward": "reward.rewards.named_rewards",
    "HarmonicReward": "reward.rewards.named_rewards",
    "LengthReward": "reward.rewards.text_rewards",
    "MetricReward": "reward.rewards.metric_reward",
    "RemoteReward": "reward.rewards.remote_reward",
    "RepetitionReward": "reward.rewards.text_rewards",
    "ScoreTable": "reward.data.score_table",
    "TournamentReward": "reward.rewards.tournament_reward",
    "VelaReward": "reward.rewards.named_rewards",
    "beitscore_reward": "reward.rewards.named_rewards",
    "list_metrics": "reward.registry",
    "load_scorer": "reward.registry",
    "metric_spec": "reward.registry",
    "rerank": "reward.decoding.selection",
    "vela_reward": "reward.rewards.named_rewards",
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
    "beitscore_reward",
    "list_metrics",
    "load_scorer",
    "metric_spec",
    "rerank",
    "vela_reward",
]


# A folder `integrations` of the user's is not run; it hides ours from who imports that, or asks for BestOfN.
_other = getattr(find_spec("integrations"), "origin", None)
if _other and not Path(_other).samefile(Path(__file__).parents[1] / "integrations" / "__init__.py"):
    warnings.warn(f"the package 'integrations' of capreward is hidden by {_other}: rename that", stacklevel=2)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name.startswith("_") or find_spec(f"reward.{name}") is not None:
        raise AttributeError(f"module 'reward' has no attribute {name!r}")
    message = f"reward has no name {name!r}. {_instead(name)}"
    # `from reward import NAME` drops the message of an AttributeError, and asks from this function.
    imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    raise ImportError(message) if imported else AttributeError(message)


def _instead(name: str) -> str:
    """What to write for a name that is not there, such as that of a metric's class in another library."""
    import difflib

    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    stem = re.sub(r"(reward|scorer|metric|model)$", "", plain)
    metrics = {metric.replace("_", ""): metric for metric in __getattr__("list_metrics")()}
    tried = (plain, stem, stem + "score", *difflib.get_close_matches(stem, metrics, n=1, cutoff=0.8))
    metric = next((metrics[each] for each in tried if each in metrics), None)
    if metric is not None:
        load = f'MetricReward("{metric}")' if plain.endswith("reward") else f'load_scorer("{metric}")'
        return f"Metrics are loaded by name: from reward import {load.partition('(')[0]}; {load}"
    for module in ("reward.scoring", "reward.judges", "reward.metaeval"):
        if hasattr(import_module(module), name):
            return f"Write: from {module} import {name}"
    close = difflib.get_close_matches(name, _HOMES, n=3, cutoff=0.5) or ["load_scorer", "MetricReward"]
    return f'Names like it: {", ".join(close)}. A metric is loaded by its name: load_scorer("vela")'


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
