"""The judge that a text names: a model on this machine, perhaps loaded late, or one behind a server."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reward.checkpoints.fingerprints import fingerprint_checkpoint
from reward.errors import ConfigError
from reward.judges.base import Answer, Judge, Question, Usage

_NO_SETTINGS = ("model", "base_url", "api_key_env", "source")
_NO_EFFECT = {"device", "batch_size"}  # but for rounding


def load_judge(source: str, *, lazily: bool = False, **settings: Any) -> Judge:
    """The judge of a checkpoint on this machine, or behind an endpoint.

    Args:
        source: see `LocalJudge.from_pretrained`; or the address of an OpenAI-compatible server and, if it
            has several models, the name of one, as in `"http://localhost:8000/v1#name/model"`.
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
    if is_server(source):
        _check(settings, ServerJudge, "a server")
        address, _, model = source.partition("#")
        if not model:
            models = ServerJudge("", address, **settings).models()
            if len(models) != 1:
                raise ConfigError(f"name the model behind {source}, as in {source}#{(models or ['name/model'])[0]}")
            (model,) = models
        return ServerJudge(model, address, **settings)
    _check(settings, LocalJudge.from_pretrained, "a model on this machine")
    loading = partial(LocalJudge.from_pretrained, source, **settings)
    return LazyJudge(loading, source) if lazily else loading()


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
