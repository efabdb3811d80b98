"""OpenRLHF: caption metrics as the `reward_func` of a Python file, for `--reward.remote_url FILE.py`.

Checked with OpenRLHF 0.11.2. It hands rewards no images: the label of a row names its image and references as JSON,
see `integrations.openrlhf.queries.read_label`. For how to train, see `docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from integrations.openrlhf.queries import read_label, response_of
from reward.rewards.gathering import configured_reward

__all__ = ["make_reward_func"]

logger = logging.getLogger(__name__)


def make_reward_func(
    metric: str = "vela",
    source: str = "embedded",
    *,
    image_root: str | Path = "",
    missing: float | None = None,
    **settings: Any,
) -> Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]:
    """Makes the function `reward_func(queries, prompts, labels)` that OpenRLHF looks for in a file.

    OpenRLHF calls it in threads with one sample per call; calls at the same time are scored together. If the function
    raises, OpenRLHF does not show the error by default and continues without a reward. Every error is therefore logged
    here first.

    Args:
        metric, source: as for `MetricReward`.
        image_root: folder that relative image paths of labels start from.
        missing: reward of a row that cannot be scored, and its scores; by default such a row raises.
        settings: weights and more, see `reward.rewards.gathering.configured_reward`.

    Raises:
        UnknownMetricError, WeightsError, ConfigError, ValueError: a setting is not usable.

    Example:
        >>> reward_func = make_reward_func("length")
        >>> reward_func(["USER: Describe. ASSISTANT: A red star."], ["USER: Describe. ASSISTANT:"], ['{"image": null}'])
        {'rewards': tensor([3.]), 'scores': tensor([3.]), 'extra_logs': {'length': tensor([3.])}}
    """
    gathered = configured_reward(metric=metric, source=source, missing=missing, **settings)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        import torch

        try:
            futures = []
            for query, prompt, label in zip(queries, prompts, labels, strict=True):
                image, references, row = read_label(label)
                if image is not None and not image.startswith("data:"):
                    image = str(Path(image_root) / image)
                futures.append(gathered.ask(response_of(query, prompt), image, references, row))
            rewards = [future.result().filled(missing) for future in futures]
        except Exception:  # of whatever kind, and raised again: OpenRLHF says it at level info only, and goes on
            logger.exception("no reward for %d samples of OpenRLHF, which goes on without one", len(queries))
            raise
        values = torch.tensor([reward.value for reward in rewards], dtype=torch.float32)
        logs = {}
        for name in rewards[0].aspects if rewards else ():
            logs[name] = torch.tensor([reward.aspects[name] for reward in rewards], dtype=torch.float32)
        return {"rewards": values, "scores": values, "extra_logs": logs}

    return reward_func
