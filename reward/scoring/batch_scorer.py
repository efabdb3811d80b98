"""BatchScorer: scores a batch of columns, wherever it comes from: Ray, Daft, `datasets.map`, or a loop of your own."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reward.data.cells import to_list
from reward.errors import ConfigError, DataError
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.scoring.columns import ColumnPlan, find_columns
from reward.scoring.job import PictureReader, decoded_chunks
from reward.scoring.results import AddedColumns, fill_rewards
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder

_CHUNK_ROWS = 512
# of this process, shared by all copies of a BatchScorer, each with its fingerprint
_loaded: dict[str, tuple[str, Metrics]] = {}
_loading = threading.Lock()


class LoadedOnce(Metrics):
    """Metrics that a process loads once, whatever number of copies are unpickled in it."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics.parts, metrics.weights, metrics.options)
        self.made_for = metrics.made_for

    def load(self, **options: Any) -> Metrics:
        """See `Metrics.load`; refuses checkpoints whose files are others than when it was first loaded or pickled."""
        if not self.is_named:
            return super().load(**options)
        with _loading:
            fingerprint, key = self.stay(), repr((self.parts, self.weights, self.options, options))
            if key not in _loaded or _loaded[key][0] != fingerprint:
                _loaded.pop(key, None)  # that of older files
                metrics = super().load(**options)
                check_corpus(metrics)
                _loaded[key] = fingerprint, metrics
            return _loaded[key][1]


