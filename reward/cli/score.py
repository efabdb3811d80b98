"""`capreward score` and `rerank`: score a data file, and order the candidates in it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options
from reward.cli.terminal import console, print_summary, print_usage, stdout_kept_clean
from reward.data.column_names import names_in_words

if TYPE_CHECKING:
    from reward.scoring.summary import ScoringSummary

_NOT_OF_RUN = ("metric", "settings", "quiet", "overwrite", "output", "annotations", "weights")


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(
    options.RunOptions, options.SpeedOptions, options.DeviceOptions, options.InputOptions, options.MetricOptions
):
    """What `score` and `rerank` share."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="A .parquet, .jsonl, .json, .csv or .tsv file, or - for JSON Lines on stdout; with --engine, a "
            "folder. Default: a table here, and DATA.scores.parquet beside the data (DATA.ranked.parquet of "
            "`rerank`); of a pipe, -.",
        ),
    ] = None
    weights: options.Weights = None
    annotations: options.Annotations = None
    prefix: Annotated[
        str, typer.Option(help="Put before the names of the new columns, to tell several runs apart.")
    ] = ""
    top: Annotated[
        str | None,
        typer.Option(
            callback=options.checked_by("reward.scoring.summary:Selection"),
            help="Write only the best rows by reward: a number of rows, or a share such as 30%.",
        ),
    ] = None
    min_reward: Annotated[float | None, typer.Option(help="Write only rows with this reward or a higher one.")] = None
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Of rows with one image and the same captions, write the first only.")
    ] = False
    strip_thinking: Annotated[
        bool,
        typer.Option(
            "--strip-thinking",
            help="Score captions without reasoning (`<think>...</think>`), marks of answers (`<answer>`) and end "
            "marks.",
        ),
    ] = False
    drop_images: Annotated[
        bool,
        typer.Option(
            "--drop-images", help="Leave the pictures that the data hold out of the output, but for their paths."
        ),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Arguments of `score_dataset` and `rerank_dataset`, without the data, the output and the scorer.

        Raises:
            typer.BadParameter: weights that are not of the form NAME=NUMBER, or the size of a cache without the cache.
        """
        self.check_cache()
        names = [option.name for option in fields(self) if option.name not in _NOT_OF_RUN]
        arguments = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        arguments["weights"] = options.weights_option(self.weights)
        return {**arguments, "overwrite": self.overwrite, "progress": not self.quiet}


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Which engine scores, and what only an engine can be told."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="ray: score many files on a Ray cluster and write a folder of parts (needs the extra `ray`). "
            "Default: score in this process."
        ),
    ] = None
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to use, or auto; default: one on this machine, for this run.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Scorers that run at a time; default: all that fit. 0: in this process, without Ray."),
    ] = None
    cpus_per_worker: Annotated[
        float | None, typer.Option(help="CPUs that Ray reserves for each worker; default: 1.")
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(help="GPUs that Ray reserves for each worker, such as 0.25 for four workers per GPU; default: 0."),
    ] = None

    def score(self, data: str, scoring: ScoringOptions, arguments: dict[str, Any]) -> ScoringSummary:
        """Scores files by an engine that a package above this one brings along.

        Raises:
            typer.BadParameter: no such engine, or an option that is not for engines.
        """
        engines = {point.name: point for point in entry_points(group="capreward.engines")}
        if self.engine not in engines:
            known = ", ".join(sorted(engines))
            message = f"no engine is named {self.engine!r}; there are: {known}"
            raise typer.BadParameter(message, param_hint="--engine")
        if scoring.device not in (None, "cpu"):
            way = "an engine gives each worker its GPU; leave it out, and ask with --gpus-per-worker"
            raise typer.BadParameter(way, param_hint="--device")
        options.refuse({"split": scoring.split}, "is for data sets of `datasets`; give an engine the files")
        names = ("annotations", "devices", "cache", "top", "min_reward")
        of_one_machine = {name: getattr(scoring, name) for name in names}
        of_one_machine["dedupe"] = scoring.dedupe or None
        options.refuse(of_one_machine, "is for one machine; leave it out with an engine")
        if scoring.output is None:
            raise typer.BadParameter("is missing: with --engine, name a folder", param_hint="--output")
        del arguments["dedupe"]
        settings: dict[str, Any] = {"address": self.address, "workers": self.workers}
        settings |= {"cpus": self.cpus_per_worker, "gpus": self.gpus_per_worker}
        arguments |= {name: value for name, value in settings.items() if value is not None}
        run: Callable[..., ScoringSummary] = engines[self.engine].load()
        return run(data=data, output=scoring.output, **arguments)


@options.describe(
    "metric set weights output caption-column image-column references-column image-root annotations device devices "
    "cache engine overwrite quiet",
    synonyms={
        "--images --image-folder --image-dir": "--image-root FOLDER",
        "--references --refs": "--annotations FILE, or --references-column NAME of the data",
        "--threshold --filter": "--min-reward NUMBER",
    },
)
def score(
    data: Annotated[
        str,
        typer.Argument(
            help=f"{options.DATA}; - reads JSON Lines from a pipe. With --engine: files, a folder or a pattern."
        ),
    ],
    scoring: ScoringOptions,
    engine: EngineOptions,
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

    Data too large for one machine can be scored on a Ray cluster: Parquet, JSON lines or WebDataset tars in folders
    that all machines see, with a folder as output. After a crash, or if the data changed, the same command scores only
    what is missing:

    ```
    capreward score "/data/captions/*.parquet" -m vela=my-vela \\
        -o /data/scores --engine ray --address auto --gpus-per-worker 0.5
    ```
    """
    from reward.scoring.dataset import score_dataset

    arguments = {**scoring.arguments(), "candidate_column": candidate_column}
    context = {"question": question_column, "task": task_column, "box": box_column}
    context = {role: column for role, column in context.items() if column is not None}
    if context:
        arguments["context_columns"] = context
    if engine.engine is None:
        options.refuse(vars(engine), "goes with --engine ray; processes on this machine are --devices cpu,cpu")
        _run(score_dataset, data, scoring, arguments, kind="scores")
        return
    sources = scoring.sources()
    summary = engine.score(data, scoring, {**arguments, "scorer": sources})
    print_usage([usage for source in sources for usage in source.usages], quiet=scoring.quiet)
    print_summary(summary, quiet=scoring.quiet, verb="scored")


@options.describe(
    "metric set weights output candidate-column group-column image-column references-column image-root device devices "
    "cache top overwrite quiet",
    synonyms={"--images --image-folder --image-dir": "--image-root FOLDER"},
)
def rerank(
    data: Annotated[str, typer.Argument(help=f"{options.DATA}; - reads JSON Lines from a pipe.")],
    scoring: ScoringOptions,
    candidates_column: Annotated[
        str | None,
        typer.Option(
            "--candidate-column",
            "--caption-column",
            help=f"Column of lists of captions, default: {names_in_words('candidates')}; or of one caption a row, "
            f"default: {names_in_words('candidate')}.",
        ),
    ] = None,
    group_column: options.GroupColumn = None,
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

    arguments = {**scoring.arguments(), "candidates_column": candidates_column, "group_column": group_column}
    _run(rerank_dataset, data, scoring, arguments, kind="ranked")


def _run(
    work: Callable[..., ScoringSummary], data: str, scoring: ScoringOptions, arguments: dict[str, Any], *, kind: str
) -> None:
    """Scores or reranks on this machine, and says what was done.

    Args:
        work: `score_dataset` or `rerank_dataset`, which takes `arguments`.
        data: a path, or "-" for a pipe.
        kind: part of the name of an output that is not named: "scores" or "ranked".
    """
    output, quiet = scoring.output, scoring.quiet
    sources = scoring.sources()
    try:
        with _files(data, output, kind) as (data_file, output_file):
            arguments |= {"data": data_file, "output": output_file}
            if data == "-":
                arguments.setdefault("image_root", ".")
            if scoring.annotations is not None:
                from reward.scoring.readers import open_source

                split = arguments.pop("split", None)
                arguments["data"] = open_source(data_file, split=split, annotations=scoring.annotations)
            summary = work(scorer=sources, **arguments)
    finally:
        print_usage([usage for source in sources for usage in source.usages], quiet=quiet)
    if output == "-" or (output is None and data == "-"):
        summary = replace(summary, output=Path("-"))
    if scoring.drop_images and not quiet:
        console(stderr=True).print("pictures inside the data are left out of the output (--drop-images)")
    done = "scored" if kind == "scores" else "reranked"
    print_summary(summary, quiet=quiet, verb=done, shows_rows=output is None and data != "-")


@contextmanager
def _files(data: str, output: str | None, kind: str) -> Iterator[tuple[str, str | Path]]:
    """The files that are read and written; where a pipe is read or written, one of them is temporary.

    All lines of a pipe are read first, and the rows are written once all are scored, so that everything holds that
    holds for files: one reward decides about another, and an error leaves no half of an output.
    """
    if data != "-" and output != "-":
        from reward.scoring.writers import output_beside

        yield data, output_beside(data, kind) if output is None else output
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
