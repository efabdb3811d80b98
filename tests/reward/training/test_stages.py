"""Training in stages: every stage starts where the last one ended."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from reward import CaptionSample, load_scorer
from reward.errors import DataError
from reward.metaeval import kendall_tau
from reward.scenes import make_dataset
from reward.training.loop import train
from tests.reward.training.small_runs import (
    TWO,
    pair_rows,
    record,
    same_weights,
    small_beitscore,
    small_data,
    weights,
)


@pytest.mark.slow
def test_a_run_leaves_each_stages_checkpoint_and_the_last_one_as_its_own(tmp_path: Path) -> None:
    config = small_beitscore(scenes_val=11, scenes_test=6)
    result = train("beitscore", "scenes", tmp_path / "run", config, command="capreward train beitscore")
    assert list(result.stages) == ["1a", "1b", "1c", "2"]
    folders = [stage.folder for stage in result.stages.values()]
    assert same_weights(tmp_path / "run", folders[3])
    assert not any(same_weights(one, two) for one, two in itertools.pairwise(folders))
    starts = [record(folder).get("start") for folder in folders]
    assert starts == [None, "../1a", "../1b", "../1c"]
    assert "accuracy_scene_text" not in result.stages["1b"].figures["val"]
    assert "accuracy_scene_text" in result.stages["1c"].figures["val"]

    scorer = load_scorer("beitscore", tmp_path / "run", device="cpu")
    rows = make_dataset(6, config.scenes_seed + 2)
    scores = scorer.score([CaptionSample(row["cand"], row["image"]) for row in rows]).scores[:, 0]
    found = result.figures["test"]
    assert found["tau_c"] == pytest.approx(kendall_tau(scores, np.array(rows["score"])), abs=1e-6)
    assert found["mse"] == pytest.approx(np.mean((scores - np.array(rows["score"])) ** 2), abs=1e-5)

    card = (tmp_path / "run" / "README.md").read_text()
    facts = ("capreward train beitscore", "## Stage 1a", "| scene_text | ", "## Stage 2", "Data: `scenes`", "tau-c")
    assert [fact for fact in facts if fact not in card] == []
    assert record(tmp_path / "run")["figures"] == result.figures
    assert not list((tmp_path / "run").rglob("checkpoints"))


def test_a_stage_starts_from_the_weights_that_the_last_one_kept(tmp_path: Path) -> None:
    config = small_beitscore(stages={**TWO, "2": {"loss": "l1", "learning_rate": 1e-12}})
    train("beitscore", "scenes", tmp_path / "run", config)
    first, last = weights(tmp_path / "run" / "stages" / "1a"), weights(tmp_path / "run")
    assert all(torch.allclose(first[name], last[name], atol=1e-8) for name in first)


def test_mistakes_in_any_stage_show_at_once_and_leave_the_folder_free(tmp_path: Path) -> None:
    data = small_data()
    data["train"] = data["train"].map(lambda row: {"score": 5 * row["score"]})
    data.save_to_disk(tmp_path / "data")
    stages = {**TWO, "1a": {"loss": "bce", "categories": ["count"]}}
    config = small_beitscore(stages=stages)
    with pytest.raises(DataError, match=r"'train', row 2: score must be a number in \[0, 1\], got 2.0"):
        train("beitscore", tmp_path / "data", tmp_path / "run", config)
    taste = small_beitscore(stages={**TWO, "2": {"loss": "bce", "categories": ["taste"]}})
    with pytest.raises(DataError, match="no errors of the kinds taste"):
        train("beitscore", "scenes", tmp_path / "run", taste)
    assert list((tmp_path / "run").iterdir()) == []
    small_data().save_to_disk(tmp_path / "good")
    result = train("beitscore", tmp_path / "good", tmp_path / "run", config)
    assert result.figures["val"]["n"] == 6


def test_stages_may_have_data_of_their_own(tmp_path: Path) -> None:
    from datasets import DatasetDict

    DatasetDict({"train": pair_rows(), "val": pair_rows()}).save_to_disk(tmp_path / "pairs")
    small_data().save_to_disk(tmp_path / "data")
    places = {name: str(tmp_path / name) for name in ("pairs", "data")}
    config = small_beitscore(stages={**TWO, "1a": {"categories": []}}, **places)
    result = train("beitscore", "scenes", tmp_path / "run", config)
    assert {name: stage.figures["val"]["n"] for name, stage in result.stages.items()} == {"1a": 12, "2": 6}
    assert record(result.stages["1a"].folder)["pairs"]["train"] == {"count": 4, "repeat": 4, "shuffle": 4}
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"Data: `{tmp_path / 'pairs'}`; captions of pairs: train 24, val 24." in card
