"""`capreward arena`: ratings of models from battles of their captions, and how well metrics decide the battles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import bench_options, options, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward.arena import ArenaResult, Decider
    from reward.battles import Battle

__all__ = ["arena"]

BASELINE = "length"  # what every metric must beat


def arena(
    battles: Annotated[Path, typer.Argument(help="A file of battles, in the fields of CapArena.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", "-m", help="NAME, or NAME=SOURCE with a folder or Hub id, that decides too; repeat for several."
        ),
    ] = None,
    score_column: Annotated[
        list[str] | None,
        typer.Option(
            "--score-column", "-s", help="Field with the scores of both captions, that decides too; repeat for several."
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", "-i", help="Folder of the images; default: that of the battles.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for arena.json, arena.md, arena.html, and plots as .png and .svg."),
    ] = None,
    next_: Annotated[
        int | None,
        typer.Option("--next", min=1, help="Propose so many battles to be judged next, and do nothing else."),
    ] = None,
    prior: Annotated[
        float,
        typer.Option(
            min=0,
            help="Games of each model with an average one, half of them won, added to Bradley-Terry: with 1, say, a "
            "model that won everything has a finite rating.",
        ),
    ] = 0.0,
    no_references: bench_options.NoReferences = False,
    resamples: Annotated[
        int, typer.Option(min=1, help="Of the bootstrap, and of the orders of battles for Elo.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap, of Elo, and of --next.")] = 0,
    cache: bench_options.CacheFolder = None,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    json: bench_options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")] = False,
) -> None:
    """Rate models by the battles of their captions, and hold metrics against the people who judged them.

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

    Ratings are by the people, else by the judge, else by the first metric. With people, the judge, the metrics, the
    score columns and the length of the captions are compared with them: battle by battle and at each level, in the
    ranking of the models, and by their bias for each model.

    --next prints the pairs of models of which another battle tells most, as battles for a judge or for people.
    """
    from reward.battles import read_battles

    read = read_battles(battles)
    told = terminal.console(stderr=True)
    if next_ is not None:
        _propose(read, next_, seed, quiet)
        return
    if output is not None:
        from reward.metaeval.report import check_report

        check_report(output)  # before hours of scoring

    def run() -> ArenaResult:
        from reward.arena import Arena, rate_arena
        from reward.metaeval.score_cache import default_cache_folder

        deciders = _deciders(
            read,
            metric or [],
            score_column or [],
            images=images or battles.parent,
            references=not no_references,
            cache=cache or default_cache_folder(),
            batch_size=batch_size,
            device=device,
            dtype=dtype,
            progress=not quiet,
        )
        return rate_arena(Arena.of_battles(read), deciders, prior=prior, resamples=resamples, seed=seed)

    with bench_options.stdout_kept_clean():
        result = run()
    from reward.arena import report

    command = bench_options.command_line()
    if json:
        terminal.print_json(report.to_json(result, command=command))
    else:
        for grid in report.grids(result):
            bench_options.print_table(grid.heads, grid.rows, title=grid.title, best=grid.best)
    if not quiet:
        for note in report.notes(result):
            told.print(note)
    if output is not None:
        page = report.write_arena(output, result, command=command)
        if not quiet:
            told.print(f"report: {page}", style="green")
    for decider in result.deciders:
        if not (decider.points == decider.points).any():  # not one is a number
            told.print(f"error: {decider.name} decided no battle; the first: {decider.problem}", style="red")
            raise typer.Exit(1)


def _deciders(
    battles: Sequence[Battle], metrics: Sequence[str], columns: Sequence[str], *, images: Path, **scoring: object
) -> list[Decider]:
    """People, judge, metrics and columns, those that there are, in this order; with people, the length baseline too.

    Raises:
        DataError: nobody has decided anything.
    """
    import numpy as np

    from reward.arena import by_column, by_judge, by_metric, by_people
    from reward.errors import DataError
    from reward.metaeval.bench import MetricSource

    people = by_people(battles)
    found = [decider for decider in (people, by_judge(battles)) if decider is not None]
    human = np.full(len(battles), np.nan) if people is None else people.points
    candidates = [MetricSource.parse(text) for text in metrics]
    baseline = MetricSource(BASELINE)
    if people is not None and baseline not in candidates and not all(battle.has_human for battle in battles):
        candidates.append(baseline)
    candidates = list(dict.fromkeys([*candidates, *(MetricSource(name, is_column=True) for name in columns)]))
    if not (found or candidates):
        raise DataError(
            "no battle has a winner: give 'winner' (one of the two sources, or 'equal'), have `capreward battle` write "
            "'judge', or name a --metric or a --score-column that decides"
        )
    # first the columns: a wrong name should not cost hours of scoring
    columns_read = {each: by_column(battles, each.name, human) for each in candidates if each.is_column}
    return found + [
        columns_read[each] if each.is_column else by_metric(battles, each, human, images=images, **scoring)
        for each in candidates
    ]


def _propose(battles: Sequence[Battle], count: int, seed: int, quiet: bool) -> None:
    """Prints battles to be judged next, as JSON on stdout; on stderr how often each pair is among them."""
    from collections import Counter

    import numpy as np

    from reward.arena import by_judge, by_people, next_battles

    decider = by_people(battles) or by_judge(battles)
    points = np.full(len(battles), np.nan) if decider is None else decider.points
    proposed = next_battles(battles, points, count, seed=seed)
    terminal.print_json(proposed)
    if quiet:
        return
    told = terminal.console(stderr=True)
    pairs = Counter(" - ".join(sorted((entry["source1"], entry["source2"]))) for entry in proposed)
    for pair, number in pairs.most_common():
        told.print(f"{number} x {pair}")
    bare = sum("img" not in entry for entry in proposed)
    if bare:
        told.print(
            f"{bare} without an image: the file has no image with both captions on which the two have not met yet",
            style="yellow",
            markup=False,
        )
