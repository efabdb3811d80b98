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
from transformers.generation.logits_process import PrefixConstrainedLogitsProcessor, RepetitionPenaltyLogitsProcessor
from transformers.utils import ModelOutput

_WARPERS = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")


def expand_inputs(
    model: Any, input_ids: torch.Tensor, model_kwargs: dict[str, Any], times: int
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Inputs with `times` rows for each one, side by side. Changes its arguments, see `copy_inputs`."""
    return model._expand_inputs_for_generation(
        expand_size=times, is_encoder_decoder=model.config.is_encoder_decoder, input_ids=input_ids, **model_kwargs
    )


def copy_inputs(value: Any) -> Any:
    """A model's inputs or outputs with the same tensors in new containers, and with a new cache.

    Expanding and sampling change containers and cache, so that every part of the decoding but the last needs its own.
    """
    if isinstance(value, Cache):
        # The CUDA stream of an offloaded cache cannot be copied, and can be shared.
        stream = getattr(value, "prefetch_stream", None)
        return copy.deepcopy(value, {id(stream): stream})
    if isinstance(value, ModelOutput):
        return type(value)(**{name: copy_inputs(item) for name, item in value.items()})
    if isinstance(value, dict):
        return {name: copy_inputs(item) for name, item in value.items()}
    return value


def prefill(model: Any, input_ids: torch.Tensor, config: GenerationConfig, model_kwargs: dict[str, Any]) -> Any:
    """The model's outputs for the prompts, with their cache; removes the inputs that later tokens do not need."""
    outputs = model._prefill(input_ids, config, model_kwargs)
    # The decoding loop would repeat them for all rows, or encode the images again.
    for name in ("past_key_values", "mm_encoder_outputs", "inputs_embeds"):
        model_kwargs.pop(name, None)
    return outputs


def select_rows(outputs: ModelOutput, rows: torch.Tensor) -> ModelOutput:
    """The outputs that the decoding loop reads, for these rows of them. Reorders the cache itself."""
    cache = outputs["past_key_values"]
    cache.reorder_cache(rows)
    logits = outputs["logits"][:, -1:]
    return type(outputs)(logits=logits.index_select(0, rows.to(logits.device)), past_key_values=cache)


class _PrefilledModel:
    """A model whose forward pass of the prompts has been made, as the decoding loop sees it.

    The loop takes a filled cache, but not the logits that came with it: it would send the last token through the model
    again, or the whole prompt where a cache cannot be cropped. It gets the logits from `self._prefill`, so that it is
    run with this object as its `self`, which answers this one call and hands all others to the model. The model itself
    is not changed: other threads may use it.
    """

    def __init__(self, model: Any, outputs: ModelOutput) -> None:
        self.model = model
        self.outputs = outputs

    def _prefill(self, *args: Any, **kwargs: Any) -> ModelOutput:
        return self.outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def sample(model: Any, input_ids: torch.Tensor, prompt_outputs: ModelOutput | None = None, **arguments: Any) -> Any:
    """Sequences (rows, longer length): the prompts with what the decoding loop writes after them.

    `prompt_outputs` are what `prefill` gave for these rows; None sends the prompts through the model.
    """
    loop = type(model)._sample
    if prompt_outputs is None:
        return loop(model, input_ids, **arguments)
    return loop(_PrefilledModel(model, prompt_outputs), input_ids, **arguments)


def pad_token(config: GenerationConfig) -> torch.Tensor | None:
    """The token that fills up rows which end early."""
    return config._pad_token_tensor


def warpers(model: Any, config: GenerationConfig) -> LogitsProcessorList:
    """Temperature, top_k, top_p and the like, which `generate` leaves out when do_sample is off."""
    settings = {name: getattr(config, name, None) for name in _WARPERS}
    sampling_config = GenerationConfig(do_sample=True, **settings)
    sampling_config._eos_token_tensor = config._eos_token_tensor
    return model._get_logits_processor(generation_config=sampling_config, input_ids_seq_length=1, device=model.device)


def processor_for_rows(processor: LogitsProcessor, rows: Sequence[int]) -> LogitsProcessor:
    """A processor for a batch made of these rows of the call, where it knows what stands in which row.

    Two of transformers' processors do: one has the lengths of the prompts, the other gives a function the row's number.
    """
    if isinstance(processor, RepetitionPenaltyLogitsProcessor):
        lengths = processor.prompt_ignore_length
        if isinstance(lengths, torch.Tensor):
            return RepetitionPenaltyLogitsProcessor(processor.penalty, lengths[list(rows)])
    if isinstance(processor, PrefixConstrainedLogitsProcessor):
        # The new one counts rows, each of one beam; which row of the call it was is looked up.
        allowed_tokens, beams = processor._prefix_allowed_tokens_fn, processor._num_beams
        return PrefixConstrainedLogitsProcessor(lambda row, ids: allowed_tokens(rows[row] // beams, ids), 1)
    return processor


def processes_step_together(model: Any) -> bool:
    """Whether all processes must take the same number of steps; `generate` does not tell a strategy."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    # Parameters in shards are gathered by all processes at each step, also by those whose captions have ended.
    sharded = generation_utils.is_deepspeed_zero3_enabled() or generation_utils.is_fsdp_managed_module(model)
    return bool(sharded) and torch.distributed.get_world_size() > 1
