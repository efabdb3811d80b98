"""Files to parts, in this process: equal scores in every form, only what changed again, what is read and refused."""

import codecs
import io
import os
import re
import sys
import tarfile
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from integrations.ray_data import score_files
from reward.errors import CapRewardError, DataError, MissingExtraError, OutputError
from reward.scoring import score_dataset
from tests.integrations.ray_data.files import make_rows, read_folder, save_rows, write_tar
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

score_here = partial(score_files, workers=0)


@pytest.fixture
def rows(tmp_path):
    return make_rows(tmp_path / "in")


def parts(folder):
    """{name: time it was written} of the parts."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tar"])
def test_scores_are_those_of_one_machine(kind, rows, tmp_path):
    metrics = [PictureScorer(), "length"] if kind == "parquet" else PictureScorer()
    local = write_lines(tmp_path / "in" / "all.ndjson", rows)
    alone = score_dataset(local, metrics, tmp_path / "local.jsonl")
    local.unlink()
    data = save_rows(rows, tmp_path / "in", kind)
    options = {"candidate_column": "txt"} if kind == "tar" else {}
    summary = score_here(data, metrics, tmp_path / "out", part_rows=8, **options)
    expected, got = read_lines(tmp_path / "local.jsonl"), read_folder(tmp_path / "out")
    added = [name for name in expected[0] if name not in (*rows[0], "error")]
    assert [[row[name] for name in added] for row in got] == [[row[name] for name in added] for row in expected]
    assert [row["error"] is None for row in got] == [row["error"] is None for row in expected]
    assert (summary.rows, summary.scored, summary.errors) == (24, alone.scored, alone.errors)
    mean = alone.distributions[added[0]].mean
    assert summary.distributions[added[0]].mean == pytest.approx(mean)
    # the rows of an image take turns, and yet each fragment decodes each of the three once, and the one that fails
    assert summary.images_decoded == 3 * len(parts(tmp_path / "out"))
    assert got[2]["image"] == ("000002.png" if kind == "tar" else "2.png")  # and no bytes


def test_only_what_changed_is_scored_again(rows, tmp_path, monkeypatch):
    folder, out = save_rows(rows, tmp_path / "in", "parquet"), tmp_path / "out"
    score_here(folder, PictureScorer(), out, part_rows=4)
    before = parts(out)
    rows[23]["candidate"] = "changed"
    pq.write_table(pa.Table.from_pylist(rows[12:]), folder / "1.parquet", row_group_size=4)
    pq.write_table(pa.Table.from_pylist([{**rows[2], "id": 24}]), folder / "2.parquet")
    monkeypatch.setenv("PICTURE_LOG", str(tmp_path / "log"))
    summary = score_here(folder, PictureScorer(), out, part_rows=4)
    got = read_folder(out)
    assert ([row["id"] for row in got], got[23]["candidate"]) == (list(range(25)), "changed")
    assert len((tmp_path / "log").read_text().splitlines()) == 13  # the second file and the new one
    assert (summary.resumed_rows, len(before.items() & parts(out).items())) == (12, 3)
    (folder / "2.parquet").unlink()
    assert score_here(folder, PictureScorer(), out, part_rows=4).already_done
    assert [row["id"] for row in read_folder(out)] == list(range(24))


def edit_row(folder, out):
    """A row becomes another of as many bytes, and the file keeps its time."""
    path = folder / "0.jsonl"
    time = path.stat().st_mtime_ns
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"word word word "', b'"word word      "'))
    assert path.read_bytes() != content
    os.utime(path, ns=(time, time))


def replace_picture(folder, out):
    Image.new("RGB", (8, 8), (250, 250, 250)).save(folder / "0.png")


def delete_part(folder, out):
    min(out.glob("part-*.parquet")).unlink()


def delete_summary(folder, out):
    min((out / "_records").glob("*.summary.json")).unlink()


def damage_part(folder, out):
    path = max(out.glob("part-*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("change", [edit_row, replace_picture, delete_part, delete_summary, damage_part])
def test_no_row_has_an_old_score(change, rows, tmp_path):
    folder = save_rows(rows, tmp_path / "in", "jsonl")
    score_here(folder, PictureScorer(), tmp_path / "out")
    before = read_folder(tmp_path / "out")
    change(folder, tmp_path / "out")
    score_here(folder, PictureScorer(), tmp_path / "out")
    score_here(folder, PictureScorer(), tmp_path / "afresh")
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "afresh")
    assert (read_folder(tmp_path / "out") == before) == (change not in (edit_row, replace_picture))
    assert score_here(folder, PictureScorer(), tmp_path / "out").already_done


def test_hidden_files_are_no_data(tmp_path):
    folder = tmp_path / ".cache"
    folder.mkdir()
    for name in ("a.jsonl", "._a.jsonl", "_b.jsonl"):
        write_lines(folder / name, [{"id": name, "candidate": "a red star"}])
    for number, data in enumerate([folder, folder / "*.jsonl", [folder / "a.jsonl", folder]]):
        score_here(data, "length", tmp_path / f"out{number}")
        assert [row["id"] for row in read_folder(tmp_path / f"out{number}")] == ["a.jsonl"]


def test_a_part_without_one_picture_keeps_its_rows(rows, tmp_path):
    for row in rows[4:8]:
        row["image"] = "none.png"
    summary = score_here(save_rows(rows, tmp_path / "in", "parquet"), PictureScorer(), tmp_path / "out", part_rows=4)
    assert (summary.rows, summary.errors["image"]) == (24, 4)
    assert [row["id"] for row in read_folder(tmp_path / "out")] == list(range(24))


def test_another_metric_starts_afresh_or_is_refused(rows, tmp_path):
    folder = save_rows(rows, tmp_path / "in", "jsonl")
    score_here(folder, PictureScorer(), tmp_path / "out")
    with pytest.raises(OutputError, match=r"differs from this one in its metric.*--overwrite"):
        score_here(folder, "length", tmp_path / "out")
    score_here(folder, "length", tmp_path / "out", overwrite=True)
    assert "brightness" not in read_folder(tmp_path / "out")[0]
    assert [row["id"] for row in read_folder(tmp_path / "out")] == list(range(24))


BAD_LINES = {
    b"{broken": "line 2 is not valid JSON",
    b"[1, 2]": "line 2 is not a JSON object but list",
    b'{"id": 7, "candidate": 7}': "candidate",
    b'{"id": 7, "candidate": null}': "candidate",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_costs_its_row_alone(line, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": 1, "candidate": "a red star"}\n' + line + b'\n{"id": 2, "candidate": "a dog"}\n')
    summary = score_here(path, "length", tmp_path / "out")
    assert (summary.rows, summary.scored) == (3, 2)
    got = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["reward"] for row in got] == [3.0, None, 2.0]
    assert BAD_LINES[line] in got[1]["error"]


def test_columns_that_are_not_needed_are_not_read(rows, tmp_path):
    """Here they are garbage."""
    data = tmp_path / "in" / "data.parquet"
    pq.write_table(pa.Table.from_pylist([{"ballast": f"{row['id']:09d}" * 50, **row} for row in rows]), data)
    chunk, content = pq.read_metadata(data).row_group(0).column(0), bytearray(data.read_bytes())
    start, size = chunk.dictionary_page_offset, chunk.total_compressed_size
    content[start : start + size] = b"\xff" * size
    data.write_bytes(content)
    score_here(data, "length", tmp_path / "out", columns=["id"])
    got = read_folder(tmp_path / "out")
    assert [row["id"] for row in got] == list(range(24))
    assert list(got[0]) == ["id", "length", "reward", "truncated", "error"]
    with pytest.raises(DataError, match="1 of 1 fragments could not be scored"):
        score_here(data, "length", tmp_path / "all", columns=["id", "ballast"])


def test_a_broken_file_keeps_no_other_from_being_scored(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write_tar(folder / "a.tar", make_rows(tmp_path / "images", 8), tmp_path / "images")
    (folder / "b.tar").write_bytes((folder / "a.tar").read_bytes()[:5000])
    run = partial(score_here, folder, PictureScorer(), out, candidate_column="txt")
    with pytest.raises(DataError, match=r"1 of 2 fragments could not be scored.*b\.tar cannot be read: unexpected"):
        run()
    assert len(read_folder(out)) == 8
    (folder / "b.tar").unlink()
    assert run().already_done


# Text and names are UTF-8, with or without a byte order mark; the row of another gets the reason.
MEMBERS = [
    ("good", {"txt": b"a red star"}, ""),
    ("marked", {"txt": codecs.BOM_UTF8 + b"a red star", "json": codecs.BOM_UTF8 + b'{"id": 7}'}, ""),
    ("latin", {"txt": b"caf\xe9"}, "latin.txt is not UTF-8"),
    ("caf\udce9", {"txt": b"a red star"}, r"'caf\udce9' is not UTF-8"),
    ("half", {"txt": b"a red star", "json": rb'{"note": "\ud83d"}'}, "half.json"),
    ("list", {"txt": b"a red star", "json": b"[]"}, "list.json is not a JSON"),
]


def test_a_bad_member_of_a_shard_costs_its_row_alone(tmp_path):
    with tarfile.open(tmp_path / "0.tar", "w", encoding="utf-8", errors="surrogateescape") as tar:
        for key, members, _ in MEMBERS:
            for ending, content in members.items():
                member = tarfile.TarInfo(f"{key}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    summary = score_here(tmp_path / "0.tar", "length", tmp_path / "out", candidate_column="txt")
    assert (summary.rows, summary.scored) == (6, 2)
    got = pq.read_table(tmp_path / "out").to_pylist()
    for row, (_, _, reason) in zip(got, MEMBERS, strict=True):
        assert reason in (row["error"] or "")
        assert (row["txt"], row["reward"]) == ((None, None) if reason else ("a red star", 3.0))
    assert got[1]["id"] == 7


@pytest.mark.parametrize(
    ("data", "output", "options", "message"),
    [
        ("none", "new", {}, "there is no file"),
        ("in", "new", {"columns": ["text"]}, "--columns names 'text'"),
        ("in", "in", {}, "which is no part of a run"),
        ("outer/in", "outer", {}, "holds the input"),
        ("", "new", {}, "several kinds"),
        ("in", "out", {"prefix": "x_"}, "differs from this one in its metric"),
        ("in", "new", {"part_rows": 0}, "part_rows must be a whole number of at least 1, got 0"),
        ("in", "new", {"cpus": 0}, "cpus must be above 0 and gpus at least 0, got 0 and 0"),
    ],
)
def test_what_it_cannot_do_it_says_before_scoring(data, output, options, message, rows, tmp_path):
    save_rows(rows, tmp_path / "in", "parquet")
    (tmp_path / "outer" / "in").mkdir(parents=True)
    write_lines(tmp_path / "outer" / "in" / "a.jsonl", rows)
    score_here(tmp_path / "in", "length", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(CapRewardError, match=re.escape(message)):
        score_here(tmp_path / data, "length", tmp_path / output, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch):
    for name in ("ray", "ray.data"):  # another test may have imported either
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r'pip install "capreward\[ray\]"'):
        score_files(tmp_path, "length", tmp_path / "out")
