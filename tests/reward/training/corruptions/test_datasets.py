"""Data of wrong captions, made again: what the data hold already stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.backbones import load_clip
from reward.scoring.readers import open_source
from reward.training.corruptions import datasets
from reward.training.corruptions.datasets import Retriever, make_corrupted
from reward.training.corruptions.retrieval import clip_embeddings
from tests.toys.json_lines import write_lines
from tests.toys.small_clip import small_clip


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


def test_embeddings_are_kept_through_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n % 3}.png", "caption": f"A red star shines on {n} green hills."} for n in range(6)]
    write_lines(tmp_path / "rows.jsonl", rows)
    monkeypatch.setattr(datasets, "_CHUNK", 2)
    retriever, left = Retriever(load_clip(small_clip(tmp_path / "clip")), "small", 2), [2]

    def embed(*given: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return clip_embeddings(*given)

    monkeypatch.setattr(datasets, "clip_embeddings", embed)
    source, whole = open_source(tmp_path / "rows.jsonl"), tmp_path / "whole.parquet"
    with pytest.raises(KeyboardInterrupt, match=r"2 embeddings are saved in .*whole\.parquet\.embeddings"):
        make_corrupted(source, whole, retriever=retriever)
    left[0] = 1
    make_corrupted(source, whole, retriever=retriever)
    left[0] = 3
    make_corrupted(source, tmp_path / "again.parquet", retriever=retriever)
    tables = [pq.read_table(tmp_path / name).to_pylist() for name in ("whole.parquet", "again.parquet")]
    assert tables[0] == tables[1]
    assert not list(tmp_path.glob(".*"))
