"""Files to parts: equal scores in every form, only what changed again, what is read, and what is refused."""

from __future__ import annotations

import codecs
import errno
import io
import json
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from integrations.ray_data import score_files
from reward.errors import DataError, MissingExtraError, OutputError
from reward.scoring import BatchScorer, score_dataset
from tests.integrations.ray_data.files import make_rows, read_folder, save_rows, write_tar
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

# In this process; what Ray adds is tested in test_cluster.py.
score_here = partial(score_files, workers=0)


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return make_rows(tmp_path / "in")


def parts(folder: Path) -> dict[str, int]:
    """{name: time it was written} of the parts."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tar"])
def test_scores_are_those_of_one_machine(kind: str, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    metrics = [PictureScorer(), "length"] if kind == "parquet" else PictureScorer()
    local = write_lines(tmp_path / "in" / "all.ndjson", rows)
    alone = score_dataset(local, metrics, tmp_path / "local.jsonl")
    local.unlink()
    data = save_rows(rows, tmp_path / "in", kind)
    options: dict[str, Any] = {"candidate_column": "txt"} if kind == "tar" else {}
    summary = score_here(data, metrics, tmp_path / "out", part_rows=8, **options)
    expected, got = read_lines(tmp_path / "local.jsonl"), read_folder(tmp_path / "out")
    added = [name for name in expected[0] if name not in (*rows[0], "error")]
    assert [[row[name] for name in added] for row in got] == [[row[name] for name in added] for row in expected]
    assert [row["error"] is None for row in got] == [row["error"] is None for row in expected]
    assert (summary.rows, summary.scored, summary.errors) == (24, alone.scored, alone.errors)
    assert list(summary.distributions) == list(alone.distributions)
    mean = alone.distributions[added[0]].mean
    assert summary.distributions[added[0]].mean == pytest.approx(mean)
    # the rows of an image take turns, and yet each fragment decodes each of the three once, and the one that fails
    assert summary.images_decoded == 3 * len(parts(tmp_path / "out"))
    assert got[2]["image"] == ("000002.png" if kind == "tar" else "2.png")  # and no bytes


def test_only_what_changed_is_scored_again(
    rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    save_rows(rows, folder, "parquet")
    score_here(folder, PictureScorer(), out, part_rows=4)
    before = parts(out)
    rows[23]["candidate"] = "changed"
    pq.write_table(pa.Table.from_pylist(rows[12:]), folder / "1.parquet", row_group_size=4)
    pq.write_table(pa.Table.from_pylist([{**rows[2], "id": 24}]), folder / "2.parquet")
    monkeypatch.setenv("PICTURE_LOG", str(tmp_path / "log"))
    summary = score_here(folder, PictureScorer(), out, part_rows=4)
    got = read_folder(out)
    assert [row["id"] for row in got] == list(range(25))
    assert got[23]["candidate"] == "changed"
    assert len((tmp_path / "log").read_text().splitlines()) == 13  # the second file and the new one
    assert summary.resumed_rows == 12
    assert len(before.items() & parts(out).items()) == 3
    damaged = next(out.glob("part*1.parquet*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    (folder / "2.parquet").unlink()
    score_here(folder, PictureScorer(), out, part_rows=4)
    assert [row["id"] for row in read_folder(out)] == list(range(24))


def test_columns_that_are_not_needed_are_not_read(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """Here they are garbage."""
    for row in rows:
        row["ballast"] = f"{row['id']:09d}" * 50
    save_rows(rows, tmp_path / "in", "parquet")
    for path in (tmp_path / "in").glob("*.parquet"):
        content, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
        for group in range(3):
            for place in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(place)
                if chunk.path_in_schema == "ballast":
                    start = chunk.dictionary_page_offset or chunk.data_page_offset
                    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
        path.write_bytes(content)
    summary = score_here(tmp_path / "in", "length", tmp_path / "out", part_rows=4, columns=["id"])
    got = read_folder(tmp_path / "out")
    assert [row["id"] for row in got] == list(range(24))
    assert list(got[0]) == ["id", "length", "reward", "truncated", "error"]
    assert summary.rows == 24
    with pytest.raises(DataError, match="6 of 6 fragments could not be read; the others are scored"):
        score_here(tmp_path / "in", "length", tmp_path / "all", part_rows=4, columns=["id", "ballast"])


def test_bad_lines_and_broken_files_keep_nobody_else_from_being_scored(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"id": 1, "caption": "a b"}\n{"id": 2, "caption"\n{"id": 3, "caption": "c"}\n')
    summary = score_here(folder, "length", out)
    assert summary.rows == 3
    assert "line 2 is not valid JSON" in summary.examples["row"]
    images = tmp_path / "images"
    write_tar(folder / "a.tar", make_rows(images, 8), images)
    (folder / "b.tar").write_bytes((folder / "a.tar").read_bytes()[:5000])
    (folder / "a.jsonl").unlink()
    tars = {"candidate_column": "txt", "output": tmp_path / "tars", "scorer": PictureScorer()}
    with pytest.raises(DataError, match=r"1 of 2 fragments could not be read.*b\.tar cannot be read: unexpected"):
        score_here(folder, **tars)
    assert len(read_folder(tmp_path / "tars")) == 8
    (folder / "b.tar").unlink()
    assert score_here(folder, **tars).already_done


def test_what_it_cannot_do_it_says_before_scoring(
    rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = save_rows(rows, tmp_path / "in", "parquet"), tmp_path / "out"
    with pytest.raises(DataError, match="there is no file"):
        score_here(tmp_path / "none", "length", out)
    with pytest.raises(DataError, match="--columns names 'text'"):
        score_here(folder, "length", out, columns=["text"])
    with pytest.raises(OutputError, match=r"which is no part of a run|holds the input"):
        score_here(folder, "length", folder)
    write_lines(tmp_path / "in" / "a.jsonl", rows)
    with pytest.raises(DataError, match="several kinds"):
        score_here(folder, "length", out)
    (tmp_path / "in" / "a.jsonl").unlink()
    score_here(folder, "length", out)
    with pytest.raises(OutputError, match="differs from this one: prefix was '', now 'x_'"):
        score_here(folder, "length", out, prefix="x_")
    assert json.loads((out / "_run.json").read_text())["run"]["source"].startswith("embedded code ")
    for name in ("ray", "ray.data"):  # another test may have imported either
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r'pip install "capreward\[ray\]"'):
        score_files(folder, "length", out)


@pytest.mark.parametrize("full", ["output", "part"])
def test_after_room_was_made_the_same_goes_on(
    full: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, calls = save_rows(rows, tmp_path / "in", "parquet"), tmp_path / "out", [0]
    owner, name = (LocalFileSystem, "put_file") if full == "output" else (pq.ParquetWriter, "write_table")
    real = getattr(owner, name)

    def write(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            if full == "output":
                Path(arguments[2]).write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, write)
    where = f"cannot write {out}/part-" if full == "output" else "cannot write part-"
    with pytest.raises(OutputError, match=f"{where}.*No space left on device .*run the same again"):
        score_here(data, PictureScorer(), out, part_rows=8)
    before = parts(out)
    assert len(before) == calls[0] - (2 if full == "output" else 1)  # the description of the run, and what failed
    assert not list(out.glob("_unfinished*"))
    score_here(data, PictureScorer(), out, part_rows=8)
    assert before.items() <= parts(out).items()
    assert [row["id"] for row in read_folder(out)] == list(range(24))


def test_a_bad_member_of_a_shard_costs_its_row_alone(tmp_path: Path) -> None:
    """Text and names are UTF-8, with or without a byte order mark; the row of another gets the reason."""
    rows = {
        "good": {"txt": b"a red star"},
        "marked": {"txt": codecs.BOM_UTF8 + b"a red star", "json": codecs.BOM_UTF8 + b'{"id": 7}'},
        "latin": {"txt": b"caf\xe9"},
        "caf\udce9": {"txt": b"a red star"},
        "half": {"txt": b"a red star", "json": rb'{"note": "\ud83d"}'},
        "list": {"txt": b"a red star", "json": b"[]"},
        "last": {"txt": b"a red star"},
    }
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "0.tar", "w", encoding="utf-8", errors="surrogateescape") as tar:
        for key, members in rows.items():
            for ending, content in members.items():
                member = tarfile.TarInfo(f"{key}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    summary = score_here(tmp_path / "in", "length", tmp_path / "out", candidate_column="txt")
    assert (summary.rows, summary.scored) == (7, 3)
    got = pq.read_table(tmp_path / "out").to_pylist()
    reasons = [
        "",
        "",
        "latin.txt is not UTF-8",
        r"'caf\udce9' is not UTF-8",
        "half.json",
        "list.json is not a JSON",
        "",
    ]
    for row, reason in zip(got, reasons, strict=True):
        assert reason in (row["error"] or "")
        assert (row["txt"], row["reward"]) == ((None, None) if reason else ("a red star", 3.0))
    assert got[1]["id"] == 7


def test_an_address_is_not_asked(tmp_path: Path) -> None:
    refused = BatchScorer(PictureScorer())({"image": ["s3://images/white.png"], "caption": ["a"]})
    assert "is an address and nothing is downloaded here" in refused["error"][0]
