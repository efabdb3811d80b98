"""verl: `compute_score` as its custom reward function, and a reward manager that finds the images in the prompt.

Checked with verl 0.9.1. The function is named by `reward.custom_reward_function.path=pkg://integrations.verl`, its
settings by `reward.custom_reward_function.reward_kwargs`; see `docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from reward.data.cells import missing_to_none
from reward.data.samples import find_column
from reward.rewards.gathering import configured_reward

__all__ = ["compute_score", "find_image"]


async def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    missing: float | None = None,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **settings: Any,
) -> dict[str, float]:
    """Reward of one response; responses that verl asks for at the same time are scored together.

    Args:
        data_source: name of the data set; not used.
        solution_str: the response.
        ground_truth: one reference or a list, unless `extra_info` has `references`.
        extra_info: of the row, with an image (path, encoded bytes, or `{"bytes", "path"}`) under `image`, `images` or
            another known name. `CaptionRewardManager` puts the images of the prompt there. A
            `rubric` or `questions`, which some metrics need, are read as well.
        missing: reward of a row that cannot be scored, and its scores; by default such a row raises, because verl does
            not accept None.
        reward_router_address, reward_model_tokenizer: of verl's own reward models; not used.
        settings: metric, source, weights and more, see `reward.rewards.gathering.configured_reward`.

    Returns:
        `score`, and the score of every aspect under its name, the same keys for every sample.

    Raises:
        InvalidSampleError: the row has no reward and `missing` is None.
        DataError: several columns could hold the image.

    Example:
        >>> asyncio.run(compute_score("shapes", "A red star.", None, {}, metric="length"))
        {'score': 3.0, 'length': 3.0}
    """
    info = extra_info or {}
    references = ground_truth
    for name in ("refs", "references"):
        if missing_to_none(info.get(name)) is not None:
            references = info[name]
    gathered = configured_reward(missing=missing, **settings)
    reward = await asyncio.wrap_future(gathered.ask(solution_str, find_image(info), references, info))
    reward = reward.filled(missing)
    return {"score": reward.value, **reward.aspects}  # type: ignore[dict-item]


def find_image(info: Mapping[str, Any]) -> Any:
    """The image among the values of a row, under any name that holds images; None if there is none.

    Example:
        >>> find_image({"index": 3, "image_path": "photos/1.jpg"})
        'photos/1.jpg'
    """
    present = [name for name, value in info.items() if missing_to_none(value) is not None]
    name = find_column("image", present, option="extra_info")
    if name is None:
        return None
    return info[name]
