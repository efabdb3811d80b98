"""`score_files`: finds the fragments, has actors score them, and checks that all parts are there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integrations.ray_data.cluster import records_of
from integrations.ray_data.fragments import Fragment, find_files, sample_types, split_parquet
from integrations.ray_data.parts import OutputFolder, part_of, summary_of
from reward.data.samples import find_column
from reward.errors import ConfigError, DataError, OutputError
from reward.metrics.base import Scorer
from reward.optional import require
from reward.registry import MetricSource
from reward.scoring import ScoringSummary
from reward.scoring.batch_scorer import check_corpus
from reward.scoring.progress import progress_bar
from reward.scoring.readers import is_remote_path
from reward.scoring.runs import OtherRunError, ScoringInterrupted
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder

if TYPE_CHECKING:
    pass

# Arguments of `score_dataset` that change the output and are no options of a metric.
_SETTINGS = (
    "candidate_column",
    "image_column",
    "references_column",
    "context_columns",
    "prefix",
    "strip_thinking",
    "drop_images",
)
_HOPELESS = 16  # fragments, none of which can be scored: a column is misspelled, or the like


def score_files(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    scorer: str | Scorer | Sequence[str | MetricSource | Scorer],
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    columns: Sequence[str] | None = None,
    workers: int | None = None,
    cpus: float = 1,
    gpus: float = 0,
    address: str | None = None,
    part_rows: int = 50_000,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> ScoringSummary:
    """Scores the rows of many files on a Ray cluster and writes a folder of Parquet parts, each row in it once.

    Each fragment of the input (row groups of Parquet, a file of JSON lines, a WebDataset tar) is given to
    `reward.scoring.score_dataset`, which scores it on one machine into one part. After the death of a worker Ray starts
    another; after the death of this process the same call goes on with what is missing. If files were added, changed
    or removed since, only their parts are made or removed. `_records` in the output holds the summaries of the parts,
    and what is not finished.

    Args:
        data: files, folders or patterns, see `fragments.find_files`; in a tar, rows as `TarSource` reads them.
        scorer, source, weights, batch_size: as for `score_dataset`; a scorer that is no name must be picklable.
        output: folder or address of the parts.
        image_root: where relative image paths start, a folder that all workers see; None is the folder of each file.
            Images in an object store must be inside the files: nothing is downloaded one by one.
        columns: columns of the input to keep; None keeps all. Of Parquet, others are not read.
        workers: actors; None is as many as the cluster has room for. 0 scores in this process, without Ray.
        cpus, gpus: of an actor; part of a GPU, such as 0.25, has four actors share it.
        address: of a running cluster, or "auto"; None starts one on this machine for the time of the run, or uses the
            one that this process is connected to.
        part_rows: row groups are taken together until they have as many rows; a file in a store is one part.
        overwrite: discard the parts of another run.
        progress: show a progress bar.
        settings: columns by role, `prefix`, `strip_thinking` and options of the metric, as for `score_dataset`.

    Returns:
        Counts, errors and distributions over all rows.

    Raises:
        DataError: the input cannot be read; if it is some files only, the others have been scored.
        OutputError: the folder belongs to another run, cannot be written, or lacks rows at the end.
        ConfigError: the cluster has no room for the actors, or a worker cannot load the metrics.
        WorkerError: the cluster failed.
    """
    if workers != 0:
        require("ray.data", extra="ray", purpose="scoring with --engine ray")
    for name, value, least in (("workers", 1 if workers is None else workers, 0), ("part_rows", part_rows, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if not cpus > 0 or not gpus >= 0:
        raise ConfigError(f"cpus must be above 0 and gpus at least 0, got {cpus!r} and {gpus!r}")
    # The command line names all settings and a script only some: what is false is left out, so both are one run.
    file_settings = {name: settings[name] for name in _SETTINGS if settings.get(name)}
    options = {name: value for name, value in settings.items() if name not in _SETTINGS}
    metrics = Metrics.of(scorer, source, weights=weights, **options)
    if metrics.knows_aspects:  # else only the checkpoint does
        check_corpus(metrics)
    start = time.perf_counter()
    folder = OutputFolder(os.fspath(output))
    names = folder.names()
    files = find_files(data)
    for file in files:
        if file.path.startswith(folder.path.rstrip("/") + "/"):
            raise OutputError(f"output {folder.address} holds the input {file.path}; choose another folder")
    if files[0].kind == "parquet":
        inputs, types = split_parquet(files, part_rows)
    else:
        inputs, types = files, sample_types(files)
    columns = types.names if columns is None else list(columns)
    for name in columns:
        find_column("column", types.names, name, option="--columns")
    identity = [metrics.identity, file_settings, image_root, part_rows, types.to_string(), columns]
    run = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]
    # All that is checked before a worker starts is checked here; nothing has been written or removed so far.
    fragments = {fragment.part(run): fragment for fragment in inputs}
    parts: dict[str, str] = {}  # {name of a file: the part that it belongs to}
    for name in names:
        part = part_of(name)
        if part is not None:
            parts[name] = part
    if not overwrite and not all(part.endswith(f"-{run}.parquet") for part in parts.values()):
        raise OtherRunError(
            f"{folder.address} holds a run that differs from this one in its metric, checkpoint, settings or "
            "columns. Start afresh with --overwrite (overwrite=True), or choose another output."
        )
    folder.remove(name for name, part in parts.items() if overwrite or part not in fragments)
    summaries = {} if overwrite else _summaries_of_stored(folder, names, fragments)
    missing = [fragment for part, fragment in fragments.items() if part not in summaries]
    if missing:
        folder.check_store()
        job_settings = {**file_settings, "image_root": image_root, "batch_size": batch_size}
        job = (metrics, job_settings, types, columns, folder.address, run)
        made = records_of(job, missing, address=address, workers=workers, cpus=cpus, gpus=gpus)
        _score(folder, fragments, summaries, made, progress)
    return _sum_up(folder, fragments, summaries, checkpoints=metrics.checkpoints, seconds=time.perf_counter() - start)


def _summaries_of_stored(
    folder: OutputFolder, names: Sequence[str], fragments: Mapping[str, Fragment]
) -> dict[str, ScoringSummary]:
    """{part: its summary} of what was made of files in a store.

    Its part is named by the store's version of the file, so the file is not fetched to look at its content, as that of
    one on this disk is looked at. The summary is written after the part.
    """
    summaries = {}
    for part, fragment in fragments.items():
        if {part, summary_of(part)} <= {*names} and is_remote_path(fragment.path):
            summary = ScoringSummary.from_json(folder.summary(part), Path(part))
            summary.already_done = True
            summaries[part] = summary
    return summaries


def _score(
    folder: OutputFolder,
    fragments: Mapping[str, Fragment],
    summaries: dict[str, ScoringSummary],
    made: Generator[dict[str, Any], None, None],
    progress: bool,
) -> None:
    """Adds the summaries of the missing parts as they are made, and checks that the parts are all there."""
    sizes = [fragment.rows for fragment in fragments.values()]
    total = None if None in sizes else sum(filter(None, sizes))
    rows = sum(summary.rows for summary in summaries.values())
    problems: list[str] = []
    try:
        with progress_bar(progress, done=rows, total=total) as advance, closing(made):
            for record in made:
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
        raise ScoringInterrupted(rows + getattr(stop, "rows", 0), Path(folder.address)) from None
    if problems:
        raise DataError(
            f"{len(problems)} of {len(fragments)} fragments could not be scored; what is done stays, and the same "
            f"again tries only the others. The first: {problems[0]}"
        )
    names = folder.names()
    for part, fragment in fragments.items():
        if part not in names or fragment.rows not in (None, summaries[part].rows):
            raise OutputError(f"{folder.address}/{part} is not as it was written; run the same again")


def _sum_up(
    folder: OutputFolder, fragments: Mapping[str, Fragment], summaries: Mapping[str, ScoringSummary], **facts: Any
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
        Path(folder.address),
        already_done=not new_rows,
        new_rows=new_rows,
        resumed_rows=builder.counts["rows"] - new_rows,
        images_decoded=images,
        columns=summary.columns,
        **facts,
    )
