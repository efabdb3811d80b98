"""Aspects in training: ratings find them by name, one is enough, and none is left untrained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasets import DatasetDict
from PIL import Image

from reward import CaptionSample, VelaReward, load_scorer
from reward.errors import ConfigError, DataError
from reward.metaeval import kendall_tau
from reward.scenes import make_dataset
from reward.training.loop import train
from tests.reward.training.small_runs import small_config

COLUMNS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
# one epoch at a high rate, so that scores differ enough for figures that tell aspects apart
QUICK = {"epochs": 2, "learning_rate": 1e-2, "reference_free_rate": 0.0, "scenes_test": 30, "scenes_train": 30}


@pytest.mark.parametrize(
    "aspects", [["fluency", "descriptiveness", "relevance"], ["relevance"], ["fluency", "relevance"]]
)
def test_ratings_go_to_the_aspects_of_their_names(aspects: list[str], tmp_path: Path) -> None:
    config = small_config(**QUICK, model={"aspects": aspects})
    result = train("vela", "scenes", tmp_path / "run", config)
    rows = make_dataset(30, config.scenes_seed + 2)
    samples = [CaptionSample(row["cand"], row["image"], row["refs"][: config.max_references]) for row in rows]
    table = load_scorer("vela", tmp_path / "run", device="cpu").score(samples)
    assert table.aspects == tuple(aspects)
    found = result.figures["test"]
    assert {name for name in found if name.startswith("tau_c_")} == {f"tau_c_{aspect}" for aspect in aspects}
    for aspect in aspects:
        expected = kendall_tau(table.column(aspect), np.array(rows[COLUMNS[aspect]]))
        assert found[f"tau_c_{aspect}"] == pytest.approx(expected, abs=1e-6)
    targets = np.stack([rows[COLUMNS[aspect]] for aspect in aspects], axis=1)
    assert found["mse"] == pytest.approx(np.mean((table.scores - targets) ** 2), abs=1e-5)


def test_a_checkpoint_of_one_aspect_is_a_reward(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path / "run", small_config(model={"aspects": ["relevance"]}))
    image = Image.new("RGB", (96, 96))
    expected = load_scorer("vela", tmp_path / "run", device="cpu").score([CaptionSample("A red star.", image)])
    for weights in (None, {"rel": 1}, {"relevance": 2.0}):
        reward = VelaReward(tmp_path / "run", weights, device="cpu")
        assert reward(["What is it?"], ["A red star."], image=[image]) == pytest.approx([float(expected.scores[0, 0])])
    with pytest.raises(ConfigError, match="aspects must be a list of different names"):
        train("vela", "scenes", tmp_path / "other", small_config(model={"aspects": "relevance"}))


def _splits(**columns: list[float]) -> DatasetDict:
    """Scenes with ratings of one's own; columns left out are not rated."""

    def part(seed: int) -> object:
        rows = make_dataset(6, seed).remove_columns(["desc", "rel", "flu"])
        for name, values in columns.items():
            rows = rows.add_column(name, values)
        return rows

    return DatasetDict({"train": part(0), "val": part(1)})


def test_an_aspect_without_ratings_is_not_left_at_its_start(tmp_path: Path) -> None:
    _splits(rel=[0.0, 0.25, 0.5, 0.75, 1.0, 0.5]).save_to_disk(tmp_path / "data")
    with pytest.raises(DataError, match=r"does not rate descriptiveness, fluency.*model\.aspects: \[relevance\]"):
        train("vela", tmp_path / "data", tmp_path / "run", small_config())
    train("vela", tmp_path / "data", tmp_path / "run", small_config(model={"aspects": ["relevance"]}))


def test_ratings_that_are_all_equal_are_refused(tmp_path: Path) -> None:
    _splits(desc=[0.5] * 6, rel=[1.0] * 6, flu=[0.25] * 6).save_to_disk(tmp_path / "data")
    with pytest.raises(DataError, match="all ratings of the part 'train' are equal"):
        train("vela", tmp_path / "data", tmp_path / "run", small_config())
