"""The output of a run: a folder of parts, here or in an object store, each of which says itself what it holds."""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integrations.ray_data.fragments import file_system
from integrations.ray_data.stores import explaining
from reward.errors import OutputError

if TYPE_CHECKING:
    import pyarrow as pa

RUN = "_run.json"
_PART = re.compile(r"part-.*-[0-9a-f]{12}\.parquet")
_UNFINISHED = "_unfinished-"  # begins the names of parts that are being written


class OutputFolder:
    """A folder of parts. A part is written under another name and then renamed, so that it is whole or absent.

    Args:
        address: folder on this disk, or address of a file system of fsspec.

    Raises:
        OutputError: it is no folder, or its name is that of a file.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.system, self.path = file_system(address)
        with explaining(f"output {address} cannot be looked at", OutputError):
            if self.path.endswith((".jsonl", ".json", ".csv")) or self.system.isfile(self.path):
                raise OutputError(f"output {address} must be a folder: Ray writes Parquet parts into it")

    def _names(self) -> list[str]:
        self.system.invalidate_cache()
        with explaining(f"output {self.address} cannot be looked at", OutputError):
            there = self.system.find(self.path, maxdepth=1) if self.system.isdir(self.path) else []
            return [posixpath.basename(name) for name in there]

    def parts(self) -> set[str]:
        """The names of the parts.

        Raises:
            OutputError: there are other Parquet files, which would be read as if they were parts.
        """
        names = self._names()
        if strange := [name for name in names if name.endswith(".parquet") and not _PART.fullmatch(name)]:
            raise OutputError(
                f"output {self.address} holds {strange[0]}, which is no part of a run; choose another folder"
            )
        return set(filter(_PART.fullmatch, names))

    def put(self, local: Path, name: str) -> None:
        """Copies a file into the folder: whole, or not at all."""
        temporary = f"{self.path}/{_UNFINISHED}{uuid.uuid4().hex}"
        with explaining(f"cannot write {self.address}/{name}", OutputError):
            if not hasattr(self.system, "split_path"):  # stores with buckets have no folders, and would make a bucket
                self.system.makedirs(self.path, exist_ok=True)
            try:
                self.system.put_file(str(local), temporary)
                self.system.mv(temporary, f"{self.path}/{name}")
            except Exception:
                with suppress(Exception):  # half a file takes room that may be short
                    self.system.rm_file(temporary)
                raise

    def remove(self, names: Iterable[str]) -> None:
        """Removes files of the folder."""
        with explaining(f"cannot remove files of {self.address}", OutputError):
            for name in names:
                self.system.rm_file(f"{self.path}/{name}")

    def remove_unfinished(self) -> None:
        """Removes what runs that were killed had begun to write; none may be running."""
        self.remove(name for name in self._names() if name.startswith(_UNFINISHED))

    def put_run(self, run: dict[str, Any], types: pa.Schema) -> None:
        """Writes what the parts depend on beside their rows: whole, or not at all."""
        values = {"run": run, "types": base64.b64encode(types.serialize().to_pybytes()).decode()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / RUN
            path.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
            self.put(path, RUN)

    def run(self) -> tuple[dict[str, Any], pa.Schema]:
        """What `put_run` wrote.

        Raises:
            OutputError: it is gone or damaged.
        """
        import pyarrow as pa

        try:
            with explaining(f"{self.address}/{RUN} cannot be read", OutputError):
                values = json.loads(self.system.cat_file(f"{self.path}/{RUN}"))
            return values["run"], pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["types"])))
        except (OutputError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise OutputError(
                f"{self.address} holds parts, but no {RUN} that can be read ({error}); choose another, or discard them "
                "(--overwrite)"
            ) from error

    def record_of(self, part: str) -> dict[str, Any] | None:
        """What the part itself says about its rows; None if it is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with (
            explaining(f"{self.address}/{part} cannot be read", OutputError),
            self.system.open(f"{self.path}/{part}", "rb") as file,
        ):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            length = int.from_bytes(file.read(4), "little") + 8  # of the footer, with this number and a mark
            file.seek(max(0, size - length))
            footer = file.read()
        try:
            record: dict[str, Any] = json.loads(pq.read_metadata(pa.BufferReader(footer)).metadata[b"capreward"])
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            return None
        return record
