"""The options of `capreward score --engine`, and the engines that packages above this one bring along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from reward.cli import options
from reward.scoring.summary import ScoringSummary


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Which engine scores, and what only an engine can be told."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="ray: score many files on a Ray cluster and write a folder of Parquet parts (needs the extra `ray`). "
            "Default: score in this process."
        ),
    ] = None
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to use, or auto; default: one on this machine, for this run.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Scorers that run at a time; default: all that fit. 0: in this process, without Ray."),
    ] = None
    cpus_per_worker: Annotated[
        float | None, typer.Option(help="CPUs that Ray reserves for each worker; default: 1.")
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(help="GPUs that Ray reserves for each worker, such as 0.25 for four workers per GPU; default: 0."),
    ] = None
    columns: Annotated[
        str | None, typer.Option(help="Columns of the input to keep, as in id,caption; default: all.")
    ] = None

    def chosen(self) -> Callable[..., ScoringSummary] | None:
        """The function of the engine, with its own options; None to score in this process.

        Raises:
            typer.BadParameter: no such engine, or an option of engines without one.
        """
        if self.engine is None:
            options.refuse(vars(self), "goes with --engine ray")
            return None
        engines = {point.name: point for point in entry_points(group="capreward.engines")}
        if self.engine not in engines:
            known = ", ".join(sorted(engines))
            message = f"no engine is named {self.engine!r}; there are: {known}"
            raise typer.BadParameter(message, param_hint="--engine")
        columns = None if self.columns is None else [name.strip() for name in self.columns.split(",")]
        own: dict[str, Any] = {"address": self.address, "workers": self.workers, "columns": columns}
        own |= {"cpus": self.cpus_per_worker, "gpus": self.gpus_per_worker}
        run: Callable[..., ScoringSummary] = engines[self.engine].load()

        def score(data: Any, output: Any, **arguments: Any) -> ScoringSummary:
            on_cpu = arguments.get("device") in (None, "cpu")
            wanted = {} if on_cpu else {"device": arguments["device"]}
            options.refuse(wanted, "an engine gives each worker its GPU; leave it out, and ask with --gpus-per-worker")
            options.refuse(
                {"split": arguments.pop("split")}, "is for data sets of `datasets`; give an engine the files"
            )
            names = ("annotations", "devices", "cache", "top", "min_reward")
            ours = {name: arguments.pop(name, None) for name in names}
            ours["dedupe"] = arguments.pop("dedupe", False) or None
            options.refuse(ours, "is for one machine; leave it out with an engine")
            if output is None:
                raise typer.BadParameter("is missing: with --engine, name a folder", param_hint="--output")
            own_given = {name: value for name, value in own.items() if value is not None}
            return run(data=data, output=output, **arguments, **own_given)

        return score
