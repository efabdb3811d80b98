"""Data of wrong captions, made again: what the data hold already stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.scoring.readers import open_source
from reward.training.corruptions.datasets import make_corrupted
from tests.json_lines import write_lines


@pytest.mark.parametrize("held", [["mine", "mine too"], "mine", None, []])
def test_a_kind_made_again_is_added_to_what_is_there(held: Any, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    row = {"image": "a.png", "caption": "A red star shines on the green grass.", "incorrect_shuffle_words": held}
    other = {"incorrect_count": "Two stars."}
    write_lines(tmp_path / "rows.jsonl", [row | other])
    first = make_corrupted(open_source(tmp_path / "rows.jsonl"), tmp_path / "first.parquet", words=["shuffle_words"])
    again = make_corrupted(open_source(first.output), tmp_path / "again.parquet", words=["shuffle_words"])
    before = [held] if isinstance(held, str) else held or []
    for made, new in ((first, 1), (again, 0)):  # the same seed makes the same caption, which is there already
        table = pq.read_table(made.output)
        [wrong] = table.column("incorrect_shuffle_words").to_pylist()
        assert wrong[:-1] == before
        assert "shines" in wrong[-1]
        assert table.column("incorrect_count").to_pylist() == [["Two stars."]]
        assert made.counts == {"shuffle_words": new}
