"""BestOfN: sample N captions per image inside `generate`, return those that a reward likes best."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache

from integrations.hf_generate.private_names import (
    copy_inputs,
    expand_inputs,
    pad_token,
    prefill,
    processes_step_together,
    processor_for_rows,
    sample,
    select_rows,
    warpers,
)
from reward.backbones.language import evaluating
from reward.data.cells import is_list, to_list
from reward.data.samples import ImageLike, read_references
from reward.data.written_captions import decode_texts, end_tokens, up_to_end
from reward.decoding.selection import rank, rate_captions, rewards_of_words, shown_captions
from reward.errors import ConfigError
from reward.rewards.rating import RatesCaptions, rates_captions


@dataclass(frozen=True)
class RatedCandidates:
    """All candidates of the last call.

    Args:
        captions: B lists of captions, without reasoning (`<think>...</think>`) unless the reward asks for it.
        rewards: B lists of rewards, None for captions that could not be scored.
        chosen: B lists of k indices into the lists above, best first.
    """

    captions: list[list[str]]
    rewards: list[list[float | None]]
    chosen: list[list[int]]

    @property
    def best(self) -> list[list[tuple[str, float | None]]]:
        """B lists of the k captions that `generate` returned, best first, each with its reward."""
        best = []
        for captions, rewards, chosen in zip(self.captions, self.rewards, self.chosen, strict=True):
            best.append([(captions[index], rewards[index]) for index in chosen])
        return best


class BestOfN:
    """A decoding strategy for `model.generate(custom_generate=BestOfN(...))`: the best of n sampled captions per image.

    Works for decoder-only vision-language models and for encoder-decoders, with any batch size. A prompt goes through
    the model once, where it keeps a cache. Captions are always sampled when n > 1, with the temperature, top_k, top_p,
    ... of the generation config, whether or not `do_sample` is set. `num_return_sequences=k` returns the k best of the
    n, prompt by prompt, best first (transformers wants `do_sample=True` with it). Empty
    captions, and those that cannot be scored, lose to all others. Afterwards `last` holds all candidates with their
    rewards.

    The images are handed over for the reward, since `generate` gives a strategy encoded images only. With the call, one
    strategy serves a whole data set::

        best = BestOfN(VelaReward(), n=16, processor=processor)
        for batch in batches:
            model.generate(**processor(...), custom_generate=best, images=batch["image"])

    Where a pipeline calls `generate`, an iterator gives each call the next ones: `images=iter(images)`, and
    `pipe(chats, batch_size=4, generate_kwargs={"custom_generate": best})`.

    Not supported: beam search and assisted decoding, a static or filled cache, `return_dict_in_generate`, and
    `stop_strings`. `generate` keeps a streamer from every strategy, and with
    `cache_implementation="paged"` it ignores strategies. Needs transformers 5, see `private_names.py`.

    Args:
        reward: such as `VelaReward()`, a metric's name or a function, see `reward.rewards.rating.rates_captions`.
        n: candidates per image.
        processor: processor or tokenizer that decodes the captions.
        images: one image a prompt of the batch, or an iterator over those of all batches. None for rewards that need
            none, and where the images come with the call.
        references: likewise, one list of reference captions per prompt; None for a prompt without references.
        chunk: largest number of rows that are decoded at once, for models whose n captions per prompt do not fit into
            memory; at least one row per prompt, or k rows with `num_return_sequences=k`. The candidates have the same
            distribution as without it, but differ. Each part gets fresh copies of logits processors and stopping
            criteria; `max_time` applies to all parts together.

    Raises:
        ConfigError: a value is of the wrong type or range; in the call, an option that is not supported.
        InvalidSampleError: in the call, no caption of an image got a reward, though one has a word. `last` then holds
            the captions.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> BestOfN("length", n=4, processor=tokenizer)
        BestOfN(n=4, chunk=None)
    """

    def __init__(
        self,
        reward: RatesCaptions | Any,
        n: int,
        processor: Any,
        images: Iterable[ImageLike | None] | None = None,
        references: Iterable[Sequence[str] | None] | None = None,
        *,
        chunk: int | None = None,
    ) -> None:
        for name, value in {"n": n, "chunk": 1 if chunk is None else chunk}.items():
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ConfigError(f"{name} must be at least 1 and a whole number, got {value!r:.80}")
        if not hasattr(processor, "batch_decode"):
            raise ConfigError(
                f"processor must be able to batch_decode, as processors and tokenizers are: {processor!r:.80}"
            )
        self.n = int(n)
        self.chunk = chunk
        self.reward = rates_captions(reward)
        self.processor = processor
        self.images = _one_per_prompt(images, "images")
        self.references = _one_per_prompt(references, "references")
        self.last: RatedCandidates | None = None

    def __repr__(self) -> str:
        return f"BestOfN(n={self.n}, chunk={self.chunk})"

    # `generate` passes on those of its arguments that are named here and not in GenerationMixin._sample: images and
    # references. No model of transformers has an input of that name.
    def __call__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        images: Iterable[ImageLike | None] | None = None,
        references: Iterable[Sequence[str] | None] | None = None,
        **model_kwargs: Any,
    ) -> torch.Tensor:
        """Called by `generate`; returns the chosen sequences (B * k, length).

        `images` and `references` take the place of those given to the strategy.
        """
        # `generate` has made the config for this call, so that it may be changed; it gives k rows of each prompt.
        config = generation_config
        k = config.num_return_sequences
        self._refuse_impossible(model, config, model_kwargs)
        prompts = len(input_ids) // k
        images = _of_this_call(images, self.images, prompts, "images")
        references = _of_this_call(references, self.references, prompts, "references")
        references = [read_references(cell) for cell in references]

        if self.n > 1 and not config.do_sample:
            config.do_sample = True
            logits_processor = LogitsProcessorList([*logits_processor, *warpers(model, config)])
        self.last = None
        with evaluating(model):
            sequences = self._sample(model, input_ids, model_kwargs, logits_processor, stopping_criteria, config)

        captions = self._captions(sequences[:, input_ids.shape[1] :], prompts, config)
        if self.n > 1 and all(len(set(texts)) == 1 and texts[0] for texts in captions):
            # Checkpoints come with such settings: Qwen2-VL's generation_config.json has top_k 1 and top_p 0.001.
            warnings.warn(
                f"the {self.n} captions of each image are alike, so that there is nothing to choose from. Call "
                "generate(..., temperature=1.0, top_k=0, top_p=1.0)",
                stacklevel=2,
            )
        # If rating raises, the captions can still be seen.
        unrated: list[list[float | None]] = [[None] * self.n for _ in captions]
        self.last = RatedCandidates(captions, unrated, [[] for _ in captions])
        rewards = rate_captions(captions, images, references, self.reward)
        chosen = [rank(prompt_rewards)[:k] for prompt_rewards in rewards_of_words(captions, rewards)]
        self.last = RatedCandidates(captions, rewards, chosen)

        # More than n where k does not divide n; those behind the n-th are not rated.
        rows_per_prompt = len(sequences) // prompts
        rows = []
        for prompt, indices in enumerate(chosen):
            rows += [prompt * rows_per_prompt + index for index in indices]
        return sequences.index_select(0, torch.tensor(rows, device=sequences.device))

    def _sample(
        self,
        model: Any,
        input_ids: torch.Tensor,
        model_kwargs: dict[str, Any],
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        config: GenerationConfig,
    ) -> torch.Tensor:
        """Sequences of all candidates, at least n rows of each prompt, prompt by prompt."""
        k = config.num_return_sequences
        prompt_outputs = None
        copies_of_parts = self._copies_of_parts(config, len(input_ids), math.ceil(self.n / k))
        last = len(copies_of_parts) - 1
        # With a cache the prompts go through the model once, and each part begins with copies of what that gave.
        if isinstance(model_kwargs.get("past_key_values"), Cache) and model_kwargs.get("use_cache", True):
            prompt_outputs = prefill(model, input_ids, config, model_kwargs)

        sequences = []
        for part, copies in enumerate(copies_of_parts):
            kwargs, outputs, part_processors, part_criteria = model_kwargs, prompt_outputs, processors, criteria
            # Decoding changes inputs, cache, processors and criteria, and every part must begin with them as they came.
            # So each part but the last decodes with copies. One memo for both lists keeps shared what they share.
            if part < last:
                memo: dict[int, Any] = {}
                kwargs, outputs = copy_inputs(model_kwargs), copy_inputs(prompt_outputs)
                part_processors, part_criteria = _fresh_copies(processors, memo), _fresh_copies(criteria, memo)
            ids, kwargs = expand_inputs(model, input_ids, kwargs, copies)
            rows = torch.arange(len(input_ids), device=ids.device).repeat_interleave(copies)
            if outputs is not None:
                outputs = select_rows(outputs, rows)
            row_numbers = rows.tolist()
            kwargs["logits_processor"] = LogitsProcessorList(
                [processor_for_rows(processor, row_numbers) for processor in part_processors]
            )
            kwargs |= {"stopping_criteria": part_criteria, "generation_config": config}
            sequences.append(sample(model, ids, outputs, **kwargs, synced_gpus=processes_step_together(model)))
        if len(sequences) == 1:
            return sequences[0]
        return _join_parts(sequences, len(input_ids) // k, pad_token(config))

    def _copies_of_parts(self, config: GenerationConfig, rows: int, copies: int) -> list[int]:
        """How many copies of the rows each part decodes, so that all parts together decode `copies` of them."""
        if self.chunk is None:
            return [copies]
        if self.chunk < rows:
            raise ConfigError(
                f"chunk={self.chunk} has no room for the {rows} rows of this call, num_return_sequences="
                f"{config.num_return_sequences} for each prompt: give fewer prompts at a time, or a larger chunk"
            )
        most = min(copies, self.chunk // rows)
        parts = math.ceil(copies / most)
        if parts > 1 and pad_token(config) is None:
            raise ConfigError("chunk makes parts of different lengths: set pad_token_id in the generation config")
        larger = copies % parts
        return [copies // parts + 1] * larger + [copies // parts] * (parts - larger)

    def _captions(self, written: torch.Tensor, prompts: int, config: GenerationConfig) -> list[list[str]]:
        """The first n captions of each prompt, as they are rated."""
        # Up to the first end token: what fills up a row behind it may be a word, which decoding leaves.
        rows = [ids for ids, _ in up_to_end(written.tolist(), end_tokens(self.processor, config))]
        texts = decode_texts(self.processor, rows)
        texts_of_prompts = []
        for first in range(0, len(texts), len(texts) // prompts):
            texts_of_prompts.append([text.strip() for text in texts[first : first + self.n]])
        return shown_captions(texts_of_prompts, self.reward)

    def _refuse_impossible(self, model: Any, config: GenerationConfig, model_kwargs: dict[str, Any]) -> None:
        mode = config.get_generation_mode().value
        if mode not in ("greedy_search", "sample"):
            raise ConfigError(f"BestOfN samples, and the arguments ask for {mode}: leave out what asks for it")
        if config.num_return_sequences > self.n:
            raise ConfigError(
                f"num_return_sequences={config.num_return_sequences} asks for more than the n={self.n} candidates"
            )
        if config.return_dict_in_generate:
            raise ConfigError("BestOfN gives sequences, and keeps rewards in `last`: leave out return_dict_in_generate")
        # `generate` runs encoders before it calls a strategy, too early for the strategy to switch off their dropout.
        if model_kwargs.get("encoder_outputs") or model_kwargs.get("mm_encoder_outputs"):
            decoder = set(model.get_decoder().modules())
            for module in model.modules():
                is_dropout = isinstance(module, torch.nn.Dropout) and module.p > 0
                if is_dropout and module.training and module not in decoder:
                    raise ConfigError(
                        "generate has encoded the images in training mode, with dropout, before it called BestOfN: "
                        "call model.eval() first"
                    )
        cache = model_kwargs.get("past_key_values")
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        if isinstance(cache, StaticCache):
            raise ConfigError(
                "BestOfN makes n rows of each prompt, which a static cache has no room for: use a dynamic cache"
            )
        if cache is not None and cache.get_seq_length() > 0:
            raise ConfigError("BestOfN cannot continue from a filled past_key_values: pass the whole prompt instead")


def _one_per_prompt(values: Any, name: str) -> Any:
    """A list of one value per prompt, an iterator over those of all batches, or None."""
    if values is None or isinstance(values, Iterator):
        return values
    dimensions = getattr(values, "ndim", 1)
    if not is_list(values) or dimensions not in (1, 4):  # an array of 2 or 3 is one image, and its rows are none
        raise ConfigError(f"{name} must hold one item per prompt, got {type(values).__name__}: give a list")
    return to_list(values, name)


def _of_this_call(call_values: Any, strategy_values: Any, prompts: int, name: str) -> list[Any]:
    """One value per prompt of the batch: those of the call, else those of the strategy."""
    values = strategy_values if call_values is None else _one_per_prompt(call_values, name)
    if values is None:
        return [None] * prompts
    if isinstance(values, Iterator):
        values = list(islice(values, prompts))  # the next call gets those that follow
    if len(values) != prompts:
        raise ConfigError(
            f"BestOfN has {len(values)} {name} for a batch of {prompts} prompts: give one per prompt with the call, "
            f"generate(..., {name}=...), or, for each run of a pipeline, a strategy with a new {name}=iter(...)"
        )
    return values


def _fresh_copies(processors: Any, memo: dict[int, Any]) -> Any:
    """Deep copies of logits processors or stopping criteria, in a list of the same type; networks are not copied."""
    copies = type(processors)()
    for processor in processors:
        # A model that guides, say; `deepcopy` takes what the memo holds as its own copy.
        for value in getattr(processor, "__dict__", {}).values():
            if isinstance(value, torch.nn.Module):
                memo[id(value)] = value
        copies.append(copy.deepcopy(processor, memo))
    return copies


def _join_parts(parts: Sequence[torch.Tensor], prompts: int, pad: Any) -> torch.Tensor:
    """The sequences of all parts, prompt by prompt, filled up at the end."""
    length = max(part.shape[1] for part in parts)
    blocks = []
    for part in parts:
        filled = torch.nn.functional.pad(part, (0, length - part.shape[1]), value=int(pad))
        blocks.append(filled.reshape(prompts, -1, length))
    return torch.cat(blocks, dim=1).flatten(0, 1)
