"""Writes the replies of a model on this machine, token by token, with what each other token's chance was."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from reward.data.written_captions import LAST_CHARACTERS_OF_REASONING, decode_texts, is_reasoning_open
from reward.judges.base import Answer, token_text
from reward.judges.prefixes import PromptReader, State
from reward.judges.prompts import Prompt


@dataclass(eq=False)
class Draft:
    """A reply while it is written.

    Args:
        prompt: what it replies to.
        max_answer: most tokens of the answer. A thought before it, such as `<think>...</think>`, does not count.
        max_thought: most tokens up to the end of a thought.
        context_left: tokens that the model can still write, whatever they are.
    """

    prompt: Prompt
    max_answer: int
    max_thought: int
    context_left: int
    ids: list[int] = field(default_factory=list)
    reports: list[dict[str, float]] = field(default_factory=list)
    text: str = ""  # with all special tokens, by which thoughts are told
    is_thinking: bool = False
    answer_start: int = 0  # number of tokens before the answer
    has_ended: bool = False

    def __post_init__(self) -> None:
        # What is sampled depends on the prompt alone, and not on other rows of the batch.
        self._random = random.Random(f"{self.prompt.seed} {self.prompt.image_key} {self.prompt.text}")

    @property
    def is_done(self) -> bool:
        """Whether the model has ended the reply, or a limit has."""
        most = self.answer_start + self.max_answer
        if self.is_thinking:
            most = max(self.max_thought, self.max_answer)
        return self.has_ended or len(self.ids) >= min(most, self.context_left)

    def add(self, token: int, text: str, *, is_end: bool) -> None:
        """Appends a token, which reads like `text`."""
        self.ids.append(token)
        self.text += text
        self.has_ended = is_end
        # Only a token that ends a mark can open or close a thought, and searching the whole text for each takes time.
        if LAST_CHARACTERS_OF_REASONING.isdisjoint(text):
            return
        was_thinking = self.is_thinking
        self.is_thinking = is_reasoning_open(self.text)
        if was_thinking and not self.is_thinking:
            self.answer_start = len(self.ids)

    def sampled(self, logits: torch.Tensor) -> torch.Tensor:
        """A token drawn by logits (V,) at the temperature of the prompt."""
        reached = (logits.double() / self.prompt.temperature).softmax(-1).cumsum(-1)
        return torch.searchsorted(reached, reached[-1] * self._random.random(), right=True)

    def why_no_answer(self) -> str | None:
        """Why a reply that is done holds no answer: its thought was cut."""
        if not self.is_thinking or self.has_ended:
            return None
        if len(self.ids) >= self.context_left:
            return "the judge's thought filled all the room that the model has; take one that reads more tokens"
        length = len(self.ids)
        return f"the judge thought for {length} tokens without an answer: give max_thinking={2 * length} (by --set)"


def write_replies(
    reader: PromptReader,
    state: State,
    prompts: Sequence[Prompt],
    *,
    ends: set[int],
    max_new_tokens: int,
    max_thinking: int,
    top_logprobs: int,
    tracked: Mapping[str, list[int]],
) -> list[Answer | str]:
    """Replies to prompts, greedy or sampled; or why one holds no answer.

    Args:
        reader: has read the prompts.
        state: of the model after them; it is used up.
        prompts: one a row of `state`.
        ends: tokens that end a reply.
        max_new_tokens, max_thinking: most tokens of an answer and of a thought before it.
        top_logprobs: how many of the likeliest tokens are reported at each position.
        tracked: {text: its tokens}, which are reported at each position, however unlikely they are.
    """
    texts = reader.writer.token_texts
    room = (reader.limit - state.mask.sum(1) + 1).tolist()  # the last token is written, and not read
    drafts = [Draft(prompt, max_new_tokens, max_thinking, left) for prompt, left in zip(prompts, room, strict=True)]
    while True:
        tokens = state.logits.argmax(-1)
        for row, draft in enumerate(drafts):
            if draft.prompt.temperature:
                tokens[row] = draft.sampled(state.logits[row])
        reports: list[dict[str, float]] = []
        if top_logprobs or tracked:
            reports = _alternatives(state.logits, texts, top_logprobs, tracked)
        for row, token in enumerate(tokens.tolist()):
            draft = drafts[row]
            if draft.is_done:
                continue
            draft.add(token, _text_of(token, texts), is_end=token in ends)
            draft.reports += reports[row : row + 1]
        if all(draft.is_done for draft in drafts):
            break
        state = reader.step(state, tokens)
    replies: list[Answer | str] = []
    rows = [draft.ids[: len(draft.ids) - draft.has_ended] for draft in drafts]
    for draft, text in zip(drafts, decode_texts(reader.writer.tokenizer, rows), strict=True):
        tokens_of_reply: tuple[str, ...] = ()
        if draft.reports:
            tokens_of_reply = tuple(_text_of(token, texts) for token in draft.ids)
        answer = Answer(text, tokens_of_reply, tuple(draft.reports), truncated=not draft.has_ended)
        replies.append(draft.why_no_answer() or answer)
        reader.tokens_written += len(draft.ids)
    return replies


def _text_of(token: int, texts: list[str]) -> str:
    return texts[token] if token < len(texts) else ""  # a model may have more tokens than its tokenizer


def _alternatives(
    logits: torch.Tensor, texts: list[str], top: int, tracked: Mapping[str, list[int]]
) -> list[dict[str, float]]:
    """{token text: log probability} for each row of `logits` (b, V)."""
    logs = logits.double().log_softmax(-1)
    values, tokens = logs.topk(min(top, logs.shape[1]), dim=-1)
    reports: list[dict[str, float]] = []
    for row_values, row_tokens in zip(values.tolist(), tokens.tolist(), strict=True):
        report: dict[str, float] = {}
        for value, token in zip(row_values, row_tokens, strict=True):
            text = _text_of(token, texts)
            if token_text(text) not in tracked:  # all spellings of a tracked token stand under one name below
                report[text] = float(np.logaddexp(report[text], value)) if text in report else value
        reports.append(report)
    if tracked:
        # One table, because reading a number from a device waits for all that it computes.
        masses = torch.stack([logs[:, spellings].logsumexp(-1) for spellings in tracked.values()], dim=1)
        for report, row_masses in zip(reports, masses.tolist(), strict=True):
            report.update(zip(tracked, row_masses, strict=True))
    return reports
