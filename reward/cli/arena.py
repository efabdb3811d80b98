"""`capreward arena`: a judge compares captions of models, models are rated, and metrics are compared with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.battle import JudgingOptions
from reward.cli.summaries import print_report


@options.describe(
    "metric set score-column images judge judge-set output auto one-order no-reasons annotator judged ranking json "
    "quiet",
    synonyms={"--model": "--judge", "--server": "--judge ADDRESS#NAME", "--benchmark": "--auto"},
)
def arena(
    figures: options.FigureOptions,
    device: options.DeviceOptions,
    judging: JudgingOptions,
    battles: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of battles, in the fields of CapArena or CapArena-Auto; or folders of them. With --judge also "
            "the captions of models, each a file or NAME=FILE."
        ),
    ] = None,
    metric: options.Metrics = None,
    settings: options.Settings = None,
    score_column: Annotated[
        list[str] | None,
        typer.Option(
            "--score-column",
            "-s",
            help="Let scores in the file vote, too: the field that holds those of both captions; repeat for several.",
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", "-i", help="Folder of the images; default: that of the first file.")
    ] = None,
    judged: Annotated[
        list[str] | None,
        typer.Option(
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
    ranking: Annotated[
        str | None,
        typer.Option(
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
    resamples: Annotated[
        int, typer.Option(min=1, help="Number of resamples of the bootstrap, and of orders of battles for Elo.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the bootstrap, of Elo and of the order of two captions.")
    ] = 0,
) -> None:
    """Rate models by the battles of their captions, and compare metrics with the people who judged them.

    ```
    capreward arena battles.json -m vela=my-vela --images photos -o table.tex
    capreward arena old.json new.json --images photos -o battles.json \\
        --judge Qwen/Qwen2.5-VL-7B-Instruct
    capreward arena old.json new.json --images photos -o battles.json \\
        --judge http://localhost:8000/v1#MODEL
    ```

    A battle has `winner` (a source, or equal), by people, or `judge`, by --judge, or both; `ref` is by a person:

    ```
    [{"img": "1.jpg", "source1": "old", "source2": "new",
      "caption1": "A dog.", "caption2": "A dog runs.", "winner": "new",
      "cluster": "level 1", "judge": "Tie.", "clip": [0.61, 0.72]}]
    ```

    Ratings are by the people, else by the judge, else by the first metric. With verdicts of people, the judge, the
    metrics, the score columns and the length of the captions are compared with them: battle by battle and at each
    level, in the ranking of the models, and by their bias for each model.

    --judge compares captions: {"1.jpg": "A dog runs.", ...}, or rows with an image and a caption in any form that
    `capreward score` reads. Every two models meet on every image. Each pair is judged in both orders. A caption wins if
    both orders agree; otherwise it is a tie. After Ctrl-C or a kill, run the same command again to continue; no
    question is asked twice.

    CapArena-Auto (1,200 questions a model; --one-order, as in the published leaderboard, asks 600), whose benchmark and
    images come from its authors (github.com/njucckevin/CapArena):

    ```
    capreward arena mine.json --auto caparena_auto_600.json --one-order \\
        --images all_images \\
        --judge https://api.openai.com/v1#gpt-4o-2024-08-06 -o mine.battles.json
    capreward arena mine.battles.json --ranking caparena
    ```

    Compare scores only if they come from one judge, one prompt and the same number of orders.
    """
    from reward.metaeval.arena import all_voters, rate_arena, read_ranking
    from reward.report.arena import arena_report, ranking_report
    from reward.report.report import check_report

    if leaderboard and ranking is None:
        raise typer.BadParameter("goes with --ranking, which it is compared with", param_hint="--leaderboard")
    if judging.report is not None:
        check_report(judging.report)  # before hours of scoring
    fixed_ranking = None
    boards = {}
    if ranking is not None:
        fixed_ranking = read_ranking(ranking)
        for name, path in options.named_files(leaderboard or [], "--leaderboard").items():
            boards[f"leaderboard:{name}"] = fixed_ranking.correlations(read_ranking(path).scores)
    if not battles:
        if fixed_ranking is None or not boards:
            message = "is missing; only --leaderboard NAME=FILE --ranking FILE needs no battles"
            raise typer.BadParameter(message, param_hint="BATTLES")
        report = ranking_report(fixed_ranking, boards, command=terminal.command_line())
        print_report(report, judging.report, json=figures.json, quiet=figures.quiet or figures.json)
        return
    if annotator is not None and annotator.resolve() in [Path(path).resolve() for path in battles]:
        raise typer.BadParameter("is the file of the first annotator itself", param_hint="--annotator")
    metrics = options.read_metrics(metric or [], settings)
    if images is None:  # NAME=FILE is a model's captions
        first = Path(battles[0].rpartition("=")[2])
        images = first if first.is_dir() else first.parent
    entries, unanswered = judging.read(battles, images, seed, figures)
    if fixed_ranking is not None:  # too few common models are refused before hours of scoring
        models = dict.fromkeys(battle[source] for battle in entries for source in ("source1", "source2"))
        fixed_ranking.common(models)
    with terminal.stdout_kept_clean():
        voters = all_voters(
            entries,
            metrics,
            score_column or [],
            images=images,
            judged=options.named_files(judged or [], "--judged"),
            annotator=annotator,
            **figures.scoring(device),
        )
        result = rate_arena(
            entries, voters, pair_weights=pair_weights, ranking=fixed_ranking, resamples=resamples, seed=seed
        )
    result.correlations.update(boards)
    report = arena_report(result, command=terminal.command_line())
    print_report(report, judging.report, json=figures.json, quiet=figures.quiet)
    console = terminal.console(stderr=True)
    for voter in voters:
        if voter.problem and not voter.decided:
            console.print(f"error: {voter.name} decided no battle; the first: {voter.problem}", style="red")
            raise typer.Exit(1)
    if unanswered:
        console.print(f"{unanswered} battles were not answered; run the same again to ask for them", style="red")
        raise typer.Exit(1)
