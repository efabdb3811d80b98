"""Data sets of the Hub by name."""

import io
import re

import datasets
import pytest

from reward.errors import DataError
from reward.scoring.readers import open_source
from tests.reward.scoring.small_data import save_greys

NAME = "some-one/captions.v1"
README = """---
configs:
- config_name: small
  data_files:
  - split: train
    path: train.parquet
  - split: test
    path: test.parquet
---
"""


@pytest.fixture(autouse=True)
def repositories(hub, tmp_path, monkeypatch):
    """A data set with two splits, and one that would run a script."""
    from huggingface_hub import HfFileSystem

    HfFileSystem.clear_instance_cache()  # which knows the Hub of the test before
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    image, files = str(save_greys(tmp_path / "images") / "0.png"), {"README.md": README.encode()}
    for split, captions in (("train", ["a"]), ("test", ["a star", "two"])):
        data, buffer = datasets.Dataset.from_dict({"caption": captions, "image": [image] * len(captions)}), io.BytesIO()
        data.cast_column("image", datasets.Image()).to_parquet(buffer)
        files[f"{split}.parquet"] = buffer.getvalue()
    hub.add_repo(NAME, files, kind="datasets")
    hub.add_repo("some-one/script", {"script.py": b"open('ran', 'w')\n", "README.md": b"# x\n"}, kind="datasets")
    yield
    HfFileSystem.clear_instance_cache()


@pytest.mark.parametrize("name", [NAME, f"{NAME}:small", f"{NAME}@main", f"https://huggingface.co/datasets/{NAME}"])
def test_a_data_set_is_read_by_its_name(name):
    rows = open_source(name, split="test").rows(["caption"])
    assert [row["caption"] for row in rows if isinstance(row, dict)] == ["a star", "two"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("some-one/absent", "no file some-one/absent, and no data set of that name can be loaded from the Hub"),
        (f"{NAME}:large", "'small'"),
        ("some-one/script", "cript"),
    ],
)
def test_what_is_no_name_of_a_data_set_is_refused(name, message, tmp_path):
    with pytest.raises(DataError, match=re.escape(message)):
        open_source(name)
    assert not list(tmp_path.rglob("ran"))  # nothing of the repository did
