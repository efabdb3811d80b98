"""Training of reward models: presets, a vision-language model with adapters and a new head, and the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from pydantic import Field
from pydantic.dataclasses import dataclass
from safetensors.torch import save_file
from torch import nn

from reward.backbones.fit import on_meta
from reward.backbones.lora import LoraSettings, add_lora, merge_lora
from reward.backbones.pretrained import VALUE_HEAD
from reward.checkpoints.folders import CARD_FILE, resolve_checkpoint
from reward.data.images import image_key
from reward.data.settings import STRICT, Names, Settings, settings_or_table
from reward.errors import TrainingError
from reward.judges.loading import load_parts
from reward.judges.prompts import Prompt
from reward.metrics.vlmreward.scorer import VlmRewardScorer, padding_token

LOSSES = ("bradley_terry",)
PRESETS: Mapping[str, Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "presets.yaml").read_text("utf-8"))
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, config=STRICT)
class AdapterSettings(LoraSettings):
    """Adapters on all matrices of the language model. Without dropout: captions share one pass over their image."""

    place: ClassVar[str] = "model.lora."

    alpha: Annotated[int, Field(ge=1)] = 32
    dropout: Annotated[float, Field(ge=0, le=0)] = 0.0
    target_modules: Annotated[Names, Field(min_length=1)] = (
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    )


@dataclass(frozen=True, config=STRICT)
class RewardModelSettings(Settings):
    """The table `model` of a configuration.

    Args:
        backbone: folder or Hub id of a vision-language model with a chat template, or `"embedded"`, the captioner of
            the drawings. A run with `--init` has that of its checkpoint.
        lora: the adapters.
        gradient_checkpointing: whether states are recomputed in the backward pass, which saves memory. An image then
            goes through the model once for each of its captions.
    """

    place: ClassVar[str] = "model settings: "

    backbone: Annotated[str, Field(min_length=1)] = "embedded"
    lora: Annotated[AdapterSettings, settings_or_table(AdapterSettings)] = AdapterSettings()
    gradient_checkpointing: bool = False


class Rewards(NamedTuple):
    """Output of `RewardNetwork`."""

    scores: torch.Tensor  # (N,) float32


class ScoreHead(nn.Linear):
    """A linear layer in float32, also where autocast would take half precision, in which close scores are equal."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return super().forward(states.float())


class RewardNetwork(nn.Module):
    """A reward model with adapters. It is trained as it scores: what captions of an image share is read once.

    Args:
        scorer: has model, processor and head; its model is changed.
        settings: of the adapters, and whether states are recomputed.
    """

    def __init__(self, scorer: VlmRewardScorer, settings: RewardModelSettings) -> None:
        super().__init__()
        self.scorer = scorer
        self.model: Any = scorer.model.requires_grad_(False)
        self.head: Any = scorer.head.requires_grad_(True)
        add_lora(self.model.get_decoder(), settings.lora)
        # It reads the token that it will read as it is saved.
        has_class = _class_with_head(self.model) is not None
        scorer.ignored_end = padding_token(self.model, scorer.processor) if has_class else None
        self._recomputes = settings.gradient_checkpointing
        if self._recomputes:  # which works in training mode alone, and without keys and values of a beginning
            # older versions of transformers have the second name only
            enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
            enable({"use_reentrant": False})
            scorer.reader.shares = {True: False, False: False}

    def train(self, mode: bool = True) -> RewardNetwork:
        """Training mode without dropout: the reader checks that a shared beginning changes no number."""
        super().train(mode)
        self.model.train(mode and self._recomputes)
        return self

    def forward(self, prompts: Sequence[Prompt], aspect: torch.Tensor) -> Rewards:
        """Scores of N prompts. `aspect`, the kind of error of each, is ignored.

        Raises:
            TrainingError: an image cannot be read, or a chat has more tokens than the model reads.
        """
        failures: dict[int, str] = {}
        scores: dict[int, torch.Tensor] = {}
        for indices, state in self.scorer.reader.read(prompts, failures):
            scores.update(zip(indices, state.logits[:, 0], strict=True))
        if failures:
            raise TrainingError(f"a caption cannot be read by the model: {next(iter(failures.values()))}")
        return Rewards(torch.stack([scores[index] for index in range(len(prompts))]))


