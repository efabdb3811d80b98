"""A nested combination of rewards in TRL's GRPO: unbroken, resumed, and what is learnt on two processes."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, Image, List, Value

from integrations.trl import ResumeWeights, make_prompt_dataset
from reward import (
    CombinedReward,
    ConstrainedReward,
    GatedReward,
    LengthReward,
    MetricReward,
    Ramp,
    RepetitionReward,
    SigmoidReward,
    StandardisedReward,
    WeightedReward,
)
from tests.integrations.learning_processes import learn_on, learnt
from tests.integrations.short_training import COLOURS, make_trainer
from tests.toy_captioners import llava
from tests.toy_scorer import ToyScorer


def nested() -> Any:
    """One of everything, as a user's script makes it each time it is run."""
    toy = MetricReward(ToyScorer(), name="toy")
    shaped = SigmoidReward(toy.aspect("brev"), k=5)
    both = CombinedReward([shaped, RepetitionReward(n=1)], "harmonic", name="both")
    gated = GatedReward(both, [(LengthReward(high=3, margin=6), 0.5)], name="gated")
    held = ConstrainedReward(gated, [(toy.aspect("brev"), 0.9)], rate=2.0, name="held")
    running = StandardisedReward(MetricReward("length"), name="running")
    return WeightedReward([(held, 1), (running, Ramp(0, 0.5))], name="nested")


def trainer(folder: Path, **options: Any) -> Any:
    features = Features({"image": Image(), "refs": List(Value("string"))})
    rows = Dataset.from_dict(
        {"image": COLOURS, "refs": [["A red star."], ["Green."], ["It is blue."], ["A"]]}, features
    )
    data = make_prompt_dataset(rows, "Describe it", references_column="refs")
    sizes = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2, "scale_rewards": "batch", **options}
    return make_trainer(llava(), [nested()], data, folder, callbacks=[ResumeWeights()], **sizes)


def last_state(folder: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    return kept["stateful_callbacks"]


def test_a_resumed_training_gives_what_an_unbroken_one_gives(tmp_path: Path) -> None:
    whole = trainer(tmp_path)
    whole.train()
    states = last_state(tmp_path)
    assert states["capreward:running"]["count"] == 8.0  # four captions a step
    assert states["capreward:held"]["weights"][0] > 0
    logs = [entry for entry in whole.state.log_history if "reward" in entry]
    names = (
        "nested/held",
        "nested/weight_running",
        "held/weight_toy_brevity",
        "gated/vetoed",
        "both/sigmoid_toy_brevity",
    )
    assert {*names, "running/running_std", "sigmoid_toy_brevity/above", "nested/unscored"} <= set(logs[0])
    assert [float(entry["nested/weight_running"]) for entry in logs] == pytest.approx([0.0, 0.2])

    resumed = trainer(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    again = [entry for entry in resumed.state.log_history if "reward" in entry]
    for entry, other in zip(logs, again, strict=True):
        assert {name: entry[name] for name in ("reward", *names)} == {name: other[name] for name in ("reward", *names)}
    assert last_state(tmp_path) == states
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_two_processes_learn_from_the_captions_of_both(tmp_path: Path) -> None:
    captions = [["a b", "a"], ["a b c d", "a b c", "a"]]
    spawn = multiprocessing.get_context("spawn")
    answers, address = spawn.Queue(), f"file://{tmp_path}/meet"
    other = spawn.Process(target=learn_on, args=(1, address, captions[1], answers))
    other.start()
    learn_on(0, address, captions[0], answers)
    found = [answers.get(timeout=120) for _ in captions]
    other.join()
    assert found[0] == found[1]
    states, refusal = found[0]
    assert "without AsyncReward" in refusal
    for key, values in learnt([*captions[0], *captions[1]]).items():
        assert states[key] == {name: pytest.approx(value) for name, value in values.items()}
