"""Scores and reranks whole data files: streaming, resumable after a kill, one output row for each input row."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reward
from reward.errors import ConfigError, OutputError
from reward.fingerprints import image_stamp
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.registry import MetricSource
from reward.scoring.chunks import scored_chunks
from reward.scoring.columns import KEY_DIGITS, ColumnPlan, find_columns, row_key, row_references, row_task
from reward.scoring.devices import DevicePool, WorkerSetup, cpu_threads, parse_devices, whole_groups
from reward.scoring.image_root import image_root
from reward.scoring.journal import Journal, SavedRows
from reward.scoring.prefetch import ImageReader
from reward.scoring.progress import progress_bar
from reward.scoring.readers import BadRow, Source, open_source
from reward.scoring.results import RankColumns, RowRankColumns, ScoreColumns
from reward.scoring.runs import (
    CHUNK_SECONDS,
    ChunkSize,
    ResumableRun,
    ScoringInterrupted,
    left_out_of_garbage_collection,
    saved_on_ctrl_c,
)
from reward.scoring.several import (
    check_one_number,
    check_options,
    fingerprint_of,
    is_named,
    knows_aspects,
    load,
    options_of,
    reads_images,
    scoring_of,
    shares_of,
    sources_of,
    with_aspects,
)
from reward.scoring.summary import ScoringSummary, SummaryBuilder
from reward.scoring.writers import check_output, write_atomically, write_rows

if TYPE_CHECKING:
    import datasets

__all__ = ["CHUNK_SECONDS", "FIRST_CHUNK", "ScoringInterrupted", "rerank_dataset", "score_dataset"]

logger = logging.getLogger(__name__)

FIRST_CHUNK = 64  # rows; the first figures should come soon


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
    chunk_rows: int = 1024,
    overwrite: bool = False,
    progress: bool = False,
    devices: str | Sequence[str] | None = None,
    **options: Any,
) -> ScoringSummary:
    """Scores every row of a data set and writes a file with the same rows, in the same order, and the scores.

    The output has the columns of the input (of encoded images only the path, if there is one), then one column an
    aspect, `reward`, `truncated` and `error`. A row that cannot be read or scored keeps its place, with null scores
    and a message. Results are saved chunk by chunk in `<output>.partial`; after a kill, the same call goes on there,
    and every row is in the output once. Beside the output, `<output>.summary.json` says how it was made; if it is
    there and nothing changed, the call returns at once. A kept score belongs to its row, to the size and time of change
    of its image's file, to the weights by content (a Hub id by its commit), the code and the settings: if images were
    replaced while a run was stopped, their rows are scored again, and if anything else changed, the call says so.

    Several metrics score side by side: every image is decoded once, and each metric has its columns
    `<metric>_<aspect>`, `<metric>_reward` and `<metric>_truncated`. A row that one of them cannot score keeps the
    scores of the others, and `error` says which failed and why. If the metrics have weights, `reward` is the weighted
    mean of their rewards, null where one of them is.

    A metric that weighs words by a corpus and was loaded without one (CIDEr) takes the references of all rows for it,
    which are read once before scoring.

    Args:
        data: a file, a folder, the name of a data set on the Hub, a `datasets.Dataset` or `DatasetDict`, or what
            `reward.scoring.readers.open_source` gives, which says more and joins annotations.
        scorer: name of a metric, or a scorer. Of a scorer a resumed run checks its `fingerprint`, else its code
            and all that it holds, see `reward.fingerprint_objects.fingerprint_object`. Or a list of several: names,
            with the checkpoint of each if need be, as in `["vela", "clipscore=folder"]`, and scorers.
        output: `.parquet`, `.jsonl`, `.json`, `.csv` or `.tsv` file.
        source: checkpoint of a metric given by name: `"embedded"`, a folder, or a Hub id.
        weights: {aspect: weight} of the reward; None takes the metric's own weights, which are mostly equal. Of several
            metrics {metric: weight}, divided by their sum, which must be above 0; a negative one is a penalty. Their
            aspects are named as their columns are; a metric of which none is named keeps its own weights.
        candidate_column, image_column, references_column: a column, or `column.field` where a column holds objects.
            None finds `candidate` (else cand or caption), `images` or `image` (else file_name, image_path or img) and
            `references` (else refs), see `reward.samples.COLUMN_NAMES`. References are a list, or one string, which may
            write the list as JSON, Python or numpy do. A list of one image is that image. Images are read only for a
            metric that looks at them.
        context_columns: {"question", "task" or "box": column}, see `ColumnPlan.context`.
        image_root: where relative image paths start; None is the folder of the data file or, if the images are there,
            the working folder.
        split: of a data set with several.
        prefix: put before the names of the added columns.
        strip_thinking: score captions without their reasoning (`<think>...</think>`), which the summary counts.
        batch_size: passed to the scorer.
        chunk_rows: rows that are scored and saved at a time, at most.
        overwrite: discard a finished output and an unfinished run.
        progress: show a progress bar.
        devices: a process for each of them, such as `["cuda:0", "cuda:1"]`, or `"auto"`: all GPUs of the machine,
            else the CPU. Rows of one image that follow each other are scored by one process. The metric is then given
            by name, and a script must call this below `if __name__ == "__main__":`. None scores in this process.
        options: passed to the scorer's `from_pretrained` (device, dtype, revision, cache, cache_size).

    Returns:
        Counts, errors by kind and the distribution of each aspect, over all rows.

    Raises:
        DataError: the data cannot be read, is empty, or lacks a column.
        OutputError: the output cannot be written, is there already, or belongs to another run.
        ConfigError, WeightsError: a metric twice, weights of some metrics only, or bad weights.
        WorkerError: the process of a device died twice over the same rows.
        ScoringInterrupted: Ctrl-C.

    Example:
        >>> import json, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = Path(folder) / "captions.jsonl"
        ...     _ = data.write_text('{"caption": "a red star"}\\n{"caption": ""}\\n')
        ...     summary = score_dataset(data, "length", Path(folder) / "scores.jsonl")
        >>> summary.rows, summary.scored, summary.errors
        (2, 1, {'candidate': 1})
    """
    names: dict[str, Any] = {"candidate": candidate_column, "image": image_column, "references": references_column}
    names |= {"context": context_columns, "strip_thinking": strip_thinking}
    settings: dict[str, Any] = {"source": source, "weights": weights, "image_root": image_root, "prefix": prefix}
    settings |= {"devices": devices, "options": options}
    run = _Run("score", data, split, scorer, output, names, settings)
    return run(batch_size=batch_size, chunk_rows=chunk_rows, overwrite=overwrite, progress=progress)


def rerank_dataset(
    data: str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict,
    scorer: str | Scorer | Sequence[str | MetricSource | Scorer],
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    candidates_column: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    group_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    prefix: str = "",
    strip_thinking: bool = False,
    batch_size: int | None = None,
    chunk_rows: int = 256,
    overwrite: bool = False,
    progress: bool = False,
    devices: str | Sequence[str] | None = None,
    **options: Any,
) -> ScoringSummary:
    """Orders the candidates of every row by reward, best first, and writes the rows.

    The output has the columns of the input with `candidates` in order, then `best`, `order` (places in the input),
    `rewards`, one list an aspect, `truncated` and `error`. Candidates that cannot be scored come last; ties keep their
    order. Everything else is as in `score_dataset`.

    Data with one candidate a row keep their rows and their order; the output has the columns of `score_dataset` and
    `rank`, which is 1 for the best candidate of its image. The rows of an image need not follow each other.

    Several metrics order by the weighted mean of their rewards, so that each needs a weight, as in
    `weights={"vela": 0.7, "beitscore": 0.3}`.

    Args: as for `score_dataset`; `candidates_column` (None finds candidates, cands or captions) holds a list of
        captions a row. `group_column` says that each row has one candidate, and holds what those of one image share;
        None takes the image's column, if there is a column for one candidate only.

    Example:
        >>> import json, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = Path(folder) / "candidates.jsonl"
        ...     _ = data.write_text('{"candidates": ["star", "a red star on grass"]}\\n')
        ...     _ = rerank_dataset(data, "length", Path(folder) / "best.jsonl")
        ...     json.loads((Path(folder) / "best.jsonl").read_text())["best"]
        'a red star on grass'
    """
    names = {
        "candidate": candidates_column,
        "image": image_column,
        "references": references_column,
        "group": group_column,
        "strip_thinking": strip_thinking,
    }
    settings: dict[str, Any] = {"source": source, "weights": weights, "image_root": image_root, "prefix": prefix}
    settings |= {"devices": devices, "options": options}
    run = _Run("rerank", data, split, scorer, output, names, settings)
    return run(batch_size=batch_size, chunk_rows=chunk_rows, overwrite=overwrite, progress=progress)


class _Run:
    """One run over a data set; the arguments are checked before a model is loaded."""

    def __init__(
        self,
        task: str,
        data: Any,
        split: str | None,
        scorer: Any,
        output: str | os.PathLike[str],
        names: dict[str, Any],
        settings: dict[str, Any],
    ) -> None:
        chosen = {"weights": settings["weights"], **settings["options"]}
        self.scorer, self.settings = scoring_of(scorer, settings["source"], **chosen), settings
        if not isinstance(settings["prefix"], str):
            raise ConfigError(f"prefix must be a text, got {settings['prefix']!r}")
        for name, value in (("output", output), ("image_root", settings["image_root"] or "")):
            if not isinstance(value, (str, os.PathLike)):
                raise ConfigError(f"{name} must be a path, got {value!r}")
        self.spec: MetricSpec = self.scorer.spec
        if task == "rerank":
            check_one_number(self.spec)
        self.devices = self._check_devices(parse_devices(settings["devices"]))
        check_options(self.scorer, settings["options"])
        if knows_aspects(self.scorer):  # of another checkpoint they are known only when it is loaded
            self.spec.rewards(settings["weights"])
        fields = [name for name in (*names.values(), *(names.get("context") or {}).values()) if isinstance(name, str)]
        self.source: Source = open_source(data, split=split, fields=fields)
        self.plan: ColumnPlan = find_columns(
            self.source.columns, self.spec, **names, ranked=self.source if task == "rerank" else None
        )
        if knows_aspects(self.scorer):
            self._columns()
        image = self.plan.image if reads_images(self.scorer) else None
        self.root = image_root(self.source, image, settings["image_root"])
        self.output = Path(output)
        check_output(self.output, self.source, Path(data) if isinstance(data, (str, os.PathLike)) else None)
        self.images_decoded, self.cache = 0, dict[str, list[int]]()
        self.manifest = self._manifest(task)

    def _check_devices(self, devices: list[str]) -> list[str]:
        """Devices of the processes; empty when this process does all. A single device becomes an option."""
        if devices and self.settings["options"].get("device") is not None:
            raise ConfigError("give device= (--device) or devices= (--devices), not both")
        if devices and not is_named(self.scorer):
            raise ConfigError(
                f"devices= (--devices) loads the metric in each process, but {self.spec.name!r} is a scorer that is "
                "loaded already, or behind a service: give the name of a metric and source="
            )
        if len(devices) > 1 and self.spec.needs_corpus:
            raise ConfigError(
                f"metric {self.spec.name!r} weighs words by the references of all rows, which one process reads: "
                "leave out devices= (--devices)"
            )
        if len(devices) == 1:
            self.settings["options"] = {**self.settings["options"], "device": devices[0]}
        return devices if len(devices) > 1 else []

    def _columns(self) -> RankColumns | ScoreColumns:
        """Makes the new columns; refuses bad weights and names that the input has."""
        self.spec.rewards(self.settings["weights"])
        shared = (self.spec, self.settings["weights"], self.settings["prefix"], self.source.columns)
        if self.plan.many:
            return RankColumns(*shared, self.plan)
        return ScoreColumns(*shared) if self.plan.group is None else RowRankColumns(*shared)

    def _manifest(self, task: str) -> dict[str, Any]:
        """What the results depend on; see `ResumableRun`."""
        weights = self.settings["weights"]
        return {
            "capreward": reward.__version__,
            "task": task,
            "input": self.source.fingerprint(),
            "metric": self.spec.name,
            "source": fingerprint_of(self.scorer),
            **shares_of(self.scorer),
            "options": options_of(self.settings["options"]),
            "weights": None if weights is None else {name: float(weight) for name, weight in weights.items()},
            "columns": [self.plan.caption, self.plan.image, self.plan.references, self.plan.group],
            "context": dict(self.plan.context),
            **({"strip_thinking": True} if self.plan.strip_thinking else {}),
            "image_root": None if self.root == self.source.folder else os.path.abspath(self.root),
            "prefix": self.settings["prefix"],
        }

    def __call__(self, *, batch_size: int | None, chunk_rows: int, overwrite: bool, progress: bool) -> ScoringSummary:
        for name, value in (("batch_size", 1 if batch_size is None else batch_size), ("chunk_rows", chunk_rows)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        run = ResumableRun(self.output, self.manifest, overwrite=overwrite)
        before = run.finished(
            lambda record: (ScoringSummary.from_json(record["summary"], self.output), record.get("images")),
            "(other input, metric or settings); nothing was scored",
        )
        if before is not None:
            done, images = before
            if images is not None and images != self._stamps_digest():
                raise OutputError(
                    f"{self.output} exists already, and images of {self.source.name} were replaced since. Choose "
                    "another output, or replace it with --overwrite (overwrite=True)."
                )
            done.already_done = True
            return done
        with run.journal() as journal:
            start = time.perf_counter()
            saved = SavedRows(journal)
            if saved.has_stamps and (changed := saved.forget_changed(self._stamps())):
                logger.warning("%s: images of %d rows were replaced: they are scored again", self.output, changed)
            resumed = len(saved)
            if resumed < self.source.num_rows:
                with saved_on_ctrl_c(journal):
                    start = self._score(journal, saved, batch_size, chunk_rows, progress)
            else:
                self.spec = with_aspects(self.spec, journal.header["aspects"])
            seconds = time.perf_counter() - start
            with left_out_of_garbage_collection():
                summary = self._write(saved)
            summary.resumed_rows, summary.new_rows, summary.seconds = resumed, len(saved) - resumed, seconds
            run.finish(journal, {"summary": summary.to_json(), "images": self._images})
        return summary

    def _score(
        self, journal: Journal, saved: SavedRows, batch_size: int | None, chunk_rows: int, progress: bool
    ) -> float:
        """Scores the rows that are not saved; returns the time at which the model was loaded."""
        size, first = ChunkSize(FIRST_CHUNK, largest=chunk_rows), saved.first_missing()
        root = self.root
        tasks = (
            row_task(row, self.plan, self.spec, number=number, is_csv=self.source.is_csv, root=root)
            for number, row in enumerate(self.source.rows(self.plan.names, first), start=first)
            if number not in saved
        )
        with ExitStack() as stack:
            start = time.perf_counter()
            if self.devices:
                setup = WorkerSetup(self.scorer, self.settings["options"], root, batch_size, cpu_threads())
                pool = stack.enter_context(DevicePool(self.devices, setup))
                start, self.spec = time.perf_counter(), pool.spec
                outcomes = pool.score(whole_groups(tasks, size))
            else:
                scorer = load(self.scorer, **self.settings["options"])
                start = time.perf_counter()
                scorer = fitted(scorer, self._corpus())
                self.spec = scorer.spec
                reader = ImageReader(root, scorer)
                outcomes = scored_chunks(tasks, scorer, reader, lambda: size.items, batch_size=batch_size)
            # a checkpoint may have other aspects than the metric's own
            journal.describe("aspects", {part.name: list(part.aspects) for part in self.spec.parts})
            self._columns()
            stack.enter_context(left_out_of_garbage_collection())
            advance = stack.enter_context(progress_bar(progress, done=len(saved), total=self.source.num_rows))
            for chunk, outcome in outcomes:
                saved.append(chunk, outcome.results)
                self.images_decoded += outcome.images_decoded
                for kind, counts in outcome.cache.items():
                    before = self.cache.get(kind, [0, 0])
                    self.cache[kind] = [one + more for one, more in zip(before, counts, strict=True)]
                if len(chunk) >= size.items:  # chunks of several processes are under way at the former size
                    size.took(outcome.seconds)
                failed = (isinstance(row, dict) or any(len(item) > 2 for item in row) for row in outcome.results)
                advance(len(chunk), sum(failed))
        return start

    def _stamps(self) -> Iterator[str]:
        """Of the image of each row, as it is now; see `image_stamp`."""
        for row in self.source.rows([self.plan.image] if self.plan.image else []):
            image = row.get(self.plan.image) if self.plan.image and not isinstance(row, BadRow) else None
            yield image_stamp(image, self.root)

    def _stamps_digest(self) -> str:
        return hashlib.sha256("".join(f"{stamp}\n" for stamp in self._stamps()).encode()).hexdigest()

    def _corpus(self) -> Iterator[tuple[str, ...]]:
        """References of every row, also when a run is resumed: a metric such as CIDEr weights words by them."""
        for row in self.source.rows([self.plan.references] if self.plan.references else []):
            yield row_references(row, self.plan)

    def _write(self, saved: SavedRows) -> ScoringSummary:
        builder = SummaryBuilder([*self.spec.aspects, *self.spec.reward_names])
        columns = self._columns()
        stamps = hashlib.sha256()
        if isinstance(columns, RowRankColumns):
            columns.rank((group, result) for _, group, result in saved.in_order())

        def build(rows: list[Any], lines: list[Any]) -> dict[str, list[Any]]:
            for number, (row, (key, _, _)) in enumerate(zip(rows, lines, strict=True), start=builder.rows + 1):
                if row_key(row, self.plan) != key[:KEY_DIGITS]:
                    raise OutputError(
                        f"row {number} of {self.source.name} is not the one that was scored: the data changed "
                        "meanwhile; start afresh with --overwrite (overwrite=True)"
                    )
                stamps.update(key[KEY_DIGITS:].encode() + b"\n")
            if not self.plan.many:
                builder.thinking_cut += self.plan.thinking_cut(
                    row[self.plan.caption] for row in rows if isinstance(row, dict)
                )
            return columns.build(rows, [result for _, _, result in lines], builder)

        rows, types, needs = saved.in_order(), columns.schema(), self.plan.texts
        write_atomically(self.output, lambda path: write_rows(path, self.source, rows, build, types, needs))
        self._images = stamps.hexdigest() if saved.has_stamps else None
        return builder.summary(
            self.output,
            images_decoded=self.images_decoded,
            cache=self.cache,
            devices=self.devices,
            columns={
                "candidate": self.plan.caption,
                "image": self.plan.image,
                "references": self.plan.references,
                **({} if self.plan.group is None else {"group": self.plan.group}),
            },
            checkpoints=sources_of(self.scorer),
            image_root=os.path.relpath(self.root, self.output.parent),
            groups=columns.groups if isinstance(columns, RowRankColumns) else 0,
        )
