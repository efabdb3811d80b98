"""BestOfN: sample N captions per image inside `generate`, return those that a reward likes best."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache
from transformers.utils import ModelOutput

from integrations.hf_generate.private_names import (
    copied,
    expanded_inputs,
    pad_token,
    prefilled,
    processes_step_together,
    processor_for_rows,
    rows_of_prompts,
    sample,
    warpers,
)
from reward.backbones.language import evaluating
from reward.data.cells import is_list, to_list
from reward.data.samples import ImageLike, read_references
from reward.decoding.endings import end_tokens, nearly_greedy, up_to_end
from reward.decoding.selection import rate_candidates, rewards_of_words, shown_captions, soft_rank
from reward.errors import ConfigError
from reward.rewards.rating import RatesCaptions, rates_captions


@dataclass
class BestOfNOutput(ModelOutput):
    """What `return_dict_in_generate=True` gives; `reward_scores` (rows,) float32, NaN where there is none."""

    sequences: torch.Tensor | None = None
    reward_scores: torch.Tensor | None = None


@dataclass(frozen=True)
class RatedCandidates:
    """All candidates of the last call.

    Args:
        captions: B lists of captions, without reasoning (`<think>...</think>`) unless the reward asks for it.
        rewards: B lists of rewards, None for captions that could not be scored. Those without a word have the lowest
            reward, and lose to all others.
        chosen: B lists of k indices into the lists above, best first.
    """

    captions: list[list[str]]
    rewards: list[list[float | None]]
    chosen: list[list[int]]

    @property
    def best(self) -> list[list[tuple[str, float | None]]]:
        """B lists of the k captions that `generate` returned, best first, each with its reward."""
        parts = zip(self.captions, self.rewards, self.chosen, strict=True)
        return [[(captions[place], rewards[place]) for place in chosen] for captions, rewards, chosen in parts]


class BestOfN:
    """A decoding strategy for `model.generate(custom_generate=BestOfN(...))`: the best of n sampled captions per image.

    Works for decoder-only vision-language models and for encoder-decoders, with any batch size. A prompt goes through
    the model once, where it keeps a cache; without one, its n rows do. Captions are always sampled when n > 1, with the
    temperature, top_k, top_p, ... of the generation config, whether or not `do_sample` is set. `num_return_sequences=k`
    returns the k best of the n, prompt by prompt, best first (transformers wants `do_sample=True` with it). With
    `return_dict_in_generate` the output holds `sequences` and `reward_scores`. Captions that come up twice are
    scored once; empty ones, and those that cannot be scored, lose to all others. If no caption of an image can be
    scored, there is nothing to choose by, and the call raises; if all are empty, the first is returned. Afterwards
    `last` holds all candidates with their rewards.

    The images are handed over for the reward, since `generate` gives a strategy encoded images only. With the call, one
    strategy serves a whole data set::

        best = BestOfN(VelaReward(), n=16, processor=processor)
        for batch in batches:
            model.generate(**processor(...), custom_generate=best, images=batch["image"])

    A pipeline calls `generate` itself, one batch after the other, and has no place for images of a call. There an
    iterator gives each call the next ones::

        best = BestOfN(VelaReward(), n=16, processor=processor, images=iter(images))
        pipe(chats, batch_size=4, generate_kwargs={"custom_generate": best})

    Not supported: beam search and assisted decoding, a static or filled cache, scores, attentions and hidden states in
    the output, and `stop_strings`, which `generate` refuses with a strategy. `generate` keeps a streamer from every
    strategy, and with `cache_implementation="paged"` it ignores strategies. If k does not divide n, up to k - 1 samples
    per prompt are drawn and not used. Needs transformers 5, see `private_names.py`.

    Args:
        reward: such as `VelaReward()`; anything with `rewards(samples)`; a metric's name or a scorer; or a reward
            function with a trainer's call. See `reward.rewards.rating.rates_captions`.
        n: candidates per image, the greedy one included.
        processor: processor or tokenizer that decodes the captions.
        images: one image a prompt of the batch, or an iterator over those of all batches. None for rewards that need
            none, and where the images come with the call.
        references: likewise, one list of reference captions per prompt; None for a prompt without references.
        include_greedy: makes the greedy caption the first candidate.
        chunk: largest number of rows that are decoded at once, for models whose n captions per prompt do not fit into
            memory. It must allow one row per prompt, or k rows with `num_return_sequences=k`. The candidates have the
            same number and distribution as without it, but differ, because random numbers are drawn in another order.
            `max_time` applies to all parts together.
        temperature: 0 returns the best. Above 0, a candidate is returned with p proportional to exp(reward /
            temperature), k of them one after the other (soft best-of-n). Drawn with torch's random numbers.

    Raises:
        ConfigError: a value is of the wrong type or range; in the call, an option that is not supported.
        InvalidSampleError: in the call, no caption of an image got a reward. `last` then holds the captions.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> BestOfN("length", n=4, processor=tokenizer)
        BestOfN(n=4, include_greedy=False, chunk=None)
    """

    def __init__(
        self,
        reward: RatesCaptions | Any,
        n: int,
        processor: Any,
        images: Iterable[ImageLike | None] | None = None,
        references: Iterable[Sequence[str] | None] | None = None,
        include_greedy: bool = False,
        chunk: int | None = None,
        *,
        temperature: float = 0.0,
    ) -> None:
        self.n = _whole_number(n, "n")
        self.chunk = None if chunk is None else _whole_number(chunk, "chunk")
        if not hasattr(processor, "batch_decode"):
            raise ConfigError(
                f"processor must be able to batch_decode, as processors and tokenizers are: {processor!r:.80}"
            )
        self.reward = rates_captions(reward)
        self.processor = processor
        self.images = _several(images, "images")
        self.references = _several(references, "references")
        if not temperature >= 0:
            raise ConfigError(f"temperature, of the choice, must be at least 0, got {temperature!r}")
        self.include_greedy, self.temperature = include_greedy, temperature
        self.last: RatedCandidates | None = None

    def __repr__(self) -> str:
        return f"BestOfN(n={self.n}, include_greedy={self.include_greedy}, chunk={self.chunk})"

    # `generate` takes what is named here, and not in GenerationMixin._sample, from its own arguments: images and
    # references. No model of transformers has an input of that name.
    def __call__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        images: Iterable[ImageLike | None] | None = None,
        references: Iterable[Sequence[str] | None] | None = None,
        **model_kwargs: Any,
    ) -> torch.Tensor | BestOfNOutput:
        """Called by `generate`; returns the chosen sequences (B * k, length), or the output object that holds them.

        `images` and `references` take the place of those given to the strategy.
        """
        config, k = generation_config, generation_config.num_return_sequences
        self._refuse_impossible(model, config, model_kwargs)
        prompts = len(input_ids) // k  # generate has made k rows of each prompt, side by side
        own_images = _one_a_prompt(images, self.images, prompts, "images")
        own_references = [
            read_references(item) for item in _one_a_prompt(references, self.references, prompts, "references")
        ]
        if self.n > 1 and not config.do_sample:
            config.do_sample = True  # generate has made this config for this call
            logits_processor = LogitsProcessorList([*logits_processor, *warpers(model, config)])
        self._warn_of_copies(config)
        as_object, config.return_dict_in_generate = config.return_dict_in_generate, False
        self.last = None
        with evaluating(model):
            sequences = self._sample(model, input_ids, model_kwargs, logits_processor, stopping_criteria, config)
        per_prompt = len(sequences) // prompts
        groups = [list(range(start, start + self.n)) for start in range(0, len(sequences), per_prompt)]
        # not by special tokens alone: the filling behind an end may be a word
        written = up_to_end(sequences[:, input_ids.shape[1] :].tolist(), end_tokens(self.processor, config))
        decoded = self.processor.batch_decode([ids for ids, _ in written], skip_special_tokens=True)
        texts = [[decoded[row].strip() for row in group] for group in groups]
        captions = shown_captions(texts, self.reward)
        nothing: list[list[float | None]] = [[None] * self.n for _ in captions]
        self.last = RatedCandidates(captions, nothing, [[] for _ in captions])
        rewards = rate_candidates(captions, own_images, own_references, self.reward)
        chosen = [self._order(group)[:k] for group in rewards_of_words(captions, rewards)]
        self.last = RatedCandidates(captions, rewards, chosen)

        rows = [group[i] for group, indices in zip(groups, chosen, strict=True) for i in indices]
        best = sequences.index_select(0, torch.tensor(rows, device=sequences.device))
        if not as_object:
            return best
        scores = [np.nan if reward is None else reward for group in self.last.best for _, reward in group]
        return BestOfNOutput(best, torch.tensor(scores, device=best.device))

    def _sample(
        self,
        model: Any,
        input_ids: torch.Tensor,
        inputs: dict[str, Any],
        processors: LogitsProcessorList,
        criteria: Any,
        config: GenerationConfig,
    ) -> torch.Tensor:
        """Sequences of all candidates, at least n rows of each prompt."""
        k = config.num_return_sequences
        parts = self._parts(config, len(input_ids), -(-self.n // k))
        outputs, prompts = [], None
        if isinstance(inputs.get("past_key_values"), Cache) and inputs.get("use_cache", True):
            prompts = prefilled(model, input_ids, config, inputs)
        for place, times in enumerate(parts):
            kwargs, start = (inputs, prompts) if place == len(parts) - 1 else (copied(inputs), copied(prompts))
            rows, kwargs = expanded_inputs(model, input_ids, kwargs, times)
            places = torch.arange(len(input_ids), device=rows.device).repeat_interleave(times)
            own = LogitsProcessorList([processor_for_rows(known, places.tolist()) for known in processors])
            if self.include_greedy and place == 0:
                own.append(_GreedyRows(times * k))
            kwargs |= {"logits_processor": own, "stopping_criteria": criteria, "generation_config": config}
            start = start and rows_of_prompts(start, places)
            outputs.append(sample(model, rows, start, **kwargs, synced_gpus=processes_step_together(model)))
        return outputs[0] if len(outputs) == 1 else _joined(outputs, len(input_ids) // k, pad_token(config))

    def _parts(self, config: GenerationConfig, rows: int, times: int) -> list[int]:
        """How many times the rows are taken in each part, so that all parts together take them `times` times."""
        if self.chunk is None:
            return [times]
        if self.chunk < rows:
            raise ConfigError(
                f"chunk={self.chunk} has no room for the {rows} rows of this call, num_return_sequences="
                f"{config.num_return_sequences} for each prompt: give fewer prompts at a time, or a larger chunk"
            )
        parts = -(-times // min(times, self.chunk // rows))
        if parts > 1 and pad_token(config) is None:
            raise ConfigError("chunk makes parts of different lengths: set pad_token_id in the generation config")
        return [times // parts + (place < times % parts) for place in range(parts)]

    def _order(self, rewards: list[float | None]) -> list[int]:
        """The candidates of a prompt, best first, or as drawn with a seed from torch's random numbers."""
        rng = np.random.default_rng(int(torch.randint(2**31, ()))) if self.temperature else None
        return soft_rank(rewards, self.temperature, rng)

    def _warn_of_copies(self, config: GenerationConfig) -> None:
        names = ("temperature", "top_k", "top_p", "min_p")
        found = nearly_greedy(**{name: getattr(config, name, None) for name in names})
        if found and self.n - self.include_greedy > 1:
            given = ", ".join(f"{name}={value}" for name, value, _ in found)
            better = ", ".join(f"{name}={value}" for name, _, value in found)
            warnings.warn(
                f"the generation config has {given}: next to nothing but the likeliest token is sampled, so that the "
                f"{self.n} captions of an image are alike and there is nothing to choose from. Call generate(..., "
                f"{better})",
                stacklevel=3,
            )

    def _refuse_impossible(self, model: Any, config: GenerationConfig, inputs: dict[str, Any]) -> None:
        mode = config.get_generation_mode().value
        if mode not in ("greedy_search", "sample"):
            raise ConfigError(f"BestOfN samples, and the arguments ask for {mode}: leave out what asks for it")
        if config.num_return_sequences > self.n:
            raise ConfigError(
                f"num_return_sequences={config.num_return_sequences} asks for more than the n={self.n} candidates"
            )
        names = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
        asked = [name for name in names if getattr(config, name, None)]
        if config.return_dict_in_generate and asked:
            raise ConfigError(f"BestOfN gives sequences and rewards, but not {', '.join(asked)}: leave that out")
        if inputs.get("encoder_outputs") or inputs.get("mm_encoder_outputs"):
            decoder = set(model.get_decoder().modules())
            parts = (part for part in model.modules() if part not in decoder and part.training)
            if any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in parts):
                raise ConfigError(
                    "generate has encoded the images in training mode, with dropout, before it called BestOfN: call "
                    "model.eval() first"
                )
        cache = inputs.get("past_key_values")
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        if isinstance(own, StaticCache):
            raise ConfigError(
                "BestOfN makes n rows of each prompt, which a static cache has no room for: use a dynamic cache"
            )
        if own is not None and own.get_seq_length() > 0:
            raise ConfigError("BestOfN cannot continue from a filled past_key_values: pass the whole prompt instead")


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


