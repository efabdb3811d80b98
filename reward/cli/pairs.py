"""`capreward pairs`: scored candidates become preference data for DPO, KTO or SFT."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal
from reward.cli.chosen import MetricOptions, Weights, parse_weights, read_metrics
from reward.cli.score import GroupColumn

if TYPE_CHECKING:
    from reward.preferences import Preferences

__all__ = ["RuleOptions", "pairs"]


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Which captions make a row."""

    kind: Annotated[
        str, typer.Option(help="pairs (chosen and rejected, for DPO), labels (KTO) or best (best of n, for SFT).")
    ] = "pairs"
    margin: Annotated[float, typer.Option(help="Least difference between the scores of chosen and rejected.")] = 0.0
    per_image: Annotated[int, typer.Option(help="Most pairs an image; no caption is used twice.")] = 1
    length_ratio: Annotated[
        float | None,
        typer.Option(help="The longer caption of a pair has at most this many times the characters of the shorter."),
    ] = None
    minimum: Annotated[float | None, typer.Option(help="Least score of a chosen or best caption.")] = None
    near: Annotated[
        float,
        typer.Option(help="Of captions that share at least this much of their word pairs, only the best is used."),
    ] = 0.9
    seed: Annotated[int, typer.Option(help="Seed of the images that are held out.")] = 0


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What the captions answer."""

    prompt: Annotated[
        str | None, typer.Option(help="What was asked of the captioner; default: Describe the image in detail.")
    ] = None
    system: Annotated[str | None, typer.Option(help="System message before the prompt.")] = None
    prompt_column: Annotated[str | None, typer.Option(help="Column of prompts: texts, or lists of messages.")] = None


def pairs(
    data: options.Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .parquet (holds the images) or .jsonl (holds their paths) file.")
    ],
    rules: RuleOptions,
    prompts: PromptOptions,
    metrics: MetricOptions,
    columns: options.ColumnOptions,
    device: options.DeviceOptions,
    run: options.RunOptions,
    holdout: Annotated[float, typer.Option(help="Share of the images whose rows go to OUTPUT.test.")] = 0.0,
    weights: Weights = None,
    candidate_column: Annotated[
        str | None,
        typer.Option("--caption-column", "--candidate-column", help="Column of captions, or of lists of captions."),
    ] = None,
    score_column: Annotated[
        str | None, typer.Option(help="Column of scores; default: reward or, of lists, rewards.")
    ] = None,
    group_column: GroupColumn = None,
) -> None:
    """Make preference data of several scored captions an image.

    ```
    capreward rerank candidates.jsonl --metric vela --output scored.jsonl
    capreward pairs scored.jsonl --margin 0.1 --length-ratio 1.2 --output dpo/pairs.parquet
    capreward pairs candidates.jsonl --metric vela --kind best --output sft/best.parquet
    ```

    It takes what `capreward score` and `capreward rerank` write, or what they take, if --metric says what scores the
    captions. The rows have the
    columns that TRL's trainers want for vision-language models, and the scores. What was dropped is counted on stderr,
    with the reason.
    """
    from reward.preferences import PreferenceRules, Preferences
    from reward.preferences.reading import read_candidates
    from reward.preferences.writing import check_free, write_preferences

    chosen = PreferenceRules(**vars(rules))
    metric = read_metrics(metrics.metric, metrics.settings) if metrics.metric else None
    scoring = {"weights": parse_weights(weights), **vars(device)}
    located = vars(columns).copy()
    scoring["references_column"] = located.pop("references_column")
    scoring = {name: value for name, value in scoring.items() if value is not None}
    if metric is None:
        options.refuse({**scoring, "set": metrics.settings}, "goes with --metric")
    else:
        scoring["progress"] = not run.quiet
    check_free(output, holdout, data, overwrite=run.overwrite)
    groups = read_candidates(
        data,
        metric=metric,
        scores_file=None if metric is None else output.with_name(output.stem + ".scores.jsonl"),
        candidate_column=candidate_column,
        score_column=score_column,
        group_column=group_column,
        **vars(prompts),
        **located,
        overwrite=run.overwrite,
        **scoring,
    )
    preferences = Preferences.choose(groups, chosen, holdout=holdout)
    write_preferences(preferences, output, holdout=holdout)
    if not run.quiet:
        _print(preferences, output)


def _print(preferences: Preferences, output: Path) -> None:
    console = terminal.console(stderr=True)
    for what, dropped in (("images", preferences.images_dropped), ("captions", preferences.captions_dropped)):
        for reason, count in dropped.most_common():
            console.print(f"{count} {what} left out: {reason}", style="yellow")
    for name, value in preferences.facts.items():
        console.print(f"{name}: {value:.4g}")
    rows = " and ".join(f"{len(rows)} {split} rows" for split, rows in preferences.rows.items())
    kept = f"{sum(preferences.images_kept.values())} of {preferences.images} images"
    console.print(f"{rows} of {kept} -> {output}", style="green")
