"""A kept score belongs to all that made it: what changed is scored anew or refused, and what is the same goes on."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import yaml
from datasets.fingerprint import Hasher
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.decoding.captioners import LocalCaptioner, Sampling
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.errors import CapRewardError, CheckpointError, OutputError
from reward.fingerprint_objects import fingerprint_object, is_told
from reward.fingerprints import fingerprint_file, fingerprint_network, fingerprint_source
from reward.judges import LocalJudge
from reward.judges.lazy import LazyJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.scoring import BatchScorer, rerank_dataset, score_dataset
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.small_clip import small_clip

pytestmark = pytest.mark.slow

MODULE = """
import numpy as np
from reward.metrics.base import MetricSpec
from reward.score_table import ScoreTable

class Words:
    spec = MetricSpec("words", "words_metric.scorer:Words", ("words",), needs_image={image})

    def __init__(self, factor=1.0):
        self.factor, self.known = factor, {{"red", "green", "blue", "star"}}

    def score(self, samples, *, batch_size=None, progress=False):
        scores = np.array([[self.factor * {times} * len(sample.candidate.split())] for sample in samples])
        return ScoreTable(scores, ("words",), {{}}, np.zeros(len(samples), dtype=bool))
"""


WORDING = yaml.safe_load((files("reward.metrics.fleur") / "prompt.yaml").read_text())


class Set:
    """Rows, photos and a metric, each of which can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.factor = folder, 1.0
        self.captions = [f"a red star {number}" for number in range(1500)]
        save_greys(folder / "photos")
        self.code()

    def code(self, times: int = 1) -> None:
        package = self.folder / "words_metric"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        (package / "scorer.py").write_text(MODULE.format(times=times, image=True))

    def scorer(self) -> Any:
        for name in ("words_metric", "words_metric.scorer"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("words_metric.scorer").Words(self.factor)

    def data(self) -> Any:
        photos = [str(self.folder / "photos" / f"{number % 3}.png") for number in range(len(self.captions))]
        return datasets.Dataset.from_dict({"image": photos, "caption": self.captions})

    def row(self) -> None:
        self.captions[777] = "quite another caption"

    def photo(self) -> None:
        Image.new("RGB", (9, 9), "green").save(self.folder / "photos" / "1.png")

    def state(self) -> None:
        self.factor = 2.0


def score(kept: Set) -> Any:
    return score_dataset(kept.data(), kept.scorer(), kept.folder / "out.jsonl")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Set(tmp_path)


@pytest.mark.parametrize(
    "change", [Set.row, Set.photo, Set.state, lambda kept: kept.code(2)], ids=["row", "photo", "state", "code"]
)
def test_a_finished_output_is_of_its_rows_photos_scorer_and_code(kept: Set, change: Callable[[Set], None]) -> None:
    assert not score(kept).already_done
    assert score(kept).already_done  # other objects, equal in all
    change(kept)
    with pytest.raises(OutputError, match="exists already"):
        score(kept)


def stop(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_photo_replaced_while_a_run_was_stopped_is_scored_again(kept: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = load_scorer("clipscore", device="cpu")
    rows = [{"image": f"photos/{number}.png", "candidates": ["a red star", "a tree"]} for number in (0, 1, 2, 1)]
    write_lines(kept.folder / "data.jsonl", rows)
    output = kept.folder / "out.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            rerank_dataset(kept.folder / "data.jsonl", scorer, output, part_rows=1)
    kept.photo()
    summary = rerank_dataset(kept.folder / "data.jsonl", scorer, output)
    assert (summary.resumed_rows, summary.new_rows) == (2, 2)
    fresh = kept.folder / "fresh.jsonl"
    rerank_dataset(kept.folder / "data.jsonl", scorer, fresh)
    assert [row["rewards"] for row in read_lines(output)] == [row["rewards"] for row in read_lines(fresh)]


@pytest.fixture
def vela(tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """A checkpoint folder, and another training into it."""
    scorer = load_scorer("vela", device="cpu")
    scorer.save_pretrained(tmp_path / "vela")

    def retrain() -> None:
        with torch.no_grad():
            for weight in scorer.model.parameters():
                weight.mul_(0.7)
        scorer.save_pretrained(tmp_path / "vela")

    return tmp_path / "vela", retrain


def test_a_checkpoint_retrained_into_its_folder_is_another(
    vela: tuple[Path, Callable[[], None]], tmp_path: Path
) -> None:
    folder, retrain = vela
    batch = {"image": [Image.new("RGB", (96, 96), "red")], "caption": ["a red star"]}
    write_lines(tmp_path / "rows.jsonl", [{"caption": "a red star"}])

    def made() -> BatchScorer:
        return BatchScorer("vela", source=folder, device="cpu", added_only=True)

    old = made()
    before, name, copy = old(batch)["reward"], Hasher.hash(made()), pickle.dumps(made())
    assert Hasher.hash(old) == name  # having scored makes it no other
    assert pickle.loads(copy)(batch)["reward"] == before
    objects = fingerprint_object(load_scorer("vela", folder, device="cpu"))
    retrain()
    assert made()(batch)["reward"] != before
    assert Hasher.hash(made()) != name
    assert fingerprint_object(load_scorer("vela", folder, device="cpu")) != objects
    assert old(batch)["reward"] == before
    with pytest.raises(CheckpointError, match="Make a new BatchScorer"):
        pickle.loads(copy)(batch)
    with pytest.raises(CheckpointError, match="Make a new BatchScorer"):
        pickle.dumps(old)


@pytest.mark.parametrize("named", [False, True], ids=["the checkpoint", "a backbone it names"])
def test_a_hub_name_is_the_commit_that_it_stands_for(hub: LoopbackHub, tmp_path: Path, named: bool) -> None:
    repo, source = "somebody/length", "somebody/length"
    if named:
        repo, source = "somebody/llm", str(tmp_path / "checkpoint")
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / "config.json").write_text(
            json.dumps({"metric": "length", "text": {"backbone": repo}})
        )
    commit = hub.add_repo(repo, {"config.json": b'{"metric": "length"}'})
    data, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    write_lines(data, [{"caption": "a red star"}])
    score_dataset(data, "length", output, source=source)
    assert score_dataset(data, "length", output, source=source).already_done
    assert commit in fingerprint_source(source)
    hub.add_repo(repo, {"config.json": b'{"metric": "length"}', "n": b"moved"})
    with pytest.raises(OutputError, match="exists already"):
        score_dataset(data, "length", output, source=source)


def test_a_large_file_is_hashed_wholly_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.safetensors"
    with file.open("wb") as writing:
        writing.truncate(300 * 2**20)
    os.utime(file, (1, 1))
    monkeypatch.setattr("reward.fingerprints._SETTLED", -1.0)  # that it was changed just now
    before = fingerprint_file(file)
    with monkeypatch.context() as patch:
        patch.setattr("reward.fingerprints.hash_file", stop)
        assert fingerprint_file(file) == before
    with file.open("r+b") as writing:
        writing.seek(7 * 2**20 + 13)
        writing.write(b"x")
    os.utime(file, (1, 1))  # as some copies keep it
    assert fingerprint_file(file) != before
    (tmp_path / "blobs").mkdir()
    blob, link = tmp_path / "blobs" / ("a" * 64), tmp_path / "link.safetensors"
    file.rename(blob)
    link.symlink_to(blob)
    assert fingerprint_file(link) == "a" * 64


def test_one_value_of_a_network_makes_it_another() -> None:
    network = torch.nn.Embedding(50_000, 8, dtype=torch.bfloat16)
    before = fingerprint_network(network)
    with torch.no_grad():
        network.weight[12_345, 3] += 1
    assert fingerprint_network(network) != before


@pytest.mark.parametrize("change", [{}, {"dtype": "bfloat16"}, {"prompt": {**WORDING, "ask": "Grade:"}}])
def test_a_judge_is_its_weights_dtype_and_prompt(change: dict[str, Any]) -> None:
    def loaded(dtype: str | None = None, **settings: Any) -> FleurScorer:
        judge = LocalJudge.from_pretrained(files("reward") / "assets" / "captioner", device="cpu", dtype=dtype)  # type: ignore[arg-type]
        return FleurScorer(judge, **settings)

    assert (loaded(**change).fingerprint == loaded().fingerprint) is not bool(change)


def test_a_judge_that_is_not_loaded_yet_is_its_files_and_dtype(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("one")

    def name(**settings: Any) -> str:
        return LazyJudge(partial(LocalJudge.from_pretrained, str(tmp_path), **settings), str(tmp_path)).fingerprint

    before = name(device="cpu")
    assert name(device="cuda") == before != name(dtype="bfloat16")
    (tmp_path / "model.safetensors").write_text("two")
    assert name(device="cpu") != before


def test_stored_captions_belong_to_the_weights_of_the_captioner(tmp_path: Path) -> None:
    shutil.copytree(str(files("reward") / "assets" / "captioner"), tmp_path / "captioner")
    save_greys(tmp_path / "photos")

    def caption() -> Any:
        captioner = LocalCaptioner(tmp_path / "captioner", device="cpu")
        options: dict[str, Any] = {"metric": "length", "n": 1, "sampling": Sampling(max_tokens=4)}
        return caption_images(read_images(tmp_path / "photos"), captioner, tmp_path / "out.jsonl", **options)

    caption()
    assert caption().already_done
    with (tmp_path / "captioner" / "config.json").open("a") as file:
        file.write("\n")  # stands for other weights
    with pytest.raises(OutputError, match="exists already"):
        caption()


class Handle:
    """Holds what cannot be told from another."""

    def __init__(self) -> None:
        self.connection = sys._getframe()


def test_patterns_are_told_apart_and_use_of_a_tokenizer_changes_no_scorer(tmp_path: Path) -> None:
    long = "x" * 300  # of which the text of a pattern shows the beginning
    assert fingerprint_object([re.compile(long + "a")]) != fingerprint_object([re.compile(long + "b")])
    folder = small_clip(tmp_path / "clip")
    made = [load_scorer("clipscore", folder, device="cpu") for _ in range(2)]
    before = made[0].fingerprint
    assert is_told(before)
    assert before == made[1].fingerprint
    made[1].score([CaptionSample("An extraordinary starfish.", Image.new("RGB", (40, 40)))])
    assert before == made[1].fingerprint


def test_what_cannot_be_told_is_never_equal() -> None:
    assert fingerprint_object(Handle()) != fingerprint_object(Handle())
    assert fingerprint_object(np.arange(3)) == fingerprint_object(np.arange(3)) != fingerprint_object(np.arange(4))


@pytest.mark.parametrize("metric", ["vela", "length", "clipscore", "length_avg"])
def test_a_revision_of_what_has_none_is_refused(metric: str) -> None:
    with pytest.raises(CapRewardError, match=r"revision='v2' needs a Hub id, but source is 'embedded'"):
        load_scorer(metric, revision="v2")
