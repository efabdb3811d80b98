"""Captions that are being written: they can be paused, copied, dropped and continued, and no token is computed twice."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
)
from transformers.utils import ModelOutput

from integrations.hf_generate.private_names import (
    REMEMBERING,
    WARPERS,
    beam_search,
    config_for_filled_cache,
    copied_inputs,
    end_tokens,
    processes_step_together,
    processor_for_rows,
    sample,
    warpers,
)
from reward.errors import ConfigError

__all__ = ["Pause", "Row", "Writer"]

Pause = Callable[[list[int], int], bool]
"""Whether a caption is paused: gets its tokens, and how many of them it had before."""


@dataclass(frozen=True)
class Row:
    """A caption as far as it is written.

    Args:
        prompt: which prompt it belongs to.
        ids: (length,) tokens of the prompt, padding included, and of the caption.
        cache: holds its keys and values; None once the caption has ended.
        place: its row in the cache.
        logprob: sum of its tokens' log-probabilities, where `Writer.write` was asked for them.
    """

    prompt: int
    ids: torch.Tensor
    cache: Cache | None
    place: int
    logprob: float = 0.0


class Writer:
    """Writes captions for the prompts of a call. The prompts go through the model once.

    After a block, each caption that is kept takes its own part of the cache along, as long as itself; captions of equal
    length are continued together. So positions need no padding between tokens, whatever kind a model has.

    Args:
        model, input_ids, inputs: what `generate` gives to a strategy; k rows of each prompt.
        processors, criteria, config: the same, for sampling.
        k: rows of each prompt.
        chunk: at most so many rows are written at once.
        name: of the strategy, for messages.
        blocks: whether captions will be paused and continued.

    Raises:
        ConfigError: the model, its cache or the options do not allow it.
    """

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        inputs: dict[str, Any],
        *,
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        config: GenerationConfig,
        k: int,
        chunk: int | None,
        name: str,
        blocks: bool,
    ) -> None:
        _refuse(model, input_ids, inputs, processors, config, name, blocks)
        self.model, self.k, self.chunk, self.name = model, k, chunk, name
        self.processors, self.criteria = processors, criteria
        self.config = copy.copy(config)
        self.config.return_dict_in_generate = True
        for output in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
            setattr(self.config, output, False)
        self.prompt_length, self.total = input_ids.shape[1], len(input_ids)
        self.tokens = [0] * (self.total // k)

        greedy = copy.copy(self.config)
        greedy.do_sample = False  # its token is thrown away: the first token of a caption is sampled from its prompt
        once = StoppingCriteriaList([_Stop(StoppingCriteriaList(), lambda ids, old: True, self.prompt_length, input_ids)])
        first = sample(
            model,
            input_ids,
            logits_processor=LogitsProcessorList(),
            stopping_criteria=once,
            generation_config=greedy,
            **copied_inputs(inputs),
        )
        self.inputs = {key: value for key, value in inputs.items() if key not in ("past_key_values", "mm_encoder_outputs")}
        cache = first.past_key_values
        self.starts = [Row(row // k, input_ids[row], cache, row) for row in range(0, self.total, k)]

    def write(
        self,
        rows: Sequence[Row],
        pause: Pause | None = None,
        options: Mapping[str, Any] | None = None,
        logprobs: bool = False,
    ) -> list[Row]:
        """Continues captions, each until it ends or is paused; in the order given.

        Args:
            rows: captions that have not ended; the same one may come several times.
            pause: None writes to the end.
            options: generation options that take the place of those of the call, such as `{"temperature": 0.5}`.
            logprobs: adds up the log-probabilities of the tokens.
        """
        written: dict[int, Row] = {}
        by_length = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
        for _, group in groupby(by_length, key=lambda place: len(rows[place].ids)):
            places = list(group)
            size = self.chunk or len(places)
            for start in range(0, len(places), size):
                part = places[start : start + size]
                written.update(zip(part, self._write([rows[i] for i in part], pause, options, logprobs), strict=True))
        return [written[place] for place in range(len(rows))]

    def _write(
        self, rows: list[Row], pause: Pause | None, options: Mapping[str, Any] | None, logprobs: bool
    ) -> list[Row]:
        ids = torch.stack([row.ids for row in rows])
        stop = _Stop(self.criteria, pause, self.prompt_length, ids)
        config = self._config(ids.shape[1], {**(options or {}), "output_logits": logprobs})
        output = sample(
            self.model,
            ids,
            logits_processor=self._processors(rows, config, options),
            stopping_criteria=StoppingCriteriaList([stop]),
            generation_config=config,
            **self._inputs(rows),
        )
        added = [0.0] * len(rows)
        if logprobs:
            new = output.sequences[:, ids.shape[1] :, None]
            each = torch.stack([step.log_softmax(-1) for step in output.logits], 1).gather(-1, new)[..., 0].tolist()
            added = [sum(row[: end - ids.shape[1]]) for row, end in zip(each, stop.lengths, strict=True)]
        result = []
        for place, (row, end) in enumerate(zip(rows, stop.lengths, strict=True)):
            self.tokens[row.prompt] += end - ids.shape[1]
            cache = None if stop.ended[place] else output.past_key_values
            result.append(Row(row.prompt, output.sequences[place, :end], cache, place, row.logprob + added[place]))
        return result

    def beams(self, options: Mapping[str, Any]) -> list[Row]:
        """The finished beams of every prompt, best first, prompt by prompt.

        Diverse beams are written group by group: a token that captions of earlier groups have at the same place loses
        `diversity_penalty` for each of them. That differs from the paper (Vijayakumar et al. 2016), where groups take
        turns at every token.
        """
        groups = options.get("num_beam_groups", 1)
        beams = options["num_beams"] // groups
        prompts = range(len(self.starts))
        found: list[list[Row]] = [[] for _ in prompts]
        for _ in range(groups):
            rows = [start for start in self.starts for _ in range(beams)]
            ids = torch.stack([row.ids for row in rows])
            changes = {"do_sample": False, "num_beams": beams, "num_return_sequences": beams}
            changes["return_dict_in_generate"] = False
            config = self._config(ids.shape[1], {**options, **changes})
            processors = self._processors(rows, config, options)
            if groups > 1:
                earlier = [[row.ids for row in found[start.prompt]] for start in rows]
                processors.append(_UnlikeEarlier(earlier, options.get("diversity_penalty", 1.0)))
            sequences = beam_search(
                self.model,
                ids,
                logits_processor=processors,
                stopping_criteria=self.criteria,
                generation_config=config,
                **self._inputs(rows),
            )
            ends = end_tokens(config)
            for row, sequence in zip(rows, sequences, strict=True):
                tokens = sequence[self.prompt_length :].tolist()
                end = next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
                found[row.prompt].append(Row(row.prompt, sequence[: self.prompt_length + end], None, 0))
            for prompt in prompts:
                self.tokens[prompt] += beams * (sequences.shape[1] - self.prompt_length)
        return [row for group in found for row in group]

    def _config(self, length: int, changes: Mapping[str, Any]) -> GenerationConfig:
        config = config_for_filled_cache(self.config, length)
        for name, value in changes.items():
            setattr(config, name, value)
        return config

    def _processors(
        self, rows: list[Row], config: GenerationConfig, options: Mapping[str, Any] | None
    ) -> LogitsProcessorList:
        processors: list[LogitsProcessor] = list(self.processors)
        if options:
            processors = [processor for processor in processors if not isinstance(processor, WARPERS)]
            processors += warpers(self.model, config) if config.do_sample else []
        known = [row.prompt * self.k for row in rows]
        return LogitsProcessorList([processor_for_rows(processor, known) for processor in processors])

    def _inputs(self, rows: list[Row]) -> dict[str, Any]:
        index = torch.tensor([row.prompt * self.k for row in rows], device=rows[0].ids.device)
        inputs = _rows_of(self.inputs, index, self.total)
        length = len(rows[0].ids)
        side = "decoder_" if self.model.config.is_encoder_decoder else ""
        _lengthen(inputs, length - self.prompt_length, side)
        own = [(row.cache, row.place) for row in rows if row.cache is not None]
        return {**inputs, "past_key_values": _joined(own, length - 1, self.name)}


class _Stop(StoppingCriteria):
    """Stops captions where they end or pause, and keeps where that was."""

    def __init__(self, own: StoppingCriteriaList, pause: Pause | None, prompt_length: int, ids: torch.Tensor) -> None:
        self.own, self.pause, self.prompt_length, self.old = own, pause, prompt_length, ids.shape[1] - prompt_length
        self.lengths, self.ended = [0] * len(ids), [False] * len(ids)
        for criterion in own:
            if hasattr(criterion, "eos_token_id"):
                self.eos_token_id = criterion.eos_token_id  # the loop then fills rows up that are done

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        ended = self.own(input_ids, scores) if len(self.own) else torch.zeros(len(input_ids), dtype=torch.bool)
        written = input_ids[:, self.prompt_length :].tolist() if self.pause is not None else None
        for place, ends in enumerate(ended.tolist()):
            paused = written is not None and self.pause is not None and not self.lengths[place]
            if not self.lengths[place] and (ends or (paused and self.pause(written[place], self.old))):
                self.lengths[place], self.ended[place] = input_ids.shape[1], ends
        return torch.tensor([length > 0 for length in self.lengths], device=input_ids.device)


class _UnlikeEarlier(LogitsProcessor):
    """Takes a penalty from tokens that captions of earlier groups of beams have at the same place."""

    def __init__(self, earlier: list[list[torch.Tensor]], penalty: float) -> None:
        self.earlier, self.penalty = earlier, penalty

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores, place = scores.clone(), input_ids.shape[1]
        for row, captions in enumerate(self.earlier):
            for ids in captions:
                if place < len(ids):
                    scores[row, ids[place]] -= self.penalty
        return scores


def _rows_of(inputs: Mapping[str, Any], index: torch.Tensor, total: int) -> dict[str, Any]:
    """The rows of all inputs that hold one row each; others as they are."""
    taken: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            dim = 1 if name == "position_ids" and value.ndim == 3 else 0  # several kinds of positions come first
            if value.ndim > dim and value.shape[dim] == total:
                value = value.index_select(dim, index.to(value.device))
        elif isinstance(value, ModelOutput):
            value = type(value)(**_rows_of(value, index, total))
        elif isinstance(value, dict):
            value = _rows_of(value, index, total)
        taken[name] = value
    return taken


def _lengthen(inputs: dict[str, Any], tokens: int, side: str) -> None:
    """Makes inputs of the prompt those of captions with so many tokens more, as `generate` does after every token."""
    for name in (f"{side}attention_mask", f"{side}position_ids", "token_type_ids", "mm_token_type_ids"):
        value = inputs.get(name)
        if value is None or not tokens:
            continue
        more = value[..., -1:].expand(*value.shape[:-1], tokens)
        if name.endswith("mask"):
            more = torch.ones_like(more)
        elif name.endswith("position_ids"):
            more = more + torch.arange(1, tokens + 1, device=value.device)
        elif name == "mm_token_type_ids":
            more = torch.zeros_like(more)
        inputs[name] = torch.cat([value, more], dim=-1)


def _joined(rows: Sequence[tuple[Any, int]], length: int | None, name: str) -> Cache:
    """A new cache of the rows of others, cut to a length; None keeps it."""
    first = rows[0][0]
    if isinstance(first, EncoderDecoderCache):
        own = _joined([(cache.self_attention_cache, place) for cache, place in rows], length, name)
        return EncoderDecoderCache(own, _joined([(cache.cross_attention_cache, p) for cache, p in rows], None, name))
    runs = [(run[0][0], [place for _, place in run]) for run in _runs(rows)]
    joined = copy.copy(first)
    joined.layers = [
        _joined_layer([(cache.layers[number], places) for cache, places in runs], length, name)
        for number in range(len(first.layers))
    ]
    return joined


def _runs(rows: Sequence[tuple[Any, int]]) -> list[list[tuple[Any, int]]]:
    return [list(run) for _, run in groupby(rows, key=lambda row: id(row[0]))]


def _joined_layer(parts: list[tuple[Any, list[int]]], length: int | None, name: str) -> Any:
    layer = copy.copy(parts[0][0])
    if not layer.is_initialized:  # layers that share the keys of others have none
        return layer
    for part, _ in parts:
        if type(part) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise ConfigError(f"{name} cannot take single captions from a {type(part).__name__}: decode with BestOfN")
        held, tokens = part.keys.shape[-2], part.get_seq_length()
        if length is not None and length < tokens and held < tokens:
            raise ConfigError(
                f"the model's sliding window has dropped tokens that {name} needs to go back to: decode with BestOfN"
            )
    layer.keys, layer.values = (
        torch.cat([getattr(part, side)[places, :, :length] for part, places in parts]) for side in ("keys", "values")
    )
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.cumulative_length = parts[0][0].cumulative_length if length is None else length
    return layer


def _refuse(
    model: Any,
    input_ids: torch.Tensor,
    inputs: Mapping[str, Any],
    processors: LogitsProcessorList,
    config: GenerationConfig,
    name: str,
    blocks: bool,
) -> None:
    if processes_step_together(model):
        raise ConfigError(
            f"{name} takes as many steps as its captions need, and the processes of a sharded model must take equally "
            "many: decode with BestOfN, or with a model that is not sharded"
        )
    cache = inputs.get("past_key_values")
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if not inputs.get("use_cache", True) or (own is not None and type(own) is not DynamicCache) or (
        getattr(own, "offloading", False)
    ):
        raise ConfigError(f"{name} continues captions from a dynamic cache: leave use_cache and the cache's kind alone")
    if inputs.get("inputs_embeds") is not None and inputs["inputs_embeds"].shape[1] != input_ids.shape[1]:
        raise ConfigError(f"{name} continues tokens, and this model is given embeddings: decode with BestOfN")
    image_token = getattr(model.config, "image_token_id", None)
    if image_token is not None and bool((input_ids[:, -1] == image_token).any()):
        raise ConfigError(f"the prompt ends with an image, and {name} starts from its last word: let text follow it")
    if getattr(config, "encoder_no_repeat_ngram_size", None):
        raise ConfigError(f"encoder_no_repeat_ngram_size does not know the rows of {name}: leave it out")
    if blocks and any(isinstance(processor, REMEMBERING) for processor in processors):
        raise ConfigError(
            f"guidance_scale and SynthID watermarks remember the words before, and {name} goes back to earlier ones: "
            "leave them out"
        )
    knows = hasattr(model, "rope_deltas") or hasattr(getattr(model, "model", None), "rope_deltas")
    if knows and inputs.get("position_ids") is None and len(input_ids) > 1:
        raise ConfigError(
            f"this version of transformers keeps the positions of {type(model).__name__} to itself, which {name} needs: "
            "give one prompt at a time with num_return_sequences=1, or take transformers 5.18 or newer"
        )
