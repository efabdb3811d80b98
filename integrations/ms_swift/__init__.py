"""ms-swift: caption metrics as its outcome rewards (ORM), for `swift rlhf --external_plugins FILE --reward_funcs NAME`.

Checked with ms-swift 4.6.0. The file registers a name: `register("vela", source="my/checkpoint")`; see
`docs/FRAMEWORKS.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from reward.functions.gathering import make_reward

__all__ = ["CaptionORM", "register"]


class CaptionORM:
    """A reward as ms-swift calls it; it needs no base class.

    The image of a row comes from the column `images`, where ms-swift puts `[{"bytes": ..., "path": ...}]`, references
    from `references` or `refs`: ms-swift takes the assistant's message out of `messages`, so they need a column of
    their own. A row that cannot be scored gets None, which ms-swift leaves out.

    Args:
        args: ms-swift's arguments; not used.
        settings: metric (VELA by default), source, weights and more, see `reward.functions.gathering.make_reward`.

    Example:
        >>> CaptionORM(metric="length")(["A red star.", "A star."], trainer_state=None)
        [3.0, 2.0]
    """

    settings: ClassVar[Mapping[str, Any]] = {"metric": "vela"}

    def __init__(self, args: Any = None, **settings: Any) -> None:
        self.args = args
        self.reward = make_reward(**{**self.settings, **settings})

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Rewards of N completions, given the columns of their rows, N values each."""
        prompts = columns.pop("messages", None) or [None] * len(completions)
        return self.reward(prompts=prompts, completions=completions, **columns)


def register(name: str = "vela", metric: str | None = None, **settings: Any) -> type[CaptionORM]:
    """Makes a reward known to `--reward_funcs` under a name, which its logs have as well.

    Args:
        name: the name; ms-swift logs rewards by class name, so each gets a class of its own.
        metric: name of the metric; None takes `name`.
        settings: source, weights and more, see `reward.functions.gathering.make_reward`.

    Raises:
        UnknownMetricError, WeightsError, ConfigError, ValueError: a setting is not usable.
        ImportError: ms-swift is not installed.
    """
    from swift.rewards import orms

    settings = {"name": name, **settings, "metric": metric or name}
    made = type(name, (CaptionORM,), {"settings": settings, "__module__": __name__, "__doc__": CaptionORM.__doc__})
    made()
    orms[name] = made
    return made
