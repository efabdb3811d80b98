"""`capreward arena`: ratings of models from battles of their captions, and how well metrics decide the battles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal
from reward.cli.chosen import Metrics, Settings, read_metrics
from reward.cli.reports import report_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reward.metaeval.arena import ArenaResult, Voter
    from reward.metaeval.arena.battles import Battle
    from reward.metaeval.arena.caparena_auto import AutoScore
    from reward.metaeval.arena.ranking import Ranking
    from reward.metaeval.arena.report import Correlations

__all__ = ["arena"]


def arena(
    figures: options.FigureOptions,
    device: options.DeviceOptions,
    battles: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of battles, in the fields of CapArena or CapArena-Auto; or folders of them."),
    ] = None,
    metric: Metrics = None,
    settings: Settings = None,
    score_column: Annotated[
        list[str] | None,
        typer.Option(
            "--score-column",
            "-s",
            help="Let scores in the file vote, too: the field that holds those of both captions; repeat for several.",
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", "-i", help="Folder of the images; default: that of the battles.")
    ] = None,
    judged: Annotated[
        list[str] | None,
        typer.Option(
            "--judged",
            help="Let another judge vote, too: NAME=FILE, where FILE holds the same battles with its verdicts in "
            "`judge`; repeat for several.",
        ),
    ] = None,
    annotator: Annotated[
        Path | None,
        typer.Option(
            help="File of the same battles, or some, in which `winner` is by a second annotator; where battles are "
            "marked `in-400`, only those count."
        ),
    ] = None,
    in_400: Annotated[bool, typer.Option("--in-400", help="Use only the battles that are marked `in-400`.")] = False,
    ranking: Annotated[
        str | None,
        typer.Option(
            "--ranking",
            help="Compare all rankings with this one: the word caparena (that of its annotators), or a JSON file with "
            "models from best to worst, or {model: score}.",
        ),
    ] = None,
    leaderboard: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare a leaderboard with --ranking, too: NAME=FILE, as for --ranking; repeat for several."
        ),
    ] = None,
    pair_weights: Annotated[
        bool,
        typer.Option(
            "--pair-weights",
            help="Weigh battles in Bradley-Terry by 1 / P as in CapArena, P being the share of the pair in all "
            "battles.",
        ),
    ] = False,
    next_: Annotated[
        int | None, typer.Option("--next", min=1, help="Propose this many battles to judge next, and do nothing else.")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=1, help="Number of resamples of the bootstrap, and of orders of battles for Elo.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap, of Elo and of --next.")] = 0,
) -> None:
    """Rate models by the battles of their captions, and compare metrics with the people who judged them.

    ```
    capreward arena battles.json
    capreward arena battles.json --metric vela=my-vela --images photos
    capreward arena battles.json --next 50 > next.json
    capreward arena caparena_annots_eval.json --judged gpt=caparena_annots_eval_gpt.json --ranking caparena
    capreward arena data/caparena_auto --ranking caparena
    ```

    A battle has `winner` (a source, or equal), by people, or `judge`, by `capreward battle`, or both:

    ```
    [{"img": "1.jpg", "source1": "old", "source2": "new", "caption1": "A dog.", "caption2": "A dog runs.",
      "winner": "new", "cluster": "level 1", "judge": "Caption 2 is better.", "clip": [0.61, 0.72]}]
    ```

    Ratings are by the people, else by the judge, else by the first metric. With verdicts of people, the judge, the
    metrics, the score columns and the length of the captions are compared with them: battle by battle and at each
    level, in the ranking of the models, and by their bias for each model.

    Battles of CapArena-Auto (with `ref_model`) give its leaderboard, too. Compare a leaderboard without any battles:
    `capreward arena --leaderboard mine=scores.json --ranking caparena`.

    --next prints the pairs of models from which another battle tells most, as battles for a judge or for people.
    """
    from dataclasses import replace

    from reward.metaeval.arena import Arena, all_voters, rate_arena
    from reward.metaeval.arena.ranking import read_ranking

    if leaderboard and ranking is None:
        raise typer.BadParameter("goes with --ranking, which it is compared with", param_hint="--leaderboard")
    fixed = None if ranking is None else read_ranking(ranking)
    boards = {}
    for name, path in options.named_files(leaderboard or [], "--leaderboard").items():
        assert fixed is not None
        boards[f"leaderboard:{name}"] = fixed.correlations(read_ranking(path).scores)
    if not battles:
        if fixed is None or not boards:
            message = "is missing; only --leaderboard NAME=FILE --ranking FILE needs no battles"
            raise typer.BadParameter(message, param_hint="BATTLES")
        _report_boards(fixed, boards, figures)
        return
    if annotator is not None and annotator.resolve() in [path.resolve() for path in battles]:
        raise typer.BadParameter("is the file of the first annotator itself", param_hint="--annotator")
    entries = _read(battles, in_400)
    if next_ is not None:
        _propose(entries, next_, seed, figures.quiet)
        return
    field = Arena.of_battles(entries)
    if pair_weights:
        field = field.weighted()
    if fixed is not None:
        fixed.common(field.systems)  # before hours of scoring
    with terminal.stdout_kept_clean():
        voters = all_voters(
            entries,
            read_metrics(metric or [], settings),
            score_column or [],
            images=images or (battles[0] if battles[0].is_dir() else battles[0].parent),
            judged=options.named_files(judged or [], "--judged"),
            annotator=annotator,
            **figures.scoring(device),
        )
        result = rate_arena(
            field,
            voters,
            resamples=resamples,
            seed=seed,
            ranking=fixed,
            auto=_auto(entries, voters),
        )
    result = replace(result, correlations={**result.correlations, **boards})
    _report(result, figures)


def _read(paths: Sequence[Path], in_400: bool) -> list[Battle]:
    """Battles of files, and of folders in the layout of CapArena-Auto, where the benchmark lies beside its results."""
    from reward.errors import DataError
    from reward.metaeval.arena.battles import read_battles
    from reward.metaeval.arena.voters import TWICE

    battles: list[Battle] = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.glob("*.json") if file.name != "caparena_auto_600.json")
            if not files:
                raise DataError(f"folder {path} holds no .json file of battles")
        battles += [battle for file in files for battle in read_battles(file)]
    if in_400:
        battles = [battle for battle in battles if battle.record.get(TWICE) is True]
        if not battles:
            raise DataError(f"no battle is marked {TWICE!r}: true; leave out --in-400")
    return battles


def _auto(battles: Sequence[Battle], voters: Sequence[Voter]) -> dict[str, list[AutoScore]]:
    """Leaderboard of each voter, if the battles are CapArena-Auto's."""
    from reward.metaeval.arena.caparena_auto import auto_scores

    if not any("ref_model" in battle.record for battle in battles):
        return {}
    return {voter.name: auto_scores(battles, voter.points) for voter in voters}


def _report_boards(ranking: Ranking, boards: Correlations, figures: options.FigureOptions) -> None:
    from reward.metaeval.arena import report

    notes = () if figures.quiet or figures.json else [f"Fixed ranking: {ranking.source}"]
    values, grids = report.ranking_json(ranking, boards), [report.correlation_grid(boards)]
    report_figures(values, grids, notes, None, json=figures.json, quiet=figures.quiet)


def _report(result: ArenaResult, figures: options.FigureOptions) -> None:
    from reward.metaeval.arena import report

    values, grids = report.to_json(result, command=terminal.command_line()), report.grids(result)
    notes = () if figures.quiet else report.notes(result)
    report_figures(values, grids, notes, None, json=figures.json, quiet=figures.quiet)
    for voter in result.voters:
        if not voter.decided:
            message = f"error: {voter.name} decided no battle; the first: {voter.problem}"
            terminal.console(stderr=True).print(message, style="red")
            raise typer.Exit(1)


def _propose(battles: Sequence[Battle], count: int, seed: int, quiet: bool) -> None:
    """Prints battles to be judged next, as JSON on stdout; on stderr how often each pair is among them."""
    from collections import Counter

    import numpy as np

    from reward.metaeval.arena import by_judge, by_people, next_battles

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
