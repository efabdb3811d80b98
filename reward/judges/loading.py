"""Loads the judge that a text names, on this machine (perhaps late) or behind a server; and models that answer."""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.checkpoints.fingerprints import fingerprint_checkpoint
from reward.checkpoints.folders import resolve_checkpoint
from reward.errors import ConfigError, JudgeError
from reward.judges.base import Answer, Judge, Question, Usage

if TYPE_CHECKING:
    import torch

_NO_SETTINGS = ("model", "base_url", "api_key_env", "source")
_NO_EFFECT = {"device", "batch_size"}  # but for rounding


def load_judge(checkpoint: str, *, lazily: bool = False, **settings: Any) -> Judge:
    """The judge of a checkpoint on this machine, or behind an endpoint.

    Args:
        checkpoint: see `LocalJudge.from_pretrained`; or the endpoint of an OpenAI-compatible server and, if it has
            several models, the name of one, as in `"http://localhost:8000/v1#name/model"`.
        lazily: load a model of this machine at its first question.
        settings: of `ServerJudge`, such as `concurrency`, or of `LocalJudge.from_pretrained`, such as `dtype`;
            None counts as not given.

    Raises:
        ConfigError: no such setting, one that is out of range, or a server with several models and no name.
        JudgeError: no name is given, and the server does not tell which models it has.
    """
    from reward.judges import LocalJudge, ServerJudge

    settings = {name: value for name, value in settings.items() if value is not None}
    extra_body = settings.get("extra_body")
    if isinstance(extra_body, str):  # as --set has it
        try:
            settings["extra_body"] = json.loads(extra_body)
        except ValueError:
            raise ConfigError(f'extra_body must be JSON, as in {{"top_k": 0}}, got {extra_body!r:.80}') from None
    if is_server(checkpoint):
        _check(settings, ServerJudge, "a server")
        endpoint, _, model = checkpoint.partition("#")
        if not model:
            models = ServerJudge("", endpoint, **settings).models()
            if len(models) != 1:
                raise ConfigError(f"name the model behind {endpoint}, as in {endpoint}#{(models or ['name/model'])[0]}")
            (model,) = models
        return ServerJudge(model, endpoint, **settings)
    _check(settings, LocalJudge.from_pretrained, "a model on this machine")
    loading = partial(LocalJudge.from_pretrained, checkpoint, **settings)
    return LazyJudge(loading, checkpoint) if lazily else loading()


def is_server(checkpoint: str) -> bool:
    """Whether in place of a checkpoint stands the endpoint of a server."""
    return checkpoint.startswith(("http://", "https://"))


def _check(settings: dict[str, Any], function: Any, label: str) -> None:
    """Raises ConfigError for a setting that the judge does not have."""
    names = [name for name in inspect.signature(function).parameters if name not in _NO_SETTINGS]
    for name in settings:
        if name not in names:
            raise ConfigError(f"{label} has no setting {name!r}; it has {', '.join(names)}")


class LazyJudge:
    """Loads a judge at its first question, and leaves it out when pickled: another process loads its own.

    Args:
        load: gives the judge; must be picklable for this to be.
        name: how reports call it before it is loaded, and after.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> judge = LazyJudge(lambda: ScriptedJudge(lambda question: "4"), "scripted")
        >>> judge.usage.answered, judge.generate([Question("How good?")])[0].text, judge.usage.answered
        (0, '4', 1)
    """

    def __init__(self, load: Callable[[], Judge], name: str) -> None:
        self.name = name
        self._load = load
        self._judge: Judge | None = None
        self.usage = Usage()  # the judge's own as soon as it is loaded
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Names the weights that are stored under its name now, and the settings they are loaded with."""
        settings = dict(getattr(self._load, "keywords", {}))
        weights = fingerprint_checkpoint(self.name, settings.pop("revision", None))
        texts = [(name, str(value)) for name, value in sorted(settings.items()) if name not in _NO_EFFECT]
        return f"{weights} {texts}"

    def load(self) -> Any:
        """The judge, loaded now if it was not."""
        with self._lock:
            if self._judge is None:
                self._judge = self._load()
                self.usage = self._judge.usage
            return self._judge

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """See Judge."""
        return self.load().answer_distribution(questions, answers)

    def generate(self, questions: Sequence[Question], **options: Any) -> list[Answer]:
        """See Judge."""
        return self.load().generate(questions, **options)

    def __reduce__(self) -> Any:
        return LazyJudge, (self._load, self.name)


def load_parts(
    checkpoint: str | os.PathLike[str],
    kind: str,
    *,
    revision: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    must_see: bool = False,
    apart: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """A vision-language model and its processor, or a language model and its tokenizer as one.

    A folder whose weights do not all have a place in the model is refused: with a head of its own, such as that of a
    reward model, or adapters that are not merged, it is another model than the one that would answer.

    Args:
        checkpoint: a folder or Hub id.
        kind: what the model is called in messages.
        must_see: whether language models are refused.
        apart: how the names of weights of another head begin, which is read apart.

    Raises:
        CheckpointError: nothing there, no such kind of model, or files that do not fit each other.
        ConfigError: no such device or dtype.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

    from reward.backbones.pretrained import load_pretrained, parse_dtype, usable_device

    folder = resolve_checkpoint(checkpoint, model=kind, revision=revision)
    device = usable_device(device)
    if dtype == "auto":
        dtype = None
    options: dict[str, Any] = {"dtype": parse_dtype(dtype) or "auto", "strict": True, "apart": apart}
    if must_see or not _reads_texts(folder):
        model, processor = load_pretrained(folder, AutoModelForImageTextToText, AutoProcessor, kind, **options)
    else:
        model, tokenizer = load_pretrained(folder, AutoModelForCausalLM, AutoTokenizer, kind, **options)
        processor = TextProcessor(tokenizer)
    return model.to(device), processor


def _reads_texts(folder: Any) -> bool:
    """Whether a folder holds a language model without eyes."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig

    try:
        kind = type(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    except Exception:  # whatever it is, loading says what is wrong
        return False
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


class TextProcessor:
    """A tokenizer with the interface of the processor that a judge expects."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.chat_template = tokenizer.chat_template

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:
        """Chat templates of text-only models expect the content of a message as a string, not as a list of parts."""
        plain = []
        for message in messages:
            if any(part["type"] != "text" for part in message["content"]):
                raise JudgeError("this model reads no images: leave the image out, or use a vision-language model")
            plain.append({**message, "content": "".join(part["text"] for part in message["content"])})
        return self.tokenizer.apply_chat_template(plain, **options)
