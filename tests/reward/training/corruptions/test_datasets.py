"""Data of wrong captions, made again: what the data hold already stays."""

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.backbones import load_clip
from reward.scoring.readers import open_source
from reward.training.corruptions import datasets
from reward.training.corruptions.datasets import Retriever, make_corrupted
from reward.training.corruptions.retrieved import clip_embeddings
from tests.toys.json_lines import write_lines
from tests.toys.toy_clips import small_clip


@pytest.mark.parametrize(
    ("held", "kept"), [(["mine", "mine too"], ["mine", "mine too"]), ("mine", ["mine"]), (None, [])]
)
def test_a_kind_made_again_is_added_to_what_is_there(held, kept, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    row = {"image": "a.png", "caption": "A red star shines on the green grass.", "incorrect_shuffle_words": held}
    row |= {"incorrect_count": "Two stars.", "incorrect": "A red ring.", "category": "foil"}
    source = write_lines(tmp_path / "rows.jsonl", [row])
    for name, new in (("first", 1), ("again", 0)):  # the same seed makes the same caption, which is there already
        made = make_corrupted(open_source(source), tmp_path / f"{name}.parquet", words=["shuffle_words"])
        [row] = pq.read_table(made.output).to_pylist()
        *before, last = row["incorrect_shuffle_words"]
        assert (before, "shines" in last) == (kept, True)
        assert (row["incorrect_count"], row["incorrect"], row["category"]) == (["Two stars."], "A red ring.", "foil")
        assert made.counts == {"shuffle_words": new}
        source = made.output


def test_embeddings_are_kept_through_an_interruption(tmp_path, monkeypatch):
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n % 3}.png", "caption": f"A red star shines on {n} green hills."} for n in range(6)]
    source = open_source(write_lines(tmp_path / "rows.jsonl", rows))
    retriever, calls = Retriever(load_clip(small_clip(tmp_path / "clip")), "small", 2), []

    def embed(*given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return clip_embeddings(*given)

    monkeypatch.setattr(datasets, "_CHUNK", 2)
    monkeypatch.setattr(datasets, "clip_embeddings", embed)
    with pytest.raises(KeyboardInterrupt, match=r"2 embeddings are saved in .*whole\.parquet\.embeddings"):
        make_corrupted(source, tmp_path / "whole.parquet", retriever=retriever)
    make_corrupted(source, tmp_path / "whole.parquet", retriever=retriever)
    assert len(calls) == 4
    make_corrupted(source, tmp_path / "unbroken.parquet", retriever=retriever)
    whole, unbroken = (pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in ("whole", "unbroken"))
    assert whole == unbroken
    assert not list(tmp_path.glob(".*"))
