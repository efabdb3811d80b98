"""VelaConfig: the config.json of a VELA checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from reward.errors import CheckpointError
from reward.metrics.vela import SPEC
from reward.metrics.vela.prompts import DEFAULT_PROMPTS, Prompt


def _check_types(settings: Any, where: str, **kinds: str) -> None:
    """Refuses settings of a wrong type, which would otherwise fail in another library, or only when scoring."""
    for name, kind in kinds.items():
        value = getattr(settings, name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        fits = {
            "true or false": isinstance(value, bool),
            "a whole number of at least 1": number and isinstance(value, int) and value >= 1,
            "a number in [0, 1)": number and 0 <= value < 1,
            "a number above 0": number and value > 0,
            "a text or null": value is None or (isinstance(value, str) and value != ""),
            "a table or null": value is None or isinstance(value, Mapping),
            "a table": isinstance(value, Mapping),
            "a list of names": isinstance(value, (list, tuple))
            and len(value) > 0
            and all(isinstance(entry, str) and entry for entry in value),
        }[kind]
        if not fits:
            raise ValueError(f"{where}{name} must be {kind}, got {value!r:.200}")


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters on the language model. With the paper's backbone the defaults make 3,686,400 parameters."""

    r: int = 16
    alpha: int = 16
    dropout: float = 0.1
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")

    def __post_init__(self) -> None:
        _check_types(
            self,
            "text.lora.",
            r="a whole number of at least 1",
            alpha="a number above 0",
            dropout="a number in [0, 1)",
            target_modules="a list of names",
        )
        object.__setattr__(self, "target_modules", tuple(self.target_modules))


@dataclass(frozen=True)
class FusionSettings:
    """A transformer that fuses the four vectors of the branches, a token each. The paper does not give its sizes."""

    width: int = 256
    heads: int = 4
    layers: int = 1
    dropout: float = 0.1

    def __post_init__(self) -> None:
        whole = "a whole number of at least 1"
        _check_types(self, "fusion.", width=whole, heads=whole, layers=whole, dropout="a number in [0, 1)")
        if self.width % self.heads:
            raise ValueError(f"fusion.width must be a multiple of fusion.heads, got {self.width} and {self.heads}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table, got {value!r:.200}")
    return dict(value)


def _check_backbone(branch: str, backbone: str | None, architecture: dict[str, Any] | None) -> None:
    if (backbone is None) == (architecture is None):
        raise ValueError(
            f"the {branch} branch needs either a backbone (whose weights are fetched) or an architecture (whose "
            f"weights are in the checkpoint), got backbone={backbone!r} and architecture={architecture!r:.60}"
        )


