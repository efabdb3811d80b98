"""FileRun: one run over a data set, from the check of its arguments to the output with its summary."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.checkpoints.fingerprint_objects import untold_reason
from reward.data.cells import missing_to_none
from reward.data.samples import find_column, one_image, read_references
from reward.errors import InvalidSampleError, OutputError
from reward.metrics.base import image_documents
from reward.scoring.columns import find_columns
from reward.scoring.job import Job
from reward.scoring.readers import open_source
from reward.scoring.results import fill_rewards, ranks, reads_images
from reward.scoring.runs import (
    PartFolder,
    ResumableRun,
    ScoringInterrupted,
    left_out_of_garbage_collection,
    rows_of_part,
)
from reward.scoring.several import Metrics
from reward.scoring.sources import BadRow, image_identity
from reward.scoring.sources import image_root as find_root
from reward.scoring.summary import ScoringSummary, Selection, SummaryBuilder
from reward.scoring.writers import check_output, write_atomically, write_rows

ROWS = 512  # of a part, at most; see also `job.PART_SECONDS`
JUDGED_ROWS = 64  # of a part where a judge is asked, at most


class FileRun:
    """Scores or ranks the rows of a data set; the arguments are checked before a model is loaded.

    Args:
        columns: arguments of `find_columns`.
        is_ranked: whether candidates compete.
        selection: which rows are written.
        records: for a part of a larger data set, of which all images may be missing in `image_root`: the folder of
            `<output>.partial` and `<output>.summary.json`. None is that of the output.
        others: see `score_dataset`.
    """

    def __init__(
        self,
        data: Any,
        scorer: Any,
        output: str | os.PathLike[str],
        columns: dict[str, Any],
        selection: Selection,
        *,
        is_ranked: bool = False,
        source: str | os.PathLike[str] = "embedded",
        weights: Mapping[str, float] | None = None,
        image_root: str | os.PathLike[str] | None = None,
        split: str | None = None,
        prefix: str = "",
        batch_size: int | None = None,
        part_rows: int | None = None,
        devices: str | Sequence[str] | None = None,
        drop_images: bool = False,
        records: Path | None = None,
        **options: Any,
    ) -> None:
        # All that can be refused is refused here, before a model is loaded, which may take minutes.
        self.metrics = metrics = Metrics.of(scorer, source, weights=weights, **options)
        self.output, self.selection = Path(output), selection
        self.selects = selection != Selection()
        if is_ranked or self.selects:
            metrics.check_one_number()
        self.records = self.output.parent if records is None else records
        self.devices: list[str] = []
        if devices is not None:
            from reward.scoring.devices import devices_for  # on use: one process does without

            self.devices = devices_for(metrics, devices)
        reader = open_source(data, split=split)
        ranked = reader if is_ranked else None
        plan = find_columns(reader.columns, metrics.specs, **columns, ranked=ranked, is_csv=reader.is_csv)
        if drop_images:
            reader.drop_images(plan.image)
        if records is None or image_root is None:
            root = find_root(reader, plan.image if any(map(reads_images, metrics.parts)) else None, image_root)
        else:
            root = Path(image_root)  # of a part of a larger data set, all images may be missing
        folder = self.records / f"{self.output.name}.partial"
        most_rows = part_rows or self._part_rows(reader.num_rows)
        self.job = Job(reader, plan, metrics, root, folder, prefix, batch_size, most_rows)
        if metrics.knows_aspects:
            self.job.columns()
        check_output(self.output, Path(data) if isinstance(data, (str, os.PathLike)) else None)
        content = reader.fingerprint()
        self.manifest = {  # what the results depend on
            "task": "rerank" if is_ranked else "score",
            "input": content,
            **metrics.identity,
            "columns": [plan.caption, plan.image, plan.references, plan.group],
            "context": dict(plan.context),
            "strip_thinking": plan.strip_thinking,
            "corpus": content if metrics.needs_corpus else None,
            "image_root": None if root == reader.folder else os.path.abspath(root),
            "prefix": prefix,
            "drop_images": drop_images,
        }
        if self.selects:
            self.manifest["selection"] = asdict(selection)
        self._warn_of_untold()

    def _warn_of_untold(self) -> None:
        """Says before a long run that it cannot go on after a stop."""
        fingerprints = self.manifest["source"]
        for fingerprint in fingerprints.values() if isinstance(fingerprints, dict) else [fingerprints]:
            reason = untold_reason(fingerprint)
            if reason is not None:
                warnings.warn(
                    f"{self.metrics.name}: this run cannot go on after a stop, since what makes its scores cannot be "
                    f"told: {reason}",
                    stacklevel=5,
                )

    def _part_rows(self, rows: int) -> int:
        """Fewer where a judge is asked, which takes long or has to be paid, and as each of several devices has some."""
        if any(spec.sources == "judge" for spec in self.metrics.specs):
            return JUDGED_ROWS
        if not self.devices:
            return ROWS
        share = -(-rows // (8 * len(self.devices)))
        return min(ROWS, max(JUDGED_ROWS, share))

    def __call__(self, *, overwrite: bool, progress: bool) -> ScoringSummary:
        """Does what is missing."""
        run = ResumableRun(self.output, self.manifest, overwrite=overwrite, records=self.records)
        finished = run.finished(
            lambda record: (ScoringSummary.from_json(record["summary"], self.output), record["images"]),
            "(other input, metric or settings); nothing was scored",
        )
        if finished is not None:
            summary, images = finished
            if images is not None:
                [tasks] = self.job.tasks([range(self.job.reader.num_rows)])
                digest = _ImagesDigest()
                digest.add(task.stamp for task in tasks)
                if images != digest.hexdigest():
                    raise OutputError(
                        f"{self.output} exists already, and images of {self.job.reader.name} were replaced since. "
                        "Choose another output, or replace it with --overwrite (overwrite=True)."
                    )
            return replace(summary, already_done=True)
        # Parts hold what all rows have more than the input, and so serve any choice of rows and of pictures.
        facts = {name: fact for name, fact in self.manifest.items() if name not in ("selection", "drop_images")}
        folder = PartFolder(run.partial, facts, overwrite=overwrite)
        try:
            summary, images = self._make(folder, progress)
            run.finish({"summary": summary.to_json(), "images": images})
            folder.delete()
        except KeyboardInterrupt:
            raise ScoringInterrupted(_count_rows(folder.names()), folder.path) from None
        finally:
            folder.close()
        return summary

    def _make(self, folder: PartFolder, progress: bool) -> tuple[ScoringSummary, str | None]:
        """Makes the parts that are missing, and the output of all; gives the digest of the images, too."""
        parts, total = folder.find(self.job.names), self.job.reader.num_rows
        resumed, images_decoded, seconds = _count_rows(parts), 0, 0.0
        if resumed < total:
            parts, images_decoded, seconds = self._score(parts, progress)
        if _count_rows(parts) < total:
            raise OutputError(f"{self.job.reader.name} has fewer rows than before: it changed; run the same again")
        start = time.perf_counter()
        with left_out_of_garbage_collection():
            summary, images = self._write(folder, parts)
        summary = replace(
            summary,
            resumed_rows=resumed,
            new_rows=total - resumed,
            devices=self.devices,
            images_decoded=images_decoded,
            seconds=seconds + time.perf_counter() - start,
        )
        return summary, images

    def _score(self, parts: Sequence[str], progress: bool) -> tuple[list[str], int, float]:
        """Makes what parts lack: the names of all, how many images were decoded, and the seconds without loading."""
        job, total = self.job, self.job.reader.num_rows
        missing = _missing_rows(parts, total)
        names, images_decoded = list(parts), 0
        with ExitStack() as stack:
            if self.devices:
                from reward.scoring.devices import processes

                work = stack.enter_context(processes(self.devices, job))
                missing = _blocks(missing, job.part_rows)
            else:
                metrics = self.metrics.load()
                if metrics.needs_corpus:
                    metrics = metrics.fit(image_documents(self._images_with_references()))
                work = replace(job, metrics=metrics).work
            # The models are loaded now: the rate counts from here.
            start = time.perf_counter()
            stack.enter_context(left_out_of_garbage_collection())
            advance = None
            if progress:
                from reward.scoring.runs import progress_bar

                advance = stack.enter_context(progress_bar(True, done=_count_rows(parts), total=total))
            for step in work(missing):
                names.append(step.part)
                images_decoded += step.images
                if advance is not None:
                    advance(len(rows_of_part(step.part)), step.failed)
            return names, images_decoded, time.perf_counter() - start

    def _images_with_references(self) -> Iterator[tuple[str | None, tuple[str, ...]]]:
        """What names the image of each row, and its references, also when a run is resumed: CIDEr weighs words by all.

        None names a row without an image; a row that cannot be read has no references.
        """
        reader, plan = self.job.reader, self.job.plan
        if plan.references is None:
            return
        image = self._image_column() or plan.group
        for row in reader.rows([plan.references] if image is None else [plan.references, image]):
            key: str | None = None
            references: tuple[str, ...] = ()
            if not isinstance(row, BadRow):
                with suppress(InvalidSampleError):
                    picture = None if image is None else one_image(missing_to_none(row.get(image)))
                    references = read_references(row.get(plan.references))
                    key = None if picture is None else image_identity(picture, self.job.root)
            yield key, references

    def _image_column(self) -> str | None:
        """The column of images, also where no metric reads it."""
        return self.job.plan.image or find_column("image", self.job.reader.columns, option="--image-column")

    def _write(self, folder: PartFolder, parts: Sequence[str]) -> tuple[ScoringSummary, str | None]:
        """Writes the output of all parts; gives the digest of the images of their rows, too."""
        job, summary, images, groups = self.job, SummaryBuilder(), _ImagesDigest(), 0
        # Ranks, the lowest reward and the best rows are known only once all parts are there.
        rewards = self._rewards(folder, parts, summary)
        if job.plan.group is not None:
            group_names = [name for part in folder.parts(parts) for name in part.groups]
            rewards[f"{job.prefix}rank"], groups = ranks(group_names, rewards[f"{job.prefix}reward"])
        is_selected = None
        if self.selects:
            is_selected = self.selection.rows(self._numbers(folder, parts, rewards), self._identities())

        # The parts of a large run do not fit into memory: they are read one by one while the output is written.
        def values() -> Iterator[tuple[Any, ...]]:
            for name, part in zip(sorted(parts), folder.parts(parts), strict=True):
                summary.add_record(part.record)
                images.add(part.stamps)
                rows = rows_of_part(name)
                columns = part.columns | {name: column[rows.start : rows.stop] for name, column in rewards.items()}
                yield from zip(*columns.values(), strict=True)

        def write(path: Path) -> None:
            types = next(folder.parts(sorted(parts)[:1])).types
            write_rows(path, job.reader, types, values(), is_selected)
            if job.reader.fingerprint() != self.manifest["input"]:
                raise OutputError(f"{job.reader.name} changed while it was scored; run the same again")

        write_atomically(self.output, write)
        columns = {"candidate": job.plan.caption, "image": job.plan.image, "references": job.plan.references}
        if job.plan.group is not None:
            columns["group"] = job.plan.group
        return summary.summary(
            self.output,
            columns=columns,
            checkpoints=self.metrics.checkpoints,
            image_root=os.path.relpath(job.root, self.output.parent),
            groups=groups,
            selected=None if is_selected is None else int(is_selected.sum()),
        ), images.hexdigest()

    def _rewards(self, folder: PartFolder, parts: Sequence[str], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The rewards of all rows, one caption each, where they are needed together: for ranks, or for the lowest."""
        plan, prefix = self.job.plan, self.job.prefix
        is_bounded = np.isfinite([spec.range for spec in self.metrics.specs]).all()
        if plan.many or (is_bounded and plan.group is None and not self.selects):
            return {}  # there is no need to read all parts twice
        columns: dict[str, list[Any]] = {prefix + name: [] for name in self.metrics.rewards}
        is_lowest_open = any(-np.inf in part.columns[name] for part in folder.parts(parts) for name in columns)
        if plan.group is None and not self.selects and not is_lowest_open:
            return {}  # nor to hold the rewards of all rows
        for part in folder.parts(parts):
            for name, values in columns.items():
                values += part.columns[name]
        fill_rewards(columns, self.metrics.rewards, prefix, summary)
        return columns

    def _numbers(self, folder: PartFolder, parts: Sequence[str], rewards: Mapping[str, list[Any]]) -> list[Any]:
        """The reward by which each row is selected: its own, or that of the best of its candidates."""
        if not self.job.plan.many:
            return rewards[f"{self.job.prefix}reward"]
        numbers = []
        for part in folder.parts(parts):
            for in_order in part.columns[f"{self.job.prefix}rewards"]:
                numbers.append(in_order[0] if in_order else None)
        return numbers

    def _identities(self) -> Iterator[str]:
        """For each row what it shares with rows of the same image and captions, also if no metric reads images."""
        job = replace(self.job, plan=replace(self.job.plan, image=self._image_column()))
        [tasks] = job.tasks([range(job.reader.num_rows)])
        for task in tasks:
            yield repr((task.candidates, task.image_key))


