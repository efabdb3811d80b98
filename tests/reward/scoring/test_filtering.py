"""What is kept of a scored data set, against SQLite and plain sorting; and what is refused."""

from __future__ import annotations

import math
import random
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward.errors import ConfigError, DataError, OutputError
from reward.scoring.conditions import parse_condition
from reward.scoring.filtering import filter_dataset
from reward.scoring.readers import open_source
from tests.json_lines import read_lines, write_lines
from tests.reward.scoring.small_data import read_rows

REWARDS = (0.9, 0.5, -0.2, -0.0, 0.0, 1e-300, -7.25, None, float("nan"))


def make_rows(count: int = 400, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "image": f"{draw.randrange(count // 5)}.png",
            "candidate": "word " * draw.randrange(4),
            "source": draw.choice(["coco", "cc12m", None]),
            "reward": draw.choice([*REWARDS, draw.random()]),
            "truncated": draw.random() < 0.3,
            "row": row,
        }
        for row in range(count)
    ]


@pytest.fixture(params=["file.parquet", "file.jsonl", "parts"])
def scored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same rows in each form that scoring writes."""
    rows, path = make_rows(), tmp_path / request.param
    if path.suffix == ".jsonl":
        write_lines(
            path, [{**row, "reward": None if row["reward"] != row["reward"] else row["reward"]} for row in rows]
        )
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=37)
    else:
        path.mkdir()
        (path / "manifest.json").write_text("{}")  # engines put files of their own beside the parts
        for number, ends in enumerate([(0, 150), (150, 150), (150, 400)]):
            pq.write_table(pa.Table.from_pylist(rows).slice(ends[0], ends[1] - ends[0]), path / f"{number:05}.parquet")
    return path


def has_score(row: dict[str, Any]) -> bool:
    return row["reward"] is not None and math.isfinite(row["reward"])


def best(rows: list[dict[str, Any]], share: Fraction) -> list[int]:
    count = math.ceil(share * len(rows))
    return [row["row"] for row in sorted(rows, key=lambda row: -row["reward"])[:count]]  # sorted() is stable


@pytest.mark.parametrize("per", [None, "image"])
def test_the_best_are_those_that_sorting_finds(scored: Path, per: str | None, tmp_path: Path) -> None:
    summary = filter_dataset(scored, tmp_path / "best.jsonl", keep="not truncated", top="20%", per=per)
    rows = [row for row in make_rows() if has_score(row) and not row["truncated"]]
    groups = [rows] if per is None else [[r for r in rows if r["image"] == i] for i in {r["image"] for r in rows}]
    expected = sorted(number for group in groups for number in best(group, Fraction(1, 5)))
    kept = read_lines(tmp_path / "best.jsonl")
    assert [row["row"] for row in kept] == expected
    assert all(row == {**make_rows()[row["row"]]} for row in kept)
    unscored = sum(not has_score(row) for row in make_rows())
    assert (summary.kept, summary.rows, next(iter(summary.dropped.values()))) == (len(expected), 400, unscored)
    assert summary.kept + sum(summary.dropped.values()) == summary.rows
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_number_of_rows_into_parquet_with_the_types_of_the_input(scored: Path, tmp_path: Path) -> None:
    assert filter_dataset(scored, tmp_path / "best.parquet", top=7).kept == 7
    rows = [row for row in make_rows() if has_score(row)]
    wanted = sorted(row["row"] for row in sorted(rows, key=lambda row: -row["reward"])[:7])
    table = pq.read_table(tmp_path / "best.parquet")
    assert table.column("row").to_pylist() == wanted
    assert [str(table.schema.field(name).type) for name in ("reward", "truncated", "row")] == [
        "double",
        "bool",
        "int64",
    ]


CONDITIONS = {  # ours: SQL's
    "reward >= 0.5": None,
    "0 <= reward < 0.9 and source == 'coco'": "0 <= reward AND reward < 0.9 AND source = 'coco'",
    "not (reward < 0.5 or truncated)": "NOT (reward < 0.5 OR truncated)",
    "source is None or reward > -0.5 and not truncated": "source IS NULL OR reward > -0.5 AND NOT truncated",
    "source in ['coco', 'x'] and reward is not None": "source IN ('coco', 'x') AND reward IS NOT NULL",
    "len(candidate) > 5 and row != 3": "length(candidate) > 5 AND row != 3",
    "column('source') != 'coco'": "source != 'coco'",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_mean_what_they_mean_in_sql(condition: str) -> None:
    rows = make_rows()
    table = pa.Table.from_pylist(rows)
    data = sqlite3.connect(":memory:")
    data.execute("CREATE TABLE rows (image, candidate, source, reward, truncated, row)")
    data.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", [tuple(row.values()) for row in rows])  # NaN is NULL
    found = data.execute(f"SELECT row FROM rows WHERE {CONDITIONS[condition] or condition} ORDER BY row")
    mask = parse_condition(condition, table.column_names).mask(table)
    assert mask.nonzero()[0].tolist() == [number for (number,) in found]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("__import__('os').system('true')", "is not allowed there"),
        ("reward.__class__ == 1", "'reward.__class__' is not allowed there"),
        ("(lambda: reward)() > 1", "is not allowed there"),
        ("reward > [1 for x in 'ab']", "is not allowed there"),
        ("reward = 1", "cannot be read (invalid syntax"),
        ("reward >", "cannot be read"),
        ("1 < 2", "looks at no column"),
        ("(" * 5000 + "reward" + ")" * 5000, "cannot be read"),
        ("reward in source", "is not allowed there"),
        ("rewrd > 1", "Did you mean 'reward'?"),
        ("reward > 'a'", "does not fit the columns (reward holds double)"),
    ],
)
def test_other_conditions_are_refused(condition: str, message: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"reward": 0.5, "source": "x"}])
    with pytest.raises((ConfigError, DataError)) as refusal:
        filter_dataset(tmp_path / "a.jsonl", tmp_path / "b.jsonl", keep=condition)
    assert message in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_what_cannot_be_done_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    data, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_lines(data, [{"reward": 0.5, "image": "x", "tags": [1]}, {"reward": None, "image": None, "tags": [2]}])
    for options, message in (
        ({}, "give --keep CONDITION"),
        ({"keep": "reward > 0", "per": "image"}, "needs --top"),
        ({"top": "0%"}, "must be a share such as 20%"),
        ({"top": "101%"}, "at most 100%"),
        ({"top": "2.5"}, "or a number of rows"),
        ({"top": 1, "by": "image"}, "column 'image' holds string, not one score a row"),
        ({"top": 1, "by": "tags"}, "take `capreward pairs`"),
        ({"top": 1, "per": "tags"}, "cannot name groups"),
        ({"keep": "reward > 1"}, "nothing was written: 1 without a score in 'reward'; 1 refused by 'reward > 1'"),
    ):
        with pytest.raises((ConfigError, DataError)) as refusal:
            filter_dataset(data, output, **options)  # type: ignore[arg-type]
        assert message in str(refusal.value)
        assert not output.exists()
    assert filter_dataset(data, output, top=1).dropped == {"without a score in 'reward'": 1, "not among the top 1": 0}
    with pytest.raises(OutputError, match="is there already"):
        filter_dataset(data, output, top=1)
    assert filter_dataset(data, output, top=1, overwrite=True).kept == 1


def test_parts_that_are_not_one_table_are_refused(tmp_path: Path) -> None:
    for name, rows in (("0", [{"reward": 0.1, "error": None}]), ("1", [{"reward": 0.2, "error": "bad"}])):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    source = open_source(tmp_path)
    assert (source.num_rows, [row["error"] for row in source.rows(["error"], 1)]) == (2, ["bad"])  # type: ignore[index]
    assert source.fingerprint() == open_source(tmp_path).fingerprint()
    pq.write_table(pa.table({"reward": [0.3], "more": [1]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2\.parquet or the first part has no column 'error'"):
        open_source(tmp_path)


SCRIPT = """
import resource, sys
import reward.scoring.filtering as f
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
options = {"keep": "reward >= 0.1", "top": "10%", "per": sys.argv[3] or None}
print(f.filter_dataset(*sys.argv[1:3], **options).kept)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_holds_numbers_only(tmp_path: Path) -> None:
    import numpy as np

    numbers = np.random.default_rng(0)
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"reward": pa.float64(), "image": pa.string()})) as writer:
        for part in range(30):
            images = [f"a folder of a name of some length/{part}/{row // 4}.png" for row in range(50_000)]
            writer.write_table(pa.table({"reward": numbers.random(50_000), "image": images}))
    grown = {}
    for per in ("", "image"):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "a.parquet"), str(tmp_path / f"{per}b.parquet"), per]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        kept, grown[per] = map(int, done.stdout.split())
        assert kept == pq.read_metadata(tmp_path / f"{per}b.parquet").num_rows > 100_000
    # 1.5 million rows: 90 MB of texts in the file, 67 bytes of numbers a row here, and one part of the file at a time
    assert max(grown.values()) < 190, grown
    assert read_rows(tmp_path / "b.parquet")[0].keys() == {"reward", "image"}
