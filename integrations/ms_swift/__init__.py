"""ms-swift: caption metrics as its outcome rewards (ORM), for `swift rlhf --external_plugins FILE --reward_funcs NAME`.

Ran with ms-swift 4.6.0. The file registers a name: `register("vela", source="my/checkpoint")`; see
`docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from reward.rewards.gathering import RowReward, make_reward

__all__ = ["CaptionORM", "register"]


class CaptionORM:
    """A reward as ms-swift calls it; it needs no base class.

    The image of a row comes from the column `images`, where ms-swift puts `[{"bytes": ..., "path": ...}]`, references
    from `references` or `refs`: ms-swift takes the assistant's message out of `messages`, so they need a column of
    their own.

    Args:
        args: ms-swift's arguments; not used.
        settings: metric (VELA by default), source, weights and more, see `reward.rewards.gathering.make_reward`;
            and `missing`, what a row that cannot be scored gets. Without it, such a row raises: ms-swift takes None
            from a reward, but counts it as 0, which makes the row the worst of its group.

    Example:
        >>> CaptionORM(metric="length")(["A red star.", "A star."], trainer_state=None)
        [3.0, 2.0]
    """

    settings: ClassVar[Mapping[str, Any]] = {"metric": "vela"}

    def __init__(self, args: Any = None, **settings: Any) -> None:
        self.args = args
        settings = {**self.settings, **settings}
        self.missing: float | None = settings.get("missing")
        self.reward = make_reward(**settings)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Rewards of N completions, given the columns of their rows, N values each.

        Raises:
            InvalidSampleError: a row cannot be scored, and `missing` is None.
        """
        prompts = columns.pop("messages", None)
        rewards = self.reward(prompts=prompts, completions=completions, **columns)
        return [RowReward(reward).filled(self.missing).value for reward in rewards]  # type: ignore[misc]


def register(name: str = "vela", metric: str | None = None, **settings: Any) -> type[CaptionORM]:
    """Makes a reward known to `--reward_funcs` under a name, which its logs have as well.

    It also makes `ResumeWeights` known to `--callbacks` as `resume_weights`: without it, a full fine-tune of a
    vision-language model that goes on with `--resume_from_checkpoint` starts from the first weights again.

    Args:
        name: the name; ms-swift logs rewards by class name, so each gets a class of its own.
        metric: name of the metric; None takes `name`.
        settings: source, weights, missing and more, see `CaptionORM`.

    Raises:
        UnknownMetricError, WeightsError, ConfigError, ValueError: a setting is not usable.
        ImportError: ms-swift is not installed.
    """
    from swift.callbacks import callbacks_map
    from swift.rewards import orms

    settings = {"name": name, **settings, "metric": metric or name}
    orm = type(name, (CaptionORM,), {"settings": settings, "__module__": __name__, "__doc__": CaptionORM.__doc__})
    orm()  # raises of bad settings here, and not when the training starts
    orms[name] = orm
    callbacks_map["resume_weights"] = _resume_weights
    return orm


def _resume_weights(args: Any, trainer: Any) -> Any:
    """The callback, made as ms-swift makes its own."""
    from integrations.trl import ResumeWeights

    return ResumeWeights(args.resume_from_checkpoint)
