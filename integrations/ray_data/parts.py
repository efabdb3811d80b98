"""What an actor of Ray does: it holds a scorer, reads fragments, and writes the part of each."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reward
from integrations.ray_data.fetching import fetched
from integrations.ray_data.fragments import Fragment
from integrations.ray_data.output import OutputFolder
from integrations.ray_data.reading import Selection, read_pieces
from integrations.ray_data.stores import explained, is_full
from reward.errors import CapRewardError, CheckpointError, DataError, OutputError
from reward.scoring import BatchScorer
from reward.scoring.ahead import ahead
from reward.scoring.columns import ColumnPlan
from reward.scoring.schemas import arrow_type, without_images
from reward.scoring.summary import SummaryBuilder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Job", "PartScorer", "part_schema"]


@dataclass(frozen=True)
class Job:
    """What all actors of a run are told.

    Args:
        scorer: arguments of BatchScorer but `image_root`.
        image_root: None is the folder of each file.
        selection: what is read.
        output: address of the folder.
        run: names the run, see `Fragment.part`.
        version: of this package, where the run was started.
        checkpoint: its fingerprint there.
    """

    scorer: Mapping[str, Any]
    image_root: str | None
    selection: Selection
    output: str
    run: str
    version: str
    checkpoint: Any


def part_schema(selection: Selection) -> pa.Schema:
    """Types of the columns that a part has of the input: of images the path, and no other bytes."""
    return without_images(selection.schema.empty_table().select(list(selection.kept))).schema


class PictureDigest:
    """Digest of the image files of rows as they are now; None if no image is a file of this disk."""

    def __init__(self, plan: ColumnPlan, root: str) -> None:
        self._plan, self._root, self._digest, self._has_files = plan, root, hashlib.sha256(), False

    def add(self, rows: Sequence[Any]) -> None:
        for row in rows:
            stamp = self._plan.task(row, root=self._root).stamp
            self._digest.update(f"{stamp}\n".encode())
            self._has_files |= bool(stamp)

    @property
    def value(self) -> str | None:
        return self._digest.hexdigest()[:16] if self._has_files else None


class PartScorer:
    """Scores fragments and writes their parts. A callable class for `Dataset.map_batches`.

    A fragment that cannot be read does not stop the others: its record has a `problem`. What keeps the scorer from
    being loaded is `fatal`.

    Args:
        job: see there.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fatal: str | None = None
        try:
            if reward.__version__ != job.version:
                raise DataError(f"this worker has capreward {reward.__version__}, the run was started by {job.version}")
            self._scorer(None).loaded()  # refuses if the checkpoint is not the same on all machines
        except CapRewardError as error:
            self.fatal = str(error)

    def _scorer(self, root: str | None) -> BatchScorer:
        scorer = BatchScorer(**self.job.scorer, image_root=root, fetch=fetched)
        scorer.given.made_for = repr(self.job.checkpoint)
        return scorer

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The records of some fragments.

        Args:
            batch: {"fragment": JSON texts of Fragment}.

        Returns:
            {"record": JSON texts}, in the same order: what SummaryBuilder counted, `part`, `images`,
            `pictures` (see `PictureDigest`) and `process`; or `part` and `problem` or `unwritten`; or `fatal`.
        """
        return {"record": [json.dumps(self._record(Fragment.from_json(line))) for line in batch["fragment"]]}

    def _record(self, fragment: Fragment) -> dict[str, Any]:
        if self.fatal is not None:
            return {"fatal": self.fatal}
        part = fragment.part(self.job.run)
        try:
            return {**self._write(fragment, part), "part": part}
        except DataError as error:
            return {"part": part, "problem": str(error)}
        except CheckpointError as error:  # it was changed since the run began
            return {"fatal": str(error)}
        except OSError as error:  # an OutputError, or no room for the part while it is made
            if not isinstance(error, OutputError) and not is_full(error):
                raise
            where = "" if isinstance(error, OutputError) else f"no part can be made in {tempfile.gettempdir()}: "
            return {"part": part, "unwritten": f"{where}{explained(error)} (on {platform.node()})"}

    def _write(self, fragment: Fragment, part: str) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        selection = self.job.selection
        scorer = self._scorer(self.job.image_root or posixpath.dirname(fragment.file.path))
        schema = part_schema(selection)
        columns = scorer.columns(schema.names)
        summary, pictures = SummaryBuilder(), PictureDigest(scorer.plan(selection.schema.names), str(scorer.image_root))
        for name, kind in columns.types.items():
            schema = schema.append(pa.field(name, arrow_type(kind)))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "part.parquet"
            with pq.ParquetWriter(path, schema) as writer:
                for piece in ahead(read_pieces(fragment, selection)):
                    added = scorer.score_rows(piece.rows, selection.schema.names, summary)
                    pictures.add(piece.rows)
                    writer.write_table(scorer.with_columns(without_images(piece.table), added).cast(schema))
                record = {
                    **summary.record(),
                    "images": scorer.images_decoded,
                    "pictures": pictures.value,
                    "process": os.getpid(),
                }
                writer.add_key_value_metadata({"capreward": json.dumps(record)})
            OutputFolder(self.job.output).put(path, part)
        return record
