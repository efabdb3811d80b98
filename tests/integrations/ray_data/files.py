"""The same rows in every form that Ray scores, and the rows of an output folder."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.tars import write_tar


def make_rows(folder, count=24):
    """Rows whose images, in `folder`, take turns; some cannot be scored."""
    save_greys(folder)
    rows = [
        {"id": row, "image": f"{row % 3}.png", "candidate": "word " * (1 + row % 5), "references": ["a"] * (row % 3)}
        for row in range(count)
    ]
    rows[1]["candidate"], rows[5]["candidate"], rows[7]["image"] = "fail", "  ", "none.png"
    return rows


def save_rows(rows, folder, kind):
    """Writes the rows to two files in `folder`; the images lie there, too."""
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    for number, half in enumerate(halves):
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(half), path, row_group_size=4)
        elif kind == "tar":
            write_shard(path, half, folder)
        else:
            write_lines(path, half)
    return folder


def write_shard(path, rows, images):
    """A WebDataset shard; an image that is not there becomes broken bytes."""
    members = {}
    for row in rows:
        image, key = images / row["image"], f"{row['id']:06d}"
        members[f"{key}.png"] = image.read_bytes() if image.exists() else b"broken"
        members[f"{key}.json"] = json.dumps({name: row[name] for name in ("id", "references")}).encode()
        members[f"{key}.txt"] = row["candidate"].encode()
    return write_tar(path, members)


def read_folder(folder):
    """The rows of all parts by id."""
    rows = []
    for path in folder.glob("part-*"):
        rows += read_lines(path) if path.suffix == ".jsonl" else pq.read_table(path).to_pylist()
    return sorted(rows, key=lambda row: row["id"])
