"""Where candidate captions come from: a model behind an OpenAI-compatible server, or one on this machine."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import fingerprint_checkpoint
from reward.data.images import load_image
from reward.data.written_captions import decode_texts, end_tokens, up_to_end
from reward.errors import CheckpointError, ConfigError, ImageError, JudgeError
from reward.judges import Question, ServerJudge, Usage
from reward.judges.chat import Sampled

if TYPE_CHECKING:
    import torch

    from reward.data.samples import ImageLike

# What the embedded captioner was trained on: asked otherwise, it writes worse captions.
EMBEDDED_PROMPT, EMBEDDED_SHORT_PROMPT = "Describe the picture.", "Describe the picture briefly."


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How candidates are written.

    Args:
        prompt: what the model is asked.
        system: system message, or None.
        temperature: above 0; or 0 for the likeliest caption.
        top_p: only the likeliest tokens that have this probability together, above 0 and at most 1. At 1 a server is
            not told, and does what it does by default: llama.cpp takes 0.95, beside the 40 likeliest tokens.
        max_tokens: length limit.
        seed: makes the captions of a model on this machine repeatable, and is sent to servers; None draws anew.
        chunk: candidates of an image that are asked for, or sampled, at a time; None for all.

    Raises:
        ConfigError: a value is out of range.
    """

    prompt: str = "Describe the image in detail."
    system: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature must be at least 0 and finite, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        for name in ("max_tokens", "chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")

    def at_once(self, missing: int) -> int:
        """How many captions are asked for, or sampled, at a time."""
        return min(missing, self.chunk or missing)


def _seed(seed: int, row: int, have: int) -> int:
    """A seed for an image and the captions before, so that each is drawn by itself, also by a run that goes on."""
    return int(hashlib.sha256(f"{seed} {row} {have}".encode()).hexdigest()[:8], 16) // 2


Written = Iterator[tuple[int, list[Sampled] | str]]  # (row, captions of it as they come, or why there are no more)


class ServerCaptioner:
    """A model behind an OpenAI-compatible server, through the client of `ServerJudge`: its retries, key and bill.

    A server that writes fewer captions at once than asked for is asked again for the rest.

    Args:
        base_url: such as `"http://localhost:8000/v1"`.
        model: its name there; None takes the only one that the server lists.
        settings: further arguments of `ServerJudge`, such as `concurrency` and `prices`. `timeout` is 600 s here, for
            all captions of a request.

    Example:
        >>> ServerCaptioner("http://localhost:8000/v1", "my-model").usage.answered
        0
    """

    def __init__(self, base_url: str, model: str | None = None, **settings: Any) -> None:
        self.base_url, self._model, self._settings = base_url, model, {"timeout": 600.0, **settings}
        self.name = f"{model or 'the model'} at {base_url}"
        self.extra_body: dict[str, Any] = dict(settings.get("extra_body") or {})
        self.usage = Usage()
        self._judge = self._judge_of(model or "")

    def _judge_of(self, model: str) -> ServerJudge:
        judge = ServerJudge(model, self.base_url, **self._settings)
        judge.usage = self.usage
        return judge

    def check(self) -> str:
        """The model's name. Asks the server for its models, which costs nothing.

        Raises:
            JudgeError: no server is there, it refuses the key, or it does not tell which model to take.
        """
        models = self._judge.models()
        if self._model is None:
            if len(models) != 1:
                listed = "it does not list its models"
                if models:
                    listed = f"it serves {', '.join(models[:10])}"
                raise JudgeError(f"{self.base_url} needs the model's name, as {listed}: give {self.base_url}#NAME")
            self._model = models[0]
            self._judge = self._judge_of(models[0])
        return self._model

    def sample(
        self,
        images: Iterable[tuple[int, ImageLike]],
        n: int,
        sampling: Sampling,
        have: Mapping[int, int] | None = None,
    ) -> Written:
        """(row, captions of it) as they are written, in any order, n a row; or (row, reason) if no more come.

        As many requests go out at a time as the settings allow.

        Args:
            images: (row, image) of each.
            n: captions of an image.
            sampling: how they are written.
            have: {row: captions that it has already}; the rest is asked for.

        Raises:
            JudgeError: wrong key or model, or the server is down. What it was writing is given first.
        """
        have = have or {}
        # A row waits here until there is room for a request; rows that are not complete come back first.
        waiting = deque((row, image, have.get(row, 0)) for row, image in images)
        pending: dict[Future[list[Sampled]], tuple[int, ImageLike, int]] = {}
        stop: JudgeError | None = None
        try:
            while pending or (waiting and stop is None):
                while waiting and stop is None and len(pending) < self._judge.concurrency:
                    row, image, count = waiting.popleft()
                    pending[self._ask(row, image, count, n, sampling)] = row, image, count
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    row, image, count = pending.pop(future)
                    try:
                        captions = future.result()[: n - count]
                    except JudgeError as error:
                        if error.failures:
                            yield row, error.failures[0]
                        elif stop is None:
                            stop = error
                        continue
                    count += len(captions)
                    if count < n:
                        waiting.appendleft((row, image, count))
                    yield row, captions
        finally:
            for future in pending:
                future.cancel()
        if stop is not None:
            raise stop

    def _ask(self, row: int, image: ImageLike, have: int, n: int, sampling: Sampling) -> Future[list[Sampled]]:
        extra: dict[str, Any] = {}
        if sampling.top_p != 1:
            extra["top_p"] = sampling.top_p
        if sampling.seed is not None:
            extra["seed"] = _seed(sampling.seed, row, have)
        return self._judge.sample(
            Question(sampling.prompt, image, sampling.system),
            sampling.at_once(n - have),
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_tokens,
            **extra,
        )


