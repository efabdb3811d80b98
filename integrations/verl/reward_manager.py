"""CaptionRewardManager: verl's naive reward manager, which also hands the images of the prompt to `compute_score`."""

from __future__ import annotations

from typing import Any

import numpy as np
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from integrations.verl import compute_score as caption_reward
from integrations.verl import find_image
from reward.data.chats import prompt_images


class CaptionRewardManager(NaiveRewardManager):
    """Gives the reward function the images that verl shows the policy, which the function is not passed otherwise.

    Named by `reward.reward_manager.source=importlib`, `name=CaptionRewardManager` and
    `module.path=pkg://integrations.verl.reward_manager`. Without a custom reward function it calls
    `integrations.verl.compute_score`. An image that `extra_info` has already is kept.

    Args: those of verl's managers.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **options: Any) -> None:
        if config.reward.custom_reward_function.path is None:
            compute_score = caption_reward
        super().__init__(config, tokenizer, compute_score, **options)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Reward of the last row of `data`, in verl's form."""
        data = data[-1:]
        columns = data.non_tensor_batch
        info = {}
        if "extra_info" in columns:
            info = dict(columns["extra_info"][0] or {})
        # What verl showed the policy counts only where the row has no image of its own.
        if "raw_prompt" in columns and find_image(info) is None:
            messages = list(columns["raw_prompt"][0])  # a list or an array
            info["images"] = prompt_images(messages) or None
        columns["extra_info"] = np.array([info], dtype=object)
        return await super().run_single(data)
