"""What an actor of Ray does: it holds a scorer, reads fragments, and writes the part of each."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integrations.ray_data.fragments import Fragment
from integrations.ray_data.output import OutputFolder
from integrations.ray_data.reading import opened, pieces, told
from integrations.ray_data.stores import explained
from reward.errors import CapRewardError, CheckpointError, DataError, OutputError
from reward.scoring import BatchScorer
from reward.scoring.ahead import ahead
from reward.scoring.results import fill_rewards, reward_names
from reward.scoring.schemas import arrow_type, typed_tables, write_parquet
from reward.scoring.sources import Source
from reward.scoring.summary import SummaryBuilder
from reward.scoring.writers import rows_with

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PartJob:
    """What all actors of a run are told.

    Args:
        scorer: arguments of BatchScorer but `image_root`.
        image_root: None is the folder of each file.
        columns: all columns of the input.
        schema: types of those that the output keeps.
        output: address of the folder.
        run: names the run, see `Fragment.part`.
        checkpoint: its fingerprint where the run was started, which names weights and code.
    """

    scorer: Mapping[str, Any]
    image_root: str | None
    columns: Sequence[str]
    schema: pa.Schema
    output: str
    run: str
    checkpoint: Any


class PartScorer:
    """Scores fragments and writes their parts. A callable class for `Dataset.map_batches`.

    A fragment that cannot be read does not stop the others: its record has a `problem`. What keeps the scorer from
    being loaded is `fatal`.

    Args:
        job: see there.
    """

    def __init__(self, job: PartJob) -> None:
        self.job = job
        self.fatal: str | None = None
        try:
            self._scorer(None).loaded()  # refuses if the checkpoint is not the same on all machines
        except CapRewardError as error:
            self.fatal = str(error)

    def _scorer(self, root: str | None) -> BatchScorer:
        scorer = BatchScorer(**self.job.scorer, image_root=root)
        scorer.given.made_for = repr(self.job.checkpoint)
        return scorer

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The records of some fragments.

        Args:
            batch: {"fragment": what `Fragment.to_json` gave of each}.

        Returns:
            {"record": JSON texts}, in the same order: what SummaryBuilder counted, `part` and
            `images`; or `part` and `problem` or `unwritten`; or `fatal`.
        """
        return {"record": [json.dumps(self._record(Fragment(**json.loads(line)))) for line in batch["fragment"]]}

    def _record(self, fragment: Fragment) -> dict[str, Any]:
        if self.fatal is not None:
            return {"fatal": self.fatal}
        part = fragment.part(self.job.run)
        try:
            with opened(fragment, self.job.schema.names) as source:
                return {**self._write(fragment, source, part), "part": part}
        except DataError as error:
            return {"part": part, "problem": str(error)}
        except CheckpointError as error:  # it was changed since the run began
            return {"fatal": str(error)}
        except OSError as error:  # an OutputError, or no room for the part while it is made
            where = "" if isinstance(error, OutputError) else f"cannot write {part}: "
            return {"part": part, "unwritten": f"{where}{explained(error)} (on {platform.node()})"}

    def _write(self, fragment: Fragment, source: Source, part: str) -> dict[str, Any]:
        import pyarrow as pa

        job = self.job
        if strange := {*source.columns} - {*job.columns}:
            raise DataError(
                f"{fragment.path}: column {min(strange)!r} is not in the rows that were looked at first, of which the "
                "output has its columns: add a row that has it to the first file, or leave it out of the data"
            )
        scorer = self._scorer(fragment.folder if job.image_root is None else job.image_root)
        plan, types = scorer.plan(job.columns), scorer.columns(job.columns).types
        summary = SummaryBuilder()
        added: dict[str, list[Any]] = {name: [] for name in types}
        for piece in ahead(pieces(told(source.rows(plan.names), fragment))):
            for name, values in scorer.score_rows(piece, job.columns, summary).items():
                added[name] += values
        fill_rewards(added, reward_names(scorer.loaded()), scorer.prefix, summary)
        record = {**summary.record(), "images": scorer.images_decoded}
        schema = pa.schema([*job.schema, *(pa.field(name, arrow_type(kind)) for name, kind in types.items())])
        rows = rows_with(told(source.records(), fragment), [*types], zip(*added.values(), strict=True))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "part.parquet"
            try:
                write_parquet(path, typed_tables(rows, schema), {"capreward": json.dumps(record)})
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise DataError(
                    f"{fragment.path}: a value does not fit the types of the rows that were looked at first ({error}): "
                    "leave its column out with --columns (columns=), or convert the data to Parquet"
                ) from error
            OutputFolder(job.output).put(path, part)
        return record
