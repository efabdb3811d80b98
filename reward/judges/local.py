"""LocalJudge: any model of transformers that chats, its probabilities read directly."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.checkpoints.folders import unsharded_loading
from reward.errors import JudgeError
from reward.judges.base import Answer, Question, Usage, answered, check_asked, image_keys, token_text
from reward.judges.loading import load_parts
from reward.judges.prefixes import PromptReader, State
from reward.judges.prompts import Prompt, PromptWriter
from reward.judges.replies import ANSWER_LENGTH, weighed

_MOST_BLANKS = 8  # tokens of white space before an answer
_ALTERNATIVES = 20  # reported for each token of a reply in which an answer is looked for
_LEFT_OUT = 1e-4  # white space that has no more probability than this, all its tokens together, is not stepped over


class LocalJudge:
    """A vision-language model on this machine, or a language model, which reads questions without image alone.

    Prompts come from the model's chat template. Only questions with a temperature are sampled, and the settings of the
    model's generation config that change probabilities (temperature, repetition penalty) are not applied. What
    questions about one image share from their beginning on (image, rubric) goes through the model once, see
    `PromptReader`; equal questions are asked once; questions without image never run the vision tower.

    Args:
        model: decoder-only, such as LLaVA, Qwen-VL, Idefics, InternVL.
        processor: its processor, with a chat template.
        batch_size: most questions of a forward pass; lower it if memory runs out.
        name: how reports call it.

    Attributes:
        writer: writes the prompts, and knows the tokens.
        reader: runs the prompts through the model.

    Raises:
        JudgeError: an encoder-decoder, or a processor without chat template.

    Example:
        >>> from importlib.resources import files
        >>> judge = LocalJudge.from_pretrained(files("reward") / "assets" / "captioner", device="cpu")
        >>> question = Question("Is this caption right? Answer 1 for yes, 0 for no.\\nCaption: A red star.")
        >>> judge.answer_distribution([question], ["0", "1"]).shape
        (1, 2)
    """

    def __init__(self, model: Any, processor: Any, *, batch_size: int = 16, name: str = "local") -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if model.config.is_encoder_decoder:
            raise JudgeError(f"{type(model).__name__} is an encoder-decoder; a judge needs a decoder that goes on")
        self.name = name
        self.usage = Usage()
        self.model = model.eval()
        self.writer = PromptWriter(processor)
        self.reader = PromptReader(model, self.writer, batch_size=batch_size)
        self._lock = threading.RLock()
        ends = model.generation_config.eos_token_id
        self._ends = {*(ends if isinstance(ends, list) else [ends]), self.writer.tokenizer.eos_token_id} - {None}

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        batch_size: int = 16,
        trust_remote_code: bool = False,
    ) -> LocalJudge:
        """Loads model and processor.

        Args:
            source: folder or Hub id of a model tuned for chat that `AutoModelForImageTextToText` knows, or
                `AutoModelForCausalLM`, such as Qwen3.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; by default what the checkpoint is stored in.
            batch_size: see the class.
            trust_remote_code: whether Python code that lies in the folder may run. No command does this. Files of the
                Hub are fetched without code: for a model that brings its own, download it and give the folder.

        Raises:
            CheckpointError: nothing there, no such kind of model, code that may not run, or weights that do not fill
                the network.
            JudgeError: see the class.
        """
        model, processor = load_parts(
            source, "judge", revision=revision, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return cls(model, processor, batch_size=batch_size, name=os.fspath(source))

    def __reduce__(self) -> Any:
        """Pickles configs and tensors: the network itself carries hooks of transformers that cannot be pickled."""
        parts = (type(self.model), self.model.config, self.model.generation_config, self.model.state_dict())
        return _rebuilt, (*parts, self.writer.processor, self.reader.batch_size, self.name)

    @property
    def fingerprint(self) -> str:
        """Names model, processor, weights and dtype as they are now, whatever revision they came from."""
        processor, tokenizer = self.writer.processor, self.writer.tokenizer
        return fingerprint_object([self.model, processor, getattr(processor, "chat_template", None), tokenizer])

    def pieces(self, text: str) -> tuple[str, ...]:
        """How the tokenizer cuts a text; see Judge."""
        return self.writer.pieces(text)

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(answers)) from the whole vocabulary; see Judge.

        White space before an answer is stepped over token by token, up to 8; what has less than 1e-4 of probability is
        left out.

        Raises:
            JudgeError: no token reads like an answer, or some questions have unreadable images or are too long.
        """
        check_asked(questions, answers)
        ids = self.writer.answer_ids(answers)
        table = np.full((len(questions), len(answers)), np.nan)
        with self._reading(questions) as (prompts, members, failures):
            for indices, state in self.reader.read(prompts, failures, keep_cache=True):
                masses = self._answer_mass(state, ids, state.logits.new_ones(len(indices), dtype=torch.float64))
                for index, row in zip(indices, masses.cpu().numpy(), strict=True):
                    table[members[index]] = row
        return answered(table, self._count(len(questions), members, failures))

    def weigh(self, questions: Sequence[Question], words: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(words)) where the replies give their answers, see `weigh_answers`.

        Raises:
            JudgeError: as for `answer_distribution`, and with `failures`, replies without an answer.
        """
        check_asked(questions, words)
        ids = self.writer.answer_ids(words)
        tracked = {}
        for word in words:
            for spelling in (word, word.lower(), word.upper()):
                if self.writer.has_token(spelling):
                    tracked[spelling] = self.writer.answer_ids([spelling])[0]
        first = np.full((len(questions), len(words)), np.nan)
        replies: list[Answer | None] = [None] * len(questions)
        with self._reading(questions) as (prompts, members, failures):
            for indices, state in self.reader.read(prompts, failures, keep_cache=True):
                masses = self._answer_mass(state, ids, state.logits.new_ones(len(indices), dtype=torch.float64))
                answers = self._write(
                    state, [prompts[index] for index in indices], ANSWER_LENGTH, _ALTERNATIVES, tracked
                )
                for index, row, answer in zip(indices, masses.cpu().numpy(), answers, strict=True):
                    first[members[index]] = row
                    for member in members[index]:
                        replies[member] = answer
        return weighed(replies, self._count(len(questions), members, failures), words, first.tolist())

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Answers, greedy or sampled; see Judge. `top_logprobs` may be any number."""
        check_asked(questions)
        tracked = dict(zip(track, self.writer.answer_ids(track), strict=True))
        written: list[Answer | None] = [None] * len(questions)
        with self._reading(questions) as (prompts, members, failures):
            for indices, state in self.reader.read(prompts, failures, keep_cache=True):
                asked = [prompts[index] for index in indices]
                answers = self._write(state, asked, max_new_tokens, top_logprobs, tracked)
                for index, answer in zip(indices, answers, strict=True):
                    for member in members[index]:
                        written[member] = answer
        return answered(written, self._count(len(questions), members, failures))

    def _answer_mass(self, state: State, ids: list[list[int]], weights: torch.Tensor, blanks: int = 0) -> torch.Tensor:
        """Probability (b, answers) of what `weights` (b,) leads to and of each answer after it.

        The judge may write white space as a token of its own first. Each such token is stepped over: its probability
        times that of the answers after it.
        """
        probabilities = state.logits.double().softmax(-1) * weights[:, None]
        masses = torch.stack([probabilities[:, same].sum(-1) for same in ids], dim=1)
        white = torch.tensor(self.writer.blank_ids, dtype=torch.long, device=masses.device)
        if blanks == _MOST_BLANKS or not len(white) or state.mask.shape[1] >= self.reader.limit:
            return masses
        rising, order = probabilities[:, white].sort(dim=1)
        rows, places = (rising.cumsum(1) > _LEFT_OUT).nonzero(as_tuple=True)
        tokens = white[order[rows, places]]
        for start in range(0, len(rows), self.reader.batch_size):
            some, token = (part[start : start + self.reader.batch_size] for part in (rows, tokens))
            longer = self.reader.branch(state, some, token)
            masses.index_add_(0, some, self._answer_mass(longer, ids, probabilities[some, token], blanks + 1))
        return masses

    @contextmanager
    def _reading(self, questions: Sequence[Question]) -> Iterator[tuple[list[Prompt], list[list[int]], dict[int, str]]]:
        """Different prompts, the questions that each stands for, and a place for {prompt: failure}."""
        distinct: dict[tuple[str, str | None, float, int], int] = {}
        prompts: list[Prompt] = []
        members: list[list[int]] = []
        failures: dict[int, str] = {}
        keys, unreadable = image_keys(questions)
        for row, question in enumerate(questions):
            text = self.writer.text(question)
            sampling = (question.temperature, question.seed) if question.temperature else (0.0, 0)
            at = distinct.setdefault((text, keys[row] or unreadable.get(row), *sampling), len(prompts))
            if at == len(prompts):
                prompts.append(Prompt(text, question.image, keys[row], *sampling))
                members.append([])
                if row in unreadable:
                    failures[at] = unreadable[row]
            members[at].append(row)
        with (
            self._lock,
            torch.inference_mode(),
            # a caller's autocast, around a whole training step say, must not change answers
            torch.autocast(self.model.device.type, enabled=False),
        ):
            yield prompts, members, failures

    def _count(self, total: int, members: list[list[int]], failures: dict[int, str]) -> dict[int, str]:
        """Updates the usage; returns the failures by question."""
        self.usage.answered += len(members) - len(failures)
        self.usage.cached += total - len(members)
        self.usage.input_tokens += self.reader.tokens_read
        self.reader.tokens_read = 0
        return {member: reason for index, reason in failures.items() for member in members[index]}

    def _write(
        self, state: State, prompts: list[Prompt], limit: int, top: int, tracked: dict[str, list[int]]
    ) -> list[Answer]:
        """Writes until every row has ended. What a row draws depends on its prompt alone, not on other rows."""
        numbers = [random.Random(f"{prompt.seed} {prompt.image_key} {prompt.text}") for prompt in prompts]
        room = (self.reader.limit - state.mask.sum(1) + 1).clamp(max=limit).tolist()  # the last token is not read
        ids: list[list[int]] = [[] for _ in room]
        seen: list[list[dict[str, float]]] = [[] for _ in room]
        ended = [False] * len(room)
        while True:
            tokens = state.logits.argmax(-1)
            for row, prompt in enumerate(prompts):
                if prompt.temperature:
                    reached = (state.logits[row].double() / prompt.temperature).softmax(-1).cumsum(-1)
                    tokens[row] = torch.searchsorted(reached, reached[-1] * numbers[row].random(), right=True)
            reports = self._alternatives(state.logits, top, tracked) if top or tracked else None
            for row, token in enumerate(tokens.tolist()):
                if not ended[row] and len(ids[row]) < room[row]:
                    ids[row].append(token)
                    ended[row] = token in self._ends
                    if reports is not None:
                        seen[row].append(reports[row])
            if all(end or len(row) == most for end, row, most in zip(ended, ids, room, strict=True)):
                break
            state = self.reader.step(state, tokens)
        self.usage.output_tokens += sum(map(len, ids))
        tokenizer, texts = self.writer.tokenizer, self.writer.token_texts
        return [
            Answer(
                text=tokenizer.decode(row[: len(row) - end], skip_special_tokens=True),
                tokens=tuple(texts[token] if token < len(texts) else "" for token in row) if report else (),
                logprobs=tuple(report),
                truncated=not end,
            )
            for row, report, end in zip(ids, seen, ended, strict=True)
        ]

    def _alternatives(self, logits: torch.Tensor, top: int, tracked: dict[str, list[int]]) -> list[dict[str, float]]:
        """{token text: log probability} for each row of `logits` (b, V)."""
        logs = logits.double().log_softmax(-1)
        texts = self.writer.token_texts
        values, tokens = logs.topk(min(top, logs.shape[1]), dim=-1)
        reports: list[dict[str, float]] = []
        for row_values, row_tokens in zip(values.tolist(), tokens.tolist(), strict=True):
            report: dict[str, float] = {}
            for value, token in zip(row_values, row_tokens, strict=True):
                text = texts[token] if token < len(texts) else ""
                if token_text(text) not in tracked:  # all spellings of a tracked token stand under one name below
                    report[text] = float(np.logaddexp(report[text], value)) if text in report else value
            reports.append(report)
        for text, same in tracked.items():
            for report, value in zip(reports, logs[:, same].logsumexp(-1).tolist(), strict=True):
                report[text] = value
        return reports


def _rebuilt(
    kind: Any, config: Any, generation: Any, tensors: Any, processor: Any, batch_size: int, name: str
) -> LocalJudge:
    # building a network draws random numbers before its tensors are put in
    with torch.random.fork_rng(devices=[]), unsharded_loading():
        model = kind(config)
    model.load_state_dict(tensors, assign=True)
    model.tie_weights()
    model.generation_config = generation
    device = next(iter(tensors.values())).device  # buffers that are no part of the tensors are still on the CPU
    return LocalJudge(model.to(device), processor, batch_size=batch_size, name=name)
