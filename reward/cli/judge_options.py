"""Options of the commands that ask a judge: which model, here or behind a server; and the bill."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reward.judges import Judge, Usage

__all__ = [
    "BatchSize",
    "Cache",
    "Concurrency",
    "JudgeModel",
    "Prices",
    "PromptFile",
    "Server",
    "make_judge",
    "usage_line",
]

JudgeModel = Annotated[
    str,
    typer.Option(
        "--judge",
        "-j",
        help="The model that judges: folder or Hub id of a vision-language model, or with --server its name there.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        help="Address of an OpenAI-compatible server, such as http://localhost:8000/v1, or the word openai for "
        "OpenAI's own. The key is read from the environment variable OPENAI_API_KEY."
    ),
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests to the server at a time; default: 8.")]
Cache = Annotated[
    Path | None,
    typer.Option(help="File that keeps the server's answers, so that no question is paid for twice; made if absent."),
]
Prices = Annotated[
    str | None,
    typer.Option(help="Price of a million tokens read and written, as in 2.5,10: the cost is then told."),
]
PromptFile = Annotated[
    Path | None,
    typer.Option("--prompt", help="YAML file with your own wording of the prompt; default: the one that ships."),
]

BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Most questions of a forward pass on this machine; default: 16.")
]

_NEEDS_SERVER = ("cache", "concurrency", "prices")
_LOCAL_ONLY = ("revision", "device", "dtype", "batch_size")


def make_judge(
    model: str,
    *,
    server: str | None = None,
    cache: Path | None = None,
    concurrency: int | None = None,
    prices: str | None = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int | None = None,
) -> Judge:
    """Makes the judge that the options name; a model on this machine is loaded at its first question.

    Raises:
        typer.BadParameter: options that do not go together.
        ConfigError: the server's settings will not do.
    """
    given = {
        "cache": cache,
        "concurrency": concurrency,
        "prices": prices,
        "revision": revision,
        "device": device,
        "dtype": dtype,
        "batch_size": batch_size,
    }
    for name in _NEEDS_SERVER if server is None else _LOCAL_ONLY:
        if given[name] is not None:
            where = "is for a server: give --server, too" if server is None else "is for a model on this machine"
            raise typer.BadParameter(where, param_hint=f"--{name.replace('_', '-')}")
    if server is None:
        from reward.judges.lazy import LazyJudge

        settings = {"revision": revision, "device": device, "dtype": dtype, "batch_size": batch_size}
        return LazyJudge(partial(_load_local, model, settings), model)

    from reward.judges import ServerJudge

    wanted: dict[str, Any] = {} if concurrency is None else {"concurrency": concurrency}
    if prices is not None:
        wanted["prices"] = _parse_prices(prices)
    return ServerJudge(model, None if server == "openai" else server, cache=cache, **wanted)


def _load_local(model: str, settings: dict[str, Any]) -> Judge:
    from reward.judges import LocalJudge

    return LocalJudge.from_pretrained(model, **{name: value for name, value in settings.items() if value is not None})


def usage_line(usage: Usage) -> str:
    """What a judge has done, in a line.

    Example:
        >>> from reward.judges import Usage
        >>> usage_line(Usage(answered=3, cached=1, input_tokens=1200, output_tokens=60, cost=0.5))
        '3 questions answered by the judge, 1 known already; 1,200 tokens read, 60 written; cost 0.5000'
    """
    known = f", {usage.cached:,} known already" if usage.cached else ""
    cost = f"; cost {usage.cost:.4f}" if usage.cost else ""
    tokens = f"{usage.input_tokens:,} tokens read, {usage.output_tokens:,} written"
    return f"{usage.answered:,} questions answered by the judge{known}; {tokens}{cost}"


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
