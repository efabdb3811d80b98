"""`score_files`: plans the fragments, has the actors of a Ray cluster score them, and checks that all are there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integrations.ray_data.cluster import records_of
from integrations.ray_data.fragments import THREADS, Fragment, find_files, split_parquet
from integrations.ray_data.output import OutputFolder
from integrations.ray_data.parts import PartJob
from integrations.ray_data.reading import sample_types
from reward.data.samples import find_column
from reward.errors import ConfigError, DataError, OutputError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.scoring import BatchScorer, ScoringSummary
from reward.scoring.progress import progress_bar
from reward.scoring.results import AddedColumns
from reward.scoring.runs import ScoringInterrupted, check_same_run
from reward.scoring.summary import SummaryBuilder

if TYPE_CHECKING:
    import pyarrow as pa


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
    image_root: str | os.PathLike[str] | None = None,
    prefix: str = "",
    strip_thinking: bool = False,
    batch_size: int | None = None,
    columns: Sequence[str] | None = None,
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

    A fragment of the input (row groups of Parquet, a file of JSON lines, a WebDataset tar) is read, scored and written
    by one actor as one part, which appears whole or not at all. After the death of a worker Ray starts another; after
    the death of this process the same call goes on with the parts that are missing. If files were added, changed or
    removed since, only their parts are made or removed. `_run.json` in the output says what the
    scores depend on. Rows have the columns that `reward.scoring.score_dataset` adds, with equal scores.

    Args:
        data: files, folders or patterns, see `fragments.find_files`; in a tar, rows as `TarSource` reads them.
        scorer, source, weights: as for `score_dataset`; a scorer that is no name must be picklable.
        candidate_column, image_column, references_column, prefix, strip_thinking, batch_size, options: likewise.
        output: folder or address of the parts.
        image_root: where relative image paths start, a folder that all workers see; None is the folder of each file.
            Images in an object store must be inside the files: nothing is downloaded one by one.
        columns: columns of the input to keep; None keeps all. Of Parquet, others are not read.
        workers: actors; None is as many as the cluster has room for. 0 scores in this process, without Ray.
        cpus, gpus: of an actor; part of a GPU, such as 0.25, has four actors share it.
        address: of a running cluster, or "auto"; None starts one on this machine for the time of the run, or uses the
            one that this process is connected to.
        part_rows: row groups are taken together until they have as many rows.
        overwrite: discard the parts of another run.
        progress: show a progress bar.

    Returns:
        Counts, errors and distributions over all rows.

    Raises:
        DataError: the input cannot be read; if it is some fragments only, the others have been scored.
        OutputError: the folder belongs to another run, cannot be written, or lacks rows at the end.
        ConfigError: the cluster has no room for the actors, or a worker cannot load the scorer.
        WorkerError: the cluster failed.
    """
    if workers != 0:
        require("ray.data", extra="ray", purpose="scoring with --engine ray")
    for name, value, least in (("workers", 1 if workers is None else workers, 0), ("part_rows", part_rows, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if not cpus > 0 or not gpus >= 0:
        raise ConfigError(f"cpus must be above 0 and gpus at least 0, got {cpus!r} and {gpus!r}")
    names = {
        "candidate_column": candidate_column,
        "image_column": image_column,
        "references_column": references_column,
    }
    asked = {"source": source, "weights": weights, "prefix": prefix, "batch_size": batch_size, **names, **options}
    asked |= {"strip_thinking": True} if strip_thinking else {}
    probe = BatchScorer(scorer, **asked)
    run: dict[str, Any] = {
        **probe.given.identity,
        **names,
        "image_root": None if image_root is None else os.fspath(image_root),
        "prefix": prefix,
        **({"strip_thinking": True} if strip_thinking else {}),
        "columns": None if columns is None else list(columns),
        "part_rows": part_rows,
    }
    start = time.perf_counter()
    work = _plan(data, OutputFolder(os.fspath(output)), run, {"scorer": scorer, **asked}, probe, overwrite)
    resumed = work.rows
    if missing := [fragment for part, fragment in work.fragments.items() if part not in work.records]:
        work.folder.put_run(run, work.types)
        records = records_of(work.job, missing, address=address, workers=workers, cpus=cpus, gpus=gpus)
        _score(work, records, progress)
    builder = SummaryBuilder()
    for part in work.fragments:
        builder.add_record(work.records[part], part)
    images = sum(record["images"] for record in work.records.values())
    summary = builder.summary(Path(work.folder.address), images_decoded=images)
    plan = probe.plan(work.types.names)
    summary.columns = {"candidate": plan.caption, "image": plan.image, "references": plan.references}
    summary.already_done, summary.resumed_rows, summary.new_rows = not missing, resumed, summary.rows - resumed
    summary.seconds = time.perf_counter() - start
    return summary


@dataclass
class _Work:
    """What is to be done: {part: fragment} of all, {part: record} of those that are there, and the input's types."""

    folder: OutputFolder
    job: PartJob
    types: pa.Schema
    fragments: dict[str, Fragment]
    records: dict[str, dict[str, Any]]

    @property
    def rows(self) -> int:
        """That are in the parts."""
        return sum(record["counts"]["rows"] for record in self.records.values())


def _plan(
    data: Any, folder: OutputFolder, run: dict[str, Any], scoring: dict[str, Any], probe: BatchScorer, overwrite: bool
) -> _Work:
    """The fragments, and which of them have a sound part; parts of fragments that are no more are removed."""
    there = folder.parts()
    before, types = folder.run() if there and not overwrite else (None, None)
    if before is not None:
        check_same_run(Path(folder.address), before, run)
    files = find_files(data)
    if inside := [file.path for file in files if file.path.startswith(folder.path.rstrip("/") + "/")]:
        raise OutputError(f"output {folder.address} holds the input {inside[0]}; choose another folder")
    if files[0].kind == "parquet":
        files, types = split_parquet(files, run["part_rows"], types)
    elif types is None:  # an earlier run has fixed the types of the parts
        types = sample_types(files)
    for column in run["columns"] or []:
        find_column("column", types.names, column, option="--columns")
    kept = types.names if run["columns"] is None else list(dict.fromkeys(run["columns"]))
    if probe.given.knows_aspects:  # else only the checkpoint does
        AddedColumns(probe.given, run["prefix"], types.names)
    probe.plan(types.names)  # which refuses
    name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
    import pyarrow as pa

    schema = pa.schema([types.field(column) for column in kept])
    facts = (types.names, schema, folder.address, name, run["source"])
    job = PartJob(scoring, run["image_root"], *facts)
    fragments = {fragment.part(name): fragment for fragment in files}
    sound = [part for part in fragments if part in there] if before is not None else []
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(sound, pool.map(folder.record_of, sound), strict=True))
    records = {part: record for part, record in found.items() if record is not None}
    folder.remove(sorted(there - set(records)))
    return _Work(folder, job, types, fragments, records)


def _score(work: _Work, made: Generator[dict[str, Any], None, None], progress: bool) -> None:
    """Has the missing parts made, and checks that the parts are all there."""
    known = [fragment.rows for fragment in work.fragments.values()]
    total = sum(filter(None, known)) if None not in known else None
    problems: list[str] = []
    try:
        with progress_bar(progress, done=work.rows, total=total) as advance, closing(made) as records:
            for record in records:
                if "fatal" in record:
                    raise ConfigError(f"a worker cannot score: {record['fatal']}")
                if "unwritten" in record:
                    raise OutputError(f"{record['unwritten']}. The parts that are done stay; run the same again")
                if "problem" in record:
                    problems.append(record["problem"])
                    continue
                work.records[record.pop("part")] = record
                advance(record["counts"]["rows"], sum(record["errors"].values()))
    except KeyboardInterrupt:
        raise ScoringInterrupted(work.rows, Path(work.folder.address)) from None
    if problems:
        raise DataError(
            f"{len(problems)} of {len(work.fragments)} fragments could not be read; the others are scored, and the "
            f"same again tries only these. The first: {problems[0]}"
        )
    work.folder.remove_unfinished()
    there = work.folder.parts()
    for part, fragment in work.fragments.items():
        if part not in there or fragment.rows not in (None, work.records[part]["counts"]["rows"]):
            raise OutputError(f"{work.folder.address}/{part} is not as it was written; run the same again")
