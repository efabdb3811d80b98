"""The interface of all readers of data: rows in order, as often as needed; and where the pictures in them are."""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.data.image_files import files_meant, image_file
from reward.data.images import image_key
from reward.data.samples import one_image
from reward.errors import DataError, ImageError, InvalidSampleError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be parsed. It keeps its place in the output, with an error."""

    message: str


class Source(ABC):
    """Rows of a data file or data set, in order, as often as needed.

    Attributes:
        name: for messages.
        columns: the names of the columns.
        num_rows: how many rows there are.
        folder: where relative image paths start.
        is_csv: whether captions are text, also where they are lists.
        is_indexed: whether a row is found without reading those before it.
        record_columns: the names of the records' columns.
        schema: types of the records' columns, but for those that are made of others; None where values have no types
            but their own.
    """

    name: str
    columns: list[str]
    num_rows: int
    folder: Path
    is_csv = False
    is_indexed = True
    schema: pa.Schema | None = None

    @property
    def record_columns(self) -> list[str]:
        return self.columns if self.schema is None else list(self.schema.names)

    def drop_images(self, image: str | None) -> None:  # noqa: B027 - most records hold none
        """Leaves encoded images out of the records from now on, but for their paths; `image` is the column read."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the content: equal rows give equal fingerprints, in every process."""

    @abstractmethod
    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """The given columns of the rows from row number `start` on, for scoring."""

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        """All rows for the output, each as it was written."""
        return self.rows(self.columns)


def check_names(columns: Sequence[str], path: str | Path) -> None:
    """Refuses two columns of one name, because a row can hold only one of them."""
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise DataError(f"{path} has several columns named {doubled[0]!r}; columns need different names")


class Shards(Source):
    """The rows of several readers, one after the other; a column that one of them lacks is missing in its rows."""

    def __init__(self, readers: Sequence[Source], *, name: str, folder: Path) -> None:
        self.readers, self.name, self.folder = readers, name, folder
        self.columns = _united(reader.columns for reader in readers)
        self.num_rows = 0
        for reader in readers:
            self.num_rows += reader.num_rows
            self.is_csv |= reader.is_csv
            self.is_indexed &= reader.is_indexed

    @property
    def record_columns(self) -> list[str]:
        return _united(reader.record_columns for reader in self.readers)

    def drop_images(self, image: str | None) -> None:
        for reader in self.readers:
            reader.drop_images(image)

    def fingerprint(self) -> str:
        names = [reader.fingerprint() for reader in self.readers]
        return hashlib.sha256(" ".join(names).encode()).hexdigest()

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for reader in self.readers:
            if start < reader.num_rows:
                present = [name for name in columns if name in reader.columns]
                yield from reader.rows(present, start)
            start = max(0, start - reader.num_rows)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return chain.from_iterable(reader.records() for reader in self.readers)


