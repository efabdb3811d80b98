"""A kept score belongs to all that made it: what changed is scored anew or refused, and what is the same goes on."""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import yaml
from datasets.fingerprint import Hasher
from PIL import Image

from reward import load_scorer
from reward.decoding.captioners import LocalCaptioner, Sampling
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.errors import CheckpointError, OutputError
from reward.fingerprint_objects import fingerprint_object
from reward.judges import LocalJudge
from reward.judges.lazy import LazyJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.scoring import BatchScorer, rerank_dataset, score_dataset
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow

CAPTIONER = Path(str(files("reward") / "assets" / "captioner"))
WORDING = yaml.safe_load((files("reward.metrics.fleur") / "prompt.yaml").read_text())
MODULE = """
import numpy as np
from reward.metrics.base import MetricSpec
from reward.score_table import ScoreTable

class Words:
    spec = MetricSpec("words", "words_metric.scorer:Words", ("words",), needs_image=True)
    factor = 1.0

    def __init__(self):
        self.known = {"red", "green", "blue", "star"}

    def score(self, samples, *, batch_size=None, progress=False):
        return ScoreTable([[self.factor * len(sample.candidate.split())] for sample in samples], ("words",))
"""


class Run:
    """Rows, photos and a metric of one's own, each of which can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.captions, self.state = folder, ["a red star", "a tree", "a dog"], {}
        save_greys(folder / "photos")
        (folder / "words_metric").mkdir()
        (folder / "words_metric" / "__init__.py").touch()
        self.write(MODULE)

    def write(self, code: str) -> None:
        (self.folder / "words_metric" / "scorer.py").write_text(code)

    def score(self) -> Any:
        for name in ("words_metric", "words_metric.scorer"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        scorer = importlib.import_module("words_metric.scorer").Words()
        vars(scorer).update(self.state)
        photos = [str(self.folder / "photos" / f"{number}.png") for number in range(3)]
        data = datasets.Dataset.from_dict({"image": photos, "caption": self.captions})
        return score_dataset(data, scorer, self.folder / "out.jsonl")

    def change_row(self) -> None:
        self.captions[1] = "quite another caption"

    def change_photo(self) -> None:
        Image.new("RGB", (9, 9), "green").save(self.folder / "photos" / "1.png")

    def change_state(self) -> None:
        self.state = {"factor": 2.0}

    def change_code(self) -> None:
        self.write(MODULE.replace("1.0", "2.0"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Run(tmp_path)


@pytest.mark.parametrize("change", [Run.change_row, Run.change_photo, Run.change_state, Run.change_code])
def test_a_finished_output_is_of_its_rows_photos_scorer_and_code(run: Run, change: Callable[[Run], None]) -> None:
    assert not run.score().already_done
    assert run.score().already_done  # other objects, equal in all
    change(run)
    with pytest.raises(OutputError, match="exists already"):
        run.score()


def stop(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_photo_replaced_while_a_run_was_stopped_is_scored_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = load_scorer("clipscore", device="cpu")
    rows = [{"image": f"photos/{number}.png", "candidates": ["a red star", "a tree"]} for number in (0, 1, 2, 1)]
    data = write_lines(run.folder / "data.jsonl", rows)
    output, fresh = run.folder / "out.jsonl", run.folder / "fresh.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            rerank_dataset(data, scorer, output, part_rows=1)
    run.change_photo()
    summary = rerank_dataset(data, scorer, output)
    assert (summary.resumed_rows, summary.new_rows) == (2, 2)
    rerank_dataset(data, scorer, fresh)
    assert [row["rewards"] for row in read_lines(output)] == [row["rewards"] for row in read_lines(fresh)]


def test_a_checkpoint_retrained_into_its_folder_is_another(tmp_path: Path) -> None:
    scorer, folder = load_scorer("vela", device="cpu"), tmp_path / "vela"
    scorer.save_pretrained(folder)
    batch = {"image": [Image.new("RGB", (96, 96), "red")], "caption": ["a red star"]}

    def made() -> BatchScorer:
        return BatchScorer("vela", source=folder, device="cpu", added_only=True)

    old = made()
    before, name, copy = old(batch)["reward"], Hasher.hash(made()), pickle.dumps(made())
    assert Hasher.hash(old) == name  # having scored makes it no other
    assert pickle.loads(copy)(batch)["reward"] == before
    loaded = fingerprint_object(load_scorer("vela", folder, device="cpu"))
    with torch.no_grad():
        for weight in scorer.model.parameters():
            weight.mul_(0.7)
    scorer.save_pretrained(folder)
    assert made()(batch)["reward"] != before
    assert Hasher.hash(made()) != name
    assert fingerprint_object(load_scorer("vela", folder, device="cpu")) != loaded
    assert old(batch)["reward"] == before
    with pytest.raises(CheckpointError, match="Make a new BatchScorer"):
        pickle.loads(copy)(batch)
    with pytest.raises(CheckpointError, match="Make a new BatchScorer"):
        pickle.dumps(old)


def test_scores_by_a_hub_name_are_those_of_its_commit(hub: LoopbackHub, tmp_path: Path) -> None:
    files = {"config.json": b'{"metric": "length"}'}
    hub.add_repo("somebody/length", files)
    data, output = write_lines(tmp_path / "rows.jsonl", [{"caption": "a red star"}]), tmp_path / "out.jsonl"
    score_dataset(data, "length", output, source="somebody/length")
    assert score_dataset(data, "length", output, source="somebody/length").already_done
    hub.add_repo("somebody/length", {**files, "n": b"moved"})
    with pytest.raises(OutputError, match="exists already"):
        score_dataset(data, "length", output, source="somebody/length")


@pytest.mark.parametrize("change", [{}, {"dtype": "bfloat16"}, {"prompt": {**WORDING, "ask": "Grade:"}}])
def test_a_judge_is_its_weights_dtype_and_prompt(change: dict[str, Any]) -> None:
    def loaded(dtype: Any = None, **settings: Any) -> FleurScorer:
        return FleurScorer(LocalJudge.from_pretrained(CAPTIONER, device="cpu", dtype=dtype), **settings)

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
    shutil.copytree(CAPTIONER, tmp_path / "captioner")
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
