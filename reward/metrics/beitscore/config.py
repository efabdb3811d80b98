"""BeitScoreConfig: the config.json of a BEiTScore checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from reward.data.settings import AS_TUPLE, STRICT, AtLeast1, Rate, Settings
from reward.errors import CheckpointError, ConfigError
from reward.metrics.beitscore import SPEC

_Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class BeitScoreConfig(Settings):
    """Configuration of a BEiTScore model. The defaults are BEiT-3 base with patches of 16 and images of 480 pixels.

    Args:
        hidden_size: width d of both streams.
        layers, heads: depth, and attention heads a layer; `heads` divides `hidden_size`.
        ffn_size: hidden units of a feed-forward network.
        image_size, patch_size: sides in pixels; an image becomes `(image_size // patch_size) ** 2` patches.
        vocab_size: rows of the token table.
        text_positions: rows of the text's position table. Two are reserved, so a caption has at most
            `text_positions - 2` tokens.
        head_size: hidden units of the score head.
        drop_path: highest rate of stochastic depth in training, in [0, 1); layer k of L has k / (L - 1) of it.
        image_mean, image_std: per channel, of pixels in [0, 1].

    Raises:
        ConfigError: a size is not positive, or does not fit another one.

    Example:
        >>> config = BeitScoreConfig()
        >>> config.patches, config.max_text_tokens
        (900, 1022)
        >>> BeitScoreConfig.from_dict(config.to_dict()) == config
        True
    """

    place: ClassVar[str] = "BEiTScore "

    hidden_size: AtLeast1 = 768
    layers: AtLeast1 = 12
    heads: AtLeast1 = 12
    ffn_size: AtLeast1 = 3072
    image_size: AtLeast1 = 480
    patch_size: AtLeast1 = 16
    vocab_size: AtLeast1 = 64010
    text_positions: Annotated[int, Field(ge=3)] = 1024
    head_size: AtLeast1 = 256
    drop_path: Rate = 0.15
    image_mean: Annotated[tuple[float, float, float], AS_TUPLE] = (0.5, 0.5, 0.5)
    image_std: Annotated[tuple[_Positive, _Positive, _Positive], AS_TUPLE] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if self.hidden_size % self.heads:
            raise ConfigError(f"BEiTScore heads ({self.heads}) must divide hidden_size ({self.hidden_size})")
        if self.image_size % self.patch_size:
            raise ConfigError(f"BEiTScore patch_size ({self.patch_size}) must divide image_size ({self.image_size})")

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def max_text_tokens(self) -> int:
        """Longest caption in tokens, start and end included."""
        return self.text_positions - 2

    def to_dict(self) -> dict[str, Any]:
        """Values for config.json, with the metric's name."""
        return {"metric": SPEC.name, **asdict(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> BeitScoreConfig:
        """Reads the output of `to_dict`; every setting must be present.

        Raises:
            CheckpointError: a setting is unknown, missing or invalid, for example from a newer version of this library.
        """
        settings = dict(plain)
        for name in ("metric", "domain"):  # older checkpoints have `domain`, which says nothing of the network
            settings.pop(name, None)
        try:
            return cls.of_file(settings)
        except ConfigError as error:
            raise CheckpointError(f"not a BEiTScore configuration that this version can read: {error}") from error


PRESETS: Mapping[str, BeitScoreConfig] = {
    "base": BeitScoreConfig(),
    "large": BeitScoreConfig(hidden_size=1024, layers=24, heads=16, ffn_size=4096),
}
