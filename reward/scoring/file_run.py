"""FileRun: one run over a data set, from the check of its arguments to the output with its summary."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from reward.checkpoints.fingerprint_objects import untold_reason
from reward.data.samples import read_references
from reward.errors import ConfigError, InvalidSampleError, OutputError
from reward.scoring.columns import find_columns
from reward.scoring.devices import parse_devices, processes
from reward.scoring.image_root import image_root as find_root
from reward.scoring.job import Job, Progress
from reward.scoring.parts import Part, PartFolder, rows_of
from reward.scoring.progress import progress_bar
from reward.scoring.readers import open_source
from reward.scoring.results import fill_rewards, ranks, reads_images, reward_names
from reward.scoring.runs import ResumableRun, ScoringInterrupted, left_out_of_garbage_collection
from reward.scoring.several import Metrics
from reward.scoring.sources import BadRow
from reward.scoring.summary import ScoringSummary, SummaryBuilder
from reward.scoring.writers import check_output, write_atomically, write_rows

JUDGED_ROWS, ROWS = 64, 1024  # of a part, at most; see also `job.PART_SECONDS`


class FileRun:
    """Scores or ranks the rows of a data set; the arguments are checked before a model is loaded.

    Args:
        columns: arguments of `find_columns`.
        is_ranked: whether candidates compete.
        data, scorer, output, source, weights, image_root, split, prefix, batch_size, part_rows, devices, drop_images,
            records, options: see `score_dataset`.
    """

    def __init__(
        self,
        data: Any,
        scorer: Any,
        output: str | os.PathLike[str],
        columns: dict[str, Any],
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
        metrics = Metrics.of(scorer, source, weights=weights, **options)
        if is_ranked:
            metrics.check_one_number()
        self.metrics, self.output = metrics, Path(output)
        self.records = self.output.parent if records is None else records
        self.devices = self._check_devices(parse_devices(devices))
        rows = open_source(data, split=split)
        ranked = rows if is_ranked else None
        plan = find_columns(rows.columns, metrics.specs, **columns, ranked=ranked, is_csv=rows.is_csv)
        if drop_images:
            rows.drop_images(plan.image)
        folder = self.records / f"{self.output.name}.partial"
        most = part_rows or self._part_rows(rows.num_rows)
        self.job = Job(rows, plan, metrics, Path(), folder, prefix, batch_size, most)
        if metrics.knows_aspects:
            self.job.columns(metrics)
        if records is None or image_root is None:
            root = find_root(rows, plan.image if any(map(reads_images, metrics.parts)) else None, image_root)
        else:
            root = Path(image_root)  # of a part of a larger data set, all images may be missing
        self.job.root = root
        check_output(self.output, Path(data) if isinstance(data, (str, os.PathLike)) else None)
        content = rows.fingerprint()
        self.manifest = {  # what the results depend on
            "task": "rerank" if is_ranked else "score",
            "input": content,
            **metrics.identity,
            "columns": [plan.caption, plan.image, plan.references, plan.group],
            "context": dict(plan.context),
            "strip_thinking": plan.strip_thinking,
            "corpus": content if metrics.needs_corpus else None,
            "image_root": None if root == rows.folder else os.path.abspath(root),
            "prefix": prefix,
            "drop_images": drop_images,
        }
        self._warn_of_untold()

    def _warn_of_untold(self) -> None:
        """Says before a long run that it cannot go on after a stop."""
        source = self.manifest["source"]
        for fingerprint in source.values() if isinstance(source, dict) else [source]:
            reason = untold_reason(fingerprint)
            if reason is not None:
                warnings.warn(
                    f"{self.metrics.name}: this run cannot go on after a stop, since what makes its scores cannot be "
                    f"told: {reason}",
                    stacklevel=5,
                )

    def _check_devices(self, devices: list[str]) -> list[str]:
        """Devices of the processes; empty when this process does all. A single device becomes an option."""
        metrics = self.metrics
        if devices and not metrics.is_named:
            raise ConfigError(
                f"devices= (--devices) loads the metric in each process, but {metrics.name!r} is a scorer that is "
                "loaded already, or behind a service: give the name of a metric and source="
            )
        if len(devices) > 1 and metrics.needs_corpus:
            raise ConfigError(
                f"metric {metrics.name!r} weighs words by the references of all rows, which one process reads: "
                "leave out devices= (--devices)"
            )
        if devices and metrics.options.get("device") is not None:
            raise ConfigError("give device= (--device) for one process, or devices= (--devices), not both")
        if len(devices) == 1:
            metrics.options["device"] = devices[0]
        return devices if len(devices) > 1 else []

    def __call__(self, *, overwrite: bool, progress: bool) -> ScoringSummary:
        """Does what is missing."""
        run = ResumableRun(self.output, self.manifest, overwrite=overwrite, records=self.records)
        before = run.finished(
            lambda record: (ScoringSummary.from_json(record["summary"], self.output), record["images"]),
            "(other input, metric or settings); nothing was scored",
        )
        if before is not None:
            if before[1] is not None and before[1] != self._images():
                raise OutputError(
                    f"{self.output} exists already, and images of {self.job.source.name} were replaced since. Choose "
                    "another output, or replace it with --overwrite (overwrite=True)."
                )
            return replace(before[0], already_done=True)
        of_parts = {name: fact for name, fact in self.manifest.items() if name != "drop_images"}
        folder = PartFolder(run.partial, of_parts, overwrite=overwrite)
        try:
            summary, images = self._make(folder, progress)
            run.finish({"summary": summary.to_json(), "images": images})
            folder.delete()
        except KeyboardInterrupt:
            raise ScoringInterrupted(_rows(folder.names()), folder.path) from None
        finally:
            folder.close()
        return summary

    def _part_rows(self, rows: int) -> int:
        """Fewer where a judge is asked, which takes long or has to be paid, and as each of several devices has some."""
        if any(spec.sources == "judge" for spec in self.metrics.specs):
            return JUDGED_ROWS
        share = -(-rows // (8 * len(self.devices))) if self.devices else ROWS
        return min(ROWS, max(JUDGED_ROWS, share))

    def _make(self, folder: PartFolder, progress: bool) -> tuple[ScoringSummary, str | None]:
        """Makes the parts that are missing, and the output of all; gives the digest of the images, too."""
        parts = folder.find(self.job.names)
        resumed, total = _rows(parts), self.job.source.num_rows
        more: dict[str, Any] = {"images_decoded": 0, "seconds": 0.0}
        if resumed < total:
            self._score(parts, more, progress)
        if _rows(parts) < total:
            raise OutputError(f"{self.job.source.name} has fewer rows than before: it changed; run the same again")
        start = time.perf_counter()
        with left_out_of_garbage_collection():
            summary, images = self._write(folder, parts)
        more["seconds"] += time.perf_counter() - start
        more |= {"resumed_rows": resumed, "new_rows": total - resumed, "devices": self.devices}
        return replace(summary, **more), images

    def _score(self, parts: list[str], more: dict[str, Any], progress: bool) -> None:
        """Makes what parts lack, and adds up what that took."""
        job, total = self.job, self.job.source.num_rows
        edges = [0, *(edge for name in parts for edge in (rows_of(name).start, rows_of(name).stop)), total]
        missing = [range(first, last) for first, last in zip(edges[::2], edges[1::2], strict=True) if first < last]
        with ExitStack() as stack:
            work: Callable[[Sequence[range]], Iterator[Progress]]
            if self.devices:
                work = stack.enter_context(processes(self.devices, job))
                starts = ((gap, range(gap.start, gap.stop, job.part_rows)) for gap in missing)
                missing = [range(at, min(at + job.part_rows, gap.stop)) for gap, each in starts for at in each]
            else:
                work = replace(job, metrics=self.metrics.load().fit(self._corpus())).work
            start = time.perf_counter()
            stack.enter_context(left_out_of_garbage_collection())
            advance = stack.enter_context(progress_bar(progress, done=_rows(parts), total=total))
            for step in work(missing):
                parts.append(step.part)
                more["images_decoded"] += step.images
                advance(len(rows_of(step.part)), step.failed)
            more["seconds"] = time.perf_counter() - start

    def _rewards(self, folder: PartFolder, parts: Sequence[str], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The rewards of all rows, one caption each, where they are needed together: for ranks, or for the lowest."""
        is_bounded = np.isfinite([spec.range for spec in self.metrics.specs]).all()
        if self.job.plan.many or (is_bounded and self.job.plan.group is None):
            return {}  # there is no need to read all parts twice
        names = reward_names(self.metrics)
        columns: dict[str, list[Any]] = {self.job.prefix + name: [] for name in names}
        for part in folder.parts(parts):
            for name, values in columns.items():
                values += part.columns[name]
        fill_rewards(columns, names, self.job.prefix, summary)
        return columns

    def _corpus(self) -> Iterator[tuple[str, ...]]:
        """References of every row, also when a run is resumed: a metric such as CIDEr weighs words by them."""
        column = self.job.plan.references
        for row in self.job.source.rows([column] if column else []):
            try:
                yield () if isinstance(row, BadRow) or column is None else read_references(row.get(column))
            except InvalidSampleError:
                yield ()

    def _images(self) -> str | None:
        """Digest of the image files of all rows as they are now."""
        every = self.job.tasks([range(self.job.source.num_rows)])
        return _digest(task.stamp for tasks in every for task in tasks)

    def _write(self, folder: PartFolder, parts: Sequence[str]) -> tuple[ScoringSummary, str | None]:
        """Writes the output of all parts; gives the digest of the images of their rows, too."""
        job, summary, stamps, groups = self.job, SummaryBuilder(), list[str](), 0
        rewards = self._rewards(folder, parts, summary)

        def rows(part: Part) -> Iterator[tuple[Any, ...]]:
            summary.add_record(part.record)
            first = len(stamps)
            stamps.extend(part.stamps)
            part.columns |= {name: values[first : len(stamps)] for name, values in rewards.items()}
            return zip(*part.columns.values(), strict=True)

        values = (row for part in folder.parts(parts) for row in rows(part))
        if job.plan.group is not None:
            each = [part.groups for part in folder.parts(parts)]
            ranked, groups = ranks(list(chain(*each)), rewards[f"{job.prefix}reward"])
            values = ((*row, rank) for row, rank in zip(values, ranked, strict=True))
        types = next(folder.parts(sorted(parts)[:1])).types

        def write(path: Path) -> None:
            write_rows(path, job.source, types, values)
            if job.source.fingerprint() != self.manifest["input"]:
                raise OutputError(f"{job.source.name} changed while it was scored; run the same again")

        write_atomically(self.output, write)
        columns = {"candidate": job.plan.caption, "image": job.plan.image, "references": job.plan.references}
        return summary.summary(
            self.output,
            columns=columns | ({} if job.plan.group is None else {"group": job.plan.group}),
            checkpoints=self.metrics.checkpoints,
            image_root=os.path.relpath(job.root, self.output.parent),
            groups=groups,
        ), _digest(stamps)


def _rows(parts: Sequence[str]) -> int:
    return sum(len(rows_of(name)) for name in parts)


def _digest(stamps: Any) -> str | None:
    """Of all stamps; None if no image is a file."""
    every = list(stamps)
    return hashlib.sha256("\n".join(every).encode()).hexdigest()[:16] if any(every) else None
