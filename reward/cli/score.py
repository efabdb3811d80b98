"""`capreward score` and `rerank`: score a data file, and order the candidates in it."""

from __future__ import annotations

from typing import Annotated

import typer

from reward.cli import options
from reward.cli.engines import EngineOptions
from reward.cli.reports import report_scores

__all__ = ["GroupColumn", "Weights", "rerank", "score"]

Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        "-w",
        help="Weights in the reward: of aspects, as in desc=1,rel=2,flu=1, or of several metrics, as in "
        "vela=0.7,clipscore=0.3 (and of their aspects, as in vela_desc=1). They are divided by their sum; a negative "
        "one is a penalty. Default: the metric's own, mostly equal.",
    ),
]
DataOrAddress = Annotated[
    str,
    typer.Argument(
        help="A .jsonl, .json, .csv (each also with .gz) or .parquet file, a folder of a data set, or the name of one "
        "on the Hub. With --engine: files, a folder or a pattern, here or at an address such as s3://bucket/folder."
    ),
]
Scores = Annotated[
    str, typer.Option("--output", "-o", help="A .parquet or .jsonl file; with --engine, a folder or its address.")
]
CandidatesColumn = Annotated[
    str | None,
    typer.Option(
        "--candidate-column",
        help="Column of lists of captions, or of one caption a row; default: candidates, else cands, captions, "
        "candidate, cand or caption.",
    ),
]
GroupColumn = Annotated[
    str | None,
    typer.Option(help="For one candidate a row: column of what the candidates of one image share; default: the image."),
]


def score(
    data: DataOrAddress,
    metric: options.Metrics,
    output: Scores,
    checkpoint: options.CheckpointOptions,
    layout: options.ColumnOptions,
    device: options.DeviceOptions,
    speed: options.SpeedOptions,
    run: options.RunOptions,
    scale: EngineOptions,
    weights: Weights = None,
    candidate_column: options.CandidateColumn = None,
    strip_thinking: options.StripThinking = False,
) -> None:
    """Score every caption of a file: its rows, plus one column per aspect, the reward, and an error column.

    ```
    capreward score captions.jsonl -m clipscore=ViT-L-14:openai -o scores.parquet
    capreward score captions.jsonl -m vela=my-vela -m clipscore=ViT-L-14:openai \\
        -o scores.parquet
    ```

    Several metrics read each image once. Each has columns of its own: METRIC_ASPECT, METRIC_reward and
    METRIC_truncated. A caption that one of them cannot score keeps the scores of the others, and `error` says which
    failed and why. With `--weights vela=0.7,clipscore=0.3`, `reward` is their weighted mean.

    A line of captions.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog runs.", "references": ["A dog is running."]}
    ```

    Other forms of data, with the same columns:

    ```
    captions.csv              also .json, .parquet, .csv.gz, .jsonl.gz
    photos/                   images with metadata.jsonl or metadata.csv
    saved/ --split test       any folder that load_dataset reads
    owner/name --split test   on the Hub; also owner/name:subset
    ```

    Image paths start at the folder of the file. A row that cannot be scored keeps its place and says why in `error`.
    After Ctrl-C or a kill, run the same command again to continue; no row is lost or written twice. Until then the
    scores are kept in OUTPUT.partial. Afterwards OUTPUT.summary.json says how the output was made.

    Data too large for one machine can be scored on a Ray cluster: Parquet, JSON lines or WebDataset tars, on disk or at
    addresses such as s3://, with a folder as output. After a crash, or if the data changed, the same command scores
    only what is missing:

    ```
    capreward score "s3://bucket/captions/*.parquet" -m vela=my-vela -o s3://bucket/scores \\
        --engine ray --address auto --gpus-per-worker 0.5
    ```
    """
    from reward.scoring.dataset import score_dataset

    score_on = scale.chosen()
    arguments = {**vars(layout), **vars(device)}
    if score_on is None:
        arguments |= speed.given()
    else:
        scale.check(split=layout.split, device=device.device, **speed.given())
        del arguments["split"]
        arguments |= scale.settings()
    scorer, checkpoints = checkpoint.of(metric)
    summary = (score_on or score_dataset)(
        data,
        scorer,
        output,
        weights=options.parse_weights(weights),
        candidate_column=candidate_column,
        strip_thinking=strip_thinking,
        overwrite=run.overwrite,
        progress=not run.quiet,
        **checkpoints,
        **arguments,
    )
    report_scores(summary, quiet=run.quiet, what="scored")


def rerank(
    data: options.Data,
    metric: options.Metrics,
    output: options.ScoresFile,
    checkpoint: options.CheckpointOptions,
    columns: options.ColumnOptions,
    device: options.DeviceOptions,
    speed: options.SpeedOptions,
    run: options.RunOptions,
    weights: Weights = None,
    candidates_column: CandidatesColumn = None,
    group_column: GroupColumn = None,
    strip_thinking: options.StripThinking = False,
) -> None:
    """Order the candidates of every image by reward, best first.

    ```
    capreward rerank candidates.jsonl -m clipscore=ViT-L-14:openai -o best.jsonl
    capreward rerank candidates.jsonl -m vela=my-vela -m beitscore=my-beitscore \\
        --weights vela=0.7,beitscore=0.3 -o best.jsonl
    ```

    Several metrics order by the weighted mean of their rewards; a candidate that one of them cannot score comes last.

    A line of candidates.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidates": ["A dog.", "A dog runs on grass."]}
    ```

    The output has the candidates in order, `best`, `order` (their places in the input), `rewards`, one list an
    aspect, `truncated` and `error`. Candidates that cannot be scored come last.

    Or one candidate a line, in any order; those of one image, or of one value of --group-column, compete:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog.", "model": "small"}
    {"image": "photos/1.jpg", "candidate": "A dog runs on grass.", "model": "large"}
    ```

    The output then has the same rows with the columns of `capreward score` and `rank`, which is 1 for the best.

    `capreward score --help` shows other forms of data. After Ctrl-C or a kill, run the same command again to continue.
    """
    from reward.scoring.dataset import rerank_dataset

    scorer, checkpoints = checkpoint.of(metric)
    summary = rerank_dataset(
        data,
        scorer,
        output,
        weights=options.parse_weights(weights),
        candidates_column=candidates_column,
        group_column=group_column,
        strip_thinking=strip_thinking,
        overwrite=run.overwrite,
        progress=not run.quiet,
        **checkpoints,
        **vars(columns),
        **vars(device),
        **speed.given(),
    )
    report_scores(summary, quiet=run.quiet, what="reranked")
