"""What all strategies share: their images, what they refuse, the captions they decode, and what they hand back."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from integrations.hf_generate.private_names import encoded_again, pad_token, warpers, withheld_arguments
from integrations.hf_generate.rows import Call, Row
from reward.backbones.evaluating import evaluating
from reward.decoding.selection import CaptionRatings, rank
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions, rates_captions
from reward.samples import ImageLike, checked_references

__all__ = [
    "BestOfNDecoderOnlyOutput",
    "BestOfNEncoderDecoderOutput",
    "Drawn",
    "RatedCandidates",
    "Strategy",
    "select_rows",
    "torch_seeded",
    "whole_number",
]


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
    """All candidates of the last call, and what they cost.

    Args:
        captions: B lists of captions.
        rewards: B lists of what the choice was made by, None for empty captions and those that could not be scored.
        chosen: B lists of k indices into the lists above, best first.
        tokens: B numbers of tokens that were sampled for the image, those of dropped captions included.
        scored: B numbers of captions that the reward was asked for.
    """

    captions: list[list[str]]
    rewards: list[list[float | None]]
    chosen: list[list[int]]
    tokens: list[int] = field(default_factory=list)
    scored: list[int] = field(default_factory=list)

    @property
    def best(self) -> list[list[tuple[str, float | None]]]:
        """B lists of the k captions that `generate` returned, best first, each with its reward."""
        parts = zip(self.captions, self.rewards, self.chosen, strict=True)
        return [[(captions[place], rewards[place]) for place in chosen] for captions, rewards, chosen in parts]


@dataclass(frozen=True)
class Drawn:
    """Candidates of a call.

    Args:
        sequences: (R, length) tokens with the prompt.
        groups: the rows of each prompt's candidates.
        tokens: tokens sampled for each prompt.
        output: the output object of the decoding loop, where all rows come from one.
        rewards: what to choose by, where it is known already.
    """

    sequences: torch.Tensor
    groups: list[list[int]]
    tokens: list[int]
    output: Any = None
    rewards: list[list[float | None]] | None = None


class Strategy(ABC):
    """A decoding strategy for `model.generate(custom_generate=strategy, images=...)`.

    A strategy says in `_draw` how candidates are written. By default the reward ranks them.

    Args:
        reward, n, processor, images, references, chunk: see `BestOfN`.

    Raises:
        ConfigError: a value is of the wrong type or range.
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
        self.n = whole_number(n, "n")
        self.chunk = None if chunk is None else whole_number(chunk, "chunk")
        if not hasattr(processor, "batch_decode"):
            raise ConfigError(
                f"processor must be able to batch_decode, as processors and tokenizers are: {processor!r:.80}"
            )
        self.reward = rates_captions(reward)
        self.processor = processor
        self.images = _several(images, "images")
        self.references = _several(references, "references")
        self.last: RatedCandidates | None = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({shown})"

    _shown: tuple[str, ...] = ("n", "chunk")
    _returns: str = "n"  # which argument says how many captions can be returned

    # `generate` takes what is named here, and not in GenerationMixin._sample, from its own arguments: images and
    # references. No model of transformers has an input of that name; one that has is refused.
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
    ) -> torch.Tensor | BestOfNDecoderOnlyOutput | BestOfNEncoderDecoderOutput:
        """Called by `generate`; returns the chosen sequences (B * k, length), or the output object that holds them.

        `images` and `references` take the place of those given to the strategy.
        """
        k = generation_config.num_return_sequences
        self._refuse_impossible(generation_config, model_kwargs)
        self._refuse_inputs_of_the_model(model, images=images, references=references)
        self._refuse_call(model, input_ids, generation_config)
        prompts = len(input_ids) // k  # generate has made k rows of each prompt, side by side
        own_images = self._one_a_prompt(images, self.images, prompts, "images")
        own_references = [
            checked_references(item) for item in self._one_a_prompt(references, self.references, prompts, "references")
        ]
        if self.n > 1 and not generation_config.do_sample:
            generation_config.do_sample = True  # generate has made this config for this call
            logits_processor = LogitsProcessorList([*logits_processor, *warpers(model, generation_config)])
        as_object = generation_config.return_dict_in_generate
        ratings = CaptionRatings(own_images, own_references, self.reward)
        self.last = None
        with evaluating(model) as was_training:
            if was_training:
                model_kwargs = encoded_again(model, input_ids, generation_config, model_kwargs)
            given = (model, input_ids, model_kwargs, logits_processor, stopping_criteria, generation_config)
            call = Call(type(self).__name__, *given, ratings, self.chunk)
            drawn = self._draw(call)
        texts = self._texts(drawn.sequences[:, input_ids.shape[1] :])
        captions = [[texts[row] for row in group] for group in drawn.groups]
        nothing: list[list[float | None]] = [[None] * len(group) for group in captions]
        self.last = RatedCandidates(captions, nothing, [[] for _ in captions], drawn.tokens)
        rewards, scored = self._rate(call, captions) if drawn.rewards is None else (drawn.rewards, ratings.scored)
        chosen = [self._order(group)[:k] for group in rewards]
        self.last = RatedCandidates(captions, rewards, chosen, drawn.tokens, scored)

        rows = [group[i] for group, indices in zip(drawn.groups, chosen, strict=True) for i in indices]
        best = [group[i] for group, indices in zip(rewards, chosen, strict=True) for i in indices]
        index = torch.tensor(rows, device=drawn.sequences.device)
        if not as_object:
            return drawn.sequences.index_select(0, index)
        kind = GenerateEncoderDecoderOutput if model.config.is_encoder_decoder else GenerateDecoderOnlyOutput
        return _chosen_output(drawn.output or kind(sequences=drawn.sequences), index, best)

    @abstractmethod
    def _draw(self, call: Call) -> Drawn:
        """Writes the candidates of a call."""

    def _rate(self, call: Call, captions: list[list[str]]) -> tuple[list[list[float | None]], list[int]]:
        """What to choose by, and how many captions were scored for each prompt."""
        return call.ratings(captions), call.ratings.scored

    def _order(self, rewards: list[float | None]) -> list[int]:
        """The candidates of a prompt, best first."""
        return rank(rewards)

    def _refuse_call(self, model: Any, input_ids: torch.Tensor, config: GenerationConfig) -> None:
        """Refuses what this strategy cannot do, before anything is computed."""
        self._refuse_outputs(config, "writes captions of different lengths")

    def _finished(self, call: Call, pool: list[list[Row]], rewards: Any = None) -> Drawn:
        """The candidates, given as finished rows of each prompt."""
        rows = [row.ids for group in pool for row in group]
        length, pad = max(len(ids) for ids in rows), pad_token(call.config)
        assert pad is not None  # _refuse_outputs has seen to it
        sequences = torch.stack([torch.nn.functional.pad(ids, (0, length - len(ids)), value=int(pad)) for ids in rows])
        numbers = iter(range(len(rows)))
        return Drawn(sequences, [[next(numbers) for _ in group] for group in pool], call.tokens, rewards=rewards)

    def _captions(self, call: Call, groups: list[list[Row]]) -> list[list[str]]:
        return [self._texts([row.ids[call.prompt_length :] for row in group]) for group in groups]

    def _texts(self, new_tokens: Any) -> list[str]:
        if not len(new_tokens):  # batch_decode takes an empty list for one empty caption
            return []
        return [text.strip() for text in self.processor.batch_decode(new_tokens, skip_special_tokens=True)]

    def _one_a_prompt(self, of_call: Any, of_strategy: Any, prompts: int, name: str) -> list[Any]:
        values = of_strategy if of_call is None else _several(of_call, name)
        if values is None:
            return [None] * prompts
        if isinstance(values, Iterator):
            values = list(islice(values, prompts))
        if len(values) != prompts:
            raise ConfigError(
                f"{type(self).__name__} has {len(values)} {name} for a batch of {prompts} prompts; it needs one per "
                f"prompt. Give those of a batch with its call, generate(..., {name}=...). Where a pipeline calls "
                f"generate, give the strategy an iterator over those of all batches, {name}=iter(...), and a new one "
                "for every run"
            )
        return list(values)

    def _refuse_impossible(self, config: GenerationConfig, model_kwargs: dict[str, Any]) -> None:
        name, most = type(self).__name__, getattr(self, self._returns)
        withheld = withheld_arguments()
        if "streamer" in withheld:
            raise ConfigError(f"{name} has nothing to stream before all candidates are there: call it without streamer")
        if config.num_beams > 1:
            raise ConfigError(f"{name} samples and has no beams: leave num_beams=1, got {config.num_beams}")
        mode = config.get_generation_mode(withheld.get("assistant_model")).value
        if mode not in ("greedy_search", "sample"):
            raise ConfigError(f"{name} samples, and the arguments ask for {mode}: leave out what asks for it")
        if config.num_return_sequences > most:
            raise ConfigError(
                f"num_return_sequences={config.num_return_sequences} asks for more than the {self._returns}={most} "
                "candidates"
            )
        if config.encoder_repetition_penalty not in (None, 1.0):
            raise ConfigError(
                f"{name} makes n rows of each prompt, and encoder_repetition_penalty would reach the first ones only: "
                f"leave it at 1.0, got {config.encoder_repetition_penalty}"
            )
        cache = model_kwargs.get("past_key_values")
        if cache is None:
            return
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        if isinstance(own, StaticCache):
            raise ConfigError(
                f"{name} makes n rows of each prompt, which a static cache has no room for: use a dynamic cache"
            )
        if own.get_seq_length() > 0:
            raise ConfigError(f"{name} cannot continue from a filled past_key_values: pass the whole prompt instead")

    def _refuse_inputs_of_the_model(self, model: Any, **given: Any) -> None:
        """An input that the model shares a name with has been taken from it by the signature of the strategy."""
        inputs, name = inspect.signature(model.forward).parameters, type(self).__name__
        for key, values in given.items():
            if values is not None and key in inputs:
                raise ConfigError(
                    f"{type(model).__name__} has an input {key!r} of its own, which {name} would take from it: give "
                    f"those of the reward to {name}({key}=...). The model's own cannot be given to it beside {name}"
                )

    def _refuse_outputs(self, config: GenerationConfig, reason: str) -> None:
        names = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
        asked = [name for name in names if getattr(config, name, None)]
        if config.return_dict_in_generate and asked:
            raise ConfigError(f"{reason}, which {', '.join(asked)} cannot be joined from: leave that or those out")
        if pad_token(config) is None:
            raise ConfigError(
                f"{reason}, and fills up those that are shorter: set pad_token_id in the generation config"
            )


