"""VlmRewardScorer: the value that a reward model gives to a question, an image, and a caption as the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from reward.backbones.pretrained import weight_files
from reward.checkpoints.weight_files import REWARD_HEADS, load_strict, load_tensors
from reward.errors import CheckpointError, JudgeError
from reward.judges.loading import TextProcessor, load_parts
from reward.judges.prefixes import PromptReader
from reward.judges.prompts import Prompt, PromptWriter
from reward.metrics.saving import BorrowedScorer, check_longest
from reward.metrics.scorer import CandidateScores, Group
from reward.metrics.vlmreward import SPEC

_BATCH_SIZE = 16


class VlmRewardScorer(BorrowedScorer):
    """A reward model: the head's number at the last token of the chat of `prompt`, image and caption.

    The chat is written by the model's own template, with the caption as the assistant's turn. What captions of one
    image share goes through the model once, see `reward.judges.prefixes.PromptReader`. A model that takes no images, as
    trainers of language models use it, reads the same chat without the image.

    `from_pretrained` reads models with the weights `score.*` (as `Gemma3ForSequenceClassification` has them) or
    `v_head.summary.*` (TRL's value head, also in a file value_head.safetensors), in the dtype that is stored.

    Args:
        model: from `AutoModelForImageTextToText` or `AutoModelForCausalLM`; its own head is not used.
        processor: its processor, with a chat template; of a language model a `TextProcessor`.
        head: gives numbers (b, 1) for the last states (b, d) of the model's base, in float32.
        ignored_end: a token at the end of the chat that the head does not read, as `...ForSequenceClassification` does
            not read the token that also pads.
        prompt: what the user says beside the image.
        max_characters: longer captions are cut and flagged.

    Raises:
        CheckpointError: an encoder-decoder, a model without a base, or a processor without chat template.
    """

    spec = SPEC
    settings = ("prompt", "max_characters")
    needs = "a model with a score head, as a folder or a Hub id"
    decodes_images = False  # the reader does, when their turn comes
    window_size = 256

    def __init__(
        self,
        model: Any,
        processor: Any,
        head: nn.Module,
        ignored_end: str | None = None,
        *,
        prompt: str = "Describe the image.",
        max_characters: int = 4000,
    ) -> None:
        if model.config.is_encoder_decoder or model.base_model is model:
            raise CheckpointError(f"vlmreward needs a decoder with a base and a head, got {type(model).__name__}")
        try:
            self.writer = PromptWriter(processor)
        except JudgeError as error:
            raise CheckpointError(f"vlmreward writes chats, but {error}") from error
        check_longest(max_characters)
        self.spec = replace(SPEC, needs_image=not isinstance(processor, TextProcessor))
        self.model, self.processor, self.head = model.eval(), processor, head.float().eval()
        self.prompt, self.max_characters, self.ignored_end = prompt, max_characters, ignored_end
        self.reader = PromptReader(model, self.writer, batch_size=_BATCH_SIZE, head=self.head)
        # The tokens of one image keep a CPU busy, and a row alone needs neither padding nor a mask.
        self.images_per_pass = 1 if model.device.type == "cpu" else _BATCH_SIZE

    @classmethod
    def _load(cls, folder: Path, *, name: str, device: Any, dtype: Any, **settings: Any) -> VlmRewardScorer:
        kind, head = _read_head(folder, where=f"reward model {name!r}")  # first, since encoders have none
        apart = (*REWARD_HEADS, "lm_head.")
        # transformers has no class with a score head for most of these models: they are loaded as models that write.
        model, processor = load_parts(folder, "reward model", revision=None, device=device, dtype=dtype, apart=apart)
        model.set_output_embeddings(nn.Identity())  # it may have come without weights, and is not used
        if kind == "score":
            settings["ignored_end"] = padding_token(model, processor)
        return cls(model, processor, head.to(device), **settings)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1)."""
        prompts: list[Prompt] = []
        cut: list[bool] = []
        for group in groups:
            for candidate in group.rows:
                cut.append(len(candidate.strip()) > self.max_characters)
                prompts.append(Prompt(self.chat(candidate), group.image, group.image_key))
        scores, failures = np.full((len(prompts), 1), np.nan), dict[int, str]()
        self.reader.batch_size = batch_size or _BATCH_SIZE
        self.reader.images_per_pass = batch_size or self.images_per_pass
        for indices, state in self.reader.read(prompts, failures):
            scores[indices] = state.logits.cpu().numpy()
        return CandidateScores(scores, cut, failures)

    def chat(self, candidate: str) -> str:
        """What the model reads: the chat with a caption, cut at `max_characters`, as the answer."""
        turns = [("user", self.prompt), ("assistant", candidate.strip()[: self.max_characters])]
        text = self.writer.chat(turns, with_image=self.spec.needs_image)
        # The head reads the last token of the chat, and skips the one that also pads.
        while self.ignored_end and text.endswith(self.ignored_end):
            text = text.removesuffix(self.ignored_end)
        return text


def padding_token(model: Any, processor: Any) -> str | None:
    """The token that pads, which a `...ForSequenceClassification` does not read at the end; None without one."""
    padding = model.config.get_text_config().pad_token_id
    return None if padding is None else processor.tokenizer.decode([padding])


def _read_head(folder: Path, *, where: str) -> tuple[str, nn.Linear]:
    """Name and network of the head of a reward model.

    Raises:
        CheckpointError: there is none, or it does not give one number.
    """
    # The head may lie among the weights, in a shard of its own, or in the file that LLaMA-Factory writes beside them.
    head_tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(folder, value_head=True):
        head_tensors |= load_tensors(file, begin=REWARD_HEADS)
    heads = {name.rpartition(".")[0] for name in head_tensors}
    if len(heads) != 1:
        raise CheckpointError(
            f"{where} has {', '.join(sorted(heads)) or 'no head for scores'}; vlmreward needs one of score.weight and "
            "v_head.summary.weight. A model that answers in words is a judge: -m vqascore=FOLDER; one that classifies "
            "pairs of texts compares captions with references: -m crossencoder=FOLDER"
        )
    kind = heads.pop()
    tensors = {name.rpartition(".")[2]: value for name, value in head_tensors.items()}
    width = tensors["weight"].shape[-1] if "weight" in tensors else 0
    head = nn.utils.skip_init(nn.Linear, width, 1, bias="bias" in tensors)
    load_strict(head, tensors, where=f"{where}: its head {kind!r}, which must give one number,")
    return kind, head
