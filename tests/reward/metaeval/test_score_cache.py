"""The cache of scores: what names a metric and a sample, and a file that survives whatever is done to it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reward
from reward import CaptionSample
from reward.errors import OutputError
from reward.metaeval.score_cache import KnownScore, ScoreCache, default_cache_folder, metric_identity, sample_key
from reward.registry import metric_spec
from tests.loopback_hub import LoopbackHub

IDENTITY = {"metric": "length", "source": "embedded"}


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1),
        st.builds(
            KnownScore,
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4).map(tuple),
            st.booleans(),
            st.floats(0, 1e6),
            st.text(),
        ),
        max_size=8,
    )
)
def test_what_was_put_comes_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, known: dict[str, KnownScore]
) -> None:
    folder = tmp_path_factory.mktemp("a cache")
    ScoreCache(folder, IDENTITY).put(known)
    assert ScoreCache(folder, IDENTITY).get([*known, "absent"]) == known


def test_many_keys_and_another_metric(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "new folder", IDENTITY)
    cache.put({str(number): KnownScore((float(number),), False, 0.1, "CPU") for number in range(2001)})
    assert cache.get([str(number) for number in range(3000)])["2000"].scores == (2000.0,)
    other = ScoreCache(tmp_path / "new folder", {**IDENTITY, "dtype": "bfloat16"})
    assert other.get(["5"]) == {}
    assert other.path != cache.path
    assert other.fact("identity") == {**IDENTITY, "dtype": "bfloat16"}


@pytest.mark.parametrize("spoilt", ["x", "7", '["x"]', "null"])
def test_a_spoilt_row_is_no_score(tmp_path: Path, spoilt: str) -> None:
    cache = ScoreCache(tmp_path, IDENTITY)
    cache.put({"key": KnownScore((1.0,), False, 0.1, "CPU")})
    with sqlite3.connect(cache.path) as rows:
        rows.execute("UPDATE scores SET scores = ?", [spoilt])
    with pytest.raises(OutputError, match=r"cannot be used: .*delete it, or choose another \(--cache\)"):
        cache.get(["key"])


def test_a_file_that_is_no_cache_is_refused_and_kept(tmp_path: Path) -> None:
    path = ScoreCache(tmp_path, IDENTITY).path
    path.write_text("something else, long enough to be no empty database")
    with pytest.raises(OutputError, match=r"cache of scores .* cannot be used: .*\(--cache\)"):
        ScoreCache(tmp_path, IDENTITY)
    assert path.read_text().startswith("something else")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--cache"):
        ScoreCache(tmp_path / "file", IDENTITY)


def test_two_processes_may_write_one_file(tmp_path: Path) -> None:
    first, second = ScoreCache(tmp_path, IDENTITY), ScoreCache(tmp_path, IDENTITY)
    first.put({"a": KnownScore((1.0,), False, 0.1, "CPU")})
    second.put({"b": KnownScore((2.0,), True, 0.1, "CPU")})
    assert set(first.get(["a", "b"])) == {"a", "b"}
    rows = sqlite3.connect(first.path).execute("SELECT key, scores FROM scores").fetchall()
    assert sorted(rows) == [("a", "[1.0]"), ("b", "[2.0]")]


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "capreward" / "scores"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_folder() == tmp_path / "home" / ".cache" / "capreward" / "scores"


def test_a_checkpoint_is_known_by_its_content(tmp_path: Path) -> None:
    spec = metric_spec("length")
    (tmp_path / "config.json").write_text("{}")
    before = metric_identity(spec, tmp_path)
    assert metric_identity(spec, tmp_path) == before
    (tmp_path / "config.json").write_text('{"size": 2}')
    assert metric_identity(spec, tmp_path) != before
    assert metric_identity(spec, "embedded", dtype="bfloat16") != metric_identity(spec, "embedded")
    assert metric_identity(metric_spec("vela"), "embedded")["source"].startswith("config.json:")


def test_changed_code_is_another_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mymetric").mkdir()
    (tmp_path / "mymetric" / "__init__.py").write_text("")
    formula = tmp_path / "mymetric" / "formula.py"
    monkeypatch.syspath_prepend(tmp_path)
    spec = replace(metric_spec("length"), name="mine", scorer="mymetric.scorer:Mine")
    (tmp_path / "mymetric" / "scorer.py").write_text("")
    formula.write_text("WEIGHT = 1")
    before = metric_identity(spec, "embedded")
    formula.write_text("WEIGHT = 2")
    assert metric_identity(spec, "embedded")["code"] != before["code"]


def test_changed_code_that_metrics_share_is_another_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "reward"
    for name in ("metrics", "backbones", "judges", "scoring", "cli"):
        (package / name).mkdir(parents=True)
    for name in ("sentences.py", "backbones/clip.py", "cli/bench.py"):
        (package / name).write_text("one")
    monkeypatch.setattr(reward, "__file__", str(package / "__init__.py"))
    spec = metric_spec("length")
    codes = [metric_identity(spec, "embedded")["code"]]
    for name in ("sentences.py", "backbones/clip.py", "cli/bench.py"):
        (package / name).write_text("two")
        codes.append(metric_identity(spec, "embedded")["code"])
    assert codes[0] != codes[1] != codes[2] == codes[3]  # what the command line prints changes no score


def test_a_hub_id_is_known_by_its_commit(hub: LoopbackHub) -> None:
    spec = metric_spec("length")
    hub.add_repo("somebody/length", {"config.json": b"{}"})
    first = metric_identity(spec, "somebody/length")
    hub.add_repo("somebody/length", {"config.json": b'{"size": 2}'})
    second = metric_identity(spec, "somebody/length")
    assert len(first["revision"]) == 40
    assert first["revision"] != second["revision"]


def test_without_a_network_the_commit_is_the_one_downloaded_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    spec = metric_spec("length")
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "v1"
    refs = tmp_path / "models--somebody--length" / "refs"
    refs.mkdir(parents=True)
    (refs / "v1").write_text("a" * 40)
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "a" * 40


def test_samples_are_known_by_content() -> None:
    samples = [
        CaptionSample("a b"),
        CaptionSample("a", references=["b"]),
        CaptionSample("a", references=["b", "c"]),
        CaptionSample("a", references=["c", "b"]),
        CaptionSample("a", references=["b c"]),
    ]
    keys = [sample_key(sample, image) for sample in samples for image in (None, "1", "2")]
    assert len(set(keys)) == len(keys)
    assert sample_key(samples[0], "1") == sample_key(CaptionSample("a b", image=b"x"), "1")
    assert sample_key(samples[0], None, among="x") != sample_key(samples[0], None)
