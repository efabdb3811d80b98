"""`capreward harden`: a metric learns what people, an oracle or a judge say of the captions that a policy writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["harden"]

WAITING = 4  # exit code: captions wait for the ratings of people


def harden(
    metric: Annotated[str, typer.Argument(help="vela or beitscore; NAME=SOURCE takes a folder or Hub id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of all rounds and their report.")],
    policy: Annotated[str, typer.Option(help="Captioner: embedded, a folder or a Hub id.")] = "embedded",
    policy_steps: Annotated[
        int, typer.Option(min=0, help="GRPO steps that train the captioner against the metric first; 0 for none.")
    ] = 0,
    prompt: Annotated[str, typer.Option(help="What the captioner is asked.")] = "Describe the picture.",
    images: Annotated[
        str, typer.Option(help="'scenes', or a data set as for --data whose part train has the images.")
    ] = "scenes",
    number: Annotated[int, typer.Option(min=1, help="Images a round.")] = 64,
    samples: Annotated[int, typer.Option(min=1, help="Captions an image.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Captions a round that are rated.")] = 64,
    rule: Annotated[
        str | None,
        typer.Option(help="disagreement (default with --second), novelty (default without), or random, the control."),
    ] = None,
    second: Annotated[str | None, typer.Option(help="Metric to disagree with: NAME or NAME=SOURCE.")] = None,
    per_image: Annotated[int, typer.Option(min=1, help="Most captions of an image that are rated.")] = 2,
    rater: Annotated[
        str, typer.Option(help="people, scenes (the oracle), or a metric: NAME or NAME=SOURCE.")
    ] = "people",
    data: Annotated[
        list[str] | None, typer.Option(help="Old ratings, as for `train`; several as NAME:SHARE. Default: scenes.")
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the new ratings in the training.")] = 0.3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in all; more can be added later.")] = 1,
    config: Annotated[Path | None, typer.Option(help="YAML or JSON file of settings of the training.")] = None,
    audit: Annotated[int, typer.Option(min=2, help="Captions that are attacked after each round.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all choices.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks.")] = False,
) -> None:
    """Harden a metric against the captions that a policy writes.

    ```
    capreward harden vela --policy-steps 40 --second beitscore --rater scenes --rounds 3 --output hard
    capreward harden vela=my-vela --policy my-captioner --images my-ratings --data my-ratings --output hard
    ```

    In each round, the captioner writes captions. Those that the metric rates highly, perhaps wrongly, are chosen and
    rated by a rater, and the metric is trained on old and new ratings. The checkpoint of a round is
    OUTPUT/round_K/metric, and OUTPUT/harden.md compares the rounds.

    With people as raters, the command stops with exit code 4 when captions wait for ratings: fill in numbers from 1 to
    5 in to_rate.jsonl, save it as rated.jsonl beside it, and run the same command again. That also goes on after a
    kill.
    """
    from integrations.hardening.policy import Policy
    from integrations.hardening.rounds import Hardening, training_settings
    from integrations.hardening.rounds import harden as run
    from reward.checkpoints import resolve_checkpoint
    from reward.cli import terminal
    from reward.errors import ConfigError
    from reward.metric_source import MetricSource
    from reward.training.config import read_config_file
    from reward.training.shares import parse_data

    resolve_checkpoint(policy, metric="captioner" if policy == "embedded" else "policy")  # before anything is written
    source = MetricSource.parse(metric)
    if source.revision is not None:
        raise ConfigError(f"{metric!r} names a revision of a Hub id: fetch that one into a folder, and name the folder")
    writing: dict[str, Any] = {"source": policy, "steps": policy_steps, "samples": samples, "prompt": prompt}
    layers = [{"seed": seed}, *([read_config_file(config)] if config else [])]
    settings = Hardening(
        metric=source.name,
        source=source.checkpoint,
        policy=writing,
        images=images,
        count=number,
        rate=rate,
        rule=rule or ("novelty" if second is None else "disagreement"),
        per_image=per_image,
        second=second,
        rater=rater,
        data=parse_data(data or ["scenes"]),
        share=share,
        training=training_settings(source.name, *layers).to_dict(),
        audited=audit,
        seed=seed,
    )
    console = terminal.console(stderr=True)
    waiting = run(
        settings,
        output,
        Policy(metric=source.name, **writing),
        rounds=rounds,
        command=terminal.command_line(),
        say=lambda line: None if quiet else console.print(line, markup=False),
    )
    if waiting is None:
        print((output / "harden.md").read_text(encoding="utf-8").split("## Round 1")[0])
        return
    rated = waiting.with_name("rated.jsonl")
    console.print(f"{waiting} waits for ratings: copy it to {rated}, fill in 1 to 5, and go on with", markup=False)
    print(terminal.command_line())
    raise typer.Exit(WAITING)