def torch_seeded() -> np.random.Generator:
    """A generator that the seed of torch determines."""
    return np.random.default_rng(int(torch.randint(2**31, ())))


def whole_number(value: Any, name: str) -> int:
    """The value, if it is a whole number of at least 1.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name} must be at least 1 and a whole number, got {value!r:.80}")
    return int(value)


def _several(values: Any, name: str) -> Any:
    """One value a prompt, or an iterator over them."""
    if values is None or (isinstance(values, Iterator) and not hasattr(values, "read")):
        return values
    one = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable) or hasattr(values, "read")
    if one or getattr(values, "ndim", 4) != 4:  # the rows of a single image in an array are no images
        raise ConfigError(f"{name} must hold one item per prompt, got {type(values).__name__}: give a list")
    return list(values)


def _chosen_output(
    output: GenerateDecoderOnlyOutput | GenerateEncoderDecoderOutput, index: torch.Tensor, rewards: list[float | None]
) -> BestOfNDecoderOnlyOutput | BestOfNEncoderDecoderOutput:
    """The output object with the chosen rows only."""
    chosen: dict[str, Any] = {}
    for name, value in output.items():
        # tensors of the encoder have one row a prompt, as transformers does not expand them
        chosen[name] = value if name.startswith("encoder_") else select_rows(value, index)
    scores = torch.tensor([float("nan") if reward is None else reward for reward in rewards], device=index.device)
    kind = BestOfNEncoderDecoderOutput if isinstance(output, GenerateEncoderDecoderOutput) else BestOfNDecoderOnlyOutput
    return kind(**chosen, reward_scores=scores)


def select_rows(value: Any, index: torch.Tensor) -> Any:
    """Rows of a tensor, of a cache, which is changed, or of all in a tuple; others as they are."""
    if isinstance(value, torch.Tensor):
        return value.index_select(0, index.to(value.device))
    if isinstance(value, Cache):
        value.reorder_cache(index)
        return value
    if isinstance(value, tuple):
        return tuple(select_rows(item, index) for item in value)
    return value
