"""Tables of a benchmark whose rows cannot be told from each other: refused, with the line or the column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks.records import read_table


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["cand", "cand"]), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("cand,cand\na,b\n")
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(DataError, match="several columns named 'cand'; columns need different names"):
            list(read_table(tmp_path / name))


def test_an_open_quote_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,cand\n1,a\n2,"a dog\n3,b\n')
    with pytest.raises(DataError, match=r"t\.csv: a quote that opens in line 3 is not closed"):
        list(read_table(tmp_path / "t.csv"))
