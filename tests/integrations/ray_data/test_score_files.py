"""Files to parts, in this process: equal scores in every form, only what changed again, what is read and refused."""

import codecs
import os
import re
import sys
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from integrations.ray_data import score_files
from reward.errors import CapRewardError, DataError, MissingExtraError
from reward.scoring import score_dataset
from tests.integrations.ray_data.files import make_rows, read_folder, save_rows, write_shard
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer
from tests.toys.tars import write_tar

score_here = partial(score_files, workers=0)


@pytest.fixture
def rows(tmp_path):
    return make_rows(tmp_path / "in")


def parts(folder):
    """{name: time it was written} of the parts."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}


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
    score_here(folder, PictureScorer(), out)
    before = parts(out)
    rows[23]["candidate"] = "changed"
    pq.write_table(pa.Table.from_pylist(rows[12:]), folder / "1.parquet", row_group_size=4)
    pq.write_table(pa.Table.from_pylist([{**rows[2], "id": 24}]), folder / "2.parquet")
    monkeypatch.setenv("PICTURE_LOG", str(tmp_path / "log"))
    summary = score_here(folder, PictureScorer(), out)
    got = read_folder(out)
    assert ([row["id"] for row in got], got[23]["candidate"]) == (list(range(25)), "changed")
    assert len((tmp_path / "log").read_text().splitlines()) == 13  # the second file and the new one
    assert (summary.resumed_rows, len(before.items() & parts(out).items())) == (12, 1)
    (folder / "2.parquet").unlink()
    assert score_here(folder, PictureScorer(), out).already_done
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
    min(out.glob("part-*")).unlink()


def delete_summary(folder, out):
    min((out / "_records").glob("*.summary.json")).unlink()


def damage_part(folder, out):
    path = max(out.glob("part-*"))
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


def test_hidden_files_of_a_folder_are_no_data_and_a_part_without_a_picture_keeps_its_rows(rows, tmp_path):
    for row in rows[4:8]:
        row["image"] = "none.png"
    folder = save_rows(rows, tmp_path / "in", "parquet").rename(tmp_path / ".in")  # data all the same
    for name in ("._0.parquet", "_1.parquet"):
        (folder / name).write_bytes((folder / "0.parquet").read_bytes())
    for number, data in enumerate([folder, folder / "[01].parquet"]):
        summary = score_here(data, PictureScorer(), tmp_path / f"out{number}", part_rows=4)
        assert (summary.rows, summary.errors["image"]) == (24, 4)
        assert [row["id"] for row in read_folder(tmp_path / f"out{number}")] == list(range(24))


def test_another_metric_starts_afresh(rows, tmp_path):
    folder = save_rows(rows, tmp_path / "in", "jsonl")
    score_here(folder, PictureScorer(), tmp_path / "out")
    score_here(folder, "length", tmp_path / "out", overwrite=True)
    assert "brightness" not in read_folder(tmp_path / "out")[0]
    assert [row["id"] for row in read_folder(tmp_path / "out")] == list(range(24))


# A line of JSON, or a member of a tar, and what is said of it. Text and names are UTF-8, perhaps with a mark.
BAD_LINES = {
    b'{"id": 1, "candidate": "a red star"}': "",
    b"{broken": "line 2 is not valid JSON",
    b"[1, 2]": "line 3 is not a JSON object but list",
    b'{"id": 7, "candidate": null}': "candidate must be a string",
    b'{"id": 2, "candidate": "two red stars"}': "",
}
MEMBERS = [
    ("good", {"txt": b"a red star"}, ""),
    ("marked", {"txt": codecs.BOM_UTF8 + b"a red star", "json": codecs.BOM_UTF8 + b'{"id": 7}'}, ""),
    ("latin", {"txt": b"caf\xe9"}, "latin.txt is not UTF-8"),
    ("caf\udce9", {"txt": b"a red star"}, r"'caf\udce9' is not UTF-8"),
    ("half", {"txt": b"a red star", "json": rb'{"note": "\ud83d"}'}, "half.json"),
    ("list", {"txt": b"a red star", "json": b"[]"}, "list.json is not a JSON"),
]


@pytest.mark.parametrize("kind", ["jsonl", "tar"])
def test_a_bad_row_costs_itself_alone(kind, tmp_path):
    path, reasons, options = tmp_path / f"0.{kind}", list(BAD_LINES.values()), {}
    if kind == "jsonl":
        path.write_bytes(b"\n".join(BAD_LINES))
    else:
        reasons, options = [reason for _, _, reason in MEMBERS], {"candidate_column": "txt"}
        write_tar(path, {f"{key}.{end}": content for key, row, _ in MEMBERS for end, content in row.items()})
    summary = score_here(path, "length", tmp_path / "out", **options)
    assert (summary.rows, summary.scored) == (len(reasons), 2)
    [part] = (tmp_path / "out").glob("part-*")
    for row, reason in zip(read_lines(part), reasons, strict=True):
        assert reason in (row["error"] or "")
        assert row["reward"] == (None if reason else 3.0)


def test_a_broken_file_keeps_no_other_from_being_scored(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write_shard(folder / "a.tar", make_rows(tmp_path / "images", 8), tmp_path / "images")
    (folder / "b.tar").write_bytes((folder / "a.tar").read_bytes()[:5000])
    run = partial(score_here, folder, PictureScorer(), out, candidate_column="txt")
    with pytest.raises(DataError, match=r"1 of 2 fragments could not be scored.*b\.tar cannot be read: unexpected"):
        run()
    assert len(read_folder(out)) == 8
    (folder / "b.tar").unlink()
    assert run().already_done


@pytest.mark.parametrize(
    ("data", "output", "options", "message"),
    [
        ("none", "new", {}, "there is no file"),
        (["in"], "new", {}, "data must be one path, or a pattern such as data/*.parquet, got list"),
        ("in", "outer/in", {}, "holds a.jsonl, which is no part of a run"),
        ("outer/in", "outer", {}, "holds the input"),
        ("", "new", {}, "files of 2 kinds that can be read (.jsonl, .parquet)"),
        ("in", "out", {"prefix": "x_"}, "differs from this one in its metric"),
        ("in", "new", {"part_rows": 0}, "part_rows must be at least 1, cpus above 0"),
        ("s3://bucket/x", "new", {}, "s3://bucket/x is an address; nothing is fetched from there."),
        ("in", "s3://bucket/x", {}, 'ray.data.read_parquet("s3://...").map_batches(BatchScorer('),
    ],
)
def test_what_it_cannot_do_it_says_before_scoring(data, output, options, message, rows, tmp_path):
    save_rows(rows, tmp_path / "in", "parquet")
    (tmp_path / "outer" / "in").mkdir(parents=True)
    write_lines(tmp_path / "outer" / "in" / "a.jsonl", rows)
    score_here(tmp_path / "in", "length", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    output = output if "://" in output else tmp_path / output
    if isinstance(data, str) and "://" not in data:
        data = tmp_path / data
    with pytest.raises(CapRewardError, match=re.escape(message)):
        score_here(data, "length", output, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch):
    for name in ("ray", "ray.data"):  # another test may have imported either
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r'pip install "capreward\[ray\]"'):
        score_files(tmp_path, "length", tmp_path / "out")
