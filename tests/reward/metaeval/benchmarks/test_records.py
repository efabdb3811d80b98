"""Records of JSON, JSONL, CSV and Parquet files: fields are checked, and errors name file, place, field and value."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks.records import Record, is_jsonl, read_entries, read_lines, read_list


def record(value: Any) -> Record:
    return Record({"field": value, "other": 1}, "a.json, entry 1", Path())


@pytest.mark.parametrize(
    ("read", "good", "bad", "wanted"),
    [
        (lambda r: r.text("field"), ["", "a"], [None, 3, ["a"]], "text"),
        (lambda r: r.of_kind("field", int), [0, -3], [True, 1.5, "1", None], "a whole number"),
        (lambda r: r.of_kind("field", bool), [True], [1, "true"], "true or false"),
        (lambda r: r.record("field"), [{}], [[], None], "an object"),
        (lambda r: list(r.records("field", "row")), [[], [{}]], [{}, None], "a list"),
        (lambda r: r.texts("field"), [[], ["a", " "]], ["a", {}, [1], None], "a list of texts"),
        (lambda r: r.texts("field", 2), [["a", " "]], [["a"], ["a", 3], "ab"], "a list of 2 texts"),
        (lambda r: r.number("field"), [1, -2.5], [True, "1", None, 10**400, float("nan"), 1e999], "a finite number"),
        (lambda r: r.number("field", 1, 5), [1, 5.0], [0, 5.1], "a number from 1 to 5"),
        (lambda r: r.number("field", 0, text=True), ["1", " 2.5 "], ["", "x", "inf", "-1"], "a number from 0"),
    ],
)
def test_fields_are_of_their_kind(read: Callable[[Record], Any], good: list[Any], bad: list[Any], wanted: str) -> None:
    for value in good:
        read(record(value))
    for value in bad:
        with pytest.raises(DataError, match=f"a.json, entry 1: field must be {wanted}, got ") as caught:
            read(record(value))
        assert f"{value!r:.60}" in str(caught.value)
    with pytest.raises(DataError, match=r"a\.json, entry 1 has no field 'field'; it has: other"):
        read(Record({"other": 1}, "a.json, entry 1", Path()))


def test_a_category_is_a_text_or_a_number_and_may_be_absent() -> None:
    assert [Record({"category": value}, "", Path()).category() for value in (0, 1, " IC ", None)] == [
        "0",
        "1",
        "IC",
        "",
    ]
    assert record(1).category() == ""
    for value in (["IC"], True, 1.5):
        with pytest.raises(DataError, match="line 2: category must be text or a whole number, got "):
            Record({"category": value}, "line 2", Path()).category()


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


@pytest.mark.parametrize(("read", "content"), [(read_entries, "[]"), (read_entries, "3"), (read_list, "{}")])
def test_json_of_another_kind(tmp_path: Path, read: Callable[[Path], Any], content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=r"a.json must hold a JSON (object|list), got "):
        list(read(tmp_path / "a.json"))
