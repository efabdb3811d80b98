"""Preference data go through TRL's own trainers with a policy that sees images."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
import trl
from datasets import Dataset, DatasetDict, Image
from trl.trainer import kto_trainer

from integrations.trl import make_preference_dataset
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.preferences import PreferenceRules
from tests.integrations.short_training import COLOURS, policy_in

CAPTIONS = ["a red star", "blue star on the left", "a small green circle", "the square ."]


@pytest.fixture
def rows() -> Dataset:
    columns = {"image": COLOURS, "candidates": [CAPTIONS] * 4, "rewards": [[0.1, 0.4, 0.6, 0.9]] * 4}
    return Dataset.from_dict(columns).cast_column("image", Image())


def trained(kind: str, data: Any, folder: Path, evaluated: Any, **options: Any) -> list[dict[str, float]]:
    """Two steps; gives the log, after a check that the policy has changed and every row was used."""
    model, processor = policy_in(folder / "policy")
    defaults = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "max_length": None}
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    config = getattr(trl, f"{kind}Config")(
        output_dir=str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, **defaults, **quiet, **options
    )
    trainer = getattr(trl, f"{kind}Trainer")(
        model=model, args=config, train_dataset=data, eval_dataset=evaluated, processing_class=processor
    )
    before = [value.clone() for value in model.parameters()]
    trainer.train()
    if evaluated is not None:
        assert trainer.evaluate()["eval_loss"] > 0
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.skipif(
    not hasattr(kto_trainer, "DataCollatorForVisionUnpairedPreference"), reason="this TRL has no KTO for images"
)
@pytest.mark.parametrize("loss", ["kto", "apo_zero_unpaired"])
def test_kto_takes_the_labels(rows: Dataset, tmp_path: Path, loss: str) -> None:
    data = make_preference_dataset(rows, "Describe it", rules=PreferenceRules(kind="labels", per_image=2))
    assert data.column_names == ["images", "prompt", "completion", "score", "label"]
    assert len(data) == 16
    pixels = [row["images"][0].getpixel((0, 0)) for row in data]
    assert all(one != other for one, other in itertools.pairwise(pixels))
    logs = trained("KTO", data, tmp_path, None, loss_type=loss, train_sampling_strategy="sequential")
    assert all(entry["loss"] > 0 for entry in logs)


def test_dpo_takes_the_pairs_and_learns_them(rows: Dataset, tmp_path: Path) -> None:
    splits = make_preference_dataset(rows, "Describe it", rules=PreferenceRules(per_image=2), holdout=0.25)
    assert isinstance(splits, DatasetDict)
    assert {split: len(part) for split, part in splits.items()} == {"train": 6, "test": 2}
    logs = trained("DPO", splits["train"], tmp_path, splits["test"])
    assert logs[0]["rewards/margins"] == 0
    assert logs[1]["rewards/margins"] > 0


def test_sft_takes_the_best(rows: Dataset, tmp_path: Path) -> None:
    data = make_preference_dataset(rows, "Describe it", rules=PreferenceRules(kind="best"), system="a")
    assert [message["role"] for message in data[0]["prompt"]] == ["system", "user"]
    assert data["completion"][0][0]["content"] == "the square ."
    logs = trained("SFT", data, tmp_path, None)
    assert logs[1]["loss"] < logs[0]["loss"]


def test_a_metric_scores_and_what_is_left_out_is_logged(rows: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    bare = rows.remove_columns("rewards")
    with pytest.raises(DataError, match="no column 'rewards' of scores"):
        make_preference_dataset(bare)
    with pytest.raises(ConfigError, match="imagecolumn: no such argument"):
        make_preference_dataset(rows, imagecolumn="image")
    bare = bare.remove_columns("candidates").add_column("candidates", [*[CAPTIONS] * 3, ["a star", "A star."]])
    data = make_preference_dataset(bare, metric="length")
    assert [(row["chosen_score"], row["rejected_score"]) for row in data] == [(5.0, 3.0)] * 3
    assert "1 images left out: only one caption once repetitions are left out" in caplog.text


ANSWER = {"role": "assistant", "content": "A star."}


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ([{"role": "user", "content": "What is it?"}, ANSWER], "What is it?"),
        ([{"role": "user", "content": "<image>\nWhat is it?"}], "What is it?"),
        ([{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A star."}], "What is it?"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}], "What is it?"),
        ([{"role": "user", "content": "What is <image>?"}], "its image comes first"),
        ([{"role": "user", "content": "<image><image> What is it?"}], "shows 2 images"),
        ([{"role": "user", "content": "<|image_pad|> What is it?"}], "placeholder of a chat template"),
        ([ANSWER], "needs a turn of the user"),
    ],
)
def test_prompts_are_read_as_those_of_prompt_data(rows: Dataset, asked: Any, prompt: str) -> None:
    data = rows.add_column("chat", [asked] * len(rows))
    if prompt == "What is it?":
        made = make_preference_dataset(data, prompt_column="chat")
        assert made[0]["prompt"] == [{"role": "user", "content": prompt}]
    else:
        with pytest.raises(InvalidSampleError, match=prompt):
            make_preference_dataset(data, prompt_column="chat")


@pytest.mark.parametrize("token", ["<image>", "<|image_pad|>", "<|vision_end|>", "<start_of_image>"])
@pytest.mark.parametrize("kind", ["pairs", "labels", "best"])
def test_captions_with_a_placeholder_are_left_out(rows: Dataset, kind: str, token: str, caplog: Any) -> None:
    """The trainer takes it for an image that is not there, and stops."""
    columns = {**rows.to_dict(), "candidates": [[*CAPTIONS[:3], f"the {token} square"]] * 4}
    data = make_preference_dataset(
        Dataset.from_dict(columns).cast_column("image", Image()), rules=PreferenceRules(kind=kind)
    )
    assert token not in str(data.remove_columns("images").to_list())
    assert "4 captions left out: with a placeholder of a chat template" in caplog.text
    alone = Dataset.from_dict({"image": COLOURS[:1], "candidates": [[f"the {token} square"]], "rewards": [[1.0]]})
    with pytest.raises(DataError, match="left out: 1 captions with a placeholder"):
        make_preference_dataset(alone, rules=PreferenceRules(kind=kind))


def test_the_policy_sees_the_picture_that_was_scored() -> None:
    grey = PIL.Image.fromarray(np.full((4, 4), 30_000, np.uint16))
    cells = [grey, PIL.Image.new("RGBA", (4, 4), (0, 0, 0, 0)), PIL.Image.new("RGB", (4, 4), "red")]
    given = Dataset.from_dict({"image": cells, "candidates": [CAPTIONS] * 3, "rewards": [[0.1, 0.4, 0.6, 0.9]] * 3})
    data = make_preference_dataset(given)
    shown = [row["images"][0].convert("RGB").getpixel((0, 0)) for row in data]
    assert shown == [(117,) * 3, (255,) * 3, (255, 0, 0)]
