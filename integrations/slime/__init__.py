"""slime: `custom_rm` for `--custom-rm-path integrations.slime.custom_rm`, also with `--group-rm`.

The package `slime` of the registry is another one: checked with the repository THUDM/slime at 624b824a. Settings come
from `--custom-config-path FILE.yaml`, under the key `capreward`; see `docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from reward.functions.completions import prompt_images
from reward.functions.gathering import configured_reward

__all__ = ["custom_rm"]


async def custom_rm(args: Any, sample: Any, **options: Any) -> float | list[float]:
    """Reward of a sample, or rewards of a list of samples; samples asked for at the same time are scored together.

    The image is `image` in the metadata, else `sample.multimodal_inputs["images"]`, which slime has resized for the
    policy, else in the prompt's messages; a sample with several images has no reward. References are `references` in
    the metadata, else the label.

    Args:
        args: slime's arguments. `args.capreward` is a dict of `metric`, `source`, `weights`, `missing` and further
            arguments of `reward.functions.gathering.configured_reward`; without it, the embedded VELA rates.
        sample: a `Sample`, or with `--group-rm` a list of them.
        options: what slime may add; not used.

    Raises:
        InvalidSampleError: a sample has no reward and there is no `missing`.

    Example:
        >>> from types import SimpleNamespace
        >>> args = SimpleNamespace(capreward={"metric": "length"})
        >>> sample = SimpleNamespace(prompt="Describe.", response="A red star.", label=None, metadata={})
        >>> asyncio.run(custom_rm(args, sample))
        3.0
    """
    settings = dict(getattr(args, "capreward", None) or {})
    missing = settings.pop("missing", None)
    reward = configured_reward(**settings)
    samples = sample if isinstance(sample, list) else [sample]
    asked = [asyncio.wrap_future(reward.ask(each.response, _image(each), _references(each))) for each in samples]
    numbers = [row.number(missing) for row in await asyncio.gather(*asked)]
    return numbers if isinstance(sample, list) else numbers[0]


def _image(sample: Any) -> Any:
    own = (sample.metadata or {}).get("image")
    if own is not None:
        return own
    return (getattr(sample, "multimodal_inputs", None) or {}).get("images") or prompt_images(sample.prompt)


def _references(sample: Any) -> Any:
    references = (sample.metadata or {}).get("references")
    return sample.label if references is None else references
