"""Settings of the models that commands ask questions, here or behind a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from reward.cli.options import read_value

JudgeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-set",
        metavar="NAME=VALUE",
        help="Setting of the model; of a server concurrency, cache (a file that keeps its answers), prices (of a "
        "million tokens read and written, as in 2.5,10), timeout, retries, top_logprobs and extra_body (JSON); of one "
        "here device, dtype, batch_size and revision. Repeat it for several.",
    ),
]


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
