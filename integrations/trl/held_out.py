"""The policy of a TRL trainer writes captions of held-out images, with the entropy of its tokens and the KL."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from trl.data_utils import prepare_multimodal_messages

from reward.backbones.evaluating import evaluating
from reward.decoding.endings import end_tokens, up_to_end

__all__ = ["Start", "Written", "messages_of", "start_of", "write_held_out"]

Start = Literal["reference model", "adapters off", "adapter ref"]


@dataclass(frozen=True)
class Written:
    """A caption of a held-out image.

    Args:
        text, ids: the caption and its tokens, with the end token if there is one.
        ended: whether the policy ended it; otherwise it was cut at the longest length.
        entropy: of the policy's next token, in nats, summed over the tokens.
        kl: KL of policy and start for the next token, in nats, summed over the tokens; None where there is no start.
    """

    text: str
    ids: list[int]
    ended: bool
    entropy: float
    kl: float | None


def start_of(trainer: Any) -> Start | None:
    """Where the policy before the training can still be run, or None."""
    if getattr(trainer.args, "sync_ref_model", False):
        return None  # the reference follows the policy
    if getattr(trainer, "ref_model", None) is not None:
        return "reference model"
    adapters = getattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config", None)
    if adapters is None:
        return None
    return "adapter ref" if "ref" in adapters else "adapters off"


def write_held_out(
    trainer: Any,
    rows: Any,
    indices: Sequence[int],
    *,
    temperature: float | None,
    seed: int,
    batch_size: int,
    start: Start | None,
) -> list[Written]:
    """Captions of some rows. What they are does not depend on which rows are written together.

    Args:
        trainer: of GRPO or RLOO.
        rows: data set with `prompt` (messages) and `image` or `images`.
        indices: the rows.
        temperature: None decodes greedily; a number samples from the whole vocabulary.
        seed: of the sampling, with which each row has random numbers of its own, the same at every call.
        batch_size: rows that are decoded side by side.
        start: from `start_of`.
    """
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    tokenizer = trainer.processing_class.tokenizer
    written: list[Written] = []
    with evaluating(model), _left_padding(tokenizer), torch.no_grad():
        for first in range(0, len(indices), batch_size):
            chosen = list(indices[first : first + batch_size])
            inputs = _inputs(trainer, [rows[index] for index in chosen])
            config, ends = _decoding(trainer, model, tokenizer)
            noise = [] if temperature is None else [_Noise([(seed, index) for index in chosen], temperature)]
            sequences = model.generate(**inputs, generation_config=config, logits_processor=LogitsProcessorList(noise))
            completions = sequences[:, inputs["input_ids"].shape[1] :]
            entropies, kls = _entropies(trainer, model, inputs, completions, start)
            for place, (ids, ended) in enumerate(up_to_end(completions.tolist(), ends)):
                text = tokenizer.decode(ids, skip_special_tokens=True)
                kl = None if kls is None else float(kls[place, : len(ids)].sum())
                entropy = float(entropies[place, : len(ids)].sum())
                written.append(Written(text, ids, ended, entropy, kl))
    return written


@contextmanager
def _left_padding(tokenizer: Any) -> Iterator[None]:
    side = tokenizer.padding_side
    tokenizer.padding_side = "left"
    try:
        yield
    finally:
        tokenizer.padding_side = side


def messages_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The prompt of a row with its images, as TRL's trainers make it."""
    images = row.get("images") or [row["image"]]
    return prepare_multimodal_messages(row["prompt"], images)


def _inputs(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    template = trainer.processing_class.apply_chat_template
    padding: dict[str, Any] = {"padding": True}
    if "processor_kwargs" in inspect.signature(template).parameters:  # not in the first releases of transformers 5
        padding = {"processor_kwargs": padding}
    encoded = template(
        conversation=[messages_of(row) for row in rows],
        chat_template=getattr(trainer, "chat_template", None),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        **padding,
        **(getattr(trainer, "chat_template_kwargs", None) or {}),
    )
    return {name: value.to(trainer.accelerator.device) for name, value in encoded.items()}


def _decoding(trainer: Any, model: Any, tokenizer: Any) -> tuple[GenerationConfig, set[int]]:
    """The trainer's way to decode, but greedily, and the tokens that end a caption."""
    config = copy.deepcopy(getattr(trainer, "generation_config", None)) or GenerationConfig(
        max_new_tokens=trainer.args.max_completion_length, pad_token_id=tokenizer.pad_token_id
    )
    config.do_sample = False
    config.temperature = config.top_p = config.top_k = config.min_p = None  # they only matter to sampling
    ends = end_tokens(tokenizer, config, model.generation_config)
    config.eos_token_id = sorted(ends)
    return config, ends


class _Noise(LogitsProcessor):
    """Adds Gumbel noise to the scaled logits, so that the highest is a sample; each row has its own generator."""

    def __init__(self, seeds: Sequence[tuple[int, int]], temperature: float) -> None:
        self.temperature = temperature
        self.generators = [torch.Generator().manual_seed(seed * 1_000_003 + index) for seed, index in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        draws = [torch.empty(scores.shape[-1]).exponential_(generator=each) for each in self.generators]
        return scores.float() / self.temperature - torch.stack(draws).log().to(scores.device)


def _entropies(
    trainer: Any, model: Any, inputs: Mapping[str, torch.Tensor], completions: torch.Tensor, start: Start | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Entropy and KL of each token, (B, T)."""
    known = inputs["input_ids"].shape
    full = {
        name: torch.cat([value, value.new_zeros(completions.shape)], dim=1) if value.shape == known else value
        for name, value in inputs.items()  # fields of each token, such as mm_token_type_ids
    }
    full["input_ids"] = torch.cat([inputs["input_ids"], completions], dim=1)
    full["attention_mask"] = torch.cat([inputs["attention_mask"], torch.ones_like(completions)], dim=1)
    length = completions.shape[1]
    policy = _next_tokens(model, full, length)
    entropies = -(policy.exp() * policy).sum(-1)
    if start is None:
        return entropies, None
    with _network_at_start(trainer, model, start) as network:
        before = _next_tokens(network, full, length)
    return entropies, (policy.exp() * (policy - before)).sum(-1)


def _next_tokens(network: Any, inputs: Mapping[str, torch.Tensor], length: int) -> torch.Tensor:
    """Log-probabilities of the last tokens, (B, length, vocabulary)."""
    inner = network.get_base_model() if hasattr(network, "peft_config") else network
    options: dict[str, Any] = {"use_cache": False}
    if "logits_to_keep" in inspect.signature(inner.forward).parameters:
        options["logits_to_keep"] = length + 1
    logits = network(**inputs, **options).logits[:, -length - 1 : -1]
    return torch.log_softmax(logits.float(), dim=-1)


@contextmanager
def _network_at_start(trainer: Any, model: Any, start: Start) -> Iterator[Any]:
    if start == "reference model":
        network = trainer.accelerator.unwrap_model(trainer.ref_model)
        with evaluating(network):
            yield network
        return
    active = model.active_adapter
    trainable = {name for name, value in model.named_parameters() if value.requires_grad}
    with model.disable_adapter() if start == "adapters off" else nullcontext():
        if start == "adapter ref":
            model.set_adapter("ref")
        try:
            yield model
        finally:
            if start == "adapter ref":
                model.set_adapter(active)
    for name, value in model.named_parameters():  # set_adapter also says which weights learn
        value.requires_grad_(name in trainable)
