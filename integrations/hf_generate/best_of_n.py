"""BestOfN: sample N captions an image inside `generate`, return those that a reward likes best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache
from transformers.generation.logits_process import PrefixConstrainedLogitsProcessor, RepetitionPenaltyLogitsProcessor
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from reward.decoding.candidates import RatesCaptions, rate_candidates
from reward.decoding.selection import best_of_groups
from reward.samples import ImageLike

__all__ = ["BestOfN", "BestOfNDecoderOnlyOutput", "BestOfNEncoderDecoderOutput", "RatedCandidates"]


@dataclass
class BestOfNDecoderOnlyOutput(GenerateDecoderOnlyOutput):
    """What `return_dict_in_generate=True` gives; `reward_scores` (rows,) float32, NaN where there is none."""

    reward_scores: torch.Tensor | None = None


@dataclass
class BestOfNEncoderDecoderOutput(GenerateEncoderDecoderOutput):
    """The same for encoder-decoders; as in transformers, what the encoder gave has one row a prompt."""

    reward_scores: torch.Tensor | None = None


@dataclass(frozen=True)
class RatedCandidates:
    """All candidates of the last call.

    Args:
        captions: B lists of n captions.
        rewards: B lists of n rewards, None for empty captions and those that could not be scored.
        chosen: B lists of k indices into the lists above, best first.
    """

    captions: list[list[str]]
    rewards: list[list[float | None]]
    chosen: list[list[int]]


class BestOfN:
    """A decoding strategy for `model.generate(custom_generate=BestOfN(...))`: the best of n sampled captions an image.

    Works for decoder-only vision-language models and for encoder-decoders, with any batch size. The model's inputs are
    encoded once a prompt. Captions are always sampled when n > 1, with the temperature, top_k, top_p, ... of the
    generation config, whether or not `do_sample` is set. `num_return_sequences=k` returns the k best of the n, prompt
    by prompt, best first (transformers wants `do_sample=True` with it). With `return_dict_in_generate` the output holds
    the chosen rows and `reward_scores`. Captions that come up twice are scored once; empty ones, and those that cannot
    be scored, lose to all others. Afterwards `last` holds all candidates with their rewards.

    Not possible: beams, a static or filled cache, and what `generate` withholds from callables: a streamer,
    `stop_strings` and an assistant model. If k does not divide n, up to k - 1 samples a prompt are drawn in vain. Uses
    the private `_sample` and `_expand_inputs_for_generation` of transformers 5.

    Args:
        reward: such as `VelaReward()`; anything with `rewards(samples)`.
        n: candidates an image, the greedy one included.
        processor: processor or tokenizer that decodes the captions.
        images: one image a prompt of the batch. They are handed over here since `generate` gives a strategy encoded
            images only. None for rewards that need none.
        references: a list of reference captions a prompt, or None.
        include_greedy: makes the greedy caption the first candidate. Its `scores`, if the output holds them, are those
            of a token that was certain; its `logits` are the model's.

    Raises:
        ValueError: n < 1; in the call, whatever is not possible.

    Example:
        >>> strategy = BestOfN(reward=None, n=4, processor=None)
        >>> strategy
        BestOfN(n=4, include_greedy=False)
    """

    def __init__(
        self,
        reward: RatesCaptions,
        n: int,
        processor: Any,
        images: Sequence[ImageLike | None] | None = None,
        references: Sequence[Sequence[str] | None] | None = None,
        include_greedy: bool = False,
    ) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.reward = reward
        self.n = n
        self.processor = processor
        self.images = images
        self.references = references
        self.include_greedy = include_greedy
        self.last: RatedCandidates | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, include_greedy={self.include_greedy})"

    # The names here are those of GenerationMixin._sample: any other name would take that argument away from the model.
    def __call__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> torch.Tensor | BestOfNDecoderOnlyOutput | BestOfNEncoderDecoderOutput:
        """Called by `generate`; returns the chosen sequences (B * k, length), or the output object that holds them."""
        k = generation_config.num_return_sequences
        _refuse_impossible(generation_config, model_kwargs, self.n)
        prompts = len(input_ids) // k  # generate has made k rows of each prompt, side by side
        images = _one_a_prompt(self.images, prompts, "images")
        references = _one_a_prompt(self.references, prompts, "references")

        more = -(-self.n // k)
        input_ids, model_kwargs = model._expand_inputs_for_generation(
            expand_size=more, is_encoder_decoder=model.config.is_encoder_decoder, input_ids=input_ids, **model_kwargs
        )
        per_prompt = more * k
        processors = self._processors(model, generation_config, logits_processor, more, per_prompt)
        output = model._sample(
            input_ids,
            logits_processor=processors,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            synced_gpus=_synced_gpus(model),
            **model_kwargs,
        )

        sequences = output if isinstance(output, torch.Tensor) else output.sequences
        texts = self.processor.batch_decode(sequences[:, input_ids.shape[1] :], skip_special_tokens=True)
        captions = [
            [text.strip() for text in texts[start : start + self.n]] for start in range(0, len(texts), per_prompt)
        ]
        rewards = rate_candidates(captions, images, references, self.reward)
        chosen = [best_of_groups(group, self.n, k) for group in rewards]
        self.last = RatedCandidates(captions, rewards, chosen)

        rows = [prompt * per_prompt + index for prompt, indices in enumerate(chosen) for index in indices]
        index = torch.tensor(rows, device=sequences.device)
        if isinstance(output, torch.Tensor):
            return output.index_select(0, index)
        best = [group[i] for group, indices in zip(rewards, chosen, strict=True) for i in indices]
        return _chosen_output(output, index, best)

    def _processors(
        self, model: Any, config: GenerationConfig, processors: LogitsProcessorList, more: int, per_prompt: int
    ) -> LogitsProcessorList:
        """Logits processors for per_prompt rows a prompt; switches sampling on."""
        processors = LogitsProcessorList([_for_more_rows(processor, more) for processor in processors])
        if self.n > 1 and not config.do_sample:
            config.do_sample = True  # generate has made this config for this call
            processors.extend(_warpers(model, config))
        if self.include_greedy:
            processors.append(_GreedyRows(per_prompt))
        return processors


class _GreedyRows(LogitsProcessor):
    """Leaves the first row of each prompt its likeliest token only, so that sampling it is greedy decoding."""

    def __init__(self, per_prompt: int) -> None:
        self.per_prompt = per_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        greedy = scores[:: self.per_prompt]
        only = torch.full_like(greedy, -torch.inf).scatter(1, greedy.argmax(dim=-1, keepdim=True), 0.0)
        scores = scores.clone()
        scores[:: self.per_prompt] = only
        return scores


def _warpers(model: Any, config: GenerationConfig) -> LogitsProcessorList:
    """Temperature, top_k, top_p and the like, which `generate` leaves out when do_sample is off."""
    names = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
    only_sampling = GenerationConfig(do_sample=True, **{name: getattr(config, name, None) for name in names})
    only_sampling._eos_token_tensor = config._eos_token_tensor
    return model._get_logits_processor(generation_config=only_sampling, input_ids_seq_length=1, device=model.device)


def _for_more_rows(processor: LogitsProcessor, more: int) -> LogitsProcessor:
    """The processor for `more` times the rows, where it knows its rows."""
    if isinstance(processor, RepetitionPenaltyLogitsProcessor) and isinstance(
        processor.prompt_ignore_length, torch.Tensor
    ):
        return RepetitionPenaltyLogitsProcessor(
            processor.penalty, processor.prompt_ignore_length.repeat_interleave(more)
        )
    if isinstance(processor, PrefixConstrainedLogitsProcessor):
        return PrefixConstrainedLogitsProcessor(processor._prefix_allowed_tokens_fn, processor._num_beams * more)
    return processor


def _refuse_impossible(config: GenerationConfig, model_kwargs: dict[str, Any], n: int) -> None:
    if config.num_beams > 1:
        raise ValueError(f"BestOfN samples and has no beams: leave num_beams=1, got {config.num_beams}")
    if config.num_return_sequences > n:
        raise ValueError(f"num_return_sequences={config.num_return_sequences} asks for more than the n={n} candidates")
    if config.encoder_repetition_penalty not in (None, 1.0):
        raise ValueError(
            "BestOfN makes n rows of each prompt, and encoder_repetition_penalty would reach the first ones only: "
            f"leave it at 1.0, got {config.encoder_repetition_penalty}"
        )
    cache = model_kwargs.get("past_key_values")
    if cache is None:
        return
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if isinstance(own, StaticCache):
        raise ValueError(
            "BestOfN makes n rows of each prompt, which a static cache has no room for: use a dynamic cache"
        )
    if own.get_seq_length() > 0:
        raise ValueError("BestOfN cannot continue from a filled past_key_values: pass the whole prompt instead")


def _one_a_prompt(values: Sequence[Any] | None, prompts: int, name: str) -> list[Any]:
    if values is None:
        return [None] * prompts
    if len(values) != prompts:
        raise ValueError(f"BestOfN has {len(values)} {name} for a batch of {prompts} prompts; it needs one a prompt")
    return list(values)


def _synced_gpus(model: Any) -> bool:
    """Whether all processes must take the same number of steps; `generate` keeps its own finding from callables."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    return torch.distributed.get_world_size() > 1 and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))


def _chosen_output(
    output: GenerateDecoderOnlyOutput | GenerateEncoderDecoderOutput, index: torch.Tensor, rewards: list[float | None]
) -> BestOfNDecoderOnlyOutput | BestOfNEncoderDecoderOutput:
    """The output object with the chosen rows only."""
    chosen: dict[str, Any] = {}
    for name, value in output.items():
        # tensors of the encoder have one row a prompt, as transformers does not expand them
        chosen[name] = value if name.startswith("encoder_") else _select(value, index)
    scores = torch.tensor([float("nan") if reward is None else reward for reward in rewards], device=index.device)
    kind = BestOfNEncoderDecoderOutput if isinstance(output, GenerateEncoderDecoderOutput) else BestOfNDecoderOnlyOutput
    return kind(**chosen, reward_scores=scores)


def _select(value: Any, index: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor):
        return value.index_select(0, index.to(value.device))
    if isinstance(value, Cache):
        value.reorder_cache(index)
        return value
    if isinstance(value, tuple):
        return tuple(_select(item, index) for item in value)
    return value
