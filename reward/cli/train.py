"""`capreward train`: trains a metric on human judgments or pairs of captions from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal

if TYPE_CHECKING:
    from reward.training.stage import TrainingResult


_CAPTIONERS = "trl grpo --model_name_or_path MODEL --reward_funcs capreward.vela_reward ..., which trains captioners"


@options.describe(synonyms={"--model --policy --reward --reward-funcs": _CAPTIONERS, "--dataset": "--data NAME"})
def train(
    metric: Annotated[
        str | None, typer.Argument(metavar="METRIC", help="Metric to train, such as vela or beitscore.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the checkpoint; default: the NAME of --push-to."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="'scenes' (default), 'longcap-arena', 'polaris', 'nebula', a Hub id, a folder, or NAME=PATH with "
            "published files, such as longcap-arena=FOLDER; repeat it for several."
        ),
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="Checkpoint of the metric to go on from: a folder, a Hub id, or 'embedded'.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Settings to start from, see below; default: tiny. With --init, only its training counts."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML or JSON file of settings that override the preset's.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Overrides the seed of preset and config; repeat it for several seeds.")
    ] = None,
    push_to: Annotated[
        str | None,
        typer.Option(
            metavar="ORG/NAME",
            help="Publish the checkpoint on the Hub under this name. Login and name are checked, and the repository is "
            "made, before the training starts.",
        ),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make the repository of --push-to private.")] = False,
) -> None:
    """Train a metric (a captioner: `trl grpo`) and write a checkpoint that every command and reward can load.

    ```
    capreward train vela --preset paper --data longcap-arena --push-to ORG/NAME
    ```

    This trains VELA for photos on one GPU and publishes it. After an interruption of any kind, also of the push, the
    same command goes on. Then `VelaReward("ORG/NAME")` and `capreward score -m ORG/NAME` load the metric.

    Ratings are splits train and val (and test) with the columns image (or file_name), cand, refs (not for beitscore)
    and score in [0, 1]; or, for several aspects, splits like train.desc. Pairs, for the first stages of beitscore, are
    splits train.pairs and val.pairs (or train and val) with the columns image (or file_name), caption, and wrong
    captions: incorrect and category, or incorrect_CATEGORY (a text or a list of texts, may be null). vlmreward learns
    from pairs alone: these, or chosen and rejected (texts or messages, as capreward pairs writes them), or battles
    (source1, source2, caption1, caption2, winner). If ratings and pairs come from different data sets, name them in
    the settings data and pairs.

    Several data sets: --data A --data B trains on the rows of both, and on val of either or both it stops.

    --init goes on from a checkpoint, with its network, tokenizer and adapters, which settings cannot change: of a
    preset, only its training counts.

    Several seeds: --seed 0 --seed 1 trains OUTPUT/seed-0 and OUTPUT/seed-1 and prints means and standard deviations.
    Seeds that are finished are kept, and more may be added.

    Presets of vela: tiny (from scratch, in minutes), paper, and the paper's ablations paper-text-only,
    paper-image-only, paper-clip, paper-pacs, paper-longclip-b, paper-llama, paper-phi, paper-transformer and
    paper-one-score; authors-code has the rates, rank, batch and epochs of the authors' published training file; ours
    are paper-one-prompt (it scores with a third of the work) and paper-reference-free.
    reward/metrics/vela/presets.yaml lists which values are the paper's and which are ours. Presets of beitscore: tiny
    and paper. Presets of vlmreward: tiny (the embedded captioner of drawings) and photos (Qwen3-VL-4B).

    Several GPUs: accelerate launch --num_processes 2 -m reward.cli.main train vela --output FOLDER (without a GPU:
    torchrun --nproc_per_node 2 -m ...).
    """
    import errno
    from dataclasses import replace

    from accelerate import PartialState

    from reward.checkpoints.publishing import check_push
    from reward.errors import ConfigError
    from reward.registry import metric_spec
    from reward.training.config import make_config, read_config_file
    from reward.training.loop import metric_training, trainable_metrics
    from reward.training.loop import train as run
    from reward.training.record import is_complete, read_record
    from reward.training.stage import use_cpu

    if metric is None:
        names = ", ".join(trainable_metrics())
        raise typer.BadParameter(f"is missing: of the metrics {names} can be trained", param_hint="METRIC")
    if metric in ("grpo", "dpo", "rloo", "captioner"):
        raise ConfigError(
            f"train makes metrics; a captioner is trained by trl grpo, see docs/TRAINING.md, got {metric!r}"
        )
    presets = metric_training(metric_spec(metric)).PRESETS
    seeds = seed or []
    output = _output(output, push_to, private, several=len(seeds) > 1)
    if preset is not None and preset not in presets:
        raise ConfigError(f"{metric} has no preset {preset!r}; known: {', '.join(sorted(presets))}")
    base = dict(presets[preset or "tiny"])
    if init is not None:  # the checkpoint says what the network is
        base["model"] = {name: value for name, value in base["model"].items() if name == "gradient_checkpointing"}
    settings = make_config(base, read_config_file(config) if config else {})
    configs = {output: settings}
    if len(seeds) == 1:
        configs = {output: replace(settings, seed=seeds[0])}
    elif seeds:
        configs = {output / f"seed-{number}": replace(settings, seed=number) for number in seeds}
    # Of several processes only one prints and publishes. This also sets up what they talk by, before the first folder.
    is_main = bool(PartialState(cpu=use_cpu()).is_main_process)

    def on_ready() -> None:  # once data and settings are found right, and before hours of training
        if push_to is not None:
            check_push(push_to, private=private)

    results = []
    for folder, settings in configs.items():
        has_begun = read_record(folder) is not None
        if has_begun and is_main:
            state = "is complete already" if is_complete(folder) else "holds an unfinished run, which goes on"
            terminal.console(stderr=True).print(f"{folder} {state}")
        try:
            result = run(
                metric,
                data or ["scenes"],
                folder,
                settings,
                resume=has_begun,
                command=terminal.command_line(),
                init=init,
                on_ready=on_ready,
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
                error.filename = folder  # the error of a full disk itself names no file
            raise
        results.append(result)
    PartialState().destroy_process_group()
    if is_main:
        _report(results)
        if push_to is not None:
            _push(metric, output, push_to, private)


def _output(output: Path | None, push_to: str | None, private: bool, *, several: bool) -> Path:
    """The folder of the checkpoint, after a check of the options that go together."""
    if private and push_to is None:
        raise typer.BadParameter("goes with --push-to ORG/NAME", param_hint="--private")
    if push_to is not None and several:
        fix = (
            "train the seeds without it, then run this with one --seed N and --output OUTPUT/seed-N, which only pushes"
        )
        raise typer.BadParameter(f"publishes one checkpoint: {fix}", param_hint="--push-to")
    if output is not None:
        return output
    if push_to is None:
        raise typer.BadParameter("is missing: name a folder, or publish with --push-to ORG/NAME", param_hint="--output")
    return Path(push_to.rpartition("/")[2] or "checkpoint")


def _report(results: list[TrainingResult]) -> None:
    """Prints the figures of a training, with one seed or several."""
    from rich.table import Table

    from reward.training.card import figure_table
    from reward.training.figures import compare_figures

    out = terminal.console(stderr=False)
    tables = {"": results}
    if len(results) == 1 and results[0].stages:
        tables = {name: [stage] for name, stage in results[0].stages.items()}
    for name, runs in tables.items():
        title, (heads, *rows) = figure_table(*(run.figures for run in runs))
        if name:
            title = f"Stage {name}: {title}"
        table = Table(*heads, title=title, min_width=len(title))
        for row in rows:
            table.add_row(*row)
        out.print(table)
    for result in results:
        if result.before is not None:
            first = next(iter((result.stages or {"": result}).values()))
            part = next(iter(first.figures))  # the part that stopped it comes first
            out.print(f"{part}: {compare_figures(result.before, first.figures[part])[0]}")
        out.print(f"kept step {result.best_step} of {result.steps}; checkpoint: {result.folder}")


def _push(metric: str, folder: Path, push_to: str, private: bool) -> None:
    """Publishes a checkpoint; if that fails, says how to do it again."""
    from reward.checkpoints.publishing import push_checkpoint
    from reward.errors import CheckpointError

    try:
        address = push_checkpoint(folder, push_to, private=private, commit_message="Upload the trained checkpoint")
    except CheckpointError as error:
        again = f"The checkpoint is complete in {folder}. This pushes it and trains nothing: {terminal.command_line()}"
        raise CheckpointError(f"{error}\n{again}") from error
    terminal.console(stderr=False).print(f'published: {address}\nload it with load_scorer("{metric}", "{push_to}")')
