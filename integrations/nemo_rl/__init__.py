"""NeMo RL: captions as a data set, and a metric as the environment that rewards them.

The package `nemo-rl` of the registry is an empty placeholder: checked with the repository NVIDIA-NeMo/RL at 7ea279ab.
The classes that need NeMo RL are in `integrations.nemo_rl.environment`; see `docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward.functions.completions import completion_text, prompt_images
from reward.functions.gathering import configured_reward

__all__ = ["rate_conversations"]


def rate_conversations(
    message_logs: Sequence[Sequence[Mapping[str, Any]]],
    metadata: Sequence[Mapping[str, Any] | None],
    *,
    missing: float | None = None,
    **settings: Any,
) -> list[float]:
    """Rewards of N conversations: the last answer is the caption, the image stands in the messages or the metadata.

    Args:
        message_logs: N conversations, with image blocks.
        metadata: NeMo RL's `extra_env_info` of each row, perhaps with `references` (else `ground_truth`) and `image`.
        missing: reward of a row that cannot be scored. By default such a row raises: NeMo RL does not accept None.
        settings: see `reward.functions.gathering.configured_reward`.

    Raises:
        InvalidSampleError: a conversation without an answer, or without a reward where there is no `missing`.

    Example:
        >>> log = [{"role": "user", "content": "Describe."}, {"role": "assistant", "content": "A red star."}]
        >>> rate_conversations([log], [{"ground_truth": "A star."}], metric="length")
        [3.0]
    """
    facts = [each or {} for each in metadata]
    rows = configured_reward(**settings).rate(
        [completion_text(log) for log in message_logs],
        [prompt_images(log) or each.get("image") for log, each in zip(message_logs, facts, strict=True)],
        [each.get("references", each.get("ground_truth")) for each in facts],
    )
    return [row.number(missing) for row in rows]
