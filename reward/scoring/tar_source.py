"""Reads WebDataset tars: members that follow each other and share a name up to its first dot are a row."""

from __future__ import annotations

import codecs
import tarfile
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import IO, Any, cast

from reward.scoring.row_sources import RowSource, json_row, opened
from reward.scoring.sources import BadRow

_IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif")
_TEXTS = ("txt", "text", "caption", "cap")


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
    """The rows of a tar, of whatever compression. A member of its own counts more than a field of that name."""
    with tarfile.open(fileobj=file, mode="r|*") as tar:
        for key, members in groupby(filter(_key, tar), key=_key):
            read = ((each, cast(IO[bytes], tar.extractfile(each)).read()) for each in members if _ending(each))
            yield _row(key, read)


def _row(key: str, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> dict[str, Any] | BadRow:
    row: dict[str, Any] = {"__key__": key}
    fields: dict[str, Any] | BadRow = {}
    problem = None if _is_unicode(key) else f"the name {key!r} is not UTF-8"
    for member, data in members:
        ending = _ending(member)
        where = f"{key}.{ending}".encode(errors="backslashreplace").decode()
        if ending in _IMAGES:
            row["image"] = {"bytes": data, "path": member.name}
        elif ending == "json":
            fields = json_row(data.removeprefix(codecs.BOM_UTF8), where)
        else:
            try:
                row[ending] = data.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                problem = f"{where} is not UTF-8: {error}"
    if isinstance(fields, BadRow) or problem is not None:
        return fields if isinstance(fields, BadRow) else BadRow(str(problem))
    return {**fields, **row}


def _key(member: tarfile.TarInfo) -> str:
    """What the members of a row share; nothing if it belongs to none."""
    folder, slash, name = member.name.rpartition("/")
    stem, dot, _ = name.partition(".")
    return folder + slash + stem if member.isfile() and stem and dot else ""


def _ending(member: tarfile.TarInfo) -> str:
    """The ending of a member that is read, else nothing."""
    ending = member.name.rpartition("/")[2].partition(".")[2].lower()
    return ending if ending in (*_IMAGES, *_TEXTS, "json") else ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False
