"""`capreward caparena-auto`: the score of a model's captions in CapArena-Auto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import battle_options, judge_options, options

if TYPE_CHECKING:
    from reward.arena.caparena_auto import AutoScore
    from reward.arena.judging import BattleSummary

__all__ = ["caparena_auto"]


def caparena_auto(
    captions: Annotated[
        Path, typer.Argument(help='The captions of your model: {"test_01258.jpg": "...", ...}, or a .jsonl file.')
    ],
    benchmark: Annotated[Path, typer.Option(help="The authors' file caparena_auto_600.json.")],
    images: battle_options.Images,
    output: battle_options.Output,
    judge: judge_options.JudgeModel,
    name: Annotated[str | None, typer.Option(help="Name of your model; default: the name of its file.")] = None,
    no_reference: battle_options.NoReference = False,
    server: judge_options.Server = None,
    concurrency: judge_options.Concurrency = None,
    cache: judge_options.Cache = None,
    prices: judge_options.Prices = None,
    one_order: battle_options.OneOrder = False,
    no_reasons: battle_options.NoReasons = False,
    prompt: judge_options.PromptFile = None,
    max_new_tokens: battle_options.MaxNewTokens = 512,
    seed: battle_options.Seed = 0,
    batch_size: judge_options.BatchSize = None,
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Score a model in CapArena-Auto: its captions of 600 images against three baselines.

    With a judge on this machine, behind a vLLM server, and OpenAI's (about 1,200 questions, each with an image):

    ```
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge Qwen/Qwen2.5-VL-7B-Instruct --output mine.battles.json
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge MODEL --server http://localhost:8000/v1 --output mine.battles.json
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge gpt-4o-2024-08-06 --server openai --cache answers.sqlite --output mine.battles.json
    ```

    The benchmark and its images are the authors' to give: see the readme of github.com/njucckevin/CapArena.

    Each image is met by one baseline, 200 each. A win counts +1, a loss -1, a tie 0; the sum against a baseline is
    halved, so that it lies in -100..100, and the score is the mean of the three. The judge sees the caption of a
    person, too. The published leaderboard was made with GPT-4o as the judge, another wording and one order a pair:
    compare scores only if they come from one judge and the same settings.

    Beside the battles, OUTPUT.score.json has the scores. Stopped or killed, the same command goes on where it was.
    """
    found: dict[str, AutoScore] = {}

    def run() -> BattleSummary:
        from reward.arena.caparena_auto import make_auto_battles, read_auto, score_auto
        from reward.arena.judging import judge_battles, write_json
        from reward.json_files import read_captions

        model = captions.stem if name is None else name
        items = read_auto(benchmark)
        battles = make_auto_battles(items, read_captions(captions), model, seed=seed)
        asking = judge_options.make_judge(
            judge,
            server=server,
            cache=cache,
            concurrency=concurrency,
            prices=prices,
            revision=revision,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
        )
        pairwise = battle_options.make_pairwise(
            asking, no_reasons=no_reasons, one_order=one_order, prompt=prompt, max_new_tokens=max_new_tokens
        )
        summary = judge_battles(
            battles,
            pairwise,
            output,
            image_root=images,
            references=not no_reference,
            overwrite=overwrite,
            progress=not quiet,
        )
        found["score"] = score_auto(summary.records, model, list(dict.fromkeys(item.baseline for item in items)))
        write_json(output.with_name(output.name + ".score.json"), found["score"].to_json())
        return summary

    battle_options.print_battles(run, quiet=quiet, table=lambda summary: _table(found["score"]))


def _table(score: AutoScore) -> Any:
    from rich.table import Table

    table = Table("", "score", "wins", "ties", "losses", title=f"CapArena-Auto: {score.model}")
    for name, part in score.baselines.items():
        if part.itself:
            table.add_row(f"against itself ({name})", "0.00", "-", "-", "-")
        else:
            table.add_row(f"against {name}", f"{part.score:.2f}", str(part.wins), str(part.ties), str(part.losses))
    table.add_section()
    table.add_row("mean of the baselines", f"{score.score:.2f}", "", "", "")
    table.caption = f"mean length of the captions: {score.mean_words:.1f} words"
    return table
