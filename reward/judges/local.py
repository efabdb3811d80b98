"""LocalJudge: any model of transformers that chats, its probabilities read directly."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.checkpoints.folders import unsharded_loading
from reward.errors import JudgeError
from reward.judges.base import Answer, Question, Usage, answered, check_asked, image_keys
from reward.judges.loading import load_parts
from reward.judges.prefixes import PromptReader, State
from reward.judges.prompts import Prompt, PromptWriter
from reward.judges.replies import ANSWER_LENGTH, weighed
from reward.judges.writing import write_replies

_MOST_BLANKS = 8  # tokens of white space before an answer
_ALTERNATIVES = 20  # reported for each token of a reply in which an answer is looked for
_LEFT_OUT = 1e-4  # white space that has no more probability than this, all its tokens together, is not stepped over


class LocalJudge:
    """A vision-language model on this machine, or a language model, which reads questions without image alone.

    Prompts come from the model's chat template. Only questions with a temperature are sampled, and the settings of the
    model's generation config that change probabilities (temperature, repetition penalty) are not applied. What
    questions about one image share from their beginning on (image, rubric) goes through the model once, see
    `PromptReader`; equal questions are asked once; questions without image never run the vision tower.

    A model that thinks before it answers, as in `<think>...</think>`, thinks to its end, and the answer behind it is
    read. A chat template that knows `enable_thinking`, or opens the thought itself, has it answer at once.

    Args:
        model: decoder-only, such as LLaVA, Qwen-VL, Idefics, InternVL.
        processor: its processor, with a chat template.
        batch_size: most questions of a forward pass; lower it if memory runs out.
        max_thinking: most tokens of a thought; a longer one is a failure of its question.
        name: how reports call it.

    Attributes:
        writer: writes the prompts, and knows the tokens.
        reader: runs the prompts through the model.

    Raises:
        JudgeError: an encoder-decoder, or a processor without chat template.

    Example:
        >>> from importlib.resources import files
        >>> judge = LocalJudge.from_pretrained(files("reward") / "assets" / "captioner", device="cpu")
        >>> len(judge.generate([Question("Describe it.")], max_new_tokens=4, top_logprobs=1)[0].tokens) <= 4
        True
    """

    def __init__(
        self, model: Any, processor: Any, *, batch_size: int = 16, max_thinking: int = 1024, name: str = "local"
    ) -> None:
        if batch_size < 1 or max_thinking < 1:
            raise ValueError(f"batch_size and max_thinking must be at least 1, got {batch_size} and {max_thinking}")
        if model.config.is_encoder_decoder:
            raise JudgeError(f"{type(model).__name__} is an encoder-decoder; a judge needs a decoder that goes on")
        self.name, self.max_thinking = name, max_thinking
        self.usage = Usage()
        self.model = model.eval()
        self.writer = PromptWriter(processor)
        self.reader = PromptReader(model, self.writer, batch_size=batch_size)
        self._lock = threading.RLock()
        ends = model.generation_config.eos_token_id
        ends = {self.writer.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
        self._write = partial(write_replies, self.reader, ends=ends, max_thinking=max_thinking)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        batch_size: int = 16,
        max_thinking: int = 1024,
    ) -> LocalJudge:
        """Loads model and processor. One with code of its own is loaded with transformers, and given to the class.

        Args:
            source: folder or Hub id of a model tuned for chat that `AutoModelForImageTextToText` knows, or
                `AutoModelForCausalLM`, such as Qwen3.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; by default what the checkpoint is stored in.
            batch_size, max_thinking: see the class.

        Raises:
            CheckpointError: nothing there, no such kind of model, one with code of its own, or weights that do not fill
                the network.
            JudgeError: see the class.
        """
        model, processor = load_parts(source, "judge", revision=revision, device=device, dtype=dtype)
        return cls(model, processor, batch_size=batch_size, max_thinking=max_thinking, name=os.fspath(source))

    def __reduce__(self) -> Any:
        """Pickles configs and tensors: the network itself carries hooks of transformers that cannot be pickled."""
        parts = (type(self.model), self.model.config, self.model.generation_config, self.model.state_dict())
        return _rebuilt, (*parts, self.writer.processor, self.reader.batch_size, self.max_thinking, self.name)

    @property
    def fingerprint(self) -> str:
        """Names model, processor, weights and dtype as they are now, whatever revision they came from."""
        processor, tokenizer = self.writer.processor, self.writer.tokenizer
        template = getattr(processor, "chat_template", None)
        return fingerprint_object([self.model, processor, template, tokenizer, self.max_thinking])

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(answers)) from the whole vocabulary; see Judge.

        White space before an answer is stepped over token by token, up to 8; what has less than 1e-4 of probability is
        left out.

        Raises:
            JudgeError: no token reads like an answer; or with `failures`, replies without an answer, and questions
                with unreadable images or too many tokens.
        """
        check_asked(questions, answers)
        ids = self.writer.answer_ids(answers)
        spellings = [*answers, *map(str.lower, answers), *map(str.upper, answers)]
        tracked = {text: self.writer.answer_ids([text])[0] for text in spellings if self.writer.has_token(text)}

        # Beside each reply stand the probabilities of the answers as its first token, from the whole vocabulary.
        def use(state: State, prompts: list[Prompt]) -> list[tuple[np.ndarray, Answer] | str]:
            masses = self._answer_masses(state, ids)
            replies = self._write(
                state, prompts, max_new_tokens=ANSWER_LENGTH, top_logprobs=_ALTERNATIVES, tracked=tracked
            )
            results: list[tuple[np.ndarray, Answer] | str] = []
            for row_masses, reply in zip(masses, replies, strict=True):
                results.append(reply if isinstance(reply, str) else (row_masses, reply))
            return results

        results, failures = self._ask(questions, use)
        replies: list[Answer | None] = [None] * len(questions)
        first: list[Any] = [()] * len(questions)
        for row, result in enumerate(results):
            if result is not None:
                first[row], replies[row] = result
        return weighed(replies, failures, answers, first)

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Answers, greedy or sampled; see Judge. `top_logprobs` may be any number.

        Raises:
            JudgeError: with `failures`, as for `answer_distribution`, and thoughts of more than `max_thinking` tokens,
                which do not count as new tokens of the answer.
        """
        check_asked(questions)
        tracked = dict(zip(track, self.writer.answer_ids(track), strict=True))
        write = partial(self._write, max_new_tokens=max_new_tokens, top_logprobs=top_logprobs, tracked=tracked)
        return answered(*self._ask(questions, write))

    def _ask(
        self, questions: Sequence[Question], use: Callable[[State, list[Prompt]], Iterable[Any]]
    ) -> tuple[list[Any], dict[int, str]]:
        """What `use` makes of each question, equal ones once; None where the failures, {row: reason}, say why.

        Args:
            questions: any number.
            use: gives a value for each prompt that the state has read, or a text that says why there is none.
        """
        prompts, rows_of, failures = self._prompts(questions)
        values: list[Any] = [None] * len(questions)
        with (
            self._lock,
            torch.inference_mode(),
            # a caller's autocast, around a whole training step say, must not change answers
            torch.autocast(self.model.device.type, enabled=False),
        ):
            for indices, state in self.reader.read(prompts, failures, keep_cache=True):
                for index, value in zip(indices, use(state, [prompts[index] for index in indices]), strict=True):
                    if isinstance(value, str):
                        failures[index] = value
                        continue
                    for row in rows_of[index]:
                        values[row] = value
            self.usage.input_tokens += self.reader.tokens_read
            self.usage.output_tokens += self.reader.tokens_written
            self.reader.tokens_read = self.reader.tokens_written = 0
        self.usage.answered += len(prompts) - len(failures)
        self.usage.cached += len(questions) - len(prompts)
        return values, {row: reason for index, reason in failures.items() for row in rows_of[index]}

    def _prompts(self, questions: Sequence[Question]) -> tuple[list[Prompt], list[list[int]], dict[int, str]]:
        """Different prompts, the questions that each stands for, and {prompt: why its image cannot be read}."""
        prompts: list[Prompt] = []
        rows_of: list[list[int]] = []
        failures: dict[int, str] = {}
        distinct: dict[tuple[str, str | None, float, int], int] = {}
        keys, unreadable = image_keys(questions)
        for row, question in enumerate(questions):
            text = self.writer.text(question)
            seed = question.seed if question.temperature else 0
            identity = (text, keys[row] or unreadable.get(row), question.temperature, seed)
            index = distinct.setdefault(identity, len(prompts))
            if index == len(prompts):
                prompts.append(Prompt(text, question.image, keys[row], question.temperature, seed))
                rows_of.append([])
                if row in unreadable:
                    failures[index] = unreadable[row]
            rows_of[index].append(row)
        return prompts, rows_of, failures

    def _answer_masses(self, state: State, ids: list[list[int]]) -> np.ndarray:
        """Probability (b, answers) of each answer as the next token, white space before it stepped over."""
        certain = state.logits.new_ones(len(state.logits), dtype=torch.float64)
        return self._masses_behind(state, ids, certain, 0).cpu().numpy()

    def _masses_behind(self, state: State, ids: list[list[int]], weights: torch.Tensor, blanks: int) -> torch.Tensor:
        """Probability (b, answers) of what `weights` (b,) leads to and of each answer after it.

        The judge may write white space as a token of its own first. Each such token is stepped over: its probability
        times that of the answers after it.
        """
        probabilities = state.logits.double().softmax(-1) * weights[:, None]
        masses = torch.stack([probabilities[:, spellings].sum(-1) for spellings in ids], dim=1)
        white = torch.tensor(self.writer.blank_ids, dtype=torch.long, device=masses.device)
        if blanks == _MOST_BLANKS or not len(white) or state.mask.shape[1] >= self.reader.limit:
            return masses
        rising, order = probabilities[:, white].sort(dim=1)
        rows, positions = (rising.cumsum(1) > _LEFT_OUT).nonzero(as_tuple=True)
        tokens = white[order[rows, positions]]
        for start in range(0, len(rows), self.reader.batch_size):
            some_rows = rows[start : start + self.reader.batch_size]
            some_tokens = tokens[start : start + self.reader.batch_size]
            longer = self.reader.branch(state, some_rows, some_tokens)
            reached = probabilities[some_rows, some_tokens]
            masses.index_add_(0, some_rows, self._masses_behind(longer, ids, reached, blanks + 1))
        return masses


def _rebuilt(
    kind: Any,
    config: Any,
    generation: Any,
    tensors: Any,
    processor: Any,
    batch_size: int,
    max_thinking: int,
    name: str,
) -> LocalJudge:
    # building a network draws random numbers before its tensors are put in
    with torch.random.fork_rng(devices=[]), unsharded_loading():
        model = kind(config)
    model.load_state_dict(tensors, assign=True)
    model.tie_weights()
    model.generation_config = generation
    device = next(iter(tensors.values())).device  # buffers that are no part of the tensors are still on the CPU
    return LocalJudge(model.to(device), processor, batch_size=batch_size, max_thinking=max_thinking, name=name)
