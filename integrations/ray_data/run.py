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
from pathlib import Path
from typing import Any

from integrations.ray_data.fragments import Fragment, find_files, sample_types, split_parquet
from integrations.ray_data.parts import RECORDS, PartScorer, records_of
from reward.errors import ConfigError, DataError, OutputError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.scoring import ScoringSummary
from reward.scoring.batch_scorer import check_corpus
from reward.scoring.readers import refuse_address_of_data
from reward.scoring.runs import OtherRunError, ScoringInterrupted, progress_bar
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder

_PART = re.compile(r"(part-.*-[0-9a-f]{12}-[0-9a-f]{12}\.parquet)(\..+)?")
_HOPELESS = 16  # fragments, none of which can be scored: a column is misspelled, or the like


def score_files(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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
    """Scores the rows of many files on a Ray cluster and writes a folder of Parquet parts, each row in it once.

    Each fragment of the input (row groups of Parquet, a file of JSON lines, a WebDataset tar) is scored on one machine
    into one part, as `reward.scoring.score_dataset` does. After the death of a worker Ray starts another; after the
    death of this process the same call goes on with what is missing. If files were added, changed or removed since,
    only their parts are made or removed. `_records` in the output holds the summaries of the parts, and what is not
    finished.

    Args:
        data: files, folders or patterns that all workers see, see `fragments.find_files`; in a tar, rows as `TarSource`
            reads them.
        scorer, source, weights, batch_size: as for `score_dataset`; a scorer that is no name must be picklable.
        output: folder of the parts, which all workers see.
        candidate_column, image_column, references_column, context_columns, prefix, strip_thinking, drop_images: as for
            `score_dataset`.
        image_root: where relative image paths start; None is the folder of each file.
        workers: actors; None is as many as the cluster has room for. 0 scores in this process, without Ray.
        cpus, gpus: of an actor; part of a GPU, such as 0.25, has four actors share it.
        address: of a running cluster, or "auto"; None starts one on this machine for the time of the run, or uses the
            one that this process is connected to.
        part_rows: row groups are taken together until they have as many rows.
        overwrite: discard the parts of another run.
        progress: show a progress bar.
        options: of the metric, as for `score_dataset`.

    Returns:
        Counts, errors and distributions over all rows.

    Raises:
        DataError: the input cannot be read; if it is some files only, the others have been scored. Or data or output
            are at an address such as s3://.
        OutputError: the folder belongs to another run, cannot be written, or lacks rows at the end.
        ConfigError: the cluster has no room for the actors, or a worker cannot load the metrics.
        WorkerError: the cluster failed.
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
    written = _written_files(Path(output))
    metrics = Metrics.of(scorer, source, weights=weights, **options)
    if metrics.knows_aspects:  # else only the checkpoint does
        check_corpus(metrics)
    files = find_files(data)
    for file in files:
        if folder in Path(file.path).parents:
            raise OutputError(f"output {folder} holds the input {file.path}; choose another folder")
    if files[0].kind == "parquet":
        inputs, types = split_parquet(files, part_rows)
    else:
        inputs, types = files, sample_types(files)
    columns: dict[str, Any] = {"candidate": candidate_column, "image": image_column, "references": references_column}
    columns |= {"context": context_columns, "strip_thinking": strip_thinking}
    settings = {"image_root": image_root, "prefix": prefix, "drop_images": drop_images}
    identity = [metrics.identity, columns, settings, part_rows, types.to_string()]
    run = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    # All that is checked before a worker starts is checked here; nothing has been written or removed so far.
    fragments = {fragment.part(run): fragment for fragment in inputs}
    for path, part in written.items():
        if not overwrite and not part.endswith(f"-{run}.parquet"):
            raise OtherRunError(
                f"{folder} holds {path.name} of a run that differs from this one in its metric, checkpoint, settings "
                "or columns. Start afresh with --overwrite (overwrite=True), or choose another output."
            )
    # A part that stays is looked at by who would make it: its file or its pictures may be others than its name says.
    for path, part in written.items():
        if overwrite or part not in fragments:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    parts = PartScorer(metrics, columns, {**settings, "batch_size": batch_size}, types, folder, run)
    records = records_of(parts, inputs, address=address, workers=workers, cpus=cpus, gpus=gpus)
    summaries = _score(folder, fragments, records, progress)
    return _sum_up(folder, fragments, summaries, checkpoints=metrics.checkpoints, seconds=time.perf_counter() - start)


def _written_files(folder: Path) -> dict[Path, str]:
    """{file or folder in the output folder: the part that it belongs to}.

    Raises:
        OutputError: it is no folder, or holds Parquet files of others, which would be read as if they were parts.
    """
    if folder.suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet") or folder.is_file():
        raise OutputError(f"output {folder} must be a folder: Ray writes Parquet parts into it")
    files: dict[Path, str] = {}
    for path in [*folder.glob("*"), *folder.glob(f"{RECORDS}/*")]:
        part = _PART.fullmatch(path.name)
        if part is not None:
            files[path] = part[1]
        elif path.suffix == ".parquet":
            raise OutputError(f"output {folder} holds {path.name}, which is no part of a run; choose another folder")
    return files


def _score(
    folder: Path,
    fragments: Mapping[str, Fragment],
    records: Generator[dict[str, Any], None, None],
    progress: bool,
) -> dict[str, ScoringSummary]:
    """{part: its summary}, as they are made; all of them are there at the end."""
    summaries: dict[str, ScoringSummary] = {}
    sizes = [fragment.rows for fragment in fragments.values()]
    total = None if None in sizes else sum(filter(None, sizes))
    rows = 0
    problems: list[str] = []
    try:
        with progress_bar(progress, done=0, total=total) as advance, closing(records):
            for record in records:
                if "fatal" in record:
                    raise ConfigError(f"a worker cannot score: {record['fatal']}")
                if "unwritten" in record:
                    raise OutputError(f"{record['unwritten']}. The parts that are done stay; run the same again")
                if "problem" in record:
                    problems.append(record["problem"])
                    if len(problems) == _HOPELESS and not summaries:
                        break
                    continue
                summary = ScoringSummary.from_json(record["summary"], Path(record["part"]))
                summaries[record["part"]] = summary
                rows += summary.rows
                advance(summary.rows, sum(summary.errors.values()))
    except KeyboardInterrupt as stop:
        raise ScoringInterrupted(rows + getattr(stop, "rows", 0), folder) from None
    if problems:
        raise DataError(
            f"{len(problems)} of {len(fragments)} fragments could not be scored; what is done stays, and the same "
            f"again tries only the others. The first: {problems[0]}"
        )
    for part, fragment in fragments.items():
        if not (folder / part).is_file() or fragment.rows not in (None, summaries[part].rows):
            raise OutputError(f"{folder / part} is not as it was written; run the same again")
    return summaries


def _sum_up(
    folder: Path, fragments: Mapping[str, Fragment], summaries: Mapping[str, ScoringSummary], **facts: Any
) -> ScoringSummary:
    builder = SummaryBuilder()
    new_rows = images = 0
    for part, fragment in fragments.items():
        summary = summaries[part]
        builder.add_summary(summary, fragment.name)
        if not summary.already_done:
            new_rows += summary.new_rows
            images += summary.images_decoded
    return builder.summary(
        folder,
        already_done=not new_rows,
        new_rows=new_rows,
        resumed_rows=builder.counts["rows"] - new_rows,
        images_decoded=images,
        columns=summary.columns,
        **facts,
    )
