"""VelaConfig: the config.json of a VELA checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from reward.backbones.lora import LoraSettings
from reward.data.settings import STRICT, AtLeast1, Names, Rate, Settings, settings_or_table
from reward.errors import CheckpointError, ConfigError
from reward.metrics.vela import SPEC
from reward.metrics.vela.prompts import DEFAULT_PROMPTS, AspectPrompt


@dataclass(frozen=True, config=STRICT)
class FusionSettings(Settings):
    """A transformer that fuses the four vectors of the branches, a token each. The paper does not give its sizes."""

    place: ClassVar[str] = "fusion."

    width: AtLeast1 = 256
    heads: AtLeast1 = 4
    layers: AtLeast1 = 1
    dropout: Rate = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ConfigError(f"fusion.width must be a multiple of fusion.heads, got {self.width} and {self.heads}")


class _Branch(Settings):
    """A branch with a backbone, whose weights are fetched, or an architecture, whose weights are in the checkpoint."""

    backbone: str | None
    architecture: dict[str, Any] | None

    def __post_init__(self) -> None:
        if (self.backbone is None) == (self.architecture is None):
            raise ConfigError(
                f"{self.place}* needs either a backbone (whose weights are fetched) or an architecture (whose weights "
                f"are in the checkpoint), got backbone={self.backbone!r} and architecture={self.architecture!r:.60}"
            )


@dataclass(frozen=True, config=STRICT)
class TextConfig(_Branch):
    """Configuration of the branch that reads references and candidate with a causal language model (R2C).

    Args:
        backbone: Hub id or folder of a causal language model; its weights are frozen and not in the checkpoint.
        architecture: instead, a configuration of transformers with `model_type`; all weights are in the checkpoint.
        lora: adapters to train, or None.
        prompts: {aspect: AspectPrompt}.
        chat_template: whether the tokenizer's chat template frames the prompt.
        max_prefix_tokens: room for rubric and references. References that do not fit are cut at their ends, the
            longest first. If there are too many, the last ones are dropped.
        max_candidate_tokens: a longer candidate is cut at its end.
    """

    place: ClassVar[str] = "text."

    backbone: str | None = "Qwen/Qwen2.5-3B-Instruct"
    architecture: dict[str, Any] | None = None
    lora: Annotated[LoraSettings | None, settings_or_table(LoraSettings)] = field(default_factory=LoraSettings)
    prompts: dict[str, Annotated[AspectPrompt, settings_or_table(AspectPrompt)]] = field(
        default_factory=lambda: dict(DEFAULT_PROMPTS)
    )
    chat_template: bool = True
    max_prefix_tokens: AtLeast1 = 1536
    max_candidate_tokens: AtLeast1 = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture is not None and not isinstance(self.architecture.get("model_type"), str):
            raise ConfigError("text.architecture needs a 'model_type', such as 'qwen2'")


@dataclass(frozen=True, config=STRICT)
class ImageConfig(_Branch):
    """Configuration of the branch that compares image and candidate with a CLIP (I2C).

    Args:
        backbone: a checkpoint of `reward.backbones.load_clip`; its weights are frozen and not in the checkpoint.
        architecture: instead, `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"`
            with the ids `{"start", "end", "pad"}` in the checkpoint's own tokenizer; all weights are in the checkpoint.
        normalise: whether image and text features are scaled to length 1 before they are compared. The paper does
            not say; its formula suggests that they are not.
    """

    place: ClassVar[str] = "image."

    backbone: str | None = "BeichenZhang/LongCLIP-L"
    architecture: dict[str, Any] | None = None
    normalise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture is not None:
            _check_text_tower(self.architecture)


def _check_text_tower(architecture: Mapping[str, Any]) -> None:
    """Refuses a text tower that does not fit its tokenizer, or would read the state of another than the end token."""
    try:
        text_cfg, ids = architecture["model_cfg"]["text_cfg"], architecture["tokenizer"]
        vocab_size = text_cfg["vocab_size"]
        is_complete = len(ids) == 3 and text_cfg["context_length"] >= 3
        for token in (ids["start"], ids["end"], ids["pad"]):
            is_complete = is_complete and type(token) is int and 0 <= token < vocab_size
    except (KeyError, TypeError):
        is_complete = False
    if not is_complete:
        raise ConfigError(
            "image.architecture needs 'model_cfg' with a text_cfg (vocab_size, context_length) and 'tokenizer' with "
            f"the ids start, end and pad below vocab_size, got {architecture!r:.300}"
        )
    # open_clip finds the end of a caption by its id. With another id in that place, it would read the state of a word,
    # and every score would be wrong without an error.
    pooling, highest, eos_id = text_cfg.get("pool_type", "argmax"), vocab_size - 1, text_cfg.get("eos_id", 2)
    if pooling == "argmax" and ids["end"] != highest:
        raise ConfigError(
            f"open_clip's argmax pooling reads at the highest id, so the end token must be {highest} "
            f"(vocab_size - 1), got {ids['end']}; or set text_cfg pool_type 'eos' and eos_id"
        )
    if pooling == "eos" and ids["end"] != eos_id:
        raise ConfigError(f"text_cfg eos_id is {eos_id}, but the end token is {ids['end']}")


@dataclass(frozen=True, config=STRICT)
class VelaConfig(Settings):
    """Configuration of a VELA model. The defaults are the paper's; None for a branch gives an ablation.

    Args:
        aspects: names of the scores, in order.
        text, image: the two branches.
        fusion: a transformer before the head, or None: the head reads the vectors of the branches themselves.

    Raises:
        ConfigError: no branch, no aspect, a repeated aspect or one without a prompt.

    Example:
        >>> config = VelaConfig(image=None)
        >>> VelaConfig.from_dict(config.to_dict()) == config
        True
    """

    aspects: Annotated[Names, Field(min_length=1)] = SPEC.aspects
    text: Annotated[TextConfig | None, settings_or_table(TextConfig)] = field(default_factory=TextConfig)
    image: Annotated[ImageConfig | None, settings_or_table(ImageConfig)] = field(default_factory=ImageConfig)
    fusion: Annotated[FusionSettings | None, settings_or_table(FusionSettings)] = None

    def __post_init__(self) -> None:
        if self.text is None and self.image is None:
            raise ConfigError("VELA needs at least one branch: text and image are both None")
        if self.text is not None:
            missing = [aspect for aspect in self.aspects if aspect not in self.text.prompts]
            if missing:
                raise ConfigError(f"the text branch has no prompt for {', '.join(missing)}")

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether a branch has its own architecture, and so needs the checkpoint's own tokenizer."""
        return any(branch is not None and branch.architecture is not None for branch in (self.text, self.image))

    def to_dict(self) -> dict[str, Any]:
        """Values for config.json, with the metric's name."""
        return {"metric": SPEC.name, **asdict(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> VelaConfig:
        """Reads the output of `to_dict`.

        Raises:
            CheckpointError: a setting is unknown or invalid, for example from a newer version of this library.
        """
        # Older checkpoints have `domain`, which says nothing of the network, and `head`: a row of weights an aspect.
        settings = {"fusion": None, **plain}
        for name in ("metric", "domain"):
            settings.pop(name, None)
        head = settings.pop("head", "per_aspect")
        try:
            if head != "per_aspect":
                raise ConfigError(f"head must be 'per_aspect', got {head!r}")
            return cls.of_file(settings)
        except ConfigError as error:
            raise CheckpointError(f"not a VELA configuration that this version can read: {error}") from error
