"""Scores and reranks whole data files: streaming, resumable after a kill, one output row for each input row."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reward
from reward.errors import ConfigError, OutputError
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.scoring.batch_scorer import BatchScorer
from reward.scoring.columns import find_columns, picture_of, row_references
from reward.scoring.devices import DevicePool, parse_devices
from reward.scoring.image_root import image_root
from reward.scoring.job import Job, Progress
from reward.scoring.joined import Joined, PictureDigests
from reward.scoring.parts import PartFolder, RowsDigest
from reward.scoring.progress import progress_bar
from reward.scoring.readers import open_source
from reward.scoring.results import ranks
from reward.scoring.runs import FEWEST_ROWS, ResumableRun, ScoringInterrupted, left_out_of_garbage_collection
from reward.scoring.several import Metrics, options_of, reads_images
from reward.scoring.summary import ScoringSummary, SummaryBuilder
from reward.scoring.writers import check_output, write_atomically, write_rows

if TYPE_CHECKING:
    import datasets

__all__ = ["ScoringInterrupted", "rerank_dataset", "score_dataset"]


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
    overwrite: bool = False,
    progress: bool = False,
    devices: str | Sequence[str] | None = None,
    **options: Any,
) -> ScoringSummary:
    """Scores every row of a data set and writes a file with the same rows, in the same order, and the scores.

    The output has the columns of the input (of encoded images only the path, if there is one), then one column an
    aspect, `reward`, `truncated` and `error`. A row that cannot be read or scored keeps its place, with null scores
    and a message. Rows are scored in parts, each of which is a file in the folder `<output>.partial` once it is done;
    after a kill, the same call goes on with the parts that are missing, and every row is in the output once. Beside the
    output, `<output>.summary.json` says how it was made; if it is there and nothing changed, the call returns at once.
    A part belongs to its rows, to the size and time of change of their images' files, to the weights by content (a Hub
    id by its commit), the code and the settings: if rows or images were changed while a run was stopped, their parts
    are scored again, and if anything else changed, the call says so.

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
        part_rows: rows of a part, which is what a kill can cost; None takes 64 for metrics that ask a judge, whose
            answers are kept in any case, and 8,192 for others, or fewer, so that each of several devices has some.
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
    return run(batch_size=batch_size, part_rows=part_rows, overwrite=overwrite, progress=progress)


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
    part_rows: int | None = None,
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
    return run(batch_size=batch_size, part_rows=part_rows, overwrite=overwrite, progress=progress)


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
        self.metrics, self.settings = Metrics.of(scorer, settings["source"], **chosen), settings
        if not isinstance(settings["prefix"], str):
            raise ConfigError(f"prefix must be a text, got {settings['prefix']!r}")
        for name, value in (("output", output), ("image_root", settings["image_root"] or "")):
            if not isinstance(value, (str, os.PathLike)):
                raise ConfigError(f"{name} must be a path, got {value!r}")
        if task == "rerank":
            self.metrics.check_one_number()
        self.devices = self._check_devices(parse_devices(settings["devices"]))
        self.metrics.check_options(settings["options"])
        if self.metrics.knows_aspects:  # of another checkpoint they are known only when it is loaded
            self.metrics.weigh(settings["weights"])
        fields = [name for name in (*names.values(), *(names.get("context") or {}).values()) if isinstance(name, str)]
        self.source = open_source(data, split=split, fields=fields)
        self.plan = find_columns(
            self.source.columns, self.metrics.specs, **names, ranked=self.source if task == "rerank" else None
        )
        if self.metrics.knows_aspects:
            self._job(self.metrics).columns(self.metrics)
        image = self.plan.image if any(map(reads_images, self.metrics.scorers)) else None
        self.root = image_root(self.source, image, settings["image_root"])
        self.output = Path(output)
        check_output(self.output, Path(data) if isinstance(data, (str, os.PathLike)) else None)
        self.manifest = self._manifest(task)

    def _check_devices(self, devices: list[str]) -> list[str]:
        """Devices of the processes; empty when this process does all. A single device becomes an option."""
        if devices and self.settings["options"].get("device") is not None:
            raise ConfigError("give device= (--device) or devices= (--devices), not both")
        if devices and not self.metrics.is_named:
            raise ConfigError(
                f"devices= (--devices) loads the metric in each process, but {self.metrics.name!r} is a scorer that is "
                "loaded already, or behind a service: give the name of a metric and source="
            )
        if len(devices) > 1 and self.metrics.needs_corpus:
            raise ConfigError(
                f"metric {self.metrics.name!r} weighs words by the references of all rows, which one process reads: "
                "leave out devices= (--devices)"
            )
        if len(devices) == 1:
            self.settings["options"] = {**self.settings["options"], "device": devices[0]}
        return devices if len(devices) > 1 else []

    def _manifest(self, task: str) -> dict[str, Any]:
        """What the results depend on; see `ResumableRun`."""
        weights = self.settings["weights"]
        content = self.source.fingerprint()
        return {
            "capreward": reward.__version__,
            "task": task,
            "input": content,
            **self.metrics.identity,
            "options": options_of(self.settings["options"]),
            "weights": None if weights is None else {name: float(weight) for name, weight in weights.items()},
            "columns": [self.plan.caption, self.plan.image, self.plan.references, self.plan.group],
            "context": dict(self.plan.context),
            **({"strip_thinking": True} if self.plan.strip_thinking else {}),
            **({"corpus": content} if self.metrics.needs_corpus else {}),
            "image_root": None if self.root == self.source.folder else os.path.abspath(self.root),
            "prefix": self.settings["prefix"],
        }

    def __call__(
        self, *, batch_size: int | None, part_rows: int | None, overwrite: bool, progress: bool
    ) -> ScoringSummary:
        for name, value in (("batch_size", batch_size), ("part_rows", part_rows)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        run = ResumableRun(self.output, self.manifest, overwrite=overwrite)
        before = run.finished(
            lambda record: (ScoringSummary.from_json(record["summary"], self.output), record["parts"]),
            "(other input, metric or settings); nothing was scored",
        )
        if before is not None:
            done, parts = before
            if parts["images"] is not None and parts["images"] != self._images(parts["rows"]):
                raise OutputError(
                    f"{self.output} exists already, and images of {self.source.name} were replaced since. Choose "
                    "another output, or replace it with --overwrite (overwrite=True)."
                )
            done.already_done = True
            return done
        rows = part_rows or self._part_rows()
        folder = PartFolder(run.partial, self.manifest, rows, overwrite=overwrite)
        try:
            summary, images = self._make(folder, batch_size, progress)
            run.finish({"summary": summary.to_json(), "parts": {"rows": folder.part_rows, "images": images}})
            folder.delete()
        finally:
            folder.close()
        return summary

    def _part_rows(self) -> int:
        """As many as the metrics want, but no device should be without a part, or the last to work for long."""
        if not self.devices:
            return self.metrics.part_rows
        share = -(-self.source.num_rows // (8 * len(self.devices)))
        return min(self.metrics.part_rows, max(FEWEST_ROWS, share))

    def _job(self, metrics: Metrics, folder: PartFolder | None = None, batch_size: int | None = None) -> Job:
        settings = {name: self.settings[name] for name in ("weights", "prefix")}
        options = {**self.settings["options"], "image_root": getattr(self, "root", None)}
        scorer = BatchScorer(metrics, batch_size=batch_size, **settings, **options)
        if folder is None:
            return Job(self.source, self.plan, scorer, Path(), "", 1)
        return Job(self.source, self.plan, scorer, folder.path, folder.name, folder.part_rows)

    def _make(self, folder: PartFolder, batch_size: int | None, progress: bool) -> tuple[ScoringSummary, str | None]:
        """Makes the parts that are missing, and the output of all; gives the digest of the images, too."""
        job = self._job(self.metrics, folder, batch_size)
        parts = job.done(folder)
        resumed, done = sum(part.rows for part in parts.values()), Progress(0, 0, 0)
        seconds = 0.0
        if missing := [number for number in job.numbers if number not in parts]:
            seconds = self._score(job, folder, missing, done, resumed, progress)
        start = time.perf_counter()
        with left_out_of_garbage_collection():
            summary, images = self._write(job, folder)
        summary.resumed_rows, summary.new_rows = resumed, done.rows
        summary.images_decoded, summary.cache, summary.devices = done.images, done.cache, self.devices
        summary.seconds = seconds + time.perf_counter() - start
        return summary, images

    def _score(
        self, job: Job, folder: PartFolder, missing: list[int], done: Progress, resumed: int, progress: bool
    ) -> float:
        """Makes parts, and adds up in `done` what that took; gives the seconds since the model was loaded."""
        saved, start = resumed, time.perf_counter()
        try:
            with ExitStack() as stack:
                if self.devices:
                    pool = stack.enter_context(DevicePool(self.devices, job))
                    facts, work, start = pool.facts, pool.work, time.perf_counter()
                else:
                    loaded = self.metrics.load(**self.settings["options"])
                    start = time.perf_counter()
                    job = self._job(loaded.fit(self._corpus()), folder, job.scorer.batch_size)
                    facts, work = job.facts(), job.work
                for name, value in facts.items():  # a checkpoint may have other aspects than the metric's own
                    folder.describe(name, value)
                stack.enter_context(left_out_of_garbage_collection())
                advance = stack.enter_context(progress_bar(progress, done=resumed, total=self.source.num_rows))
                for step in work(missing):
                    done.rows, done.images = done.rows + step.rows, done.images + step.images
                    for kind, counts in step.cache.items():
                        before = done.cache.get(kind, [0, 0])
                        done.cache[kind] = [one + more for one, more in zip(before, counts, strict=True)]
                    saved += 0 if step.part is None else job.rows_of(step.part)
                    advance(step.rows, step.failed)
        except KeyboardInterrupt:
            raise ScoringInterrupted(saved, folder.path, part_rows=folder.part_rows) from None
        return time.perf_counter() - start

    def _corpus(self) -> Iterator[tuple[str, ...]]:
        """References of every row, also when a run is resumed: a metric such as CIDEr weights words by them."""
        for row in self.source.rows([self.plan.references] if self.plan.references else []):
            yield row_references(row, self.plan)

    def _images(self, part_rows: int) -> str | None:
        """Digest of the images of all parts as they are now; None if none is a file."""
        names = [self.plan.image] if self.plan.image else []
        digests, digest = PictureDigests(), RowsDigest()
        for count, row in enumerate(self.source.rows(names), start=1):
            digest.add_picture(*picture_of(row, self.plan, self.root))
            if count % part_rows == 0 or count == self.source.num_rows:
                digests.add(digest.pictures)
                digest = RowsDigest()
        return digests.value

    def _write(self, job: Job, folder: PartFolder) -> tuple[ScoringSummary, str | None]:
        """Writes the output of all parts; gives the digest of the images of their rows, too."""
        facts, prefix = folder.facts, self.settings["prefix"]
        joined = Joined(job, folder, SummaryBuilder(facts["numbers"]))
        groups = 0
        if self.plan.group is not None:
            rewards = ((part.groups, part.columns[f"{prefix}reward"]) for part in folder.parts(job.numbers))
            joined.ranks, groups = ranks(row for each in rewards for row in zip(*each, strict=True))
        types, needs = facts["added"], self.plan.texts
        write_atomically(self.output, lambda path: write_rows(path, self.source, joined, types, needs))
        summary = joined.summary.summary(
            self.output,
            columns={
                "candidate": self.plan.caption,
                "image": self.plan.image,
                "references": self.plan.references,
                **({} if self.plan.group is None else {"group": self.plan.group}),
            },
            checkpoints=self.metrics.checkpoints,
            image_root=os.path.relpath(self.root, self.output.parent),
            groups=groups,
        )
        return summary, joined.images.value
