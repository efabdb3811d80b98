"""The models that commands ask questions: which one, here or behind a server, and its settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli.chosen import read_value

if TYPE_CHECKING:
    from reward.judges import Judge

JudgeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-set",
        metavar="NAME=VALUE",
        help="Setting of the model; of a server concurrency, cache (a file that keeps its answers), prices (of a "
        "million tokens read and written, as in 2.5,10) and extra_body (JSON); of one here device, dtype, batch_size "
        "and revision. Repeat it for several.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Which model judges, on this machine or behind a server."""

    judge: Annotated[
        str,
        typer.Option(
            "--judge",
            "-j",
            help="The model that judges: folder or Hub id of a vision-language model, or ADDRESS#NAME of one behind an "
            "OpenAI-compatible server, as in http://localhost:8000/v1#NAME. Its key is read from $OPENAI_API_KEY.",
        ),
    ]
    judge_set: JudgeSettings = None

    def make(self, load: Callable[..., Judge] | None = None) -> Judge:
        """Makes the judge, see `load_judge`."""
        from reward.judges.sources import load_judge

        return load_judge(self.judge, load, lazily=True, **read_settings(self.judge_set))


def read_settings(texts: Sequence[str] | None) -> dict[str, Any]:
    """Settings of a model that is asked.

    Raises:
        typer.BadParameter: not of the form NAME=VALUE, or no JSON where it should be.

    Example:
        >>> read_settings(["concurrency=32", "prices=2.5,10", 'extra_body={"top_k": 0}'])
        {'concurrency': 32, 'prices': (2.5, 10.0), 'extra_body': {'top_k': 0}}
    """
    settings: dict[str, Any] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            if name == "prices":
                read, written = map(float, value.split(","))
                settings[name] = (read, written)
            else:
                settings[name] = json.loads(value) if name == "extra_body" else read_value(value)
        except ValueError:
            form = {"prices": "two numbers, as in prices=2.5,10", "extra_body": 'JSON, as in extra_body={"top_k": 0}'}
            raise typer.BadParameter(f"{text!r:.80} is not {form[name]}", param_hint="NAME=VALUE") from None
    return settings
