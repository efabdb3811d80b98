"""`capreward battle` and `capreward caparena-auto`: a judge compares captions of models, two at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options
from reward.cli.judges import JudgeOptions
from reward.cli.reports import report_battles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward.judges import Judge
    from reward.judges.pairwise import PairwiseJudge
    from reward.metaeval.arena.battles import Battle
    from reward.metaeval.arena.judging import BattleSummary
    from reward.metaeval.report import Grid


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


def battle(
    files: Annotated[
        list[str],
        typer.Argument(
            help="One file of battles; or the captions of two models or more, each a file or NAME=FILE "
            "(NAME is the file's name otherwise)."
        ),
    ],
    judge: JudgeOptions,
    battles: BattleOptions,
    run: options.RunOptions,
    references: Annotated[
        Path | None, typer.Option(help="With captions: a file of captions by people, which the judge may rely on.")
    ] = None,
) -> None:
    """Have a judge say which of two captions of an image is better, for many pairs.

    Two models' captions, judged by a model on this machine, and by one behind a vLLM server:

    ```
    capreward battle old.json new.json --images photos --judge Qwen/Qwen2.5-VL-7B-Instruct --output battles.json
    capreward battle old.json new.json --images photos --judge http://localhost:8000/v1#MODEL -o battles.json
    ```

    Captions are {"1.jpg": "A dog runs.", ...}, or rows with an image and a caption in any form that `capreward score`
    reads, for the same images. Every two models meet on every image.

    A file of battles is a list in the fields of CapArena, with a caption by a person in `ref` where there is one:

    ```
    [{"img": "1.jpg", "source1": "old", "source2": "new", "caption1": "A dog.", "caption2": "A dog runs."}]
    ```

    The output has the same battles with `judge` (Caption 1 is better. / Caption 2 is better. / Tie.) and
    `judge_reason`. Each pair is judged in both orders. A caption wins if both orders agree; otherwise it is a tie.
    Battles of the source `human` are not judged.

    After Ctrl-C or a kill, run the same command again to continue; no question is asked twice.
    """
    summary = _judge(_read(files, references, battles.seed), judge, battles, run)
    report_battles(summary, _results(summary), quiet=run.quiet)


def caparena_auto(
    captions: Annotated[
        list[str],
        typer.Argument(
            help='The captions of each model: {"test_01258.jpg": "...", ...}, or rows; FILE or NAME=FILE '
            "(NAME is the file's name otherwise)."
        ),
    ],
    benchmark: Annotated[Path, typer.Option(help="The authors' file caparena_auto_600.json.")],
    judge: JudgeOptions,
    battles: BattleOptions,
    run: options.RunOptions,
    name: Annotated[str | None, typer.Option(help="Name of your model, if it is one; like NAME=FILE.")] = None,
) -> None:
    """Score models in CapArena-Auto: their captions of 600 images against three baselines.

    With a judge on this machine, behind a vLLM server, and OpenAI's (1,200 questions a model, each with an image):

    ```
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge Qwen/Qwen2.5-VL-7B-Instruct --output mine.battles.json
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge http://localhost:8000/v1#MODEL --output mine.battles.json
    capreward caparena-auto mine.json --benchmark caparena_auto_600.json --images all_images \\
        --judge https://api.openai.com/v1#gpt-4o-2024-08-06 --judge-set cache=answers.sqlite -o mine.battles.json
    ```

    The benchmark and its images come from its authors: see the readme of github.com/njucckevin/CapArena.

    On each image the model meets one baseline, 200 images for each. A win counts +1, a loss -1, a tie 0. The sum for a
    baseline is halved, so that it lies in -100..100, and the score is the mean of the three. The judge also sees the
    caption of a person. The published leaderboard was made with GPT-4o as the judge, another prompt and one order a
    pair: compare scores only if they come from one judge and the same settings.

    Several models give a leaderboard. `capreward arena OUTPUT --ranking caparena` compares it with people's ranking.
    The scores are written to OUTPUT.score.json, beside the battles. After Ctrl-C or a kill, run the same command again
    to continue.
    """
    from reward.metaeval.arena.caparena_auto import make_auto_battles, read_auto, score_auto
    from reward.metaeval.arena.captions import read_captions
    from reward.metaeval.arena.report import auto_grid
    from reward.scoring.runs import write_json

    models = options.named_files(captions, "CAPTIONS")
    if len(models) > 1:
        options.refuse({"name": name}, "is for the captions of one model; write NAME=FILE")
    if name is not None:
        models = dict.fromkeys([name], *models.values())
    items = read_auto(benchmark)
    baselines = list(dict.fromkeys(item.baseline for item in items))
    made = [
        battle
        for model, path in models.items()
        for battle in make_auto_battles(items, read_captions(path), model, seed=battles.seed)
    ]
    summary = _judge(made, judge, battles, run)
    scores = []
    for model in models:  # which may be the baseline of another
        own = [
            row for row in summary.records if model in (row["source1"], row["source2"]) and row["ref_model"] != model
        ]
        scores.append(score_auto(own, model, baselines))
    scores.sort(key=lambda score: -score.score if score.score == score.score else float("inf"))
    figures = [score.to_json() for score in scores]
    path = summary.output.with_name(summary.output.name + ".score.json")
    write_json(path, figures[0] if len(figures) == 1 else {"models": figures})
    board = auto_grid(scores, f"CapArena-Auto: {', '.join(score.model for score in scores)}")
    report_battles(summary, board, quiet=run.quiet)


def _judge(
    battles: Sequence[Battle],
    judge: JudgeOptions,
    how: BattleOptions,
    run: options.RunOptions,
) -> BattleSummary:
    from reward.metaeval.arena.judging import judge_battles

    return judge_battles(
        battles,
        how.make(judge.make()),
        how.output,
        image_root=how.images,
        references=not how.no_reference,
        overwrite=run.overwrite,
        progress=not run.quiet,
    )


def _read(files: list[str], references: Path | None, seed: int) -> list[Battle]:
    """Battles of one file, or of the captions of several models."""
    from reward.metaeval.arena.battles import make_battles, read_battles
    from reward.metaeval.arena.captions import read_captions

    if len(files) == 1:
        options.refuse({"references": references}, "is for captions; a file of battles has its references in `ref`")
        return read_battles(files[0])
    captions = {name: read_captions(path) for name, path in options.named_files(files, "FILES").items()}
    return make_battles(captions, None if references is None else read_captions(references), seed=seed)


def _results(summary: BattleSummary) -> Grid:
    """Wins, ties and losses of each source, best first."""
    from reward.metaeval.report import Grid

    rows = []
    for source, row in summary.sources.items():
        judged = row["wins"] + row["ties"] + row["losses"]
        points = (row["wins"] + row["ties"] / 2) / judged if judged else float("nan")
        rows.append((points, source, judged, row))
    rows.sort(key=lambda row: (-row[0] if row[0] == row[0] else 1, row[1]))
    table = tuple(
        (source, str(judged), str(row["wins"]), str(row["ties"]), str(row["losses"]), f"{100 * points:.1f}%")
        for points, source, judged, row in rows
    )
    return Grid(f"{summary.judged} battles", ("", "battles", "wins", "ties", "losses", "points"), table)
