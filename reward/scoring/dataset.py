"""Scores and reranks whole data files: streaming, resumable after a kill, one output row for each input row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.scoring.file_run import FileRun
from reward.scoring.summary import ScoringSummary, Selection

if TYPE_CHECKING:
    import datasets


def score_dataset(
    data: str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict,
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
    split: str | None = None,
    prefix: str = "",
    strip_thinking: bool = False,
    batch_size: int | None = None,
    part_rows: int | None = None,
    top: str | int | None = None,
    min_reward: float | None = None,
    dedupe: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    devices: str | Sequence[str] | None = None,
    drop_images: bool = False,
    **options: Any,
) -> ScoringSummary:
    """Scores every row of a data set and writes a file with the same rows, in the same order, and the scores.

    The output has the columns of the input, every cell as it was written, then one column an aspect, `reward`,
    `truncated` and `error`. A row that cannot be read or scored keeps its place, with null scores and a message. Rows
    are scored in parts, each of which is a file in the folder `<output>.partial` once it is done; after a kill or
    Ctrl-C, the same call goes on with what is missing, and every row is in the output once. Beside the output,
    `<output>.summary.json` says how it was made; if it is there and nothing changed, the call returns at once.
    A part belongs to its rows, to the stamps of their images' files (`file_stamp`), to the weights by content (a Hub
    id by its commit), the code that computes and the settings: if rows or images were changed while a run was stopped,
    their parts are scored again, and if anything else changed, the call says so.

    Several metrics score side by side: every image is decoded once, and each metric has its columns
    `<metric>_<aspect>`, `<metric>_reward` and `<metric>_truncated`. A row that one of them cannot score keeps the
    scores of the others, and `error` says which failed and why. If the metrics have weights, `reward` is the weighted
    mean of their rewards, null where one of them is.

    A metric that weighs words by a corpus and was loaded without one (CIDEr) takes the references of all rows for it,
    which are read once before scoring.

    Args:
        data: a file, a folder, the name of a data set on the Hub, a `datasets.Dataset` or `DatasetDict`, or what
            `reward.scoring.readers.open_source` gives, which says more and joins annotations.
        scorer: name of a metric, or a scorer. Of a scorer a resumed run checks its `fingerprint`, else what
            `reward.checkpoints.fingerprint_objects.fingerprint_object` says. Or a list of several: names, with the
            checkpoint of each if need be, as in `["vela", "clipscore=folder"]`, and scorers.
        output: `.parquet`, `.jsonl`, `.json`, `.csv` or `.tsv` file.
        source: checkpoint of a metric given by name: `"embedded"`, a folder, or a Hub id.
        weights: {aspect: weight} of the reward; None takes the metric's own weights, which are mostly equal. Of several
            metrics {metric: weight}, divided by their sum, which must be above 0; a negative one is a penalty. Their
            aspects are named as their columns are; a metric of which none is named keeps its own weights.
        candidate_column, image_column, references_column: None finds the names of
            `reward.data.column_names.COLUMN_NAMES`. References are a list, or one string, which may write the
            list as JSON, Python or numpy do. A list of one image is that image. Images are read only for a metric that
            looks at them.
        context_columns: {"question", "task" or "box": column}, see `ColumnPlan.context`.
        image_root: where relative image paths start; None is the folder of the data file or, if the images are there,
            the working folder.
        split: of a data set with several.
        prefix: put before the names of the added columns.
        strip_thinking: score the captions in what a model wrote, see `reward.data.written_captions.caption_in`; the
            summary counts those that differ. The column itself is written as it is.
        batch_size: passed to the scorer.
        part_rows: rows that are scored and saved at a time, at most; None takes 64 for metrics that ask a judge,
            whose answers are kept in any case, and 512 for others, or fewer, so that each of several devices has
            some. After the first 64, they are as few as take a minute: so much a kill can cost.
        top, min_reward, dedupe: which rows are written, see `reward.scoring.summary.Selection`; the others are scored
            all the same, and the summary is about all.
        overwrite: discard a finished output and an unfinished run.
        progress: show a progress bar.
        devices: a process for each of them, such as `["cuda:0", "cuda:1"]`, or `"auto"`: all GPUs of the machine,
            else the CPU. Rows of one image that follow each other are scored by one process. The metric is then given
            by name, and a script must call this below `if __name__ == "__main__":`. None scores in this process.
        drop_images: leave the images that Parquet files and data sets hold out of the output, but for their paths. Else
            they stay, in JSON and CSV as data URLs; other bytes stay there in base64.
        options: passed to the scorer's `from_pretrained` (device, dtype, revision, cache, cache_size).

    Returns:
        Counts, errors by kind and the distribution of each aspect, over all rows.

    Raises:
        DataError: the data cannot be read, is empty, or lacks a column.
        OutputError: the output cannot be written, is there already, or belongs to another run.
        ConfigError, WeightsError: a metric twice, weights of some metrics only, or bad weights.
        WorkerError: the process of a device died.
        ScoringInterrupted: Ctrl-C.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = Path(folder) / "captions.jsonl"
        ...     _ = data.write_text('{"caption": "a red star"}\\n{"caption": null}\\n')
        ...     summary = score_dataset(data, "length", Path(folder) / "scores.jsonl")
        >>> summary.rows, summary.scored, summary.errors
        (2, 1, {'candidate': 1})
    """
    columns = {"candidate": candidate_column, "image": image_column, "references": references_column}
    run = FileRun(
        data,
        scorer,
        output,
        {**columns, "context": context_columns, "strip_thinking": strip_thinking},
        Selection(top, min_reward, dedupe),
        source=source,
        weights=weights,
        image_root=image_root,
        split=split,
        prefix=prefix,
        batch_size=batch_size,
        part_rows=part_rows,
        devices=devices,
        drop_images=drop_images,
        **options,
    )
    return run(overwrite=overwrite, progress=progress)


def rerank_dataset(
    data: str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict,
    scorer: str | Scorer | Sequence[str | MetricSource | Scorer],
    output: str | os.PathLike[str],
    *,
    candidates_column: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    group_column: str | None = None,
    strip_thinking: bool = False,
    top: str | int | None = None,
    min_reward: float | None = None,
    dedupe: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> ScoringSummary:
    """Orders the candidates of every row by reward, best first, and writes the rows.

    The output has the columns of the input with `candidates` in order, then `best`, `order` (places in the input),
    `rewards`, one list an aspect, `truncated` and `error`. Candidates that cannot be scored come last; ties keep their
    order. Everything else is as in `score_dataset`.

    Data with one candidate a row keep their rows and their order; the output has the columns of `score_dataset` and
    `rank`, which is 1 for the best candidate of its image. The rows of an image need not follow each other.

    Several metrics order by the weighted mean of their rewards, so that each needs a weight, as in
    `weights={"vela": 0.7, "beitscore": 0.3}`.

    Args:
        data, scorer, output, image_column, references_column, strip_thinking, top, min_reward, dedupe, overwrite,
            progress: as for `score_dataset`.
        candidates_column: holds a list of captions a row; None finds candidates, cands or captions.
        group_column: says that each row has one candidate, and holds what those of one image share; None takes the
            image's column, if there is a column for one candidate only.
        settings: all others of `score_dataset`.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = Path(folder) / "candidates.jsonl"
        ...     _ = data.write_text('{"candidates": ["star", "a red star on grass"]}\\n')
        ...     _ = rerank_dataset(data, "length", Path(folder) / "best.jsonl")
        ...     json.loads((Path(folder) / "best.jsonl").read_text())["best"]
        'a red star on grass'
    """
    columns: dict[str, Any] = {"candidate": candidates_column, "image": image_column, "references": references_column}
    columns |= {"group": group_column, "strip_thinking": strip_thinking}
    run = FileRun(data, scorer, output, columns, Selection(top, min_reward, dedupe), is_ranked=True, **settings)
    return run(overwrite=overwrite, progress=progress)
