"""Captions that are being written: they can be paused, copied, dropped and continued."""

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
    beam_search,
    caption_lengths,
    config_for_filled_cache,
    is_warper,
    position_shifts,
    prefilled,
    processes_step_together,
    processor_for_rows,
    sample,
    warpers,
)
from reward.decoding.selection import CaptionRatings
from reward.errors import ConfigError

__all__ = ["Call", "Pause", "Row"]

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
        logprob: sum of its tokens' log-probabilities, where `Call.write` was asked for them.
    """

    prompt: int
    ids: torch.Tensor
    cache: Cache | None
    place: int = 0
    logprob: float = 0.0


@dataclass
class Call:
    """One call by `generate`, in which captions are begun, written, paused and continued.

    A prompt goes through the model once, and so does every token that is kept. After a block, each kept caption takes
    its own part of the cache along, as long as itself, and captions of equal length are continued together. So no
    padding comes between tokens, whatever kind of positions a model has.

    Args:
        name: of the strategy, for messages.
        model, input_ids, inputs, processors, criteria, config: as `generate` gives them, with sampling switched on; k
            rows of each prompt.
        ratings: rates lists of captions, one list a prompt.
        chunk: at most so many rows are written at once.
    """

    name: str
    model: Any
    input_ids: torch.Tensor
    inputs: dict[str, Any]
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    config: GenerationConfig
    ratings: CaptionRatings
    chunk: int | None

    def __post_init__(self) -> None:
        self.k = self.config.num_return_sequences
        self.prompt_length, self.prompts = self.input_ids.shape[1], len(self.input_ids) // self.k
        self.tokens = [0] * self.prompts  # that were sampled for each

    def starts(self, blocks: bool = False) -> list[Row]:
        """Sends the prompts through the model; gives a caption without a word for each.

        Args:
            blocks: whether captions will be paused and continued.

        Raises:
            ConfigError: the model, its cache or the options do not allow it.
        """
        _refuse(self, blocks)
        changes = dict.fromkeys(("output_scores", "output_logits", "output_attentions"), False)
        self.config = _changed(self.config, {**changes, "output_hidden_states": False, "return_dict_in_generate": True})
        cache = prefilled(self.model, self.input_ids, self.config, self.inputs).past_key_values
        self.shifts = position_shifts(self.model) if self.inputs.get("position_ids") is None else None
        return [Row(row // self.k, self.input_ids[row], cache, row) for row in range(0, len(self.input_ids), self.k)]

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
        for length in sorted({len(row.ids) for row in rows}):
            places = [place for place, row in enumerate(rows) if len(row.ids) == length]
            size = self.chunk or len(places)
            for part in (places[start : start + size] for start in range(0, len(places), size)):
                written.update(zip(part, self._write([rows[i] for i in part], pause, options, logprobs), strict=True))
        return [written[place] for place in range(len(rows))]

    def _write(self, rows: list[Row], pause: Pause | None, options: Any, logprobs: bool) -> list[Row]:
        ids = torch.stack([row.ids for row in rows])
        length, stop = ids.shape[1], _Stop(self.criteria, pause, ids, self.prompt_length)
        config = self._config(length, {**(options or {}), "output_logits": logprobs})
        output = self._run(sample, ids, self._processors(rows, config, options), stop, config, self._inputs(rows))
        added = [0.0] * len(rows)
        if logprobs:
            new = output.sequences[:, length:, None]
            each = torch.stack([step.log_softmax(-1) for step in output.logits], 1).gather(-1, new)[..., 0].tolist()
            added = [sum(row[: end - length]) for row, end in zip(each, stop.lengths, strict=True)]
        result = []
        for place, (row, end) in enumerate(zip(rows, stop.lengths, strict=True)):
            self.tokens[row.prompt] += end - length
            cache = None if stop.ended[place] else output.past_key_values
            result.append(Row(row.prompt, output.sequences[place, :end], cache, place, row.logprob + added[place]))
        return result

    def grouped(self, rows: Sequence[Row]) -> list[list[Row]]:
        """The captions of each prompt."""
        return [[row for row in rows if row.prompt == prompt] for prompt in range(self.prompts)]

    def beams(self, starts: list[Row], options: Mapping[str, Any]) -> list[Row]:
        """The finished beams of every prompt.

        Diverse beams are written group by group: a token that captions of earlier groups have at the same place loses
        `diversity_penalty` for each of them. That differs from the paper (Vijayakumar et al. 2016), where groups take
        turns at every token.
        """
        groups = options.get("num_beam_groups", 1)
        beams = options["num_beams"] // groups
        rows, found = [start for start in starts for _ in range(beams)], list[Row]()
        ids = torch.stack([row.ids for row in rows])
        changes = {"do_sample": False, "num_beams": beams, "num_return_sequences": beams}
        config = self._config(ids.shape[1], {**options, **changes, "return_dict_in_generate": False})

        def unlike_earlier(now: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            scores = scores.clone()
            for row, other in (
                (r, other) for r, own in enumerate(rows) for other in found if other.prompt == own.prompt
            ):
                if now.shape[1] < len(other.ids):
                    scores[row, other.ids[now.shape[1]]] -= options.get("diversity_penalty", 1.0)
            return scores

        for _ in range(groups):
            processors: list[Any] = self._processors(rows, config, options)
            processors += [unlike_earlier] if found else []
            sequences = self._run(beam_search, ids, processors, self.criteria, config, self._inputs(rows))
            ends = caption_lengths(sequences[:, self.prompt_length :], config)
            new = zip(rows, sequences, ends, strict=True)
            found += [Row(row.prompt, ids[: self.prompt_length + end], None) for row, ids, end in new]
            for row in rows:
                self.tokens[row.prompt] += sequences.shape[1] - self.prompt_length
        return found

    def _run(self, loop: Any, ids: torch.Tensor, processors: Any, stop: Any, config: Any, inputs: Any) -> Any:
        stop = stop if isinstance(stop, StoppingCriteriaList) else StoppingCriteriaList([stop])
        given = {"logits_processor": LogitsProcessorList(processors), "stopping_criteria": stop}
        return loop(self.model, ids, **given, generation_config=config, **inputs)

    def _config(self, length: int, changes: Mapping[str, Any]) -> GenerationConfig:
        return _changed(config_for_filled_cache(self.config, length), changes)

    def _processors(self, rows: list[Row], config: GenerationConfig, options: Any) -> list[LogitsProcessor]:
        processors: list[LogitsProcessor] = list(self.processors)
        if options:
            own = warpers(self.model, config) if config.do_sample else []
            processors = [processor for processor in processors if not is_warper(processor)] + list(own)
        known = [row.prompt * self.k for row in rows]
        return [processor_for_rows(processor, known) for processor in processors]

    def _inputs(self, rows: list[Row]) -> dict[str, Any]:
        index = torch.tensor([row.prompt * self.k for row in rows], device=self.input_ids.device)
        inputs, length = _rows_of(self.inputs, index, len(self.input_ids)), len(rows[0].ids)
        _lengthen(inputs, length - self.prompt_length, "decoder_" if self.model.config.is_encoder_decoder else "")
        if self.shifts is not None:
            position_shifts(self.model, self.shifts[index])
        return {**inputs, "past_key_values": _joined([(row.cache, row.place) for row in rows], length - 1, self.name)}


class _Stop(StoppingCriteria):
    """Stops captions where they end or pause, and keeps where that was."""

    def __init__(self, own: StoppingCriteriaList, pause: Pause | None, ids: torch.Tensor, prompt_length: int) -> None:
        self.own, self.pause, self.prompt_length, self.old = own, pause, prompt_length, ids.shape[1] - prompt_length
        self.lengths, self.ended = [0] * len(ids), [False] * len(ids)
        for criterion in own:
            if hasattr(criterion, "eos_token_id"):
                self.eos_token_id = criterion.eos_token_id  # the loop then fills rows up that are done

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        ended = self.own(input_ids, scores).tolist() if len(self.own) else [False] * len(input_ids)
        written = input_ids[:, self.prompt_length :].tolist() if self.pause else []
        for place, ends in enumerate(ended):
            if not self.lengths[place] and (ends or (self.pause and self.pause(written[place], self.old))):
                self.lengths[place], self.ended[place] = input_ids.shape[1], ends
        return torch.tensor([length > 0 for length in self.lengths], device=input_ids.device)


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


def _joined(rows: list[tuple[Any, int]], length: int | None, name: str) -> Cache:
    """A new cache of the rows of others, cut to a length; None keeps it."""
    first = rows[0][0]
    if isinstance(first, EncoderDecoderCache):
        own = _joined([(cache.self_attention_cache, place) for cache, place in rows], length, name)
        return EncoderDecoderCache(own, _joined([(cache.cross_attention_cache, p) for cache, p in rows], None, name))
    runs = [(cache, torch.tensor([place for _, place in run])) for cache, run in groupby(rows, key=lambda row: row[0])]
    joined = copy.copy(first)
    joined.layers = [copy.copy(layer) for layer in first.layers]
    for number, layer in enumerate(joined.layers):
        if not layer.is_initialized:  # layers that share the keys of others have none
            continue
        parts = [(cache.layers[number], places) for cache, places in runs]
        for (cache, _), (part, _) in zip(runs, parts, strict=True):
            tokens = cache.get_seq_length()
            whole = part.get_seq_length() == tokens and (length in (None, tokens) or part.keys.shape[-2] == tokens)
            if type(part) not in (DynamicLayer, DynamicSlidingWindowLayer) or not whole:
                raise ConfigError(
                    f"{name} needs earlier tokens that a {type(part).__name__} of the model's cache has dropped "
                    "or cannot go back to: decode with BestOfN"
                )
        for side in ("keys", "values"):
            own = [getattr(part, side)[:, :, :length] for part, _ in parts]
            own = [
                values.index_select(0, places.to(values.device)) for values, (_, places) in zip(own, parts, strict=True)
            ]
            setattr(layer, side, own[0] if len(own) == 1 else torch.cat(own))
        if isinstance(layer, DynamicSlidingWindowLayer) and length is not None:
            layer.cumulative_length = length
    return joined


def _changed(config: GenerationConfig, changes: Mapping[str, Any]) -> GenerationConfig:
    config = copy.copy(config)
    for name, value in changes.items():
        setattr(config, name, value)
    return config


def _refuse(call: Call, blocks: bool) -> None:
    model, inputs, last = call.model, call.inputs, call.input_ids[:, -1].tolist()
    cache, embeddings = inputs.get("past_key_values"), inputs.get("inputs_embeds")
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    plain_cache = own is None or (type(own) is DynamicCache and not getattr(own, "offloading", False))
    remembering = blocks and any(isinstance(processor, REMEMBERING) for processor in call.processors)
    instead = "decode with BestOfN"
    refusals = {
        f"cannot make processes of a sharded model take equal steps: {instead}": processes_step_together(model),
        f"needs a plain dynamic cache: leave use_cache and cache_implementation alone, or {instead}": (
            not inputs.get("use_cache", True) or not plain_cache
        ),
        f"continues tokens, and this model is given embeddings: {instead}": (
            embeddings is not None and embeddings.shape[1] != call.prompt_length
        ),
        "begins at the last token of the prompt, which is an image here: let text follow it": (
            getattr(model.config, "image_token_id", None) in last
        ),
        "takes rows out of the batch, which encoder_no_repeat_ngram_size does not follow: leave it out": bool(
            getattr(call.config, "encoder_no_repeat_ngram_size", None)
        ),
        "goes back to earlier words, but guidance_scale and SynthID remember later ones: leave them out": remembering,
    }
    for message in (message for message, applies in refusals.items() if applies):
        raise ConfigError(f"{call.name} {message}")
