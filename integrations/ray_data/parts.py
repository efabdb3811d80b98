"""The parts of the output: the folder that they are in, and the actor that has the local file run make them."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integrations.ray_data.fragments import Fragment, explaining, file_system
from reward.errors import CapRewardError, DataError, OutputError
from reward.scoring import ScoringSummary, score_dataset
from reward.scoring.batch_scorer import check_corpus
from reward.scoring.readers import is_remote_path
from reward.scoring.several import Metrics
from reward.scoring.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS = "_records"  # a folder in the output's: readers of Parquet leave out names that begin with "_"
_PART = re.compile(rf"(?:{RECORDS}/)?(part-.*-[0-9a-f]{{12}}-[0-9a-f]{{12}}\.parquet)(\..+)?")


def part_of(name: str) -> str | None:
    """The part that a file or folder of an output folder belongs to; None where it belongs to none.

    Example:
        >>> part_of("_records/part-a.jsonl-000000-0123456789ab-0123456789ab.parquet.summary.json")
        'part-a.jsonl-000000-0123456789ab-0123456789ab.parquet'
    """
    match = _PART.fullmatch(name)
    return match[1] if match else None


def summary_of(part: str) -> str:
    """The name in the output folder of the summary of a part."""
    return f"{RECORDS}/{part}.summary.json"


class OutputFolder:
    """The folder of the parts of a run.

    Args:
        address: folder on this disk, or address of a file system of fsspec.

    Raises:
        OutputError: it is no folder, or its name is that of a file.
    """

    def __init__(self, address: str) -> None:
        self.address, self.is_store = address, is_remote_path(address)
        self.system, self.path = file_system(address)
        with explaining(f"output {address} cannot be looked at", OutputError):
            if self.path.endswith((".jsonl", ".json", ".csv")) or self.system.isfile(self.path):
                raise OutputError(f"output {address} must be a folder: Ray writes Parquet parts into it")

    def names(self) -> list[str]:
        """What is in the folder and in the folders in it, such as `_records/part-x.parquet.summary.json`.

        Raises:
            OutputError: there are Parquet files of others, which would be read as if they were parts.
        """
        self.system.invalidate_cache()
        with explaining(f"output {self.address} cannot be looked at", OutputError):
            paths = self.system.find(self.path, maxdepth=2, withdirs=True)
        names = [path.removeprefix(self.path).lstrip("/") for path in paths]
        for name in names:
            if name.endswith(".parquet") and part_of(name) is None:
                raise OutputError(
                    f"output {self.address} holds {name}, which is no part of a run; choose another folder"
                )
        return names

    def check_store(self) -> None:
        """Finds out before anything is scored whether a store takes files: its bucket may be missing, or read only."""
        if self.is_store:
            with explaining(f"cannot write {self.address}", OutputError):
                self.system.pipe_file(f"{self.path}/{RECORDS}/writable", b"")

    def fetch(self, part: str, scratch: Path) -> None:
        """Copies a part of a store with its summary to this disk, as far as they are there."""
        with explaining(f"{self.address}/{part} cannot be read", OutputError):
            for name in (part, summary_of(part)):
                if self.system.exists(f"{self.path}/{name}"):
                    self.system.get_file(f"{self.path}/{name}", str(scratch / Path(name).name))

    def store(self, part: str, scratch: Path) -> None:
        """Copies a part into a store; its summary comes last, since a part without one is made again."""
        with explaining(f"cannot write {self.address}/{part}", OutputError):
            for name in (part, summary_of(part)):
                self.system.put_file(str(scratch / Path(name).name), f"{self.path}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        """Removes files, and folders with all that is in them."""
        with explaining(f"cannot remove files of {self.address}", OutputError):
            for name in names:
                self.system.rm(f"{self.path}/{name}", recursive=True)

    def summary(self, part: str) -> dict[str, Any]:
        """What the local file run wrote of a part, see `ScoringSummary.to_json`."""
        name = summary_of(part)
        with explaining(f"{self.address}/{name} cannot be read", OutputError):
            summary: dict[str, Any] = json.loads(self.system.cat_file(f"{self.path}/{name}"))["summary"]
            return summary


class LoadedOnce(Metrics):
    """Metrics that are loaded for the first fragment that needs them, and kept for all others."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics.parts, metrics.weights, metrics.options)
        self.made_for = metrics.made_for
        self._loaded: Metrics | None = None

    def load(self, **options: Any) -> Metrics:
        # Files of a checkpoint that change during a run would mix the scores of two checkpoints in its parts.
        self.stay()
        if self._loaded is None:
            self._loaded = super().load(**options)
            check_corpus(self._loaded)
        return self._loaded


