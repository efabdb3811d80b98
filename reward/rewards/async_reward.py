"""AsyncReward: a reward that waits, beside which a trainer goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reward.data.samples import CaptionSample
from reward.metrics.function_forms import looks_at_images
from reward.rewards.rating import is_asynchronous, rates_captions

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncReward:
    """Runs a reward function in a thread of its own and lets a trainer go on meanwhile.

    TRL's GRPO and RLOO trainers call plain reward functions one after the other, and then all asynchronous ones at the
    same time. So make those asynchronous that mostly wait, such as rewards by a judge behind a server; two rewards that
    compute on the same GPU gain nothing. Each MetricReward still serves one call at a time.

    Args:
        reward: a reward function with a trainer's call that may be called from any thread, as every `MetricReward` may.
            Its name in the logs stays.

    Example:
        >>> from reward import MetricReward
        >>> words = AsyncReward(MetricReward("length", name="words"))
        >>> words.__name__, asyncio.run(words(prompts=["Describe."], completions=["A red star."]))
        ('words', [3.0])
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, reward: Callable[..., Sequence[float | None]]) -> None:
        if not callable(reward) or is_asynchronous(reward):
            raise TypeError(f"AsyncReward needs a plain reward function, got {reward!r:.80}")
        self.reward = reward
        self.__name__ = getattr(reward, "__name__", type(reward).__name__)

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **arguments: Any) -> Any:
        """Calls the reward function with the same arguments, in a thread of its own."""
        return await asyncio.to_thread(self.reward, prompts=prompts, completions=completions, **arguments)

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of samples, waited for; see `rates_captions`."""
        return rates_captions(self.reward).rewards(samples)

    @property
    def needs_image(self) -> bool:
        """Whether the reward looks at pictures."""
        return looks_at_images(self.reward)

    def load(self) -> Self:
        """Loads the reward's model now, see `MetricReward.load`."""
        if hasattr(self.reward, "load"):
            self.reward.load()
        return self

    # TRL before 1.14 asks `inspect.iscoroutinefunction` about the instance. With these it passes for a function.
    __code__, __defaults__, __kwdefaults__ = __call__.__code__, __call__.__defaults__, __call__.__kwdefaults__

    def __repr__(self) -> str:
        return f"AsyncReward({self.reward!r})"
