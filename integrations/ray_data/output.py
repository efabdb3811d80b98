"""The output of a run: a folder of parts, here or in an object store, and the manifest that says what is done."""

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

from integrations.ray_data.fragments import Fragment, InputFile, file_system
from reward.errors import OutputError
from reward.scoring.stores import explained, explaining, is_down

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Manifest", "OutputFolder"]

MANIFEST = "_manifest.json"
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
        if self.path.endswith((".jsonl", ".json", ".csv")):
            raise OutputError(f"output {address} must be a folder: Ray writes Parquet parts into it")
        with explaining(f"output {address} cannot be looked at", OutputError):
            is_file = self.system.isfile(self.path)
        if is_file:
            raise OutputError(f"output {address} is a file; Ray writes a folder of Parquet parts, choose another name")

    def contents(self) -> dict[str, int]:
        """{name: bytes} of the files in the folder."""
        self.system.invalidate_cache()
        with explaining(f"output {self.address} cannot be looked at", OutputError):
            if not self.system.isdir(self.path):
                return {}
            infos = self.system.find(self.path, maxdepth=1, detail=True).values()
        return {posixpath.basename(info["name"]): int(info["size"]) for info in infos}

    def parts(self) -> dict[str, int]:
        """{name: bytes} of the parts.

        Raises:
            OutputError: there are other Parquet files, which would be read as if they were parts.
        """
        contents = self.contents()
        strange = [name for name in contents if name.endswith(".parquet") and not _PART.fullmatch(name)]
        if strange:
            raise OutputError(
                f"output {self.address} holds {strange[0]}, which is no part of a run; choose another folder"
            )
        return {name: size for name, size in contents.items() if _PART.fullmatch(name)}

    def put(self, local: Path, name: str) -> None:
        """Copies a file into the folder: whole, or not at all."""
        temporary = f"{self.path}/{_UNFINISHED}{uuid.uuid4().hex}"
        with explaining(f"cannot write {self.address}/{name}", OutputError):
            if not hasattr(self.system, "split_path"):  # stores with buckets have no folders, and would make a bucket
                self.system.makedirs(self.path, exist_ok=True)
            try:
                self.system.put_file(str(local), temporary)
                self.system.mv(temporary, f"{self.path}/{name}")
            except Exception as error:
                if not is_down(error):
                    with suppress(Exception):  # half a file takes room that may be short
                        self.system.rm_file(temporary)
                raise

    def remove(self, names: Iterable[str]) -> None:
        """Removes files of the folder."""
        with explaining(f"cannot remove files of {self.address}", OutputError):
            for name in names:
                self.system.rm_file(f"{self.path}/{name}")

    def remove_unfinished(self) -> None:
        """Removes what runs that were killed had begun to write; none may be running.

        S3 keeps, and charges for, the pieces of an upload that was cut off, which no listing shows.
        """
        self.remove(name for name in self.contents() if name.startswith(_UNFINISHED))
        if hasattr(self.system, "list_multipart_uploads"):
            bucket, key, _ = self.system.split_path(f"{self.path}/{_UNFINISHED}")
            with suppress(Exception):  # keys may have no right to list them, and not all stores know them
                for upload in self.system.list_multipart_uploads(bucket):
                    if upload["Key"].startswith(key):
                        names = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                        self.system.call_s3("abort_multipart_upload", **names)

    def record_of(self, part: str) -> dict[str, Any] | None:
        """What the part itself says about its rows; None if it is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.system.open(f"{self.path}/{part}", "rb") as file:
                record: dict[str, Any] = json.loads(pq.ParquetFile(file).metadata.metadata[b"capreward"])
                return record
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if is_down(error):
                raise OutputError(f"{self.address}/{part} cannot be read: {explained(error)}") from error
            return None


class Manifest:
    """What a run depends on, its fragments, and the records of those that are done.

    Args:
        folder: of the output.
        run: JSON values that the scores depend on, beside the input.
        schema: of the input.
        records: {part: record}, see `parts.PartScorer`.
        fragments: all of them, in order.
    """

    def __init__(
        self,
        folder: OutputFolder,
        run: dict[str, Any],
        schema: pa.Schema,
        fragments: list[Fragment],
        records: dict[str, dict[str, Any]],
    ) -> None:
        self.folder, self.run, self.schema = folder, run, schema
        self.fragments, self.records = fragments, records

    @classmethod
    def read(cls, folder: OutputFolder) -> Manifest | None:
        """The manifest in the folder; None if there is none.

        Raises:
            OutputError: it is damaged.
        """
        import pyarrow as pa

        if MANIFEST not in folder.contents():
            return None
        try:
            with explaining(f"{folder.address}/{MANIFEST} cannot be read", OutputError):
                text = folder.system.cat_file(f"{folder.path}/{MANIFEST}")
            values = json.loads(text)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"])))
            files = [InputFile(**each) for each in values["files"]]
            fragments, records = [], {}
            for number, first, last, rows, record in values["fragments"]:
                fragments.append(Fragment(files[number], first, last, rows))
                if record is not None:
                    records[fragments[-1].part] = record
            return cls(folder, values["run"], schema, fragments, records)
        except (ValueError, KeyError, TypeError, IndexError, pa.ArrowException) as error:
            raise OutputError(
                f"{folder.address}/{MANIFEST} is damaged ({error}); start afresh with --overwrite (overwrite=True)"
            ) from error

    def write(self) -> None:
        """Writes the manifest: whole, or not at all."""
        files: dict[InputFile, int] = {}
        for fragment in self.fragments:
            files.setdefault(fragment.file, len(files))
        values = {
            "run": self.run,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "files": [vars(file) for file in files],
            "fragments": [
                [files[each.file], each.first, each.last, each.rows, self.records.get(each.part)]
                for each in self.fragments
            ],
        }
        handle, name = tempfile.mkstemp()
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(values, file, ensure_ascii=False)
            self.folder.put(Path(name), MANIFEST)
        finally:
            os.unlink(name)

    def check_same(self, run: dict[str, Any]) -> None:
        """Refuses to go on with other settings.

        Raises:
            OutputError: something but the input differs.
        """
        changed = [name for name in run if self.run.get(name) != run[name]]
        if changed:
            details = "; ".join(f"{name} was {self.run.get(name)!r:.80}, now {run[name]!r:.80}" for name in changed)
            raise OutputError(
                f"{self.folder.address} holds a run that differs from this one: {details}. Choose another folder, or "
                "start afresh with --overwrite (overwrite=True)"
            )