@dataclass
class PartScorer:
    """Has the parts of fragments made. A callable class for `Dataset.map_batches`.

    Args:
        metrics: a pickled one stands for the checkpoints as they were where the run began.
        settings: arguments of `score_dataset`.
        types: of all columns of the input.
        columns: those that the output keeps.
        output: address of the folder of the parts.
        run: names the run, see `Fragment.part`.
    """

    metrics: Metrics
    settings: Mapping[str, Any]
    types: pa.Schema
    columns: Sequence[str]
    output: str
    run: str

    def __post_init__(self) -> None:
        self.metrics = LoadedOnce(self.metrics)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The records of fragments; both are JSON texts, {"fragment": their fields} and {"record": what was made}."""
        fragments = [Fragment(**json.loads(text)) for text in batch["fragment"]]
        return {"record": [json.dumps(self.record(fragment)) for fragment in fragments]}

    def record(self, fragment: Fragment) -> dict[str, Any]:
        """Makes the part of a fragment.

        Returns:
            {"part", "summary"}; in place of an error of one file {"part", "problem"}, and of one that stops the run
            {"unwritten"} or {"fatal"}.
        """
        part = fragment.part(self.run)
        try:
            summary = asdict(self._make(fragment, part))
        except DataError as error:
            return {"part": part, "problem": str(error)}
        except OSError as error:  # an OutputError, or no room on this disk for a copy
            message = str(error) if isinstance(error, OutputError) else f"cannot write {part}: {error}"
            return {"unwritten": f"{message} (on {platform.node()})"}
        except CapRewardError as error:
            return {"fatal": str(error)}
        return {"part": part, "summary": {**summary, "output": part}}

    def _make(self, fragment: Fragment, part: str) -> ScoringSummary:
        folder = OutputFolder(self.output)
        with tempfile.TemporaryDirectory() as scratch:
            source = fragment.open(Path(scratch), self.types, self.columns)
            strange = {*source.columns} - {*self.types.names}
            if strange:
                raise DataError(
                    f"{fragment.path}: column {min(strange)!r} is not in the rows that were looked at first, of which "
                    "the output has its columns: add a row that has it to the first file, or leave it out of the data"
                )
            if not folder.is_store:
                return self._score(source, Path(folder.path, part), Path(folder.path, RECORDS))
            folder.fetch(part, Path(scratch))
            summary = self._score(source, Path(scratch, part), Path(scratch))
            if not summary.already_done:
                folder.store(part, Path(scratch))
            return summary

    def _score(self, source: Source, path: Path, records: Path) -> ScoringSummary:
        """Has the local file run make a part, or tell that it is there already."""
        import pyarrow as pa

        settings: dict[str, Any] = {**self.settings, "records": records}
        settings["image_root"] = settings["image_root"] or source.folder  # and never the working folder of a worker
        is_there = path.exists()
        try:
            if is_there:
                with suppress(OutputError):
                    return score_dataset(source, self.metrics, path, **settings)  # type: ignore[arg-type]
            # A part that is refused is of other rows or pictures, or damaged; it is made anew. Its metric and settings
            # are those of this run, since its name says so.
            return score_dataset(source, self.metrics, path, overwrite=is_there, **settings)  # type: ignore[arg-type]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise DataError(
                f"{source.name}: a value does not fit the types of the rows that were looked at first ({error}): "
                "leave its column out with --columns (columns=), or convert the data to Parquet"
            ) from error
