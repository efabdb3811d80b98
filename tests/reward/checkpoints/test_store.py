"""The store of kept values, and tensors in it: sound entries of their own model only, bounded size, several users."""

import hashlib
import multiprocessing
import pickle
import re
import sqlite3
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from reward.checkpoints.caches import TensorCache, parse_size
from reward.checkpoints.store import DamagedStoreError, Store
from reward.errors import ConfigError, OutputError

MODEL, OTHER = "0" * 64, "1" * 64


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def keep(cache, number, count):
    cache.save({key(number): {"a": torch.full((count,), float(number))}})


def test_tensors_come_back_bit_for_bit_for_their_model_only(tmp_path):
    tensors = {"a": torch.randn(3, 5, dtype=torch.bfloat16), "b": torch.randn(2, dtype=torch.float64).numpy()}
    first = TensorCache(tmp_path, "images", MODEL)
    first.save({key(0): tensors})
    for again in (TensorCache(tmp_path, "images", MODEL), pickle.loads(pickle.dumps(first))):
        loaded = again.load(key(0))
        assert torch.equal(loaded["a"], tensors["a"])
        assert (loaded["b"].numpy() == tensors["b"]).all()
        assert key(0) in again
    for other in (TensorCache(tmp_path, "images", OTHER), TensorCache(tmp_path, "others", MODEL)):
        assert other.load(key(0)) is None
    assert (again.hits, again.misses, other.hits, other.misses) == (1, 0, 0, 1)


def test_a_damaged_entry_is_made_again_with_a_warning(tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL)
    keep(cache, 0, 4)
    with sqlite3.connect(tmp_path / "kept.sqlite") as rows:
        rows.execute("UPDATE kept SET value = substr(value, 1, length(value) - 3)")
    with pytest.warns(UserWarning, match="1 damaged, left out and to be made again"):
        assert cache.load(key(0)) is None
    keep(cache, 0, 4)
    assert cache.load(key(0)) is not None


@pytest.mark.parametrize("damage", [lambda data: b"no database" * 100, lambda data: data[:4096] + b"\xff" * 8192])
def test_a_damaged_file_is_told_and_scores_go_on_without_it(damage, tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL)
    keep(cache, 0, 10_000)
    cache._store.close()
    file = tmp_path / "kept.sqlite"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedStoreError, match="is damaged, or no store of this version"):
        Store(file).get("images", "a")
    with pytest.warns(UserWarning, match="does not keep everything.*is damaged"):
        assert cache.load(key(0)) is None
    keep(cache, 0, 4)
    assert key(0) not in cache


def test_a_database_of_another_tool_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "kept.sqlite") as rows:
        rows.execute("CREATE TABLE precious (value)")
    with pytest.raises(ConfigError, match="no store of this version: it holds other tables"):
        TensorCache(tmp_path, "images", MODEL)


def test_a_full_file_keeps_what_it_has_and_says_so_once(tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL, size="1MB")
    keep(cache, 0, 100_000)
    for again in (TensorCache(tmp_path, "images", OTHER, size="1MB"), cache):  # whoever wrote what is there
        with pytest.warns(UserWarning, match=re.escape("full with 1,000,000 bytes; raise --cache-size")):
            keep(again, 1, 200_000)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            keep(again, 2, 200_000)
    assert key(0) in cache
    assert key(1) not in cache


def test_a_disk_without_space_is_told_and_what_was_there_stays(tmp_path):
    cache = TensorCache(tmp_path, "images", MODEL)
    keep(cache, 0, 4)
    cache._store._open().execute("PRAGMA max_page_count = 10")  # SQLite says the same of a full disk
    with pytest.warns(UserWarning, match="disk is full; what could not be kept is computed again"):
        keep(cache, 1, 100_000)
    assert cache.load(key(1)) is None
    assert cache.load(key(0)) is not None


def test_what_cannot_be_a_cache_is_refused_at_once(tmp_path):
    for size in ("20", "1 elephant", "-3GB", "0.5MB", True):
        with pytest.raises(ConfigError, match="must be such as 20GB or 500MB, and at least 1MB"):
            parse_size(size)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be used: .* Choose another folder with --cache"):
        TensorCache(tmp_path / "file", "images", MODEL)


@pytest.mark.filterwarnings("error")
def test_several_threads_see_no_wrong_entry(tmp_path):
    shared = TensorCache(tmp_path, "images", MODEL)

    def wrong_entries(step):
        cache, wrong = shared if step == 7 else TensorCache(tmp_path, "images", MODEL), 0
        for place in range(100):
            number = (place * step) % 37
            loaded = cache.load(key(number))
            if loaded is None:
                keep(cache, number, 5000)
            else:
                wrong += not torch.equal(loaded["a"], torch.full((5000,), float(number)))
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong_entries, (7, 7, 11, 19))) == [0, 0, 0, 0]


def fill(file, name):
    """Keeps pairs of equal values until it is killed, or the store has its size."""
    store, number = Store(file, size=300_000), 0
    while store.put(name, {f"{number} a": bytes([number % 256]) * 1000, f"{number} b": bytes([number % 256]) * 1000}):
        number += 1


@pytest.mark.slow
def test_processes_share_one_bound_and_a_kill_leaves_whole_pairs(tmp_path):
    file, context = tmp_path / "kept.sqlite", multiprocessing.get_context("fork")
    store = Store(file)
    assert store.items("0") == []  # opened before the fork
    for _ in range(3):
        writers = [context.Process(target=fill, args=(file, str(name))) for name in range(3)]
        for writer in writers:
            writer.start()
        time.sleep(0.1)
        writers[0].kill()
        for writer in writers:
            writer.join(60)
    pairs = {name: dict(store.items(name)) for name in "012"}
    assert sum(map(len, pairs.values())) > 50
    for values in pairs.values():
        assert all(f"{name[:-1]}a" in values and f"{name[:-1]}b" in values for name in values)
    assert file.stat().st_size <= 400_000  # a few pages of the index may come on top


def test_a_store_that_another_process_writes_to_is_waited_for_no_longer_than_said(tmp_path, monkeypatch):
    monkeypatch.setattr("reward.checkpoints.store._BUSY_SECONDS", 0.1)
    store, writer = Store(tmp_path / "kept.sqlite"), sqlite3.connect(tmp_path / "kept.sqlite", isolation_level=None)
    store.put("a", {"b": b"c"})
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OutputError, match="locked"):
        store.put("a", {"b": b"d"})
    writer.execute("ROLLBACK")
    assert store.get("a", "b") == b"c"