def _missing_rows(parts: Iterable[str], total: int) -> list[range]:
    """The ranges of rows that no part has."""
    missing, next_row = [], 0
    for rows in map(rows_of_part, sorted(parts)):
        if next_row < rows.start:
            missing.append(range(next_row, rows.start))
        next_row = rows.stop
    if next_row < total:
        missing.append(range(next_row, total))
    return missing


def _blocks(ranges: Iterable[range], rows: int) -> list[range]:
    """Ranges of rows, cut into blocks of so many rows at most."""
    blocks = []
    for gap in ranges:
        for first in gap[::rows]:
            blocks.append(range(first, min(first + rows, gap.stop)))
    return blocks


def _count_rows(parts: Iterable[str]) -> int:
    return sum(len(rows_of_part(name)) for name in parts)


class _ImagesDigest:
    """Tells whether the images of all rows are the same files: a digest of their stamps, which may be many."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._has_images = False

    def add(self, stamps: Iterable[str]) -> None:
        """Adds the stamps of the next rows, empty where no image is a file."""
        for stamp in stamps:
            self._digest.update(f"{stamp}\n".encode())
            self._has_images |= stamp != ""

    def hexdigest(self) -> str | None:
        """None if no image is a file."""
        return self._digest.hexdigest()[:16] if self._has_images else None
