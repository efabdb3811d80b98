"""`capreward pairs`: scored candidates become preference data for DPO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal

if TYPE_CHECKING:
    from reward.decoding.preferences import Preferences


@options.describe(
    "output margin length-ratio prompt prompt-column caption-column score-column image-column "
    "image-root overwrite quiet",
    synonyms={"--metric -m": "capreward score DATA -m METRIC -o SCORED first, and give SCORED"},
)
def pairs(
    data: Annotated[Path, typer.Argument(help=f"{options.DATA}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .parquet file, which holds the images.")],
    run: options.RunOptions,
    margin: Annotated[float, typer.Option(help="Least difference between the scores of chosen and rejected.")] = 0.0,
    length_ratio: Annotated[
        float | None,
        typer.Option(help="The longer caption of a pair has at most this many times the characters of the shorter."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="What was asked of the captioner; default: Describe the image in detail.")
    ] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of prompts: texts, or lists of messages.")] = None,
    candidate_column: options.CandidateColumn = None,
    score_column: Annotated[
        str | None, typer.Option(help="Column of scores; default: reward or, of lists, rewards.")
    ] = None,
    image_column: options.ImageColumn = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
) -> None:
    """Make preference pairs of several scored captions an image.

    ```
    capreward rerank candidates.jsonl --metric vela --output scored.jsonl
    capreward pairs scored.jsonl --margin 0.1 --output dpo/pairs.parquet
    ```

    It takes what `capreward score` and `capreward rerank` write. The rows have the columns that TRL's DPOTrainer wants
    for vision-language models, and the scores. What was dropped is counted on stderr, with the reason.
    """
    from reward.decoding.preference_files import check_free, read_candidates, write_preferences
    from reward.decoding.preferences import PreferenceRules, Preferences

    rules = PreferenceRules(margin=margin, length_ratio=length_ratio)
    check_free(output, data, overwrite=run.overwrite)
    groups = read_candidates(
        data,
        prompt=prompt,
        prompt_column=prompt_column,
        candidate_column=candidate_column,
        score_column=score_column,
        image_column=image_column,
        image_root=image_root,
        split=split,
    )
    preferences = Preferences.choose(groups, rules)
    write_preferences(preferences, output)
    if not run.quiet:
        _report(preferences, output)


def _report(preferences: Preferences, output: Path) -> None:
    console = terminal.console(stderr=True)
    for noun, reasons in (("images", preferences.images_dropped), ("captions", preferences.captions_dropped)):
        for reason, count in reasons.most_common():
            console.print(f"{count} {noun} left out: {reason}", style="yellow")
    console.print(f"share of pairs whose chosen caption is longer: {preferences.chosen_longer:.4g}")
    images = f"{preferences.images_kept} of {preferences.images} images"
    console.print(f"{len(preferences.rows)} rows of {images} -> {output}", style="green")