@dataclass(frozen=True)
class TextConfig:
    """Configuration of the branch that reads references and candidate with a causal language model (R2C).

    Args:
        backbone: Hub id or folder of a causal language model; its weights are frozen and not in the checkpoint.
        architecture: instead, a configuration of transformers with `model_type`; all weights are in the checkpoint.
        lora: adapters to train, or None.
        prompts: {aspect: Prompt}.
        chat_template: whether the tokenizer's chat template frames the prompt.
        max_prefix_tokens: room for rubric and references. References that do not fit are cut at their ends, the
            longest first. If there are too many, the last ones are dropped.
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
        _check_types(
            self,
            "text.",
            backbone="a text or null",
            architecture="a table or null",
            prompts="a table",
            chat_template="true or false",
            max_prefix_tokens="a whole number of at least 1",
            max_candidate_tokens="a whole number of at least 1",
        )
        _check_backbone("text", self.backbone, self.architecture)
        if self.architecture is not None and not isinstance(self.architecture.get("model_type"), str):
            raise ValueError("text.architecture needs a 'model_type', such as 'qwen2'")


@dataclass(frozen=True)
class ImageConfig:
    """Configuration of the branch that compares image and candidate with a CLIP (I2C).

    Args:
        backbone: a source of `reward.backbones.load_clip`; its weights are frozen and not in the checkpoint.
        architecture: instead, `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"`
            with the ids `{"start", "end", "pad"}` in the checkpoint's own tokenizer; all weights are in the checkpoint.
        normalise: whether image and text features are scaled to length 1 before they are compared. The paper does
            not say; its formula suggests that they are not.
    """

    backbone: str | None = "BeichenZhang/LongCLIP-L"
    architecture: dict[str, Any] | None = None
    normalise: bool = False

    def __post_init__(self) -> None:
        _check_types(
            self, "image.", backbone="a text or null", architecture="a table or null", normalise="true or false"
        )
        _check_backbone("image", self.backbone, self.architecture)
        if self.architecture is None:
            return
        model_cfg, ids = self.architecture.get("model_cfg"), self.architecture.get("tokenizer")
        if not isinstance(model_cfg, Mapping) or not isinstance(ids, Mapping) or set(ids) != {"start", "end", "pad"}:
            raise ValueError(
                "image.architecture needs 'model_cfg' and 'tokenizer' with the ids start, end and pad, got "
                f"model_cfg={model_cfg!r:.100} and tokenizer={ids!r:.100}"
            )
        text = model_cfg.get("text_cfg")
        if not isinstance(text, Mapping):
            raise ValueError(f"image.architecture.model_cfg.text_cfg must be a table, got {text!r}")
        for name in ("vocab_size", "context_length"):
            if not isinstance(text.get(name), int) or isinstance(text[name], bool) or text[name] < 3:
                raise ValueError(
                    f"image.architecture.model_cfg.text_cfg.{name} must be a whole number of at least 3, got "
                    f"{text.get(name)!r}"
                )
        for name, token in ids.items():
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < text["vocab_size"]:
                raise ValueError(
                    f"image.architecture.tokenizer.{name} must be a token id below vocab_size {text['vocab_size']}, "
                    f"got {token!r}"
                )
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
    """Configuration of a VELA model. The defaults are the paper's; None for a branch gives an ablation.

    Args:
        aspects: names of the scores, in order.
        text, image: the two branches.
        fusion: a transformer before the head, or None: the head reads the vectors of the branches themselves.

    Raises:
        ValueError: no branch, no aspect, a repeated aspect or one without a prompt.

    Example:
        >>> config = VelaConfig(image=None)
        >>> VelaConfig.from_dict(config.to_dict()) == config
        True
    """

    aspects: tuple[str, ...] = SPEC.aspects
    text: TextConfig | None = field(default_factory=TextConfig)
    image: ImageConfig | None = field(default_factory=ImageConfig)
    fusion: FusionSettings | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.aspects, (list, tuple)):
            raise ValueError(f"aspects must be a list of names, got {self.aspects!r}")
        object.__setattr__(self, "aspects", tuple(self.aspects))
        if self.text is None and self.image is None:
            raise ValueError("VELA needs at least one branch: text and image are both None")
        if not self.aspects or len(set(self.aspects)) != len(self.aspects):
            raise ValueError(f"aspects must be different names, at least one, got {self.aspects}")
        _check_types(self, "", aspects="a list of names")
        if self.text is not None:
            missing = [aspect for aspect in self.aspects if aspect not in self.text.prompts]
            if missing:
                raise ValueError(f"the text branch has no prompt for {', '.join(missing)}")

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether a branch has its own architecture, and so needs the checkpoint's own tokenizer."""
        return any(branch is not None and branch.architecture is not None for branch in (self.text, self.image))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for config.json, with the metric's name."""
        plain: dict[str, Any] = {"metric": SPEC.name, **asdict(self)}
        plain["aspects"] = list(self.aspects)
        if self.text is not None and self.text.lora is not None:
            plain["text"]["lora"]["target_modules"] = list(self.text.lora.target_modules)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> VelaConfig:
        """Reads the output of `to_dict`.

        Raises:
            CheckpointError: a setting is unknown or invalid, for example from a newer version of this library.
        """
        try:
            # older checkpoints have the entry `domain`, which says nothing of the network
            settings = {key: value for key, value in plain.items() if key not in ("metric", "domain")}
            if settings.get("text") is not None:
                text = _table("text", settings["text"])
                if text.get("lora") is not None:
                    text["lora"] = LoraSettings(**_table("text.lora", text["lora"]))
                if "prompts" in text:
                    prompts = _table("text.prompts", text["prompts"])
                    text["prompts"] = {
                        aspect: Prompt(**_table(f"text.prompts.{aspect}", texts)) for aspect, texts in prompts.items()
                    }
                settings["text"] = TextConfig(**text)
            if settings.get("image") is not None:
                settings["image"] = ImageConfig(**_table("image", settings["image"]))
            if settings.get("fusion") is not None:
                settings["fusion"] = FusionSettings(**_table("fusion", settings["fusion"]))
            head = settings.pop("head", "per_aspect")  # older checkpoints state it: a row of weights for each aspect
            if head != "per_aspect":
                raise ValueError(f"head must be 'per_aspect', got {head!r}")
            absent = {entry.name for entry in fields(cls)} - set(settings) - {"fusion"}  # the oldest have no fusion
            if absent:
                raise ValueError(f"{', '.join(sorted(absent))} not stated")
            return cls(**settings)
        except (TypeError, ValueError, KeyError) as error:
            raise CheckpointError(f"not a VELA configuration that this version can read: {error}") from error
