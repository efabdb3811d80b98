"""`capreward battle`: lets the captions of models meet, two at a time, before a judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import battle_options, judge_options, options

if TYPE_CHECKING:
    from reward.arena.judging import BattleSummary
    from reward.battles import Battle

__all__ = ["battle"]


def battle(
    files: Annotated[
        list[str],
        typer.Argument(
            help="One file of battles; or the captions of two models or more, each a file or NAME=FILE "
            "(NAME is the file's name otherwise)."
        ),
    ],
    images: battle_options.Images,
    output: battle_options.Output,
    judge: judge_options.JudgeModel,
    references: Annotated[
        Path | None, typer.Option(help="With captions: a file of captions by people, which the judge may rely on.")
    ] = None,
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
    """Have a judge say which of two captions of an image is better, for many pairs.

    Two models' captions, judged by a model on this machine, and by one behind a vLLM server:

    ```
    capreward battle old.json new.json --images photos --judge Qwen/Qwen2.5-VL-7B-Instruct --output battles.json
    capreward battle old.json new.json --images photos --judge MODEL --server http://localhost:8000/v1 -o battles.json
    ```

    Captions are {"1.jpg": "A dog runs.", ...}, or lines {"image": "1.jpg", "caption": "A dog runs."} in a .jsonl file,
    for the same images. Every two models meet on every image.

    A file of battles is a list in the fields of CapArena, with a caption by a person in `ref` where there is one:

    ```
    [{"img": "1.jpg", "source1": "old", "source2": "new", "caption1": "A dog.", "caption2": "A dog runs."}]
    ```

    The output has the same battles with `judge` (Caption 1 is better. / Caption 2 is better. / Tie.) and
    `judge_reason`. Each pair is asked in both orders; a caption wins if both agree, otherwise it is a tie. A battle
    of the source `human` is not judged.

    Stopped or killed, the same command goes on where it was, and asks nothing twice.
    """

    def run() -> BattleSummary:
        from reward.arena.judging import judge_battles

        battles = _read(files, references, seed)
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
        return judge_battles(
            battles,
            pairwise,
            output,
            image_root=images,
            references=not no_reference,
            overwrite=overwrite,
            progress=not quiet,
        )

    battle_options.print_battles(run, quiet=quiet, table=_results)


def _read(files: list[str], references: Path | None, seed: int) -> list[Battle]:
    """Battles of one file, or of the captions of several models."""
    from reward.battles import make_battles, read_battles
    from reward.json_files import read_captions

    if len(files) == 1:
        if references is not None:
            message = "is for captions; a file of battles has its references in `ref`"
            raise typer.BadParameter(message, param_hint="--references")
        return read_battles(files[0])
    captions = {}
    for text in files:
        name, path = _named(text)
        if name in captions:
            raise typer.BadParameter(
                f"two files are named {name!r}; write NAME={path} to tell them apart", param_hint="FILES"
            )
        captions[name] = read_captions(path)
    return make_battles(captions, None if references is None else read_captions(references), seed=seed)


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if equals and not Path(text).exists():  # a file may have the sign in its name
        return name, Path(path)
    return Path(text).stem, Path(text)


def _results(summary: BattleSummary) -> Any:
    """Wins, ties and losses of each source, best first."""
    from rich.table import Table

    table = Table("", "battles", "wins", "ties", "losses", "points", title=f"{summary.judged} battles")
    rows = []
    for source, row in summary.sources.items():
        judged = row["wins"] + row["ties"] + row["losses"]
        points = (row["wins"] + row["ties"] / 2) / judged if judged else float("nan")
        rows.append((points, source, judged, row))
    for points, source, judged, row in sorted(rows, key=lambda row: (-row[0] if row[0] == row[0] else 1, row[1])):
        numbers = (str(judged), str(row["wins"]), str(row["ties"]), str(row["losses"]), f"{100 * points:.1f}%")
        table.add_row(source, *numbers)
    return table
