"""Low-rank adapters on a frozen language model: added before a training, and merged into its weights after it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn

from reward.data.settings import STRICT, AtLeast1, Names, Rate, Settings
from reward.errors import ConfigError


@dataclass(frozen=True, config=STRICT)
class LoraSettings(Settings):
    """Low-rank adapters on the language model. With VELA's backbone the defaults make 3,686,400 parameters."""

    place: ClassVar[str] = "text.lora."

    r: AtLeast1 = 16
    alpha: AtLeast1 = 16
    dropout: Rate = 0.1
    target_modules: Annotated[Names, Field(min_length=1)] = ("q_proj", "v_proj")


def add_lora(decoder: nn.Module, settings: LoraSettings) -> nn.Module:
    """Adds low-rank adapters to a decoder, which do not change its output yet, and freezes its other weights.

    The adapters are in float32, so that half-precision backbones can be trained.

    Raises:
        ConfigError: the decoder lacks one of the target modules, which peft would leave out without a word.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import cast_adapter_dtype

    names = [f".{name}" for name, _ in decoder.named_modules()]
    for target in settings.target_modules:
        if not any(name.endswith(f".{target}") for name in names):
            matrices = [name.split(".")[-2] for name, value in decoder.named_parameters() if value.ndim == 2]
            raise ConfigError(
                f"{settings.place}target_modules: this {type(decoder).__name__} has no module {target!r}; "
                f"it has {', '.join(dict.fromkeys(matrices))}"
            )
    lora = LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
    )
    decoder = inject_adapter_in_model(lora, decoder)
    cast_adapter_dtype(decoder, adapter_name="default")
    return decoder


def merge_lora(decoder: nn.Module) -> None:
    """Adds the adapters to the weights that they change, and removes them: the output is the same up to rounding."""
    from peft.tuners.lora import LoraLayer

    for name, module in list(decoder.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, leaf = name.rpartition(".")
            setattr(decoder.get_submodule(parent), leaf, module.get_base_layer())