class LocalCaptioner:
    """A vision-language model of transformers on this machine.

    Args:
        source: folder or Hub id of a model that `AutoModelForImageTextToText` knows, or `"embedded"`: a small one
            that knows drawings of coloured shapes only, and two prompts, `EMBEDDED_PROMPT` and
            `EMBEDDED_SHORT_PROMPT`.
        device: the GPU if there is one, by default.
        dtype: such as `"bfloat16"`; by default what the checkpoint is stored in.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
    ) -> None:
        self.name = os.fspath(source)
        self.usage = Usage()
        self._device, self._dtype = device, dtype
        self._loaded: tuple[Any, Any] | None = None

    def check(self) -> str:
        """Loads the model; gives its fingerprint."""
        if self._loaded is None:
            from reward.judges.loading import load_parts

            model, processor = load_parts(
                self.name, "captioner", revision=None, device=self._device, dtype=self._dtype, must_see=True
            )
            tokenizer = getattr(processor, "tokenizer", None)
            if not (getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)):
                raise CheckpointError(
                    f"{self.name} has no chat template, so it cannot be asked for a caption: take a model tuned for "
                    "chat, or decode with BestOfN in Python"
                )
            self._loaded = model.eval(), processor
        return self.fingerprint

    @property
    def fingerprint(self) -> str:
        """Names its weights as they are stored now, and their dtype; stored captions belong to it."""
        return f"{fingerprint_checkpoint(self.name)} {self._dtype or ''}".strip()

    def sample(
        self,
        images: Iterable[tuple[int, ImageLike]],
        n: int,
        sampling: Sampling,
        have: Mapping[int, int] | None = None,
    ) -> Written:
        """(row, captions of it) image by image; or (row, reason) of one that cannot be read. See `ServerCaptioner`."""
        self.check()
        seed = sampling.seed
        if seed is None:  # torch's own random numbers begin alike in each process, also in one that goes on
            seed = secrets.randbits(31)
        for row, image in images:
            try:
                pixels = load_image(image)
            except ImageError as error:
                yield row, str(error)
                continue
            count = (have or {}).get(row, 0)
            while count < n:
                captions = self._write(pixels, n - count, _seed(seed, row, count), sampling)
                count += len(captions)
                yield row, captions

    def _write(self, image: Any, missing: int, seed: int, sampling: Sampling) -> list[Sampled]:
        import torch

        assert self._loaded is not None
        model, processor = self._loaded
        inputs = prompt_inputs(processor, [image], sampling.prompt, sampling.system).to(model.device, model.dtype)
        settings: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            settings = {
                "do_sample": True,
                "num_return_sequences": sampling.at_once(missing),
                "top_k": 0,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
            }
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(seed)
            sequences = model.generate(**inputs, max_new_tokens=sampling.max_tokens, **settings)
        ends = end_tokens(processor, model.generation_config)
        prompt_length = inputs["input_ids"].shape[1]
        answers = up_to_end(sequences[:, prompt_length:].tolist(), ends)
        self.usage.answered += len(answers)
        self.usage.input_tokens += inputs["input_ids"].numel()
        self.usage.output_tokens += sum(len(ids) for ids, _ in answers)
        texts = decode_texts(processor, [ids for ids, _ in answers])
        return [Sampled(text.strip(), not has_ended) for text, (_, has_ended) in zip(texts, answers, strict=True)]


def prompt_inputs(processor: Any, images: Sequence[Any], prompt: str, system: str | None = None) -> Any:
    """A model's inputs for a prompt with each of B images, by the chat template of its processor."""
    chats = []
    for image in images:
        chat: list[dict[str, Any]] = []
        if system is not None:
            chat.append({"role": "system", "content": [{"type": "text", "text": system}]})
        content = [{"type": "image", "image": image}, {"type": "text", "text": prompt}]
        chat.append({"role": "user", "content": content})
        chats.append(chat)
    return processor.apply_chat_template(
        chats, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
