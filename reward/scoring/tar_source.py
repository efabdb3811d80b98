"""Reads WebDataset tars: members that follow each other and share a name up to its first dot are a row."""

from __future__ import annotations

import codecs
import tarfile
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import IO, Any

from reward.data.image_files import IMAGE_ENDINGS
from reward.scoring.row_sources import RowSource, is_unicode, json_row, opened
from reward.scoring.sources import BadRow

_TEXTS = ("txt", "text", "caption", "cap")


class _Member(tarfile.TarInfo):
    """A member of a tar that must be whole: `tarfile` itself takes one that is cut between members for a shorter one.

    A tar ends with blocks of zeros. Tars that were put together (`cat`) have them in their middle, too.
    """

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> _Member:
        try:
            member = super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            tar.has_end = True  # type: ignore[attr-defined]
            raise
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            if not getattr(tar, "has_end", False):
                raise tarfile.ReadError("the tar is cut off: copy it again") from None
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"the tar is damaged or cut off ({error}): copy it again") from error
        tar.has_end = False  # type: ignore[attr-defined]
        return member


class TarSource(RowSource):
    """Rows with `__key__`, `image` (of jpg, png, ...), `txt` or `caption`, and the fields of json."""

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with opened(self.path) as file:
            yield from islice(tar_rows(file), start, None)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return map(without_image, self.parsed())


def without_image(row: dict[str, Any] | BadRow) -> dict[str, Any] | BadRow:
    """The row with the name of its image instead of its bytes."""
    return row if isinstance(row, BadRow) or "image" not in row else {**row, "image": row["image"]["path"]}


def tar_rows(file: IO[bytes]) -> Iterator[dict[str, Any] | BadRow]:
    """The rows of a tar, of whatever compression. A member of its own counts more than a field of that name.

    Raises:
        tarfile.TarError: it is cut off or damaged; the rows before are given first.
    """
    with tarfile.open(fileobj=file, mode="r|*", tarinfo=_Member, ignore_zeros=True) as tar:
        # A Mac writes notes such as ._1.jpg in front of each member, which part no row.
        for key, members in groupby(filter(_key, tar), key=_key):
            contents = ((_ending(member), member.name, tar.extractfile(member)) for member in members)
            yield _row(key, contents)


def _row(key: str, members: Iterable[tuple[str, str, IO[bytes] | None]]) -> dict[str, Any] | BadRow:
    """The row of members, each with its ending, its name and its file, which must be read before the next."""
    row: dict[str, Any] = {"__key__": key}
    fields: dict[str, Any] = {}
    problem: str | None = None
    if not is_unicode(key):
        problem = f"the name {key!r} is not UTF-8"
    for ending, name, file in members:
        if file is None or not ending:
            continue
        data = file.read()
        where = f"{key}.{ending}".encode(errors="backslashreplace").decode()
        if ending == "json":
            value = json_row(data.removeprefix(codecs.BOM_UTF8).strip(), where)
            if isinstance(value, BadRow):
                problem = value.message
            else:
                fields = value
        elif ending in _TEXTS:
            try:
                row[ending] = data.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                problem = f"{where} is not UTF-8: {error}"
        elif "image" in row:  # perhaps a mask, which is no picture to caption
            problem = f"{name} is a second picture of one row, beside {row['image']['path']}"
        else:
            row["image"] = {"bytes": data, "path": name}
    if problem is not None:
        return BadRow(problem)
    return {**fields, **row}


def _key(member: tarfile.TarInfo) -> str:
    """What the members of a row share; nothing if it belongs to none."""
    folder, slash, name = member.name.rpartition("/")
    stem, dot, _ = name.partition(".")
    if member.isfile() and stem and dot:
        return folder + slash + stem
    return ""


def _ending(member: tarfile.TarInfo) -> str:
    """The ending of a member that is read, else nothing."""
    ending = member.name.rpartition("/")[2].partition(".")[2].lower()
    if ending in (*_TEXTS, "json") or f".{ending}" in IMAGE_ENDINGS:
        return ending
    return ""