class BatchScorer:
    """Scores batches of columns: a picklable function for engines that hand batches to workers.

    It takes a `pyarrow.Table`, or a mapping of names to numpy arrays or to lists, and gives the same kind with the
    columns that `score_dataset` adds: one an aspect, `reward`, `truncated` and `error`. Equal rows get equal scores
    there and here. A row that cannot be scored has null scores (NaN in numpy arrays) and a message in `error`.

    The scorer is loaded at the first batch, once in a process, whatever number of copies are unpickled there. Rows of
    one image in a batch are scored together, wherever they stand, so that the image is decoded and encoded once.

    It belongs to one checkpoint: once the files of that were changed, say by another training, it refuses to be loaded
    or pickled, and a new BatchScorer loads the new ones. Its pickled state names weights and code, so that
    `datasets.map` finds kept scores only while these are the same.

    Args:
        scorer: name of a metric, or a scorer, which is then pickled with all it holds; or a list of several, see
            `score_dataset`.
        source: checkpoint of a metric given by name: `"embedded"`, a folder, or a Hub id.
        weights: {aspect: weight} of the reward; None takes the metric's own weights, which are mostly equal.
        candidate_column, image_column, references_column, strip_thinking: see `score_dataset`.
        image_root: where relative image paths start; None is the current folder.
        prefix: put before the names of the added columns.
        batch_size: passed to the scorer.
        added_only: return only the added columns, as `datasets.map` and Daft want them.
        options: passed to the scorer's `from_pretrained` (device, dtype, revision).

    Raises:
        ConfigError: the metric weighs words by a corpus, or an argument is of the wrong type.
        CheckpointError: by the first call: the checkpoint was changed since.
        WeightsError: bad weights.

    Example:
        >>> import numpy as np
        >>> scorer = BatchScorer("length", added_only=True)
        >>> scorer({"caption": np.array(["a red star", ""])})["length"]
        array([ 3., nan])
        >>> scorer({"caption": ["a red star", ""]})["error"]
        [None, 'candidate is empty: a caption needs at least one visible character']
    """

    def __init__(
        self,
        scorer: str | Scorer | Sequence[str | MetricSource | Scorer],
        source: str | os.PathLike[str] = "embedded",
        *,
        weights: Mapping[str, float] | None = None,
        candidate_column: str | None = None,
        image_column: str | None = None,
        references_column: str | None = None,
        image_root: str | os.PathLike[str] | None = None,
        prefix: str = "",
        strip_thinking: bool = False,
        batch_size: int | None = None,
        added_only: bool = False,
        **options: Any,
    ) -> None:
        self.given = LoadedOnce(Metrics.of(scorer, source, weights=weights, **options))
        self.names: dict[str, Any] = {
            "candidate": candidate_column,
            "image": image_column,
            "references": references_column,
            "strip_thinking": strip_thinking,
        }
        self.image_root, self.prefix, self.batch_size = image_root, prefix, batch_size
        self.added_only = added_only
        self.images_decoded = 0
        self._metrics: Metrics | None = None  # loaded
        if self.given.knows_aspects:  # else only the checkpoint does
            check_corpus(self.given)

    def loaded(self) -> Metrics:
        """The scorers; loaded if this process does not have them yet."""
        if self._metrics is None:
            self._metrics = self.given.load()
        return self._metrics

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "images_decoded": 0, "_metrics": None}

    def __call__(self, batch: Any) -> Any:
        """Scores a batch.

        Args:
            batch: `pyarrow.Table`, or {column: numpy array or list}, all of one length.

        Returns:
            The same kind, with the added columns: float64, bool (`truncated`) and text (`error`).

        Raises:
            DataError: a column is missing, or the batch is of another kind.
            InvalidSampleError: a column that is read is no list.
        """
        import pyarrow as pa

        from reward.scoring.schemas import arrow_type

        if not isinstance(batch, (Mapping, pa.Table)):
            raise DataError(
                f"a batch must be a pyarrow.Table, or a dict of numpy arrays or of lists, got {type(batch).__name__}; "
                'with Ray, choose map_batches(batch_format="pyarrow")'
            )
        columns = list(batch) if isinstance(batch, Mapping) else batch.column_names
        plan = find_columns(columns, self.given.specs, **self.names)
        # only the columns that are read: `datasets` decodes a column when it is looked at
        cells = {name: _values(batch[name], name) for name in plan.names}
        if len({len(values) for values in cells.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in cells.items())
            raise DataError(f"the columns of a batch must be of one length: {lengths}")
        rows = [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]
        added = AddedColumns(self.loaded(), self.prefix, columns)
        scores, types = self._scores(rows, plan, added), added.types
        if isinstance(batch, pa.Table):
            table = batch.select([]) if self.added_only else batch
            for name, values in scores.items():
                table = table.append_column(name, pa.array(values, arrow_type(types[name])))
            return table
        result = {} if self.added_only else dict(batch)
        kinds = {"float64": np.float64, "bool_": np.bool_}
        for name, values in scores.items():
            is_array = isinstance(batch[plan.caption], np.ndarray)
            result[name] = np.array(values, kinds.get(types[name], np.object_)) if is_array else values
        return result

    def _scores(self, rows: Sequence[Mapping[str, Any]], plan: ColumnPlan, added: AddedColumns) -> dict[str, list[Any]]:
        """The added columns of some rows, in their order."""
        root, summary = self.image_root or "", SummaryBuilder()
        tasks = [plan.task(row, number, root) for number, row in enumerate(rows)]
        first_rows: dict[str, int] = {}
        for task in tasks:
            first_rows.setdefault(task.image_key or f"row {task.row}", task.row)
        # Rows of one image follow each other, where the first of them stands.
        tasks.sort(key=lambda task: first_rows[task.image_key or f"row {task.row}"])
        order = np.argsort([task.row for task in tasks])
        columns: dict[str, list[Any]] = {name: [] for name in added.types}
        for chunk, decoded in decoded_chunks([tasks], PictureReader(added.metrics, root), _CHUNK_ROWS):
            for name, values in added.build(chunk, self.batch_size, summary).items():
                columns[name] += values
            self.images_decoded += decoded
            for task in chunk:
                task.image = None  # which takes far more memory than all else
        columns = {name: [values[position] for position in order] for name, values in columns.items()}
        fill_rewards(columns, added.rewards, self.prefix, summary)
        return columns


def check_corpus(metrics: Metrics) -> None:
    """Refuses metrics that would weigh words by the references of a few rows alone."""
    if metrics.needs_corpus:
        raise ConfigError(
            f"metric {metrics.name!r} weighs words by a corpus, which one batch is not: fit it to all references first "
            "(scorer.fit), save it (save_pretrained), and give that folder as source"
        )


def _values(column: Any, name: str) -> list[Any]:
    """The rows of a column; lists that engines give as arrays become lists again, arrays of pixels stay."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    if isinstance(column, np.ndarray) and column.ndim == 1:
        column = column.tolist()
    return [
        value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind in "OUS" else value
        for value in to_list(column, f"column {name!r}")
    ]