def _united(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names, each once, in the order in which they come first."""
    return list(dict.fromkeys(chain.from_iterable(lists)))


class DerivedSource(Source):
    """The rows of other data, in their order, with further columns.

    Args:
        reader: the data.
        how: says how the columns are made; part of the fingerprint.
        adds: the columns.
        needs: the columns of the data that `make` looks at.
        make: gives {column: value} of a row; a column that it does not give is None.
    """

    def __init__(
        self,
        reader: Source,
        how: str,
        adds: Sequence[str],
        needs: Sequence[str],
        make: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self.reader, self.adds, self.needs, self._make, self._how = reader, list(adds), list(needs), make, how
        self.columns = [*reader.columns, *adds]
        self.name, self.num_rows, self.folder = reader.name, reader.num_rows, reader.folder
        self.is_csv, self.is_indexed, self.schema = reader.is_csv, reader.is_indexed, reader.schema

    @property
    def record_columns(self) -> list[str]:
        return [*self.reader.record_columns, *self.adds]

    def drop_images(self, image: str | None) -> None:
        self.reader.drop_images(image)
        self.schema = self.reader.schema

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.reader.fingerprint()} {self._how} {self.adds}".encode()).hexdigest()

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        stored = [name for name in columns if name not in self.adds]
        if len(stored) == len(columns):
            yield from self.reader.rows(columns, start)
            return
        for row in self.reader.rows(list(dict.fromkeys([*stored, *self.needs])), start):
            yield self._with_columns(row, row)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        # A record may lack what the columns are made of, such as an image that is left out.
        for record, row in zip(self.reader.records(), self.reader.rows(self.needs), strict=True):
            yield self._with_columns(record, row)

    def _with_columns(self, record: dict[str, Any] | BadRow, row: dict[str, Any] | BadRow) -> dict[str, Any] | BadRow:
        if isinstance(record, BadRow) or isinstance(row, BadRow):
            return record
        values = self._make(row)
        return {**record, **{name: values.get(name) for name in self.adds}}


def image_root(
    reader: Source,
    column: str | None,
    given: str | os.PathLike[str] | None = None,
    *,
    scored_from: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder that relative image paths start from: one for all rows.

    It is the folder of the data, and the working folder only if not one image is in the first; a warning says so.

    Args:
        reader: the data.
        column: holds the images; None where none are read.
        given: by the user, the only folder that is tried.
        scored_from: where the paths started when the data were scored, which is tried first.

    Raises:
        DataError: the images are files with relative paths and not one is there, or all are addresses; the message has
            the line to type.
    """
    folders = [reader.folder] if given is None else [Path(given)]
    if given is None and scored_from is not None:
        folders.insert(0, reader.folder / scored_from)
    if column is None:
        return folders[0]
    # One folder for all rows: were it chosen row by row, a row whose picture is missing would take that of another
    # data set, if it has the same name.
    working_folder = Path()
    is_here = False  # whether the first image that is missing elsewhere, or a later one, is in the working folder
    missing: str | None = None
    address: str | None = None
    for image in _images(reader, column):
        path = path_in(image)
        # The first row that needs no folder ends the search, which would read all rows, and their images with them.
        if path is None or os.path.isabs(path):
            return folders[0]
        if "://" in path:  # a fault of its row, unless all rows have one
            address = address or path
            continue
        for folder in folders:
            if _is_there(folder, path):
                return folder
        missing = missing or path
        is_here = is_here or _is_there(working_folder, path)
    if missing is None and address is None:
        return folders[0]
    if missing is None:
        raise DataError(
            f"the images of {reader.name} are at addresses such as {address!r:.120}, and nothing is downloaded: "
            f"download them, write their paths into the column {column!r}, and name their folder with --image-root "
            "FOLDER (image_root=)"
        )
    if is_here and given is None:
        warnings.warn(
            f"no image of {reader.name} is in {os.path.abspath(reader.folder)}: paths start at the working folder, "
            f"{os.path.abspath(working_folder)}, as --image-root . (image_root=) says",
            stacklevel=2,
        )
        return working_folder
    if given is None:
        folders.append(working_folder)
    tried = dict.fromkeys(os.path.abspath(folder) for folder in folders)
    raise DataError(
        f"no image of {reader.name} is there: {missing!r} is not in {' nor in '.join(tried)}. Name the folder that the "
        f"paths start from: --image-root FOLDER (image_root=)"
    )


def _images(reader: Source, column: str) -> Iterator[Any]:
    """What is in the image column: names of files, and images. A row without a readable image says so later."""
    for row in reader.rows([column]):
        if isinstance(row, BadRow):
            continue
        try:
            image = one_image(row.get(column))
        except InvalidSampleError:
            continue
        if image is not None:
            yield image


def _is_there(folder: Path, path: str) -> bool:
    file = os.path.join(folder, path)
    return os.path.exists(file) or bool(files_meant(file))


def path_in(image: Any) -> str | None:
    """The path in what `one_image` gives of a cell; None where the cell holds the image itself, also as a data URL."""
    if isinstance(image, Mapping) and image.get("bytes") is None:
        image = image.get("path")
    if not isinstance(image, (str, os.PathLike)):
        return None
    path = os.fsdecode(image)
    if path.startswith("data:"):
        return None
    return path


def image_identity(image: Any, root: str | os.PathLike[str] | None = None) -> str:
    """Key under which rows share an image, or another value: its file, or the hash of its bytes or its pixels.

    Args:
        image: of a cell.
        root: where relative paths start; None where texts are no paths.
    """
    path = path_in(image)
    if path is not None:
        if root is None or "://" in os.fspath(root):
            return repr(path)
        return os.path.abspath(image_file(os.path.join(root, path)))
    if isinstance(image, Mapping):
        image = image.get("bytes")
    if isinstance(image, bytes):
        return hashlib.sha256(image).hexdigest()
    if hasattr(image, "getbands") or getattr(image, "ndim", 0) > 0:
        with suppress(ImageError):
            return image_key(image)
    return repr(image)
