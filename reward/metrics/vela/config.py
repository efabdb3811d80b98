"""VelaConfig: everything about a VELA model that is not a weight, as it stands in a checkpoint's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from reward.errors import CheckpointError
from reward.metrics.vela.prompts import DEFAULT_PROMPTS, Prompt
from reward.metrics.vela.spec import SPEC

__all__ = ["ImageConfig", "LoraSettings", "TextConfig", "VelaConfig"]


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters on the language model. With the paper's backbone the defaults make 3,686,400 parameters."""

    r: int = 16
    alpha: int = 16
    dropout: float = 0.1
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_modules", tuple(self.target_modules))
        if self.r < 1 or not 0 <= self.dropout < 1 or not self.target_modules:
            raise ValueError(f"LoRA needs r >= 1, 0 <= dropout < 1 and target modules, got {self}")


def _check_backbone(branch: str, backbone: str | None, architecture: dict[str, Any] | None) -> None:
    if (backbone is None) == (architecture is None):
        raise ValueError(
            f"the {branch} branch needs either a backbone (whose weights are fetched) or an architecture (whose "
            f"weights are in the checkpoint), got backbone={backbone!r} and architecture={architecture!r:.60}"
        )


@dataclass(frozen=True)
class TextConfig:
    """The branch that reads references and candidate with a causal language model (R2C).

    Args:
        backbone: Hub id or folder of a causal LM; its own weights stay as they are and are not in the checkpoint.
        architecture: instead, a transformers configuration with `model_type`; all weights are in the checkpoint.
        lora: adapters to train; None for none.
        prompts: {aspect: Prompt}.
        chat_template: whether the tokenizer's chat template frames the prompt.
        max_prefix_tokens: room for rubric and references. References that do not fit are cut at their ends, the
            longest first, so that short ones stay whole; many of them are left out from the last one on.
        max_candidate_tokens: a longer candidate is cut at its end.
    """

    backbone: str | None = "Qwen/Qwen2.5-3B-Instruct"
    architecture: dict[str, Any] | None = None
    lora: LoraSettings | None = field(default_factory=LoraSettings)
    prompts: Mapping[str, Prompt] = field(default_factory=lambda: dict(DEFAULT_PROMPTS))
    chat_template: bool = True
    max_prefix_tokens: int = 1536
    max_candidate_tokens: int = 512

    def __post_init__(self) -> None:
        _check_backbone("text", self.backbone, self.architecture)
        if self.architecture is not None and "model_type" not in self.architecture:
            raise ValueError("the text branch's architecture needs a 'model_type', such as 'qwen2'")
        if self.max_prefix_tokens < 1 or self.max_candidate_tokens < 1:
            raise ValueError("max_prefix_tokens and max_candidate_tokens must be at least 1")


@dataclass(frozen=True)
class ImageConfig:
    """The branch that compares image and candidate with a CLIP (I2C).

    Args:
        backbone: whatever `reward.backbones.load_clip` takes; stays as it is and is not in the checkpoint.
        architecture: instead, `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"`
            with the ids `{"start", "end", "pad"}` in the checkpoint's own tokenizer; all weights are in the checkpoint.
        normalise: whether image and text features are scaled to length 1 before they are compared. The paper does
            not say; its text reads as if not.
    """

    backbone: str | None = "BeichenZhang/LongCLIP-L"
    architecture: dict[str, Any] | None = None
    normalise: bool = False

    def __post_init__(self) -> None:
        _check_backbone("image", self.backbone, self.architecture)
        if self.architecture is None:
            return
        named = set(self.architecture.get("tokenizer", ()))
        if "model_cfg" not in self.architecture or named != {"start", "end", "pad"}:
            raise ValueError(
                "the image branch's architecture needs 'model_cfg' and 'tokenizer' with the ids start, end and pad"
            )
        text, ids = self.architecture["model_cfg"]["text_cfg"], self.architecture["tokenizer"]
        pooling = text.get("pool_type", "argmax")
        highest = text["vocab_size"] - 1
        if pooling == "argmax" and ids["end"] != highest:
            raise ValueError(
                f"open_clip's argmax pooling reads at the highest id, so the end token must be {highest} "
                f"(vocab_size - 1), got {ids['end']}; or set text_cfg pool_type 'eos' and eos_id"
            )
        if pooling == "eos" and ids["end"] != text.get("eos_id", 2):
            raise ValueError(f"text_cfg eos_id is {text.get('eos_id', 2)}, but the end token is {ids['end']}")


@dataclass(frozen=True)
class VelaConfig:
    """A VELA model. The defaults are the paper's; leave a branch out (None) for an ablation.

    Args:
        aspects: names of the scores, in order.
        text, image: the two branches.

    Raises:
        ValueError: no branch, no or doubled aspects, or an aspect without a prompt.

    Example:
        >>> config = VelaConfig(image=None)
        >>> VelaConfig.from_dict(config.to_dict()) == config
        True
    """

    aspects: tuple[str, ...] = SPEC.aspects
    text: TextConfig | None = field(default_factory=TextConfig)
    image: ImageConfig | None = field(default_factory=ImageConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "aspects", tuple(self.aspects))
        if self.text is None and self.image is None:
            raise ValueError("VELA needs at least one branch: text and image are both None")
        if not self.aspects or len(set(self.aspects)) != len(self.aspects):
            raise ValueError(f"aspects must be different names, at least one, got {self.aspects}")
        if self.text is not None:
            missing = [aspect for aspect in self.aspects if aspect not in self.text.prompts]
            if missing:
                raise ValueError(f"the text branch has no prompt for {', '.join(missing)}")

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether a branch has an architecture, and so a tokenizer, of its own."""
        return any(branch is not None and branch.architecture is not None for branch in (self.text, self.image))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dict, with the metric's name."""
        plain: dict[str, Any] = {"metric": SPEC.name, **asdict(self)}
        plain["aspects"] = list(self.aspects)
        if self.text is not None and self.text.lora is not None:
            plain["text"]["lora"]["target_modules"] = list(self.text.lora.target_modules)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> VelaConfig:
        """Reads `to_dict`'s output.

        Raises:
            CheckpointError: unknown or unfit settings, such as a newer version of this library would write.
        """
        try:
            settings = {key: value for key, value in plain.items() if key != "metric"}
            if settings.get("text") is not None:
                text = dict(settings["text"])
                if text.get("lora") is not None:
                    text["lora"] = LoraSettings(**text["lora"])
                if "prompts" in text:
                    text["prompts"] = {aspect: Prompt(**texts) for aspect, texts in text["prompts"].items()}
                settings["text"] = TextConfig(**text)
            if settings.get("image") is not None:
                settings["image"] = ImageConfig(**settings["image"])
            absent = {entry.name for entry in fields(cls)} - set(settings)
            if absent:
                raise ValueError(f"{', '.join(sorted(absent))} not stated")
            return cls(**settings)
        except (TypeError, ValueError, KeyError) as error:
            raise CheckpointError(f"not a VELA configuration that this version can read: {error}") from error
