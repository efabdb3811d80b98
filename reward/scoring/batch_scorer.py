"""BatchScorer: scores a batch of columns, wherever it comes from: Ray, Daft, `datasets.map`, or a loop of your own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import CheckpointError, ConfigError, DataError
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.scoring.ahead import ImageReader, decoded_chunks
from reward.scoring.columns import ColumnPlan, RowTask, find_columns, row_task
from reward.scoring.parts import RowsDigest
from reward.scoring.readers import BadRow
from reward.scoring.results import ScoreColumns, Scored, score_rows
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder
from reward.values import values_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchScorer"]

# of this process, shared by all copies of a BatchScorer, each with its fingerprint
_scorers: dict[str, tuple[str, Metrics]] = {}
_loading = threading.Lock()


class BatchScorer:
    """Scores batches of columns: a picklable function for engines that hand batches to workers.

    It takes a `pyarrow.Table`, or a mapping of names to numpy arrays or to lists, and gives the same kind with the
    columns that `score_dataset` adds: one an aspect, `reward`, `truncated` and `error`. Equal rows get equal scores
    there and here. A row that cannot be scored has null scores (NaN in numpy arrays) and a message in `error`.

    The scorer is loaded at the first batch, once in a process, whatever number of copies are unpickled there. Rows of
    one image in a batch are scored together, wherever they stand, so that the image is decoded and encoded once.

    It belongs to one checkpoint: once the files of that were changed, say by another training, it refuses to score or
    to be pickled, and a new BatchScorer loads the new ones. Its pickled state names weights and code, so that
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
        fetch: called with an image that is to be decoded and with `image_root`, gives what to decode in its place; such
            as `integrations.ray_data.fetching.fetched`, which reads addresses. Whoever writes the data then decides
            which addresses this machine asks.
        options: passed to the scorer's `from_pretrained` (device, dtype, revision).

    Raises:
        ConfigError: the metric weighs words by a corpus, or an argument is of the wrong type.
        CheckpointError: by a call: the checkpoint was changed since.
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
        scorer: str | Scorer | Sequence[str | MetricSource | Scorer] | Metrics,
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
        fetch: Callable[[Any, str | os.PathLike[str]], Any] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(prefix, str):
            raise ConfigError(f"prefix must be a text, got {prefix!r}")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
        self.given = Metrics.of(scorer, source, weights=weights, **options)
        self.weights, self.options = weights, options
        self.names = (candidate_column, image_column, references_column)
        self.image_root, self.prefix, self.batch_size = image_root, prefix, batch_size
        self.strip_thinking = strip_thinking
        self.added_only, self.fetch = added_only, fetch
        self.images_decoded = 0
        self._fingerprint: str | None = None  # of what it scores with, once it was pickled or has scored
        self._stamp: str | None = None  # of the files, on this machine
        if self.given.knows_aspects:  # else only the checkpoint does
            self.given.weigh(weights)
            if self.given is not scorer:  # who gives `Metrics` fits them
                _check_corpus(self.given)

    def plan(self, columns: Sequence[str]) -> ColumnPlan:
        """Which of the columns are read.

        Raises:
            DataError: a column is missing or could be one of several.
        """
        candidate, image, references = self.names
        return find_columns(
            columns,
            self.given.specs,
            candidate=candidate,
            image=image,
            references=references,
            strip_thinking=self.strip_thinking,
        )

    def loaded(self) -> Metrics:
        """The scorers; loaded if this process does not have them yet.

        Raises:
            CheckpointError, ConfigError: it cannot be loaded, or needs a corpus.
        """
        if not self.given.is_named:
            self.given = loaded = self.given.load(**self.options)
            return loaded
        with _loading:
            fingerprint = self._named()
            key = repr((self.given, sorted(self.options.items())))
            if key not in _scorers or _scorers[key][0] != fingerprint:
                _scorers.pop(key, None)  # that of older files
                loaded = self.given.load(**self.options)
                _check_corpus(loaded)
                _scorers[key] = fingerprint, loaded
            return _scorers[key][1]

    def belong_to(self, fingerprint: Any) -> BatchScorer:
        """Has it refuse any metric by name that is not this one; see `Metrics.fingerprint`."""
        self._fingerprint = repr(fingerprint)
        return self

    def __getstate__(self) -> dict[str, Any]:
        named = self._named() if self.given.is_named else repr(self.given.fingerprint)
        return {**vars(self), "images_decoded": 0, "_fingerprint": named, "_stamp": None}

    def _named(self) -> str:
        """Fingerprint of what it scores with, which stays the same as long as it lives.

        Raises:
            CheckpointError: the files of the checkpoint are others now.
        """
        stamp = self.given.stamp
        if self._stamp is None or self._fingerprint is None:
            now = repr(self.given.fingerprint)
            is_same = self._fingerprint in (None, now)
            self._stamp, self._fingerprint = stamp, self._fingerprint or now
        else:
            is_same = self._stamp == stamp
        if not is_same:
            raise CheckpointError(
                f"the checkpoint of {self.given.name!r} is not the one that this BatchScorer was made for: its files "
                "are others (or what its name stands for). Make a new BatchScorer"
            )
        return self._fingerprint

    def columns(self, taken: Sequence[str]) -> ScoreColumns:
        """The columns that are added to rows with the columns `taken`; loads the scorer.

        Raises:
            DataError: a column of that name is there already.
            WeightsError: the checkpoint does not have an aspect that is weighed.
        """
        return ScoreColumns(self.loaded(), self.weights, self.prefix, taken)

    def scored(self, tasks: Iterable[RowTask], reader: ImageReader, part_rows: int = 0) -> Iterator[Scored]:
        """Rows and what became of them, chunk by chunk; the images of the next chunk are decoded meanwhile.

        Args:
            tasks: rows; consumed in another thread.
            reader: decodes the images.
            part_rows: see `decoded_chunks`.
        """
        metrics = self.loaded()
        for chunk in decoded_chunks(tasks, reader, part_rows):
            scored = score_rows(chunk, metrics, self.batch_size)
            for task in chunk:
                task.image = None  # which takes far more memory than all else
            yield scored

    def score_rows(
        self,
        rows: Sequence[Mapping[str, Any] | BadRow],
        columns: Sequence[str],
        summary: SummaryBuilder | None = None,
        digest: RowsDigest | None = None,
    ) -> dict[str, list[Any]]:
        """The added columns of some rows, in their order.

        Args:
            rows: each with at least the columns of `plan(columns)`.
            columns: all columns there are.
            summary: counts the rows; made for the aspects of the loaded scorers.
            digest: to which the rows are added.
        """
        metrics, plan, root = self.loaded(), self.plan(columns), self.image_root or ""
        tasks = [row_task(row, plan, metrics.specs, number=number, root=root) for number, row in enumerate(rows)]
        if digest is not None:
            digest.add(tasks)
        reader = ImageReader(root, metrics, self.fetch)
        chunks = list(self.scored(_by_image(tasks), reader)) or [score_rows([], metrics, None)]
        self.images_decoded += reader.decoded
        summary = summary or SummaryBuilder(metrics.numbers)
        return self.columns(columns).build(Scored.joined(chunks).by_row(), summary)

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
        if isinstance(batch, Mapping):
            return self._score_mapping(batch)
        import pyarrow as pa

        if isinstance(batch, pa.Table):
            names = self.plan(batch.column_names).names
            added = self.score_rows(batch.select(names).to_pylist(), batch.column_names)
            return self.with_columns(batch.select([]) if self.added_only else batch, added)
        raise DataError(
            f"a batch must be a pyarrow.Table, or a dict of numpy arrays or of lists, got {type(batch).__name__}; with "
            'Ray, choose map_batches(batch_format="pyarrow")'
        )

    def with_columns(self, table: pa.Table, added: Mapping[str, list[Any]]) -> pa.Table:
        """A table with added columns of their types."""
        import pyarrow as pa

        from reward.scoring.schemas import arrow_type

        for name, kind in self.columns(table.column_names).types.items():
            table = table.append_column(pa.field(name, arrow_type(kind)), pa.array(added[name], arrow_type(kind)))
        return table

    def _score_mapping(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        columns = list(batch)
        plan = self.plan(columns)
        # only the columns that are read: `datasets` decodes a column when it is looked at
        read = {name: _values(batch[name], name) for name in plan.names}
        if len({len(values) for values in read.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in read.items())
            raise DataError(f"the columns of a batch must be of one length: {lengths}")
        rows = [dict(zip(read, values, strict=True)) for values in zip(*read.values(), strict=True)]
        added: Mapping[str, Any] = self.score_rows(rows, columns)
        if isinstance(batch[plan.caption], np.ndarray):
            kinds = {"float64": np.float64, "bool_": np.bool_}
            types = self.columns(columns).types
            added = {name: np.array(values, kinds.get(types[name], np.object_)) for name, values in added.items()}
        return {**({} if self.added_only else batch), **added}


def _check_corpus(metrics: Metrics) -> None:
    if metrics.needs_corpus:
        raise ConfigError(
            f"metric {metrics.name!r} weighs words by a corpus, which one batch is not: fit it to all references first "
            "(scorer.fit), save it (save_pretrained), and give that folder as source"
        )


def _by_image(tasks: Iterable[RowTask]) -> list[RowTask]:
    """The rows of an image behind its first one."""
    first: dict[str, int] = {}
    return sorted(
        tasks, key=lambda task: task.row if task.image_key is None else first.setdefault(task.image_key, task.row)
    )


def _values(column: Any, name: str) -> list[Any]:
    """The rows of a column; lists that engines give as arrays become lists again, arrays of pixels stay."""
    if isinstance(column, np.ndarray) and column.ndim == 1:
        column = column.tolist()
    return [
        value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind in "OUS" else value
        for value in values_of(column, f"column {name!r}")
    ]
