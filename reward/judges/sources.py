"""The judge that a text names: a model on this machine, or one behind a server as `ADDRESS#NAME`."""

from __future__ import annotations

import inspect
import json
from functools import partial
from typing import Any

from reward.errors import ConfigError
from reward.judges.base import Judge

_NO_SETTINGS = ("model", "base_url", "api_key_env", "source", "trust_remote_code")


def load_judge(source: str, *, lazily: bool = False, **settings: Any) -> Judge:
    """The judge of a source.

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
    from reward.judges.lazy import LazyJudge

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


def is_server(source: str) -> bool:
    """Whether a source is the address of a server."""
    return source.startswith(("http://", "https://"))


def _check(settings: dict[str, Any], function: Any, label: str) -> None:
    """Raises ConfigError for a setting that the judge does not have."""
    names = [name for name in inspect.signature(function).parameters if name not in _NO_SETTINGS]
    for name in settings:
        if name not in names:
            raise ConfigError(f"{label} has no setting {name!r}; it has {', '.join(names)}")
