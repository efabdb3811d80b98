"""Training in stages: every stage starts where the last one ended."""

import itertools

import numpy as np
import pytest
import torch
from datasets import DatasetDict

from reward import CaptionSample, load_scorer
from reward.errors import DataError
from reward.metaeval import kendall_tau
from reward.scenes import make_dataset
from reward.training.loop import train
from tests.reward.training.small_runs import TWO, pair_rows, record, same_weights, small_beitscore, small_data, weights

pytestmark = pytest.mark.slow


def test_a_run_leaves_each_stages_checkpoint_and_the_last_one_as_its_own(tmp_path):
    config = small_beitscore(scenes_val=11, scenes_test=6)
    result = train("beitscore", "scenes", tmp_path, config, command="capreward train beitscore")
    folders = {name: stage.folder for name, stage in result.stages.items()}
    assert list(folders) == ["1a", "1b", "1c", "2"]
    assert same_weights(tmp_path, folders["2"])
    assert not any(same_weights(one, two) for one, two in itertools.pairwise(folders.values()))
    assert [record(folder).get("start") for folder in folders.values()] == [None, "../1a", "../1b", "../1c"]
    assert "accuracy_scene_text" not in result.stages["1b"].figures["val"]
    assert "accuracy_scene_text" in result.stages["1c"].figures["val"]

    rows = make_dataset(6, config.scenes_seed + 2)
    samples = [CaptionSample(row["cand"], row["image"]) for row in rows]
    scores = load_scorer("beitscore", tmp_path, device="cpu").score(samples).scores[:, 0]
    tau_c = kendall_tau(scores, np.array(rows["score"]))
    assert result.figures["test"]["tau_c"] == pytest.approx(tau_c, abs=1e-6)
    card = (tmp_path / "README.md").read_text()
    facts = ("capreward train beitscore", "## Stage 1a", "| scene_text | ", "## Stage 2", "Data: `scenes`", "tau-c")
    assert [fact for fact in facts if fact not in card] == []
    assert record(tmp_path)["figures"] == result.figures


def test_a_stage_starts_from_the_weights_that_the_last_one_kept_and_may_have_data_of_its_own(tmp_path):
    pairs, ratings = str(tmp_path / "pairs"), str(tmp_path / "ratings")
    DatasetDict({"train": pair_rows(), "val": pair_rows()}).save_to_disk(pairs)
    small_data().save_to_disk(ratings)
    stages = {**TWO, "1a": {"categories": []}, "2": {"loss": "l1", "learning_rate": 1e-12}}
    run = tmp_path / "run"
    result = train("beitscore", "scenes", run, small_beitscore(stages=stages, pairs=pairs, data=ratings))
    first, last = weights(result.stages["1a"].folder), weights(run)
    assert all(torch.allclose(first[name], last[name], atol=1e-8) for name in first)
    assert {name: stage.figures["val"]["n"] for name, stage in result.stages.items()} == {"1a": 12, "2": 6}
    assert record(result.stages["1a"].folder)["pairs"]["train"] == {"count": 4, "repeat": 4, "shuffle": 4}
    assert f"Data: `{pairs}`; captions of pairs: train 24, val 24." in (run / "README.md").read_text()


def test_a_mistake_in_the_last_stage_shows_at_once_and_leaves_the_folder_free(tmp_path):
    taste = small_beitscore(stages={**TWO, "2": {"loss": "bce", "categories": ["taste"]}})
    with pytest.raises(DataError, match="no errors of the kinds taste"):
        train("beitscore", "scenes", tmp_path, taste)
    assert list(tmp_path.iterdir()) == []