class RewardCollator:
    """Writes the chats of a batch; the images are read with the network's pass.

    Args:
        network: its template is used.
    """

    def __init__(self, network: RewardNetwork) -> None:
        self._scorer = network.scorer

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch of B rows {"sample", "aspect", "target"}: labels (B,), aspect (B,), and B prompts."""
        prompts = []
        for row in rows:
            sample = row["sample"]
            prompts.append(Prompt(self._scorer.chat(sample.candidate), sample.image, image_key(sample.image)))
        return {
            # Labels come first, because the Trainer takes the batch size from the first tensor.
            "labels": torch.tensor([float(row["target"]) for row in rows]),
            "aspect": torch.tensor([int(row["aspect"]) for row in rows]),
            "prompts": prompts,
        }


make_collator = RewardCollator  # see `reward.training.stage.MetricTraining`


def make_model(
    settings: Mapping[str, Any], *, texts: Callable[[], Sequence[str]], precision: str = "fp32"
) -> RewardNetwork:
    """A vision-language model with adapters and a new head, whose first scores are about as wide as 1.

    Args:
        settings: see `RewardModelSettings`.
        texts: not used; the model brings its tokenizer.
        precision: with `"bf16"` and `"fp16"`, frozen weights have that dtype; adapters and head stay in float32.

    Raises:
        ConfigError: a setting is unknown or out of range.
        CheckpointError: the backbone cannot be loaded, or takes no images.
    """
    checked = RewardModelSettings(**settings)
    source: str | Path = checked.backbone
    if source == "embedded":
        source = resolve_checkpoint(source, model="captioner")
    dtype = _DTYPES[precision]
    model, processor = load_parts(source, "backbone", revision=None, device="cpu", dtype=dtype, must_see=True)
    width = model.config.get_text_config().hidden_size
    head = ScoreHead(width, 1, bias=False)
    nn.init.normal_(head.weight, std=(width + 1) ** -0.5)  # as for the reward models of InstructGPT
    return RewardNetwork(VlmRewardScorer(model, processor, head), checked)


def load_for_training(folder: Path, settings: Mapping[str, Any], *, precision: str = "fp32") -> RewardNetwork:
    """Loads a reward model to train it further, with new adapters; of the settings, only `gradient_checkpointing`."""
    scorer = VlmRewardScorer.from_pretrained(folder, device="cpu", dtype=_DTYPES[precision])
    linear: Any = scorer.head
    head = ScoreHead(linear.in_features, 1, bias=linear.bias is not None)
    head.load_state_dict(linear.state_dict())
    scorer.head = scorer.reader.head = head
    return RewardNetwork(scorer, RewardModelSettings(gradient_checkpointing=bool(settings["gradient_checkpointing"])))


def save_model(model: RewardNetwork, folder: Path, *, card: str) -> None:
    """Writes a folder that `VlmRewardScorer` and others load: the adapters are merged into the weights.

    A type with a class `...ForSequenceClassification` is saved as one, with the head `score`. Any other is saved as it
    is, with the head beside it in value_head.safetensors, as LLaMA-Factory does.
    """
    merge_lora(model.model.get_decoder())
    network, weight = model.model, model.head.weight.detach()
    make_class = _class_with_head(network)
    if make_class is None:
        bias = torch.zeros(1) if model.head.bias is None else model.head.bias.detach()
        tensors = {"v_head.summary.weight": weight.cpu().contiguous(), "v_head.summary.bias": bias.cpu()}
        save_file(tensors, folder / VALUE_HEAD, {"format": "pt"})
    else:
        network.config.num_labels = 1
        with on_meta():
            classifier = make_class(network.config)
        setattr(classifier, classifier.base_model_prefix, network.base_model)
        classifier.score = model.head
        network = classifier
    network.save_pretrained(folder)
    processor = model.scorer.processor
    # that of a language model is our class around its tokenizer
    getattr(processor, "save_pretrained", processor.tokenizer.save_pretrained)(folder)
    (folder / CARD_FILE).write_text(card, encoding="utf-8")


def _class_with_head(model: Any) -> Any:
    """The class with a head `score` for a model's type; None if transformers has none."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

    return MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(model.config), None)
