"""`capreward score` and `rerank`: score a data file, and order the candidates in it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from reward.cli import options
from reward.cli.chosen import MetricOptions, Weights, parse_weights
from reward.cli.engines import EngineOptions
from reward.cli.summaries import print_summary, print_usage
from reward.cli.terminal import console, stdout_kept_clean

Data = Annotated[
    str,
    typer.Argument(
        help="A .jsonl, .json, .csv, .tsv (each also with .gz) or .parquet file, a folder of a data set, or the name "
        "of one on the Hub; - reads JSON Lines from a pipe."
    ),
]
DataOrAddress = Annotated[
    str,
    typer.Argument(
        help="A .jsonl, .json, .csv, .tsv (each also with .gz) or .parquet file, a folder of a data set, or the name "
        "of one on the Hub; - reads JSON Lines from a pipe. With --engine: files, a folder or a pattern, here or at an "
        "address such as s3://bucket/folder."
    ),
]
Scores = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="A .parquet, .jsonl, .json, .csv or .tsv file, or - for JSON Lines on stdout; with --engine, a folder or "
        "its address. Default: a table here, and DATA.scores.parquet beside the data (DATA.ranked.parquet of "
        "`rerank`); of a pipe, -.",
    ),
]
CandidatesColumn = Annotated[
    str | None,
    typer.Option(
        "--candidate-column",
        "--caption-column",
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
    metrics: MetricOptions,
    layout: options.ColumnOptions,
    device: options.DeviceOptions,
    speed: options.SpeedOptions,
    selection: options.SelectionOptions,
    run: options.RunOptions,
    scale: EngineOptions,
    output: Scores = None,
    annotations: options.Annotations = None,
    weights: Weights = None,
    candidate_column: options.CandidateColumn = None,
    question_column: Annotated[
        str | None, typer.Option(help="Column of the questions that the captions answer; default: question.")
    ] = None,
    task_column: Annotated[
        str | None,
        typer.Option(help="Column of each row's task for harmoniceval, as for --set task=, or IC, VQA, REG, VDU."),
    ] = None,
    box_column: Annotated[
        str | None, typer.Option(help="Column of boxes [x, y, width, height], which are drawn into the image in red.")
    ] = None,
    strip_thinking: options.StripThinking = False,
    drop_images: options.DropImages = False,
) -> None:
    """Score every caption of a file: its rows, plus one column per aspect, the reward, and an error column.

    ```
    capreward score captions.csv -m clipscore=ViT-L-14:openai
    capreward score captions.jsonl -m vela=my-vela \\
        -m clipscore=ViT-L-14:openai -o scores.parquet
    ```

    Several metrics read each image once. Each has columns of its own: METRIC_ASPECT, METRIC_reward and
    METRIC_truncated. A caption that one of them cannot score keeps the scores of the others, and `error` says which
    failed and why. With `--weights vela=0.7,clipscore=0.3`, `reward` is their weighted mean.

    A vision-language model judges, here or behind a server, and no answer in --cache is paid for twice:

    ```
    capreward score captions.jsonl -m fleur=llava-hf/llava-1.5-7b-hf
    capreward score captions.jsonl -m judge=http://localhost:8000/v1#MODEL \\
        --set prompt=mine.yaml --set concurrency=32 --cache answers.sqlite
    ```

    A line of captions.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog.", "references": ["A dog."]}
    ```

    Other forms of data:

    ```
    captions.csv      also .tsv, .json, .parquet, .tar, .csv.gz, .jsonl.gz
    "s-{00..09}.tar"  or "part-*.parquet": files of one kind, as one table
    captions.json     {"1.jpg": "A dog runs."} or {"1.jpg": ["A dog.", "Dogs."]}
    results.json      COCO's [{"image_id": 1, "caption": "A dog."}], with
                      --annotations captions_val2014.json
    chats.jsonl       messages or conversations; the last answer is the caption
    photos/           images with metadata.jsonl, metadata.csv or captions.json,
                      or with 1.txt beside 1.jpg
    saved/            any folder that load_dataset reads, with --split test
    owner/name        on the Hub, with --split test; also owner/name:subset
    ```

    Image paths start at the folder of the file, at the working folder if not one image is in the first, or at
    --image-root; their ending may be left out. Pictures inside Parquet stay in the output, unless --drop-images leaves
    them out. A row that cannot be scored keeps its place and says why in `error`. After Ctrl-C or a kill, run the same
    command again to continue; no row is lost or written twice. Until then the parts that are done are in the folder
    OUTPUT.partial. Afterwards OUTPUT.summary.json says how the output was made.

    Data too large for one machine can be scored on a Ray cluster: Parquet, JSON lines or WebDataset tars, on disk or at
    addresses such as s3://, with a folder as output. After a crash, or if the data changed, the same command scores
    only what is missing:

    ```
    capreward score "s3://bucket/captions/*.parquet" -m vela=my-vela \\
        -o s3://bucket/scores --engine ray --address auto --gpus-per-worker 0.5
    ```
    """
    from reward.scoring.dataset import score_dataset

    context = {"question": question_column, "task": task_column, "box": box_column}
    context = {role: column for role, column in context.items() if column is not None}
    arguments: dict[str, Any] = {"weights": parse_weights(weights), "candidate_column": candidate_column}
    arguments |= {"strip_thinking": strip_thinking, "drop_images": drop_images}
    arguments |= {**vars(layout), **vars(device), **speed.given(), **vars(selection)}
    if context:
        arguments["context_columns"] = context
    work = scale.chosen()
    if work is None:
        _run(score_dataset, data, output, "scores", annotations, metrics, run, arguments)
    else:
        arguments |= {"annotations": annotations, "overwrite": run.overwrite, "progress": not run.quiet}
        sources = metrics.chosen()
        summary = work(data, output, scorer=sources, **arguments)
        print_usage([usage for source in sources for usage in source.usages], quiet=run.quiet)
        print_summary(summary, quiet=run.quiet, what="scored")


def rerank(
    data: Data,
    metrics: MetricOptions,
    columns: options.ColumnOptions,
    device: options.DeviceOptions,
    speed: options.SpeedOptions,
    selection: options.SelectionOptions,
    run: options.RunOptions,
    output: Scores = None,
    annotations: options.Annotations = None,
    weights: Weights = None,
    candidates_column: CandidatesColumn = None,
    group_column: GroupColumn = None,
    strip_thinking: options.StripThinking = False,
    drop_images: options.DropImages = False,
) -> None:
    """Order the candidates of every image by reward, best first.

    ```
    capreward rerank candidates.jsonl -m clipscore=ViT-L-14:openai -o best.jsonl
    capreward rerank candidates.jsonl -m vela=my-vela \\
        -m beitscore=my-beitscore --weights vela=0.7,beitscore=0.3 -o best.jsonl
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
    {"image": "photos/1.jpg", "candidate": "A dog runs.", "model": "large"}
    ```

    The output then has the same rows with the columns of `capreward score` and `rank`, which is 1 for the best.

    `capreward score --help` shows other forms of data. After Ctrl-C or a kill, run the same command again to continue.
    """
    from reward.scoring.dataset import rerank_dataset

    arguments: dict[str, Any] = {"weights": parse_weights(weights), "candidates_column": candidates_column}
    arguments |= {"group_column": group_column, "strip_thinking": strip_thinking, "drop_images": drop_images}
    arguments |= {**vars(columns), **vars(device), **speed.given(), **vars(selection)}
    _run(rerank_dataset, data, output, "ranked", annotations, metrics, run, arguments)


def _run(
    work: Callable[..., Any],
    data: str,
    output: str | None,
    made: str,
    annotations: Path | None,
    metrics: MetricOptions,
    run: options.RunOptions,
    arguments: dict[str, Any],
) -> None:
    """Scores or reranks on this machine, and says what was done.

    Args:
        work: `score_dataset` or `rerank_dataset`, which takes `arguments`, too.
        data, output: "-" is a pipe.
        made: part of the name of an output that is not named: "scores" or "ranked".
    """
    sources = metrics.chosen()
    try:
        with _files(data, output, made) as (data_file, output_file):
            arguments |= {"data": data_file, "output": output_file}
            if data == "-" and arguments["image_root"] is None:
                arguments["image_root"] = "."
            if annotations is not None:
                from reward.scoring.readers import open_source

                arguments["data"] = open_source(data_file, split=arguments.pop("split"), annotations=annotations)
            summary = work(scorer=sources, overwrite=run.overwrite, progress=not run.quiet, **arguments)
    finally:
        print_usage([usage for source in sources for usage in source.usages], quiet=run.quiet)
    if output == "-" or (output is None and data == "-"):
        summary = replace(summary, output=Path("-"))
    done = "scored" if made == "scores" else "reranked"
    if arguments["drop_images"] and not run.quiet:
        console(stderr=True).print("pictures inside the data are left out of the output (--drop-images)")
    print_summary(summary, quiet=run.quiet, what=done, shows_rows=output is None and data != "-")


@contextmanager
def _files(data: str, output: str | None, made: str) -> Iterator[tuple[str, str | Path]]:
    """The files that are read and written; where a pipe is read or written, one of them is temporary.

    All lines of a pipe are read first, and the rows are written once all are scored, so that everything holds that
    holds for files: one reward decides about another, and an error leaves no half of an output.
    """
    if data != "-" and output != "-":
        from reward.scoring.writers import output_beside

        yield data, output_beside(data, made) if output is None else output
        return
    with TemporaryDirectory() as folder:
        if data == "-":
            data = str(Path(folder, "stdin.jsonl"))
            with Path(data).open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        if output is not None and output != "-":
            yield data, output
            return
        rows = Path(folder, "stdout.jsonl")
        try:
            with stdout_kept_clean():
                yield data, rows
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; rows for a pipe are not saved") from None
        with rows.open("rb") as file:
            _print_bytes(file)


def _print_bytes(file: Any) -> None:
    """Writes a file to stdout; who reads it may have enough before its end, as `head` does."""
    try:
        shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
