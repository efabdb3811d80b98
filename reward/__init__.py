"""capreward: learned image-caption metrics as rewards. Public names load on first use, so that importing is cheap."""

from __future__ import annotations

import difflib
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
    from reward.rewards.combined_reward import AsyncReward, CombinedReward
    from reward.rewards.metric_reward import MetricReward
    from reward.rewards.named_rewards import (
        BeitScoreReward,
        FleurReward,
        HarmonicReward,
        RemoteReward,
        VelaReward,
        beitscore_reward,
        vela_reward,
    )
    from reward.rewards.retrieval_reward import RetrievalReward
    from reward.rewards.text_rewards import LengthReward, RepetitionReward
    from reward.rewards.tournament_reward import TournamentReward

__version__ = "0.2.0"

_HOMES = {
    "AsyncReward": "reward.rewards.combined_reward",
    "BeitScoreReward": "reward.rewards.named_rewards",
    "BestOfN": "integrations.hf_generate.best_of_n",  # from above, and heavy: not in __all__
    "CaptionSample": "reward.data.samples",
    "CombinedReward": "reward.rewards.combined_reward",
    "FleurReward": "reward.rewards.named_rewards",
    "HarmonicReward": "reward.rewards.named_rewards",
    "LengthReward": "reward.rewards.text_rewards",
    "MetricReward": "reward.rewards.metric_reward",
    "RemoteReward": "reward.rewards.named_rewards",
    "RepetitionReward": "reward.rewards.text_rewards",
    "RetrievalReward": "reward.rewards.retrieval_reward",
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
    "RetrievalReward",
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
_integrations = getattr(find_spec("integrations"), "origin", None)
if _integrations and not Path(_integrations).samefile(Path(__file__).parents[1] / "integrations" / "__init__.py"):
    warnings.warn(f"the package 'integrations' of capreward is hidden by {_integrations}: rename that", stacklevel=2)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    # Python asks here for modules before it looks for their files, and for names such as __path__.
    if name.startswith("_") or find_spec(f"reward.{name}") is not None:
        raise AttributeError(f"module 'reward' has no attribute {name!r}")
    close = difflib.get_close_matches(name, _HOMES, n=1, cutoff=0.8)
    names = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(_HOMES))}."
    ways = 'Metrics are loaded by name, load_scorer("vela"), or made of a function, load_scorer(my_function)'
    raise AttributeError(f"reward has no name {name!r}: {names} {ways}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
