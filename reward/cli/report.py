"""`capreward report`: what the scores of a data set are like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reward.cli import options, terminal
from reward.errors import DataError, OutputError


def report(
    scored: Annotated[
        Path,
        typer.Argument(
            metavar="SCORED",
            help="What `capreward score` wrote: a .parquet, .jsonl or .csv file, or a folder of Parquet files. Or the "
            "output folder of a trainer.",
        ),
    ],
    run: options.RunOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="An .html file.")] = Path("report.html"),
    by: Annotated[
        str | None,
        typer.Option("--by", help="Column of the main score; default: reward, rewards, or the first that ends so."),
    ] = None,
    candidate_column: Annotated[
        str | None,
        typer.Option(
            "--caption-column",
            "--candidate-column",
            help="Column of the captions; default: the one that was scored.",
        ),
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="Column of the images' paths; default: the one that was scored.")
    ] = None,
    image_root: Annotated[
        Path | None,
        typer.Option(help="Folder that relative image paths start from; default: as when they were scored."),
    ] = None,
) -> None:
    """Show the scores of a file as one HTML page: distributions, the best and the worst, and why scores are missing.

    ```
    capreward report scores.parquet --output report.html
    capreward report out/
    ```

    It reads what `score`, `rerank` and `caption` wrote. All columns of floating-point numbers are shown; --by names the
    main one. Of a trainer's output folder (with a trainer_state.json in it or in a checkpoint) it shows the rewards
    over the steps, the monitor, and captions with pictures. The page needs no other file and no network.
    """
    from reward.report.scored_data import read_scored
    from reward.report.scores import scores_report
    from reward.report.training import read_training, training_folder, training_report
    from reward.scoring.writers import check_output_name

    check_output_name(output, ".html")
    if not scored.exists():
        raise DataError(f"there is no file {scored}")
    if output.exists() and not run.overwrite:
        raise OutputError(f"{output} is there already; give another --output, or replace it with --overwrite")
    columns: dict[str, Any] = {
        "by": by,
        "candidate_column": candidate_column,
        "image_column": image_column,
        "image_root": image_root,
    }
    folder = training_folder(scored)
    if folder is not None:
        options.refuse(columns, f"is for a file of scores, and {folder} is the output folder of a trainer")
        page = training_report(read_training(folder), command=terminal.command_line())
        subject = f"the training in {folder}"
    else:
        data = read_scored(scored, **columns)
        page = scores_report(data, command=terminal.command_line())
        subject = f"{data.rows:,} rows"
    page.write(output)
    if not run.quiet:
        console = terminal.console(stderr=True)
        for line in page.warnings:
            console.print(line, style="yellow")
        console.print(f"report on {subject} -> {output}", style="green")
