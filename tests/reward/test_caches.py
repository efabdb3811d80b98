"""The cache of tensors on disk: sound entries, bounded size, several processes at once."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import shutil
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from reward.caches import CacheSection, TensorCache, parse_size
from reward.errors import ConfigError

MODEL, OTHER = "0" * 64, "1" * 64


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def entry_of(folder: Path, number: int) -> Path:
    (path,) = folder.rglob(f"{key(number)}.safetensors")
    return path


def bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*.safetensors"))


def test_tensors_come_back_bit_for_bit_for_their_model_only(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 5, dtype=torch.bfloat16), "b": torch.randn(2, dtype=torch.float64).numpy()}
    section = TensorCache(tmp_path).section("images", MODEL)
    assert key(0) not in section
    section.save(key(0), tensors)
    again = TensorCache(tmp_path).section("images", MODEL)
    found = again.load(key(0))
    assert found is not None
    assert torch.equal(found["a"], tensors["a"])  # type: ignore[arg-type]
    assert (found["b"].numpy() == tensors["b"]).all()
    assert key(0) in again
    assert (again.hits, again.misses) == (1, 0)
    for other in (TensorCache(tmp_path).section("images", OTHER), TensorCache(tmp_path).section("others", MODEL)):
        assert other.load(key(0)) is None
        assert (other.hits, other.misses) == (0, 1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-3], "cut short"),
        (lambda data: data[:5], "cut short"),
        (lambda data: b"", "cut short"),
        (lambda data: b"somebody's notes", "another form"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
        (lambda data: data[:-8] + bytes(8), "checksum"),  # after a power cut, a file may have zeros at its end
    ],
)
def test_a_torn_or_foreign_file_is_replaced_with_a_warning(damage: object, reason: str, tmp_path: Path) -> None:
    section = TensorCache(tmp_path).section("images", MODEL)
    section.save(key(0), {"a": torch.ones(4)})
    path = entry_of(tmp_path, 0)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.warns(UserWarning, match=f"is made again: .*{reason}"):
        assert section.load(key(0)) is None
    section.save(key(0), {"a": torch.ones(4)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert section.load(key(0)) is not None
    assert (section.hits, section.misses) == (1, 1)


def test_an_entry_under_another_name_is_not_taken(tmp_path: Path) -> None:
    section = TensorCache(tmp_path).section("images", MODEL)
    section.save(key(0), {"a": torch.ones(4)})
    section.save(key(1), {"a": torch.zeros(4)})
    shutil.copy(entry_of(tmp_path, 0), entry_of(tmp_path, 1))
    with pytest.warns(UserWarning, match="belongs to another image or model"):
        assert section.load(key(1)) is None


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    cache = TensorCache(tmp_path, size="1MB")
    section = cache.section("images", MODEL)
    for number in range(8):
        section.save(key(number), {"a": torch.zeros(100_000, dtype=torch.uint8)})
        os.utime(entry_of(tmp_path, number), (1000 + number, 1000 + number))
    assert section.load(key(0)) is not None  # the oldest, but just used
    notes = tmp_path / "notes.safetensors"
    notes.touch()
    for number in range(8, 12):
        section.save(key(number), {"a": torch.zeros(100_000, dtype=torch.uint8)})
    assert bytes_on_disk(tmp_path) <= 1_000_000
    kept = [number for number in range(12) if key(number) in section]
    assert 0 in kept
    assert kept[1:] == list(range(kept[1], 12))
    assert len(kept) >= 7
    assert notes.exists()  # no entry, so not ours to delete


def test_what_cannot_be_kept_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = TensorCache(tmp_path, size="1MB").section("images", MODEL)
    with pytest.warns(UserWarning, match=re.escape("does not fit into 1,000,000 bytes; raise --cache-size")):
        section.save(key(0), {"a": torch.zeros(1_000_000)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        section.save(key(1), {"a": torch.zeros(1_000_000)})

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    section = TensorCache(tmp_path).section("images", MODEL)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(UserWarning, match="No space left on device; what could not be kept is computed again"):
        section.save(key(2), {"a": torch.zeros(4)})
    assert section.load(key(2)) is None
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("size", ["20", "1 elephant", "-3GB", "0.5MB", "", True, "nan"])
def test_sizes_that_are_none(size: object) -> None:
    with pytest.raises(ConfigError, match="must be such as 20GB or 500MB, and at least 1MB"):
        parse_size(size)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: .* Choose another folder with --cache"):
        TensorCache(tmp_path / "file")


def use(section: CacheSection, seed: int) -> int:
    """Reads and writes entries in an order of its own; returns how many wrong ones it saw."""
    wrong = 0
    for place in range(200):
        number = (place * (7 + 4 * seed)) % 97
        found = section.load(key(number))
        if found is None:
            section.save(key(number), {"a": torch.full((5000,), number)})
        else:
            wrong += not torch.equal(found["a"], torch.full((5000,), number))
    return wrong


def test_processes_that_share_a_small_cache_see_no_wrong_entry(tmp_path: Path) -> None:
    section = TensorCache(tmp_path, size="1MB").section("images", MODEL)  # room for 22 of the 97
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        other = pool.submit(use, section, 1)
        assert use(section, 0) == 0  # before the other one starts, and while it runs
        assert use(section, 2) == 0
        assert other.result() == 0
    assert bytes_on_disk(tmp_path) <= 1_100_000
    assert not list(tmp_path.rglob("*.tmp"))
