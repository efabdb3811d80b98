"""`capreward train`: trains a metric on human judgments or pairs of captions from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reward.cli import terminal

__all__ = ["train"]


def train(
    metric: Annotated[str, typer.Argument(help="Metric to train, such as vela or beitscore.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the checkpoint; must be empty or absent.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="'scenes' (default), 'longcap-arena', 'polaris', 'nebula', a Hub id, a folder, or NAME=PATH with "
            "published files, such as foil=FOLDER; several as NAME:SHARE, see below."
        ),
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="Checkpoint of the metric to go on from: a folder, a Hub id, or 'embedded'.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings to start from; for names see below. Default: tiny; with --init, its training only."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file of settings that override the preset's.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Overrides the seed of preset and config; repeat it for several seeds.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the unfinished run in the output folder.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Load data and network, print rows, steps and memory, and stop.")
    ] = False,
) -> None:
    """Train a metric and write a checkpoint that every command and reward function can load.

    Ratings are splits train and val (and test) with the columns image (or file_name), cand, refs (not for beitscore)
    and score in [0, 1]; or, for several aspects, splits like train.desc. Pairs, for the first stages of beitscore, are
    splits train.pairs and val.pairs (or train and val) with the columns image (or file_name), caption, and wrong
    captions: incorrect and category, or incorrect_CATEGORY (a text or a list of texts, may be null). If ratings and
    pairs come from different data sets, name them in the settings data and pairs.

    Several data sets: --data A --data B:0.3 draws 70 % of the rows of an epoch from A and 30 % from B. An epoch takes
    A, the first, once; rows of B are repeated if it is smaller. The weighted mean over their parts val stops the
    training; B may lack one.

    --init goes on from a checkpoint, with its tokenizer and adapters. Settings that contradict its architecture are
    refused; without --preset there are none.

    Several seeds: --seed 0 --seed 1 trains OUTPUT/seed-0 and OUTPUT/seed-1 and prints means and standard deviations.
    --resume keeps the seeds that are finished; more may be added.

    Presets of vela: tiny (from scratch, in minutes), paper, and the paper's ablations paper-text-only,
    paper-image-only, paper-clip, paper-pacs, paper-longclip-b, paper-llama, paper-phi, paper-transformer and
    paper-one-score; ours are paper-reference-free and paper-shared-head. reward/metrics/vela/presets.yaml lists which
    values are the paper's and which are ours.
    Presets of beitscore: tiny and paper.

    Several GPUs: accelerate launch --num_processes 2 -m reward.cli.main train vela --output FOLDER.
    Several processes without a GPU: torchrun --nproc_per_node 2 -m reward.cli.main train vela --output FOLDER.
    """
    import errno

    from reward.errors import ConfigError
    from reward.registry import metric_spec
    from reward.training.config import make_config, read_config_file
    from reward.training.loop import TrainingPlan, metric_training, plan_training
    from reward.training.loop import train as run
    from reward.training.seeds import train_seeds
    from reward.training.shares import parse_data

    spec = metric_spec(metric)
    presets = metric_training(spec).PRESETS
    if preset is not None and preset not in presets:
        raise ConfigError(f"{metric} has no preset {preset!r}; known: {', '.join(sorted(presets))}")
    base = dict(presets[preset or "tiny"])
    if init is not None and preset is None:
        base.pop("model")  # the checkpoint says what the network is
    seeds = seed or []
    settings = make_config(base, read_config_file(config) if config else {}, {"seed": seeds[0]} if seeds else {})
    shares = parse_data(data or ["scenes"])
    sources: Any = next(iter(shares)) if list(shares.values()) == [None] else shares
    if dry_run:
        for plan in plan_training(metric, sources, settings, init=init):
            terminal.console(stderr=False).print("\n".join(plan.lines()))
            plan.check()
        return

    def show(plan: TrainingPlan) -> None:
        terminal.console(stderr=True).print("\n".join(plan.lines()))

    options: dict[str, Any] = {"init": init, "resume": resume, "command": terminal.command_line(), "on_plan": show}
    try:
        if len(seeds) > 1:
            results = train_seeds(metric, sources, output, settings, seeds, **options)
        else:
            results = [run(metric, sources, output, settings, **options)]
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            error.filename = output  # the error of a full disk itself names no file
        raise
    _report(results)


def _report(results: list[Any]) -> None:
    """Prints the figures of a training, with one seed or several, in the main process only."""
    from accelerate import PartialState
    from rich.table import Table

    from reward.training.card import figure_table
    from reward.training.evaluation import compare_figures

    process = PartialState()
    main = process.is_main_process
    process.destroy_process_group()
    if not main:
        return
    out = terminal.console(stderr=False)
    stages = results[0].stages if len(results) == 1 else {}
    for name, runs in ({name: [stage] for name, stage in stages.items()} or {"": results}).items():
        title, (heads, *rows) = figure_table(*(run.figures for run in runs))
        title = f"Stage {name}: {title}" if name else title
        table = Table(*heads, title=title, min_width=len(title))
        for row in rows:
            table.add_row(*row)
        out.print(table)
    for result in results:
        if result.before is not None:
            first, *_ = (result.stages or {"": result}).values()
            part = next(iter(first.figures))  # the part that stopped it comes first
            out.print(f"{part}: {compare_figures(result.before, first.figures[part])[0]}")
        out.print(f"kept step {result.best_step} of {result.steps}; checkpoint: {result.folder}")
