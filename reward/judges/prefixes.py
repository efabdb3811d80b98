"""Reads prompts with a vision-language model: what prompts share at their beginning is computed once."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from reward.backbones.language import pad_rows
from reward.backbones.states import cache_rows, can_share
from reward.data.images import load_image
from reward.errors import ImageError, first_line
from reward.judges.prompts import Prompt, PromptWriter

logger = logging.getLogger(__name__)

Row: TypeAlias = tuple[int, list[int]]  # the index of a prompt, and its tokens
_WORTH = 16  # a shared beginning shorter than this is not worth a pass of its own
_EXACT = {torch.float32: 1e-5, torch.float64: 1e-8}  # largest difference in probability; half precision is coarser
_COARSE = 3e-2


@dataclass(eq=False)
class State:
    """A model that has read the prompts of a batch: everything that is needed to go on.

    `logits` (b, V) of the next token, float32; `cache` of keys and values; `mask` (b, T) of the tokens in the cache;
    `positions` (..., b, 1) of the last token, None where the model counts by itself.
    """

    logits: torch.Tensor
    cache: Any
    mask: torch.Tensor
    positions: torch.Tensor | None


class PromptReader:
    """Runs prompts through a model in batches, padded on the left.

    Prompts with the same image are laid side by side as tokens. Where they begin alike, the image included, the
    beginning goes through the model once and its keys and values are given to all; the same for texts without image.
    As the model is causal, the numbers are the same up to rounding. This is checked: the first time, two prompts are
    also read whole. If the distributions differ by more than rounding, or the model's cache cannot be shared (sliding
    windows, recurrent layers), all prompts are read whole from then on.

    Args:
        model: from `AutoModelForImageTextToText`, in eval mode.
        writer: of its prompts.
        batch_size: most prompts of a forward pass; `images_per_pass`, which is settable, of one with several images.
        head: reads the last state (b, d) of the model's base in place of the head that gives logits: `State.logits` is
            then what it says, such as the value of a reward model.
    """

    def __init__(self, model: Any, writer: PromptWriter, *, batch_size: int, head: Any = None) -> None:
        self.model, self.writer, self.head = model, writer, head
        self.batch_size = self.images_per_pass = batch_size
        parameters = inspect.signature(model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters and head is None else {}
        self._counts = "position_ids" in parameters
        config = model.config.get_text_config()
        self.limit = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self._pad = writer.tokenizer.pad_token_id
        if self._pad is None:
            self._pad = int(writer.tokenizer.eos_token_id or 0)
        # {with image: whether beginnings are shared}; None is not yet known
        shares = None if self._counts else False
        self.shares: dict[bool, bool | None] = {True: shares, False: shares}
        self.tokens_read = self.tokens_written = 0

    def read(
        self, prompts: Sequence[Prompt], failures: dict[int, str], *, keep_cache: bool = False
    ) -> Iterator[tuple[list[int], State]]:
        """Reads all prompts, in an order of its own.

        Args:
            prompts: any number; equal ones are read twice.
            failures: {index: reason} of prompts to leave out; gets those with an unreadable image or too many tokens.
            keep_cache: whether the states are to be continued.

        Yields:
            (indices into `prompts`, what the model knows after them).
        """
        # An image is looked at once for all the questions about it. Questions without image are a group, too.
        groups: dict[str | None, list[int]] = {}
        for index, prompt in enumerate(prompts):
            if index not in failures:
                groups.setdefault(prompt.image_key, []).append(index)
        texts = groups.pop(None, [])
        if texts:
            rows = self._fitting([(index, self.writer.ids(prompts[index].text)) for index in texts], failures)
            yield from self._read_texts(rows, keep_cache)
        waiting: list[int] = []  # prompts that are read whole, of several images to a batch
        for group in groups.values():
            shared = self._shared_rows(prompts, group, failures) if len(group) > 1 else None
            if shared is None:
                waiting += group
            else:
                rows, state = shared
                yield from self._walk(rows, state, keep_cache=keep_cache)
        waiting.sort(key=lambda index: -len(prompts[index].text))  # prompts of like length need little padding
        for start in range(0, len(waiting), self.images_per_pass):
            yield from self._read_whole(prompts, waiting[start : start + self.images_per_pass], failures, keep_cache)

    def step(self, state: State, tokens: torch.Tensor) -> State:
        """One token (b,) further in each row; the cache is grown in place."""
        mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=1)
        # rows that have ended go along to the end of the batch, which a learned table of positions may not reach
        positions = state.positions
        if positions is not None:
            positions = (positions + 1).clamp(max=self.limit - 1)
        return self._forward(tokens[:, None], mask, positions, state.cache, keep_cache=True)

    def branch(self, state: State, rows: torch.Tensor, tokens: torch.Tensor) -> State:
        """One token (n,) further in copies of the rows (n,); `state` can still be continued otherwise."""
        cache = state.cache
        if not can_share(cache):  # it may grow in place
            cache = copy.deepcopy(cache)
        positions = state.positions
        if positions is not None:
            positions = positions[..., rows, :]
        return self.step(State(state.logits[rows], cache_rows(cache, rows), state.mask[rows], positions), tokens)

    def _fitting(self, rows: list[Row], failures: dict[int, str]) -> list[Row]:
        """The rows that the model can read; the others are put into the failures."""
        fitting = []
        for index, ids in rows:
            if len(ids) > self.limit:
                failures[index] = self._too_long(len(ids))
            else:
                fitting.append((index, ids))
        return fitting

    def _too_long(self, length: int) -> str:
        return f"the question has {length} tokens, and the model reads at most {self.limit}; shorten it"

    # Whole prompts

    def _read_whole(
        self, prompts: Sequence[Prompt], indices: list[int], failures: dict[int, str], keep_cache: bool
    ) -> Iterator[tuple[list[int], State]]:
        """Prompts with images, each read from its first token."""
        images = {}
        for index in indices:
            try:
                images[index] = load_image(prompts[index].image)
            except ImageError as error:
                failures[index] = str(error)
        while images:
            try:
                inputs = self._inputs([prompts[index].text for index in images], list(images.values()))
            except ValueError as error:  # some processors refuse an image of two by 600 pixels
                if len(images) == 1:
                    failures[next(iter(images))] = f"the model's processor: {first_line(error)}"
                    return
                for index in images:
                    yield from self._read_whole(prompts, [index], failures, keep_cache)
                return
            lengths = inputs["attention_mask"].sum(1).tolist()
            if max(lengths) <= self.limit:
                yield list(images), self._open(inputs, keep_cache)
                return
            for index, length in zip(list(images), lengths, strict=True):
                if length > self.limit:
                    failures[index] = self._too_long(int(length))
                    del images[index]

    def _inputs(self, texts: list[str], images: list[Any]) -> dict[str, torch.Tensor]:
        encoded = self.writer.processor(
            text=texts,
            images=[[image] for image in images],
            padding=True,
            padding_side="left",
            return_tensors="pt",
            **self.writer.tokenizer_options(texts[0]),
        )
        return dict(encoded.to(self.model.device, dtype=self.model.dtype))

    def _open(self, inputs: dict[str, torch.Tensor], keep_cache: bool) -> State:
        """The first tokens of a batch, images included."""
        rest = dict(inputs)
        ids, mask = rest.pop("input_ids"), rest.pop("attention_mask")
        self.tokens_read += int(mask.sum())
        positions = self._first_positions(ids, {**rest, "attention_mask": mask}) if self._counts else None
        return self._forward(ids, mask, positions, None, keep_cache=keep_cache, **rest)

    def _first_positions(self, ids: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Positions by transformers' own rule for this model: plain, or in three dimensions for Qwen-like models."""
        prepare = getattr(self.model, "_prepare_position_ids_for_generation", None)
        if prepare is not None:
            return prepare(ids, inputs)
        # transformers before 5.2 counts while it prepares the inputs of the first step
        steps = torch.arange(ids.shape[1], device=ids.device)
        return self.model.prepare_inputs_for_generation(ids, cache_position=steps, **inputs)["position_ids"]

    def _forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor | None,
        cache: Any,
        *,
        keep_cache: bool,
        **rest: Any,
    ) -> State:
        if positions is not None:
            rest["position_ids"] = positions
        network = self.model if self.head is None else self.model.base_model
        output = network(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=keep_cache or cache is not None,
            **rest,
            **self._last_only,
        )
        last = None if positions is None else positions[..., -1:]
        logits = output.logits[:, -1] if self.head is None else self.head(output.last_hidden_state[:, -1].float())
        return State(logits.float(), getattr(output, "past_key_values", None), mask, last)

    # Shared beginnings

    def _read_texts(self, rows: list[Row], keep_cache: bool) -> Iterator[tuple[list[int], State]]:
        """Prompts without image."""
        if self.shares[False] is None and len(rows) > 1 and _common(rows) >= _WORTH:
            two = rows[:2]
            self.shares[False] = self._agree(self._walk(two, None, share=True), self._walk(two, None, share=False))
        yield from self._walk(rows, None, keep_cache=keep_cache)

    def _shared_rows(
        self, prompts: Sequence[Prompt], group: list[int], failures: dict[int, str]
    ) -> tuple[list[Row], State] | None:
        """Token ids of prompts with one image, and the state after their common beginning; None to read them whole."""
        if self.shares[True] is False:
            return None
        try:
            inputs = self._inputs([prompts[group[0]].text], [load_image(prompts[group[0]].image)])
        except (ImageError, ValueError):
            return None  # reading them whole reports it for each
        # How the processor turns the image's placeholder into tokens is learnt from the first prompt.
        full = inputs["input_ids"][0].tolist()
        short = self.writer.ids(prompts[group[0]].text)
        head = _alike(short, full)
        tail = _alike(short[head:][::-1], full[head:][::-1])
        short = short[: len(short) - tail]
        full = full[: len(full) - tail]  # up to the end of the image
        rows: list[Row] = []
        for index in group:
            ids = self.writer.ids(prompts[index].text)
            if len(full) == len(short) or ids[: len(short)] != short:
                return None
            rows.append((index, full + ids[len(short) :]))
        # What the processor makes of the first prompt, up to where they differ, is read by the model once.
        common = _common(rows)
        # one token of text behind the image: from there on, positions count up by one in every model
        if common < max(_WORTH, len(full) + 1) or common > self.limit:
            return None
        fitting = self._fitting(rows, failures)
        beginning = dict(inputs)
        for name, value in inputs.items():
            if value.ndim == 2 and value.shape[1] == inputs["input_ids"].shape[1]:  # one value a token
                beginning[name] = value[:, :common]
        state = self._open(beginning, keep_cache=True)
        if not can_share(state.cache):
            self.shares[True] = False
            return None
        if self.shares[True] is None:
            two = fitting[:2]
            whole = self._read_whole(prompts, [index for index, _ in two], {}, False)
            self.shares[True] = len(two) < 2 or self._agree(self._walk(two, state, share=True), whole)
        return (fitting, state) if self.shares[True] else None

    def _agree(self, shared: Iterator[tuple[list[int], State]], unshared: Iterator[tuple[list[int], State]]) -> bool:
        """Whether prompts give the same numbers after a shared beginning and read from the first token."""
        difference = float((_gathered(shared) - _gathered(unshared)).detach().abs().max())
        limit = _EXACT.get(self.model.dtype, _COARSE)
        if not difference <= limit:
            logger.warning(
                "Prompts are read whole from now on: sharing their beginning changes probabilities by %.1e with this "
                "model (up to %.0e would be rounding).",
                difference,
                limit,
            )
        return difference <= limit

    def _walk(
        self,
        rows: list[Row],
        state: State | None,
        *,
        share: bool | None = None,
        keep_cache: bool = False,
    ) -> Iterator[tuple[list[int], State]]:
        """Reads what follows the tokens that `state` has read, common beginnings first, then the rest in batches.

        Args:
            rows: begin with these tokens.
            state: None where nothing has been read.
            share: whether beginnings are shared where there is no state; None is what is known of the model.
            keep_cache: whether the states are to be continued.
        """
        # Prompts that go on alike are a branch, which is read up to where they part and walked on from there. What is
        # left over has too little in common, and goes in batches, the longest first, so that little is padded.
        done = 0 if state is None else state.mask.shape[1]
        branches: dict[int, list[Row]] = {}
        for index, ids in rows:
            branches.setdefault(ids[done], []).append((index, ids))
        rest: list[Row] = []
        for branch in branches.values():
            common = _common(branch)
            sharing = self.shares[False] is not False if share is None else share
            if len(branch) > 1 and common - done >= _WORTH and (state is not None or sharing):
                longer = self._continue(state, [branch[0][1][done:common]], keep_cache=True)
                if can_share(longer.cache):
                    yield from self._walk(branch, longer, share=share, keep_cache=keep_cache)
                    continue
                self.shares[False] = False
            rest += branch
        rest.sort(key=lambda row: -len(row[1]))
        for start in range(0, len(rest), self.batch_size):
            batch = rest[start : start + self.batch_size]
            tails = [ids[done:] for _, ids in batch]
            yield [index for index, _ in batch], self._continue(state, tails, keep_cache=keep_cache)

    def _continue(self, state: State | None, tails: list[list[int]], *, keep_cache: bool) -> State:
        """Reads one or more continuations of a single row, or new texts if there is none."""
        ids, mask = pad_rows(tails, side="left", device=self.model.device)
        ids = ids.masked_fill(mask == 0, self._pad)
        if state is None:
            return self._open({"input_ids": ids, "attention_mask": mask}, keep_cache)
        self.tokens_read += int(mask.sum())
        copies = torch.zeros(len(tails), dtype=torch.long, device=ids.device)  # of the only row, one a tail
        positions = state.positions[..., copies, :] + mask.cumsum(1)  # type: ignore[index]
        longer_mask = torch.cat([state.mask[copies], mask], dim=1)
        return self._forward(ids, longer_mask, positions, cache_rows(state.cache, copies), keep_cache=keep_cache)


def _common(rows: Sequence[Row]) -> int:
    """How many tokens all rows begin with; at least one of each row is left."""
    all_ids = [ids for _, ids in rows]
    # between the first and the last in order of tokens, every row begins with what these two begin with
    return min(_alike(min(all_ids), max(all_ids)), min(map(len, all_ids)) - 1)


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two rows begin with."""
    for count, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return count
    return min(len(one), len(other))


def _gathered(states: Iterator[tuple[list[int], State]]) -> torch.Tensor:
    """Distributions (N, V) of all prompts, in order; of a head with one number, the numbers (N, 1) by the largest."""
    rows: dict[int, torch.Tensor] = {}
    for indices, state in states:
        rows.update(zip(indices, state.logits, strict=True))
    logits = torch.stack([rows[index] for index in sorted(rows)])
    if logits.shape[1] > 1:
        return logits.softmax(-1)
    return logits / logits.abs().max().clamp(min=1)
