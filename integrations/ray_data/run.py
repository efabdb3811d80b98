"""`score_files`: plans the fragments, has the actors of a Ray cluster score them, and checks that all are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import reward
from integrations.ray_data.cluster import records_of
from integrations.ray_data.fragments import Fragment, find_files, split_files
from integrations.ray_data.output import Manifest, OutputFolder
from integrations.ray_data.parts import Job, part_schema
from integrations.ray_data.reading import Selection, sample_schema
from reward.errors import ConfigError, DataError, OutputError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.samples import find_column
from reward.scoring import BatchScorer, ScoringSummary
from reward.scoring.progress import progress_bar
from reward.scoring.results import ScoreColumns
from reward.scoring.runs import ScoringInterrupted
from reward.scoring.several import fingerprint_of, knows_aspects, options_of, shares_of
from reward.scoring.summary import SummaryBuilder

__all__ = ["score_files"]

# The manifest is written this often, at most; parts of the time between say themselves what they hold.
SAVE_SECONDS = 30.0


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
    were added, changed or removed since, only their parts are made or removed. `_manifest.json` in the output says what
    the scores depend on.

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
        "metric": probe.spec.name,
        "checkpoint": fingerprint_of(probe.given),
        **shares_of(probe.given),
        "options": options_of(options),
        "weights": None if weights is None else {name: float(weight) for name, weight in weights.items()},
        **names,
        "image_root": None if image_root is None else os.fspath(image_root),
        "prefix": prefix,
        **({"strip_thinking": True} if strip_thinking else {}),
        "columns": None if columns is None else list(columns),
        "part_rows": part_rows,
    }
    manifest, selection = _plan(data, OutputFolder(os.fspath(output)), run, probe, overwrite)
    job = Job(
        {"scorer": scorer, **asked},
        run["image_root"],
        selection,
        manifest.folder.address,
        reward.__version__,
        run["checkpoint"],
    )
    plan = probe.plan(selection.schema.names)
    missing = [each for each in manifest.fragments if each.part not in manifest.records]
    resumed = sum(record["rows"] for record in manifest.records.values())
    start = time.perf_counter()
    if missing:
        actors: dict[str, Any] = {"address": address, "workers": workers, "cpus": cpus, "gpus": gpus, "wait": wait}
        _score(manifest, selection, missing, lambda: records_of(job, missing, **actors), progress)
    summary = _summarise(manifest)
    summary.columns = {"candidate": plan.caption, "image": plan.image, "references": plan.references}
    summary.already_done, summary.resumed_rows, summary.new_rows = not missing, resumed, summary.rows - resumed
    summary.seconds = time.perf_counter() - start
    return summary


def _plan(
    data: Any, folder: OutputFolder, run: dict[str, Any], probe: BatchScorer, overwrite: bool
) -> tuple[Manifest, Selection]:
    """The fragments, and which of them have a sound part; parts of fragments that are no more are removed."""
    parts = folder.parts()
    before = Manifest.read(folder) if parts and not overwrite else None  # a run that made nothing may be replaced
    if before is not None:
        before.check_same(run)
    elif parts and not overwrite:
        raise OutputError(
            f"{folder.address} holds parts, but no manifest; choose another, or discard them (--overwrite)"
        )
    files = find_files(data)
    inside = [file.path for file in files if file.path.startswith(folder.path.rstrip("/") + "/")]
    if inside:
        raise OutputError(f"output {folder.address} holds the input {inside[0]}; choose another folder")
    known = (before.schema, before.fragments) if before is not None else (None, [])
    fragments, schema = split_files(files, run["part_rows"], *known)
    if schema is None:  # an earlier run has fixed the types of the parts
        schema = before.schema if before is not None else sample_schema(fragments)
    read = probe.plan(schema.names).names
    for name in run["columns"] or []:
        find_column("column", schema.names, name, option="--columns")
    kept = list(dict.fromkeys(run["columns"])) if run["columns"] is not None else schema.names
    selection = Selection(read, kept, schema)
    if knows_aspects(probe.given):  # else only the checkpoint knows its aspects
        ScoreColumns(probe.spec, run["weights"], run["prefix"], part_schema(selection).names)
    wanted = {fragment.part for fragment in fragments}
    folder.remove(sorted(set(parts) - (wanted if before is not None else set())))
    records = {}
    for part in wanted & set(parts) if before is not None else ():
        record = before.records.get(part)  # type: ignore[union-attr]
        if record is None or record["bytes"] != parts[part]:  # written after the manifest, or damaged
            own = folder.record_of(part)
            record = None if own is None else {**own, "part": part, "bytes": parts[part]}
        if record is not None:
            records[part] = record
    return Manifest(folder, run, schema, fragments, records), selection


def _score(
    manifest: Manifest,
    selection: Selection,
    missing: list[Fragment],
    run: Callable[[], Generator[dict[str, Any], None, None]],
    progress: bool,
) -> None:
    """Has the missing parts made, notes the records that come, and checks that the parts are all there."""
    done = sum(record["rows"] for record in manifest.records.values())
    known = [fragment.rows for fragment in manifest.fragments]
    total = sum(filter(None, known)) if None not in known else None
    problems: list[str] = []
    saved = time.monotonic()
    manifest.write()
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
                manifest.records[record.pop("part")] = record
                advance(record["rows"], sum(record["errors"].values()))
                if time.monotonic() - saved > SAVE_SECONDS:
                    manifest.write()
                    saved = time.monotonic()
    except BaseException as error:
        with suppress(OutputError):  # what stopped the run may be that nothing can be written
            manifest.write()
        if isinstance(error, KeyboardInterrupt):
            rows = sum(record["rows"] for record in manifest.records.values())
            raise ScoringInterrupted(rows, Path(manifest.folder.address)) from None
        raise
    manifest.write()
    if problems:
        raise DataError(
            f"{len(problems)} of {len(manifest.fragments)} fragments could not be read; the others are scored, and the "
            f"same again tries only these. The first: {problems[0]}"
        )
    manifest.folder.remove_unfinished()
    _check_whole(manifest)


def _check_whole(manifest: Manifest) -> None:
    """Checks that the folder has the parts of all fragments, with as many bytes and rows as there should be.

    Raises:
        OutputError: it has not.
    """
    parts = manifest.folder.parts()
    for fragment in manifest.fragments:
        record = manifest.records[fragment.part]
        if parts.get(fragment.part) != record["bytes"] or fragment.rows not in (None, record["rows"]):
            raise OutputError(f"{manifest.folder.address}/{fragment.part} is not as it was written; run the same again")


def _summarise(manifest: Manifest) -> ScoringSummary:
    records = [manifest.records[fragment.part] for fragment in manifest.fragments]
    builder = SummaryBuilder(records[0]["scores"])
    for fragment, record in zip(manifest.fragments, records, strict=True):
        builder.add_record(record, fragment.part)
    images = sum(record["images"] for record in records)
    return builder.summary(Path(manifest.folder.address), images_decoded=images)
