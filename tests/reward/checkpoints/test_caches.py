"""The cache of tensors on disk: sound entries of their own model only, bounded size, several users at once."""

import hashlib
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from reward.checkpoints.caches import TensorCache, parse_size
from reward.errors import ConfigError

MODEL, OTHER = "0" * 64, "1" * 64


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_tensors_come_back_bit_for_bit_for_their_model_only(tmp_path):
    tensors = {"a": torch.randn(3, 5, dtype=torch.bfloat16), "b": torch.randn(2, dtype=torch.float64).numpy()}
    TensorCache(tmp_path, "images", MODEL).save(key(0), tensors)
    again = TensorCache(tmp_path, "images", MODEL)
    found = again.load(key(0))
    assert torch.equal(found["a"], tensors["a"])
    assert (found["b"].numpy() == tensors["b"]).all()
    assert key(0) in again
    for other in (TensorCache(tmp_path, "images", OTHER), TensorCache(tmp_path, "others", MODEL)):
        assert other.load(key(0)) is None
    assert (again.hits, again.misses, other.hits, other.misses) == (1, 0, 0, 1)


@pytest.mark.parametrize("keep", [-3, 0])
def test_a_torn_file_is_replaced_with_a_warning(keep, tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL)
    cache.save(key(0), {"a": torch.ones(4)})
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.warns(UserWarning, match="is made again"):
        assert cache.load(key(0)) is None
    cache.save(key(0), {"a": torch.ones(4)})
    assert cache.load(key(0)) is not None


def test_a_full_folder_keeps_what_it_has_and_says_so_once(tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL, size="1MB")
    cache.save(key(0), {"a": torch.zeros(100_000)})
    for again in (TensorCache(tmp_path, "images", OTHER, size="1MB"), cache):  # of the whole folder
        with pytest.warns(UserWarning, match=re.escape("full with 1,000,000 bytes; raise --cache-size")):
            again.save(key(1), {"a": torch.zeros(200_000)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again.save(key(2), {"a": torch.zeros(200_000)})
    assert key(0) in cache
    assert key(1) not in cache


def test_a_disk_without_space_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(28, "No space left on device")

    cache = TensorCache(tmp_path, "images", MODEL)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(UserWarning, match="No space left on device; what could not be kept is computed again"):
        cache.save(key(0), {"a": torch.zeros(4)})
    assert cache.load(key(0)) is None
    assert not list(tmp_path.rglob("*.tmp"))


def test_what_cannot_be_a_cache_is_refused_at_once(tmp_path):
    for size in ("20", "1 elephant", "-3GB", "0.5MB", True):
        with pytest.raises(ConfigError, match="must be such as 20GB or 500MB, and at least 1MB"):
            parse_size(size)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: .* Choose another folder with --cache"):
        TensorCache(tmp_path / "file", "images", MODEL)


@pytest.mark.filterwarnings("error")
def test_several_that_share_a_folder_see_no_wrong_entry(tmp_path):
    def wrong_entries(step):
        cache, wrong = TensorCache(tmp_path, "images", MODEL), 0
        for place in range(100):
            number = (place * step) % 37
            found = cache.load(key(number))
            if found is None:
                cache.save(key(number), {"a": torch.full((5000,), number)})
            else:
                wrong += not torch.equal(found["a"], torch.full((5000,), number))
        return wrong

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(wrong_entries, (7, 11, 19))) == [0, 0, 0]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 37
    assert not list(tmp_path.rglob("*.tmp"))
