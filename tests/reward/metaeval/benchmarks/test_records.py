"""Lines of JSON, perhaps packed; `test_bad_files` has the fields that are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks.records import is_jsonl, read_lines


def test_packed_files_and_byte_order_marks(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    with gzip.open(packed, "wt", encoding="utf-8-sig") as file:
        file.write('{"candidate": "A dog.", "score": NaN}')
    plain.write_text('\n{"candidate": "A dog.", "score": NaN}', encoding="utf-8-sig")
    for path, line in ((packed, 1), (plain, 2)):
        [found] = read_lines(path)
        assert (found.values["candidate"], found.where) == ("A dog.", f"{path}, line {line}")
        assert is_jsonl(path)
    assert not is_jsonl(tmp_path)
    assert not is_jsonl(None)
    for path, content in (
        *((packed, broken) for broken in (packed.read_bytes()[:-12], b"no gzip")),
        (plain, b'{"candidate": "\xff"}'),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot read"):
            list(read_lines(path))
