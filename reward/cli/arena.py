"""`capreward arena`: ratings of models from battles of their captions, and how well metrics decide the battles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward.arena import ArenaResult
    from reward.battles import Battle

__all__ = ["arena"]

Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        help="Let a metric vote, too: NAME, or NAME=SOURCE with a folder or Hub id; repeat for several.",
    ),
]
ScoreColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--score-column",
        "-s",
        help="Let scores in the file vote, too: the field that holds those of both captions; repeat for several.",
    ),
]
Images = Annotated[
    Path | None, typer.Option("--images", "-i", help="Folder of the images; default: that of the battles.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder for arena.json, arena.md, arena.html, and plots as .png and .svg."),
]
Next = Annotated[
    int | None, typer.Option("--next", min=1, help="Propose so many battles to be judged next, and do nothing else.")
]
Prior = Annotated[
    float,
    typer.Option(
        min=0,
        help="Games of each model with an average one, half of them won, added to Bradley-Terry. With 1, a model "
        "that won everything, for example, has a finite rating.",
    ),
]
Resamples = Annotated[
    int, typer.Option(min=1, help="Number of resamples of the bootstrap, and of orders of battles for Elo.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap, of Elo and of --next.")]


def arena(
    battles: Annotated[Path, typer.Argument(help="A file of battles, in the fields of CapArena.")],
    figures: options.FigureOptions,
    device: options.DeviceOptions,
    metric: Metrics = None,
    score_column: ScoreColumns = None,
    images: Images = None,
    output: Output = None,
    next_: Next = None,
    prior: Prior = 0.0,
    resamples: Resamples = 1000,
    seed: Seed = 0,
) -> None:
    """Rate models by the battles of their captions, and compare metrics with the people who judged them.

    ```
    capreward arena battles.json
    capreward arena battles.json --metric vela --score-column clip --images photos --output report
    capreward arena battles.json --next 50 > next.json
    ```

    A battle has `winner` (a source, or equal), by people, or `judge`, by `capreward battle`, or both:

    ```
    [{"img": "1.jpg", "source1": "old", "source2": "new", "caption1": "A dog.", "caption2": "A dog runs.",
      "winner": "new", "cluster": "level 1", "judge": "Caption 2 is better.", "clip": [0.61, 0.72]}]
    ```

    Ratings are by the people, else by the judge, else by the first metric. With verdicts of people, the judge, the
    metrics, the score columns and the length of the captions are compared with them: battle by battle and at each
    level, in the ranking of the models, and by their bias for each model.

    --next prints the pairs of models from which another battle tells most, as battles for a judge or for people.
    """
    from reward.arena import Arena, all_voters, rate_arena
    from reward.battles import read_battles
    from reward.metaeval.report import check_report

    entries = read_battles(battles)
    if next_ is not None:
        _propose(entries, next_, seed, figures.quiet)
        return
    if output is not None:
        check_report(output)  # before hours of scoring
    with terminal.stdout_kept_clean():
        voters = all_voters(
            entries, metric or [], score_column or [], images=images or battles.parent, **figures.scoring(device)
        )
        result = rate_arena(Arena.of_battles(entries), voters, prior=prior, resamples=resamples, seed=seed)
    _report(result, output, figures)


def _report(result: ArenaResult, output: Path | None, figures: options.FigureOptions) -> None:
    from reward.arena import report

    console, command = terminal.console(stderr=True), terminal.command_line()
    if figures.json:
        terminal.print_json(report.to_json(result, command=command))
    else:
        for grid in report.grids(result):
            terminal.print_table(grid.heads, grid.rows, title=grid.title, best=grid.best)
    if not figures.quiet:
        for note in report.notes(result):
            console.print(note)
    if output is not None:
        page = report.write_arena(output, result, command=command)
        if not figures.quiet:
            console.print(f"report: {page}", style="green")
    for voter in result.voters:
        if not voter.decided:
            console.print(f"error: {voter.name} decided no battle; the first: {voter.problem}", style="red")
            raise typer.Exit(1)


def _propose(battles: Sequence[Battle], count: int, seed: int, quiet: bool) -> None:
    """Prints battles to be judged next, as JSON on stdout; on stderr how often each pair is among them."""
    from collections import Counter

    import numpy as np

    from reward.arena import by_judge, by_people, next_battles

    voter = by_people(battles) or by_judge(battles)
    points = np.full(len(battles), np.nan) if voter is None else voter.points
    proposed = next_battles(battles, points, count, seed=seed)
    terminal.print_json(proposed)
    if quiet:
        return
    console = terminal.console(stderr=True)
    pairs = Counter(" - ".join(sorted((entry["source1"], entry["source2"]))) for entry in proposed)
    for pair, number in pairs.most_common():
        console.print(f"{number} x {pair}")
    without_image = sum("img" not in entry for entry in proposed)
    if without_image:
        console.print(
            f"{without_image} without an image: on every image that has captions of both models, the two have met",
            style="yellow",
        )
