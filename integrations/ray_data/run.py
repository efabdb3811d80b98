"""`score_files`: plans the fragments, has the actors of a Ray cluster score them, and checks that all are there."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import reward
from integrations.ray_data.cluster import records_of
from integrations.ray_data.fragments import THREADS, Fragment, find_files, split_files
from integrations.ray_data.output import OutputFolder
from integrations.ray_data.parts import Job, PictureDigest, part_schema
from integrations.ray_data.reading import Selection, read_pieces, sample_schema
from reward.errors import ConfigError, DataError, OutputError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.samples import find_column
from reward.scoring import BatchScorer, ScoringSummary
from reward.scoring.progress import progress_bar
from reward.scoring.results import AddedColumns
from reward.scoring.runs import ScoringInterrupted, check_same_run
from reward.scoring.summary import SummaryBuilder

__all__ = ["score_files"]


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
    wait: float = 0,
    part_rows: int = 50_000,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> ScoringSummary:
    """Scores the rows of many files on a Ray cluster and writes a folder of Parquet parts, each row in it once.

    A fragment of the input (row groups of Parquet, a file of JSON lines, a WebDataset tar) is read, scored and written
    by one actor as one part, which appears whole or not at all. After the death of a worker
    Ray starts another; after the death of this process the same call goes on with the parts that are missing. If files
    or the images on this disk were added, changed or removed since, only their parts are made or removed. `_run.json`
    in the output says what the scores depend on.

    Rows have the columns that `reward.scoring.score_dataset` adds, with equal scores. Rows of one image in a piece of a
    fragment (8,192 rows, or 256 MiB of encoded images) are scored together, wherever they stand in it.

    Args:
        data: files, folders or patterns, see `fragments.find_files`. In a tar, the members of a row are `image` (.jpg,
            .png, ...), `txt` or `caption`, and the fields of its .json.
        scorer, source, weights, prefix, strip_thinking, batch_size, options: as for `score_dataset`; a scorer that is
            no name must be picklable.
        candidate_column, image_column, references_column: likewise.
        output: folder or address of the parts.
        image_root: where relative image paths start, perhaps an address; None is the folder of each file. Images whose
            path is an address are read through fsspec, by the workers.
        columns: columns of the input to keep; None keeps all. Others are not read.
        workers: actors; None is as many as the cluster has room for. 0 scores in this process, without Ray.
        cpus, gpus: of an actor; part of a GPU, such as 0.25, has four actors share it.
        address: of a running cluster, or "auto"; None starts one on this machine for the time of the run, or uses the
            one that this process is connected to.
        wait: seconds until there must be a node with room for a worker, on a cluster that starts nodes when they are
            asked for. The others of `workers` then start as their nodes come. 0 wants room for all of them at once.
        part_rows: row groups are taken together until they have as many rows.
        overwrite: discard the parts of another run.
        progress: show a progress bar.

    Returns:
        Counts, errors and distributions over all rows.

    Raises:
        MissingExtraError: Ray is not installed.
        DataError: the input cannot be read; if it is some fragments only, the others have been scored.
        OutputError: the folder belongs to another run, cannot be written, or lacks rows at the end.
        ConfigError: the cluster has no room for the actors, or a worker cannot load the scorer.
        WorkerError: the cluster failed.
        ScoringInterrupted: Ctrl-C.
    """
    if workers != 0:
        require("ray.data", extra="ray", purpose="scoring with --engine ray")
    for name, value, least in (("workers", 1 if workers is None else workers, 0), ("part_rows", part_rows, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if not cpus > 0 or not gpus >= 0 or not wait >= 0:
        raise ConfigError(f"cpus must be above 0, gpus and wait at least 0, got {cpus!r}, {gpus!r} and {wait!r}")
    names = {
        "candidate_column": candidate_column,
        "image_column": image_column,
        "references_column": references_column,
    }
    asked = {"source": source, "weights": weights, "prefix": prefix, "batch_size": batch_size, **names, **options}
    asked |= {"strip_thinking": True} if strip_thinking else {}
    probe = BatchScorer(scorer, **asked)
    run: dict[str, Any] = {
        "capreward": reward.__version__,
        **probe.given.identity,
        **names,
        "image_root": None if image_root is None else os.fspath(image_root),
        "prefix": prefix,
        **({"strip_thinking": True} if strip_thinking else {}),
        "columns": None if columns is None else list(columns),
        "part_rows": part_rows,
    }
    folder = OutputFolder(os.fspath(output))
    work = _plan(data, folder, run, {"scorer": scorer, **asked}, probe, overwrite)
    resumed = sum(record["counts"]["rows"] for record in work.records.values())
    start = time.perf_counter()
    if missing := [fragment for part, fragment in work.fragments.items() if part not in work.records]:
        folder.put_run(run, work.job.selection.schema)
        actors: dict[str, Any] = {"address": address, "workers": workers, "cpus": cpus, "gpus": gpus, "wait": wait}
        _score(work, lambda: records_of(work.job, missing, **actors), progress)
    summary = _summarise(work)
    plan = probe.plan(work.job.selection.schema.names)
    summary.columns = {"candidate": plan.caption, "image": plan.image, "references": plan.references}
    summary.already_done, summary.resumed_rows, summary.new_rows = not missing, resumed, summary.rows - resumed
    summary.seconds = time.perf_counter() - start
    return summary


@dataclass
class _Work:
    """What is to be done: {part: fragment} of all, and {part: record} of those that are there."""

    folder: OutputFolder
    job: Job
    fragments: dict[str, Fragment]
    records: dict[str, dict[str, Any]]


def _plan(
    data: Any, folder: OutputFolder, run: dict[str, Any], scoring: dict[str, Any], probe: BatchScorer, overwrite: bool
) -> _Work:
    """The fragments, and which of them have a sound part; parts of fragments that are no more are removed."""
    there = folder.parts()
    before, schema = folder.run() if there and not overwrite else (None, None)
    if before is not None:
        check_same_run(Path(folder.address), before, run)
    files = find_files(data)
    inside = [file.path for file in files if file.path.startswith(folder.path.rstrip("/") + "/")]
    if inside:
        raise OutputError(f"output {folder.address} holds the input {inside[0]}; choose another folder")
    found, schema = split_files(files, run["part_rows"], schema)
    schema = sample_schema(found) if schema is None else schema  # an earlier run has fixed the types of the parts
    for name in run["columns"] or []:
        find_column("column", schema.names, name, option="--columns")
    kept = list(dict.fromkeys(run["columns"])) if run["columns"] is not None else schema.names
    selection = Selection(probe.plan(schema.names).names, kept, schema)
    if probe.given.knows_aspects:  # else only the checkpoint does
        AddedColumns(probe.given, run["prefix"], part_schema(selection).names)
    facts = (scoring, run["image_root"], selection, folder.address)
    name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
    job = Job(*facts, name, reward.__version__, run["source"])
    fragments = {fragment.part(name): fragment for fragment in found}
    sound = [part for part in fragments if part in there] if before is not None else []
    with ThreadPoolExecutor(THREADS) as pool:
        records = dict(zip(sound, pool.map(folder.record_of, sound), strict=True))
    records = {
        part: record
        for part, record in records.items()
        if record is not None and _has_same_pictures(fragments[part], record, job, probe)
    }
    folder.remove(sorted(set(there) - set(records)))
    return _Work(folder, job, fragments, records)  # type: ignore[arg-type]


def _has_same_pictures(fragment: Fragment, record: Mapping[str, Any], job: Job, probe: BatchScorer) -> bool:
    """Whether no image of a part was replaced since: a file on this disk may be."""
    if record["pictures"] is None:
        return True
    plan = replace(probe.plan(job.selection.schema.names), references=None, group=None, context=())
    digest = PictureDigest(plan, job.image_root or posixpath.dirname(fragment.file.path))
    for piece in read_pieces(fragment, Selection([str(plan.image)], [str(plan.image)], job.selection.schema)):
        digest.add(piece.rows)
    return digest.value == record["pictures"]


def _score(work: _Work, run: Callable[[], Generator[dict[str, Any], None, None]], progress: bool) -> None:
    """Has the missing parts made, and checks that the parts are all there."""
    done = sum(record["counts"]["rows"] for record in work.records.values())
    known = [fragment.rows for fragment in work.fragments.values()]
    total = sum(filter(None, known)) if None not in known else None
    problems: list[str] = []
    try:
        with progress_bar(progress, done=done, total=total) as advance, closing(run()) as records:
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
        rows = sum(record["counts"]["rows"] for record in work.records.values())
        raise ScoringInterrupted(rows, Path(work.folder.address)) from None
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


def _summarise(work: _Work) -> ScoringSummary:
    builder = SummaryBuilder()
    for part in work.fragments:
        builder.add_record(work.records[part], part)
    images = sum(record["images"] for record in work.records.values())
    return builder.summary(Path(work.folder.address), images_decoded=images)
