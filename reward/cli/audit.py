"""`capreward audit`: whether a metric can be cheated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal
from reward.cli.summaries import print_report

FAILED = 3  # exit code of --fail-above


@options.describe(
    "metric set data output fail-above images seed image-column image-root device batch-size caption-column json quiet"
)
def audit(
    metrics: options.MetricOptions,
    columns: options.InputOptions,
    device: options.DeviceOptions,
    data: Annotated[
        str, typer.Option("--data", "-d", help="'scenes', or a file of good captions in the forms of `score`.")
    ] = "scenes",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for audit.json, .md and .html, or one such file."),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 3 if any attack wins in more than this share of captions."),
    ] = None,
    images: Annotated[
        int,
        typer.Option("--images", "-n", min=2, help="Most rows of --data to use; of 'scenes', how many to make."),
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of scenes, attacks and bootstrap.")] = 0,
    candidate_column: options.CandidateColumn = None,
    json: options.AsJson = False,
    quiet: options.QuietFigures = False,
) -> None:
    """Attack captions as a policy would, and count how often a metric prefers the attacked ones.

    ```
    capreward audit -m vela -m beitscore --output audit
    capreward audit -m vela=my/checkpoint --data good.jsonl --fail-above 0.05
    ```

    The attacks are what optimisation finds: word lists, repetition, padding, relations at random, facts and their
    opposites, captions of other images, instructions to a judge, and more. --data should hold good captions with their
    images, because an attack on a bad caption may well improve it. On the scenes an oracle checks that each attacked
    caption is worse.

    A share of 0 % is the goal. Around 50 % means that the metric does not see the attack, and 100 % that it rewards it.
    """
    from reward.metaeval.audit.auditing import audit as run
    from reward.metaeval.audit.auditing import read_rows, scene_rows
    from reward.report.audit import audit_report
    from reward.report.report import check_report

    if output is not None:
        check_report(output, [data])  # before hours of scoring
    sources = metrics.sources()
    if data == "scenes":
        rows = scene_rows(images, seed)
    else:
        rows = read_rows(data, limit=images, candidate_column=candidate_column, **vars(columns))
    loading = {name: value for name, value in (("device", device.device), ("dtype", device.dtype)) if value is not None}
    console = terminal.console(stderr=True)
    with terminal.stdout_kept_clean():
        result = run(
            {source.label: source.load(**loading) for source in sources},
            rows,
            seed=seed,
            say=lambda line: None if quiet else console.print(line),
            batch_size=device.batch_size,
            progress=not quiet,
        )
    report = audit_report(result, command=terminal.command_line())
    print_report(report, output, json=json, quiet=quiet)
    # After the report: whoever fails in a CI wants to see by which attack.
    failed = False
    for label, metric in result.metrics.items():
        attack, outcome = metric.worst
        wins = outcome.wins.value
        if fail_above is not None and wins > fail_above:
            console.print(f"{label}: {attack} wins in {wins:.1%} of captions, above {fail_above:.1%}", style="red")
            failed = True
    if failed:
        raise typer.Exit(FAILED)
