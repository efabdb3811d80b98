"""The options of commands that ask a judge: which model judges, and how it compares two captions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options

if TYPE_CHECKING:
    from reward.judges import Judge
    from reward.judges.pairwise import PairwiseJudge

__all__ = ["BattleOptions", "Concurrency", "ExtraBody", "JudgeOptions", "Prices", "server_settings"]

_SERVER = ("concurrency", "prices", "extra_body")
_LOCAL = ("revision", "device", "dtype", "batch_size")  # what a judge on this machine is loaded with

Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests to the server at a time; default: 8.")]
Prices = Annotated[
    str | None,
    typer.Option(help="Price of a million tokens read and written, as in 2.5,10; the cost is then printed."),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(
        help='Further fields of each request to the server, as JSON: {"top_k": 0, "min_p": 0} lets llama.cpp sample '
        "from all tokens."
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
            help="The model that judges: folder or Hub id of a vision-language model; with --server, its name there.",
        ),
    ]
    server: Annotated[
        str | None,
        typer.Option(
            help="Address of an OpenAI-compatible server, such as http://localhost:8000/v1, or the word openai for "
            "OpenAI's own. The key is read from the environment variable OPENAI_API_KEY."
        ),
    ] = None
    concurrency: Concurrency = None
    cache: Annotated[
        Path | None,
        typer.Option(help="File for the server's answers, created if absent, so that no question is paid for twice."),
    ] = None
    prices: Prices = None
    extra_body: ExtraBody = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Most questions of a forward pass on this machine; default: 16.")
    ] = None
    revision: options.Revision = None
    device: options.Device = None
    dtype: options.Dtype = None

    def make(self, load: Callable[..., Judge] | None = None) -> Judge:
        """Makes the judge; a model on this machine is loaded at its first question.

        Args:
            load: loads a model of this machine, called with its name and settings; None loads a vision-language model.

        Raises:
            typer.BadParameter: options that do not go together.
            ConfigError: a setting of the server is invalid.
        """
        names = ("cache", *_SERVER) if self.server is None else _LOCAL
        where = "is for a model on this machine" if self.server else "is for a server: give --server, too"
        options.refuse({name: getattr(self, name) for name in names}, where)
        if self.server is None:
            from reward.judges.lazy import LazyJudge

            chosen = {name: getattr(self, name) for name in _LOCAL if getattr(self, name) is not None}
            return LazyJudge(partial(load or _load_local, self.judge, **chosen), self.judge)

        from reward.judges import ServerJudge

        settings = server_settings(self.concurrency, self.prices, self.extra_body)
        return ServerJudge(self.judge, None if self.server == "openai" else self.server, cache=self.cache, **settings)


def _load_local(model: str, **settings: Any) -> Judge:
    from reward.judges import LocalJudge

    return LocalJudge.from_pretrained(model, **settings)


def server_settings(concurrency: int | None, prices: str | None, extra_body: str | None) -> dict[str, Any]:
    """Arguments of `ServerJudge` from the options of a command.

    Raises:
        typer.BadParameter: `prices` are no two numbers, or `extra_body` is no JSON object.

    Example:
        >>> server_settings(None, "2.5,10", '{"top_k": 0}')
        {'prices': (2.5, 10.0), 'extra_body': {'top_k': 0}}
    """
    settings: dict[str, Any] = {} if concurrency is None else {"concurrency": concurrency}
    if prices is not None:
        settings["prices"] = _parse_prices(prices)
    if extra_body is not None:
        settings["extra_body"] = _parse_fields(extra_body)
    return settings


def _parse_prices(text: str) -> tuple[float, float]:
    try:
        read, written = (float(part) for part in text.split(","))
        if not (0 <= read < float("inf") and 0 <= written < float("inf")):
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not two numbers, as in 2.5,10 for tokens read and written", param_hint="--prices"
        ) from None
    return read, written


def _parse_fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise typer.BadParameter(
            f"{text!r:.80} is no JSON object, as in '{{\"top_k\": 0}}'", param_hint="--extra-body"
        ) from None
    return fields


@dataclass(frozen=True, kw_only=True)
class BattleOptions:
    """How a judge compares two captions."""

    images: Annotated[Path, typer.Option("--images", "-i", help="Folder of the images.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="A .json file: the battles with the judge's verdicts.")]
    no_reference: Annotated[
        bool, typer.Option("--no-reference", help="Do not show the judge the reference captions.")
    ] = False
    one_order: Annotated[
        bool,
        typer.Option(
            "--one-order",
            help="Ask once, in the order of the file, instead of in both orders. That costs half as much, but the "
            "judge's preference for a position does not cancel out.",
        ),
    ] = False
    no_reasons: Annotated[
        bool,
        typer.Option(
            "--no-reasons",
            help="Read the probabilities of the verdicts instead of having reasons written: much faster. The most "
            "probable verdict counts, by the mean of both orders.",
        ),
    ] = False
    prompt: options.PromptFile = None
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a written reason and verdict.")] = 512
    seed: Annotated[int, typer.Option(help="Seed of the order of the two captions of a battle in the file.")] = 0

    def make(self, judge: Judge) -> PairwiseJudge:
        """Makes the pairwise judge.

        Raises:
            ConfigError: the prompt file is invalid.
        """
        from reward.judges.pairwise import PairwiseJudge

        return PairwiseJudge(
            judge,
            reasons=not self.no_reasons,
            both_orders=not self.one_order,
            prompt=self.prompt,
            max_new_tokens=self.max_new_tokens,
        )
