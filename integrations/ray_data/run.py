"""`score_files`: finds the fragments, has actors score them, and checks that all parts are there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from integrations.ray_data.fragments import Fragment, find_files, split_parquet
from integrations.ray_data.parts import RECORDS, PartScorer, records_of
from reward.errors import ConfigError, DataError, OutputError, WorkerError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.scoring import ScoringSummary
from reward.scoring.batch_scorer import check_corpus
from reward.scoring.readers import kind_of, refuse_address_of_data
from reward.scoring.runs import OtherRunError, ScoringInterrupted, progress_bar
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder

_PART = re.compile(r"(part-.*-[0-9a-f]{12}-([0-9a-f]{12})\.(?:parquet|jsonl))(?:\..+)?")
_HOPELESS = 16  # fragments, none of which can be scored: a column is misspelled, or the like


def score_files(
    data: str | os.PathLike[str],
    scorer: str | Scorer | Sequence[str | MetricSource | Scorer],
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    candidate_column: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    context_columns: Mapping[str, str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    prefix: str = "",
    strip_thinking: bool = False,
    drop_images: bool = False,
    batch_size: int | None = None,
    workers: int | None = None,
    cpus: float = 1,
    gpus: float = 0,
    address: str | None = None,
    part_rows: int = 50_000,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> ScoringSummary:
    """Scores the rows of many files on a Ray cluster and writes a folder of parts, each row in it once.

    Each fragment of the input (row groups of Parquet, a file of JSON lines, a WebDataset tar) is scored on one machine
    into one part, of Parquet or JSON lines, as `reward.scoring.score_dataset` does, which explains the arguments that
    are not named here. After the death of a worker Ray starts another; after the death of this process the same call
    makes what is missing, and removes the parts of files that are gone. `_records` in the output holds the summaries.

    Args:
        data: a file, folder or pattern that all workers see, see `fragments.find_files`.
        scorer: picklable, if it is no name.
        output: folder of the parts, which all workers see.
        image_root: where relative image paths start; None is the folder of each file.
        workers: actors; None is as many as the cluster has room for. 0 scores in this process, without Ray.
        cpus, gpus: of an actor; part of a GPU, such as 0.25, has four actors share it.
        address: of a running cluster, or "auto"; None starts one on this machine for the time of the run, or uses the
            one that this process is connected to.
        part_rows: row groups are taken together until they have as many rows.
        overwrite: discard the parts of another run.

    Returns:
        Counts, errors and distributions over all rows.

    Raises:
        DataError: the input cannot be read; if it is some files only, the others have been scored.
        OutputError: the folder belongs to another run, cannot be written, or lacks rows at the end.
        ConfigError: the cluster has no room for the actors.
        WorkerError: the cluster failed, or a worker cannot load the metrics or write.
    """
    if workers != 0:
        require("ray.data", extra="ray", purpose="scoring with --engine ray")
    if part_rows < 1 or not cpus > 0 or not gpus >= 0:
        raise ConfigError(
            f"part_rows must be at least 1, cpus above 0 and gpus at least 0, got {part_rows!r}, {cpus!r} and {gpus!r}"
        )
    refuse_address_of_data(output)
    start = time.perf_counter()
    folder = Path(os.path.abspath(output))
    if folder.suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet") or folder.is_file():
        raise OutputError(f"output {output} must be a folder: Ray writes parts into it")
    metrics = Metrics.of(scorer, source, weights=weights, **options)
    if metrics.knows_aspects:  # else only the checkpoint does
        check_corpus(metrics)
    files = find_files(data)
    for file in files:
        if folder in file.parents:
            raise OutputError(f"output {folder} holds the input {file}; choose another folder")
    inputs = [Fragment(str(file)) for file in files]
    if kind_of(files[0]) == ".parquet":
        inputs = split_parquet(files, part_rows)
    columns: dict[str, Any] = {"candidate": candidate_column, "image": image_column, "references": references_column}
    columns |= {"context": context_columns, "strip_thinking": strip_thinking}
    settings = {"image_root": image_root, "prefix": prefix, "drop_images": drop_images}
    identity = [metrics.identity, columns, settings, part_rows]
    run = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    # All that is checked before a worker starts is checked here; nothing has been written or removed so far.
    fragments = {fragment.part(run): fragment for fragment in inputs}
    written = _written_files(folder, None if overwrite else run)
    # A part that stays is looked at by who would make it: its file or its pictures may be others than its name says.
    for path, part in written.items():
        if overwrite or part not in fragments:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    parts = PartScorer(metrics, columns, {**settings, "batch_size": batch_size}, folder, run)
    records = records_of(parts, inputs, address=address, workers=workers, cpus=cpus, gpus=gpus)
    summary = _sum_up(folder, fragments, records, progress)
    return replace(summary, checkpoints=metrics.checkpoints, seconds=time.perf_counter() - start)


def _written_files(folder: Path, run: str | None) -> dict[Path, str]:
    """{file or folder in the output folder: the part that it belongs to}.

    Raises:
        OutputError: a part is of another run than `run`, or a file is none of a run, which readers would take for one.
    """
    files: dict[Path, str] = {}
    for path in [*folder.glob("*"), *folder.glob(f"{RECORDS}/*")]:
        part = _PART.fullmatch(path.name)
        if part is not None:
            if run not in (None, part[2]):
                raise OtherRunError(
                    f"{folder} holds {path.name} of a run that differs from this one in its metric, checkpoint, "
                    "settings or columns. Start afresh with --overwrite (overwrite=True), or choose another output."
                )
            files[path] = part[1]
        elif path.suffix in (".parquet", ".jsonl"):
            raise OutputError(f"output {folder} holds {path.name}, which is no part of a run; choose another folder")
    return files


def _sum_up(
    folder: Path, fragments: Mapping[str, Fragment], records: Generator[dict[str, Any], None, None], progress: bool
) -> ScoringSummary:
    """Adds up the summaries of the parts as they are made; all of them are there at the end."""
    builder = SummaryBuilder()
    rows: dict[str, int] = {}  # of each part
    new_rows = images = 0
    columns: dict[str, Any] = {}
    problems: list[str] = []
    sizes = [fragment.rows for fragment in fragments.values()]
    total = None if None in sizes else sum(filter(None, sizes))
    try:
        with progress_bar(progress, done=0, total=total) as advance, closing(records):
            for record in records:
                if "stop" in record:
                    raise WorkerError(f"{record['stop']}. The parts that are done stay; run the same again")
                if "problem" in record:
                    problems.append(record["problem"])
                    if len(problems) == _HOPELESS and not rows:
                        break
                    continue
                part = record["part"]
                summary = ScoringSummary.from_json(record["summary"], Path(part))
                builder.add_summary(summary, fragments[part].name)
                rows[part], columns = summary.rows, summary.columns
                if not summary.already_done:
                    new_rows += summary.new_rows
                    images += summary.images_decoded
                advance(summary.rows, sum(summary.errors.values()))
    except KeyboardInterrupt as stop:
        raise ScoringInterrupted(sum(rows.values()) + getattr(stop, "rows", 0), folder) from None
    if problems:
        raise DataError(
            f"{len(problems)} of {len(fragments)} fragments could not be scored; what is done stays, and the same "
            f"again tries only the others. The first: {problems[0]}"
        )
    for part, fragment in fragments.items():
        if not (folder / part).is_file() or fragment.rows not in (None, rows.get(part)):
            raise OutputError(f"{folder / part} is not as it was written; run the same again")
    done = {"already_done": not new_rows, "new_rows": new_rows, "resumed_rows": builder.counts["rows"] - new_rows}
    return builder.summary(folder, **done, images_decoded=images, columns=columns)
