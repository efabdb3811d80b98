"""The private names of transformers that BestOfN uses, all in this file.

They are the same in transformers 4.57 to 5.23, apart from what is said below. The tests pass with 5.0.0 and 5.23.0; the
names were looked up in the source in 4.57.6, 5.2, 5.5, 5.10, 5.15 and 5.20, and in 5.7, 5.17 and 5.18 what the last
column dates.

| name | what it does here | changed |
|---|---|---|
| `model._expand_inputs_for_generation` | n rows of each prompt | 5.18: repeats `mm_encoder_outputs` as well |
| `model._sample` | the decoding loop | |
| `model._prefill` | what the decoding loop begins with: the prompts' forward pass | after 5.0: one more option |
| `model._get_logits_processor` | temperature, top_k, ... that `generate` has left out | 5.0: knows `top_h` |
| `config._eos_token_tensor`, `config._pad_token_tensor` | set by `generate` in its own copy of the config | |
| `PrefixConstrainedLogitsProcessor._prefix_allowed_tokens_fn`, `._num_beams` | the same function for more rows | |
| `generation.utils.is_deepspeed_zero3_enabled`, `.is_fsdp_managed_module` | do processes step together | moved |

`is_fsdp_managed_module` is defined in `integrations.fsdp` up to 5.7 and in `distributed.fsdp` from 5.10 on;
`generation.utils` imports it in all. `mm_encoder_outputs` are the images encoded once a prompt: before 5.18, the images
of a prompt are encoded for each of its rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache
from transformers.generation import utils as generation_utils
from transformers.generation.logits_process import (
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)
from transformers.utils import ModelOutput


def expanded_inputs(
    model: Any, input_ids: torch.Tensor, model_kwargs: dict[str, Any], times: int
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Inputs with `times` rows for each one, side by side. What is given is changed; see `copied`."""
    expanded: tuple[torch.Tensor, dict[str, Any]] = model._expand_inputs_for_generation(
        expand_size=times, is_encoder_decoder=model.config.is_encoder_decoder, input_ids=input_ids, **model_kwargs
    )
    return expanded


def copied(value: Any) -> Any:
    """The same tensors of inputs or outputs in new containers, and a cache anew: expanding and sampling change both."""
    if isinstance(value, Cache):
        stream = getattr(value, "prefetch_stream", None)  # of an offloaded cache: it has no copy, and needs none
        return copy.deepcopy(value, {id(stream): stream})
    if isinstance(value, ModelOutput):
        return type(value)(**{name: copied(item) for name, item in value.items()})
    return {name: copied(item) for name, item in value.items()} if isinstance(value, dict) else value


def prefilled(model: Any, input_ids: torch.Tensor, config: GenerationConfig, model_kwargs: dict[str, Any]) -> Any:
    """What the model gives for the prompts, with their cache; takes out of the inputs what later tokens do not need."""
    outputs = model._prefill(input_ids, config, model_kwargs)
    for name in ("past_key_values", "mm_encoder_outputs", "inputs_embeds"):
        model_kwargs.pop(name, None)
    return outputs


def rows_of_prompts(outputs: ModelOutput, places: torch.Tensor) -> ModelOutput:
    """What the decoding loop reads of the model's outputs, with the rows of these prompts; the cache is changed."""
    cache = outputs["past_key_values"]
    cache.reorder_cache(places)
    logits = outputs["logits"][:, -1:]
    return type(outputs)(logits=logits.index_select(0, places.to(logits.device)), past_key_values=cache)


def sample(model: Any, input_ids: torch.Tensor, prompts: Any = None, **arguments: Any) -> Any:
    """The decoding loop: the sequences.

    `prompts` is what the model gave for these rows, so that the loop need not send them through the model.
    """
    if prompts is not None:
        model, known = object.__new__(type(model)), vars(model)  # the same parts; other threads' model stays as it is
        vars(model).update(known, _prefill=lambda *_, **__: prompts)
    return model._sample(input_ids, **arguments)


def pad_token(config: GenerationConfig) -> torch.Tensor | None:
    """The token that fills up rows which end early."""
    token: torch.Tensor | None = config._pad_token_tensor
    return token


def warpers(model: Any, config: GenerationConfig) -> LogitsProcessorList:
    """Temperature, top_k, top_p and the like, which `generate` leaves out when do_sample is off."""
    names = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
    only_sampling = GenerationConfig(do_sample=True, **{name: getattr(config, name, None) for name in names})
    only_sampling._eos_token_tensor = config._eos_token_tensor
    return model._get_logits_processor(generation_config=only_sampling, input_ids_seq_length=1, device=model.device)


def processor_for_rows(processor: LogitsProcessor, rows: Sequence[int]) -> LogitsProcessor:
    """The processor for rows made of these rows of the call, where it knows its rows; as new, where it remembers."""
    if isinstance(processor, RepetitionPenaltyLogitsProcessor) and isinstance(
        processor.prompt_ignore_length, torch.Tensor
    ):
        return RepetitionPenaltyLogitsProcessor(processor.penalty, processor.prompt_ignore_length[list(rows)])
    if isinstance(processor, PrefixConstrainedLogitsProcessor):
        allowed, beams = processor._prefix_allowed_tokens_fn, processor._num_beams
        return PrefixConstrainedLogitsProcessor(lambda row, ids: allowed(rows[row] // beams, ids), 1)
    if isinstance(processor, UnbatchedClassifierFreeGuidanceLogitsProcessor):
        return copy.deepcopy(processor, {id(processor.model): processor.model})
    if isinstance(processor, SynthIDTextWatermarkLogitsProcessor):
        return copy.deepcopy(processor)
    return processor


def processes_step_together(model: Any) -> bool:
    """Whether all processes must take the same number of steps; `generate` keeps its own finding from callables."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    sharded = generation_utils.is_deepspeed_zero3_enabled() or generation_utils.is_fsdp_managed_module(model)
    return bool(sharded) and torch.distributed.get_world_size() > 1