def _joined(parts: Sequence[torch.Tensor], prompts: int, pad: torch.Tensor | None) -> torch.Tensor:
    """The sequences of all parts, prompt by prompt, filled up at the end."""
    assert pad is not None  # it has been checked before sampling
    length = max(part.shape[1] for part in parts)
    filled = [torch.nn.functional.pad(part, (0, length - part.shape[1]), value=int(pad)) for part in parts]
    return torch.cat([part.reshape(prompts, -1, length) for part in filled], dim=1).flatten(0, 1)


def _whole_number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name} must be at least 1 and a whole number, got {value!r:.80}")
    return int(value)


def _several(values: Any, name: str) -> Any:
    """One value a prompt, or an iterator over them."""
    if values is None or (isinstance(values, Iterator) and not hasattr(values, "read")):
        return values
    if not is_list(values) or getattr(values, "ndim", 1) not in (1, 4):  # rows of one image in an array are no images
        raise ConfigError(f"{name} must hold one item per prompt, got {type(values).__name__}: give a list")
    return to_list(values, name)


def _one_a_prompt(of_call: Any, of_strategy: Any, prompts: int, name: str) -> list[Any]:
    values = of_strategy if of_call is None else _several(of_call, name)
    if values is None:
        return [None] * prompts
    if isinstance(values, Iterator):
        values = list(islice(values, prompts))
    if len(values) != prompts:
        raise ConfigError(
            f"BestOfN has {len(values)} {name} for a batch of {prompts} prompts; it needs one per prompt. Give those "
            f"of a batch with its call, generate(..., {name}=...). Where a pipeline calls generate, give the strategy "
            f"an iterator over those of all batches, {name}=iter(...), and a new one for every run"
        )
    return list(values)
