"""A nested combination of rewards in TRL's GRPO: what the trainer logs of its parts, and the resumed training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, Image, List, Value

from integrations.trl import ResumeWeights, make_prompt_dataset
from reward import CombinedReward, LengthReward, MetricReward, RepetitionReward, WeightedReward
from tests.integrations.short_training import COLOURS, make_trainer
from tests.toy_captioners import llava
from tests.toy_scorer import ToyScorer


def nested() -> Any:
    """One of everything, as a user's script makes it each time it is run."""
    toy = MetricReward(ToyScorer(), name="toy")
    both = CombinedReward([toy.aspect("brev"), RepetitionReward(n=1)], "harmonic", name="both")
    brief = CombinedReward([both, LengthReward(high=3, margin=6)], "product", name="brief")
    return WeightedReward([(brief, 1), (MetricReward("length", name="words"), 0.25)], name="nested")


def trainer(folder: Path, **options: Any) -> Any:
    features = Features({"image": Image(), "refs": List(Value("string"))})
    rows = Dataset.from_dict(
        {"image": COLOURS, "refs": [["A red star."], ["Green."], ["It is blue."], ["A"]]}, features
    )
    data = make_prompt_dataset(rows, "Describe it", references_column="refs")
    sizes = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2, "scale_rewards": "batch", **options}
    return make_trainer(llava(), [nested()], data, folder, callbacks=[ResumeWeights()], **sizes)


def test_a_resumed_training_gives_what_an_unbroken_one_gives(tmp_path: Path) -> None:
    whole = trainer(tmp_path)
    whole.train()
    logs = [entry for entry in whole.state.log_history if "reward" in entry]
    names = ("nested/brief", "nested/words", "brief/both", "both/toy_brevity", "both/repetition", "nested/unscored")
    for entry in logs:
        expected = (entry["nested/brief"] + 0.25 * entry["nested/words"]) / 1.25
        assert entry["reward"] == pytest.approx(expected, abs=1e-6)

    resumed = trainer(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    again = [entry for entry in resumed.state.log_history if "reward" in entry]
    for entry, other in zip(logs, again, strict=True):
        assert {name: entry[name] for name in ("reward", *names)} == {name: other[name] for name in ("reward", *names)}
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
