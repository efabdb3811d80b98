"""BestOfN: sample N captions per image inside `generate`, return those that a reward likes best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput

from integrations.hf_generate.private_names import (
    caption_lengths,
    copied,
    expanded_inputs,
    pad_token,
    prefilled,
    processes_step_together,
    processor_for_rows,
    sample,
)
from integrations.hf_generate.rows import Call, Row
from integrations.hf_generate.sources import checked_sources
from integrations.hf_generate.strategy import (
    BestOfNDecoderOnlyOutput,
    BestOfNEncoderDecoderOutput,
    Drawn,
    RatedCandidates,
    Strategy,
    select_rows,
    torch_seeded,
)
from reward.decoding.choosing import poisson_count
from reward.decoding.selection import soft_rank
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions
from reward.samples import ImageLike

__all__ = ["BestOfN", "BestOfNDecoderOnlyOutput", "BestOfNEncoderDecoderOutput", "RatedCandidates"]


class BestOfN(Strategy):
    """A decoding strategy for `model.generate(custom_generate=BestOfN(...))`: the best of n sampled captions per image.

    Works for decoder-only vision-language models and for encoder-decoders, with any batch size. A prompt goes through
    the model once, where it keeps a cache; without one, its n rows do. Captions are always sampled when n > 1, with the
    temperature, top_k, top_p, ... of the generation config, whether or not `do_sample` is set. `num_return_sequences=k`
    returns the k best of the n, prompt by prompt, best first (transformers wants `do_sample=True` with it). With
    `return_dict_in_generate` the output holds the chosen rows and `reward_scores`. Captions that come up twice are
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

    Not supported: beam search in the call (but beams can be `sources`), a streamer, an assistant model, a static or
    filled cache, and `stop_strings`, which `generate` refuses with a strategy. With `cache_implementation="paged"`,
    `generate` ignores every strategy. If k does not divide n, up to k - 1 samples per prompt are drawn and not used.
    Needs transformers 5, see `private_names.py`.

    Args:
        reward: such as `VelaReward()`; anything with `rewards(samples)`; a metric's name or a scorer; or a reward
            function with a trainer's call. See `reward.functions.wrappers.rates_captions`.
        n: candidates per image, the greedy one included.
        processor: processor or tokenizer that decodes the captions.
        images: one image a prompt of the batch, or an iterator over those of all batches. None for rewards that need
            none, and where the images come with the call.
        references: likewise, one list of reference captions per prompt; None for a prompt without references.
        include_greedy: makes the greedy caption the first candidate. If the output holds `scores`, this caption's give
            each of its tokens probability 1; its `logits` are the model's.
        chunk: largest number of rows that are decoded at once, for models whose n captions per prompt do not fit into
            memory. It must allow one row per prompt, or k rows with `num_return_sequences=k`. The candidates have the
            same number and distribution as without it, but differ, because random numbers are drawn in another order.
            An output object then holds only `sequences` and `reward_scores`. `max_time` applies to all parts together.
        temperature: 0 returns the best. Above 0, a candidate is returned with p proportional to exp(reward /
            temperature), k of them one after the other (soft best-of-n). Drawn with torch's random numbers.
        poisson: draws 1 + Poisson(n - 1) candidates for each prompt instead of n (best-of-Poisson).
        sources: where the n candidates come from, as dictionaries of generation options that take the place of those
            of the call, such as `[{"temperature": 0.5}, {"temperature": 1.0, "top_k": 0}, {"num_beams": 4}]`. With
            `"n"` a source gives so many, with `"num_beams"` as many as it has beams; the others share the rest evenly.
            Diverse beams have `"num_beam_groups"` and `"diversity_penalty"`. All compete in one pool. With sources or
            `poisson`, an output object holds `sequences` and `reward_scores` only.

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
        poisson: bool = False,
        sources: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(reward, n, processor, images, references, chunk=chunk)
        if not temperature >= 0:
            raise ConfigError(f"temperature, of the choice, must be at least 0, got {temperature!r}")
        if (poisson and sources) or (include_greedy and (poisson or sources)):
            raise ConfigError(
                "include_greedy, poisson and sources each say which candidates are drawn: give one of them; the greedy "
                'caption is also a source, {"do_sample": False}'
            )
        self.include_greedy, self.temperature, self.poisson = include_greedy, temperature, poisson
        self.sources = None if sources is None else checked_sources(sources, self.n, beams=True)

    _shown: tuple[str, ...] = ("n", "include_greedy", "chunk")

    def _refuse_call(self, model: Any, input_ids: torch.Tensor, config: GenerationConfig) -> None:
        if self.poisson and config.num_return_sequences > 1:
            raise ConfigError("poisson may draw a single candidate: leave num_return_sequences=1")
        if self.poisson or self.sources:
            super()._refuse_call(model, input_ids, config)

    def _order(self, rewards: list[float | None]) -> list[int]:
        return soft_rank(rewards, self.temperature, torch_seeded() if self.temperature else None)

    def _draw(self, call: Call) -> Drawn:
        if self.poisson or self.sources:
            return self._drawn_from_sources(call)
        model, k, config, inputs = call.model, call.k, call.config, call.inputs
        parts = self._parts(model, config, len(call.input_ids), -(-self.n // k))
        if len(parts) > 1:
            config.return_dict_in_generate = False
        outputs, prompts = [], None
        if isinstance(inputs.get("past_key_values"), Cache) and inputs.get("use_cache", True):
            prompts = prefilled(model, call.input_ids, config, inputs)
        for place, times in enumerate(parts):
            kwargs, start = (inputs, prompts) if place == len(parts) - 1 else (copied(inputs), copied(prompts))
            rows, kwargs = expanded_inputs(model, call.input_ids, kwargs, times)
            places = [row for row in range(len(call.input_ids)) for _ in range(times)]
            processors = LogitsProcessorList([processor_for_rows(known, places) for known in call.processors])
            if self.include_greedy and place == 0:
                processors.append(_GreedyRows(times * k))
            kwargs |= {"logits_processor": processors, "stopping_criteria": call.criteria, "generation_config": config}
            start = start and _rows_of_prompts(start, torch.tensor(places, device=rows.device))
            outputs.append(sample(model, rows, start, **kwargs, synced_gpus=processes_step_together(model)))
        output = outputs[0] if len(outputs) == 1 else _joined(outputs, call.prompts, pad_token(config))
        sequences = output if isinstance(output, torch.Tensor) else output.sequences
        per_prompt = len(sequences) // call.prompts
        groups = [list(range(start, start + self.n)) for start in range(0, len(sequences), per_prompt)]
        lengths = caption_lengths(sequences[:, call.input_ids.shape[1] :], config)
        tokens = [sum(lengths[group[0] : group[0] + per_prompt]) for group in groups]
        return Drawn(sequences, groups, tokens, None if isinstance(output, torch.Tensor) else output)

    def _drawn_from_sources(self, call: Call) -> Drawn:
        """Candidates of several kinds, or of a number that is drawn for each prompt."""
        starts, pool = call.starts(), list[Row]()
        rng = torch_seeded()
        drawn = [poisson_count(self.n, rng) for _ in starts] if self.poisson else None
        for count, options in self.sources or [(0, {})]:
            counts = drawn or [count] * len(starts)
            wanted = [start for start, n in zip(starts, counts, strict=True) for _ in range(n)]
            rows = call.beams(starts, options) if "num_beams" in options else call.write(wanted, options=options)
            pool += rows
        return self._finished(call, call.grouped(pool))

    def _parts(self, model: Any, config: GenerationConfig, rows: int, times: int) -> list[int]:
        """How many times the rows are taken in each part, so that all parts together take them `times` times."""
        if self.chunk is None:
            return [times]
        if self.chunk < rows:
            raise ConfigError(
                f"chunk={self.chunk} has no room for the {rows} rows of this call, num_return_sequences="
                f"{config.num_return_sequences} for each prompt: give fewer prompts at a time, or a larger chunk"
            )
        parts = -(-times // min(times, self.chunk // rows))
        if processes_step_together(model):  # those with fewer rows decode in as many parts as the others
            most = torch.tensor(parts, device=model.device)
            torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
            parts = int(most)
        if parts > 1:
            self._refuse_outputs(config, f"chunk makes {parts} parts of different lengths")
        return [times // parts + (place < times % parts) for place in range(parts)]


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


def _rows_of_prompts(outputs: ModelOutput, places: torch.Tensor) -> ModelOutput:
    """What the decoding loop reads of the model's outputs, with rows for captions; of the logits, the last ones."""
    read = ("past_key_values", "attentions", "hidden_states", "decoder_attentions", "decoder_hidden_states")
    given = {name: outputs[name] for name in (*read, "cross_attentions") if name in outputs}
    given["logits"] = outputs.logits[:, -1:]
    return type(outputs)(**{name: select_rows(value, places) for name, value in given.items()})


def _joined(parts: Sequence[torch.Tensor], prompts: int, pad: torch.Tensor | None) -> torch.Tensor:
    """The sequences of all parts, prompt by prompt, filled up at the end."""
    assert pad is not None  # it has been checked before sampling
    length = max(part.shape[1] for part in parts)
    filled = [torch.nn.functional.pad(part, (0, length - part.shape[1]), value=int(pad)) for part in parts]
    grouped = [part.reshape(prompts, -1, length) for part in filled]
    return torch.cat(grouped, dim=1).flatten(0, 1)
