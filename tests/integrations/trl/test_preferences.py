"""Preference data go through TRL's own trainers with a policy that sees images."""

import pytest
import torch
import trl
from datasets import Dataset
from trl.data_utils import unpair_preference_dataset
from trl.trainer import kto_trainer

from integrations.trl import make_preference_dataset
from reward.decoding.preferences import PreferenceRules
from reward.errors import InvalidSampleError
from tests.integrations.short_training import COLOURS, policy_in

pytestmark = pytest.mark.slow

CAPTIONS = ["a red star", "blue star on the left", "a small green circle", "the square ."]


@pytest.fixture
def rows():
    return Dataset.from_dict({"image": COLOURS, "candidates": [CAPTIONS] * 4, "rewards": [[0.1, 0.4, 0.6, 0.9]] * 4})


def trained(kind, data, folder, evaluated=None, **options):
    """Two steps; gives the log, after a check that the policy has changed."""
    model, processor = policy_in(folder / "policy")
    options = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "max_length": None, **options}
    options |= {"report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no", "use_cpu": True}
    config = getattr(trl, f"{kind}Config")(str(folder), bf16=False, gradient_checkpointing=False, **options)
    trainer = getattr(trl, f"{kind}Trainer")(
        model=model, args=config, train_dataset=data, eval_dataset=evaluated, processing_class=processor
    )
    before = [value.clone() for value in model.parameters()]
    trainer.train()
    if evaluated is not None:
        assert trainer.evaluate()["eval_loss"] > 0
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_dpo_takes_the_pairs_and_learns_them(rows, tmp_path):
    splits = make_preference_dataset(rows, "Describe it", rules=PreferenceRules(per_image=2))
    splits = splits.train_test_split(test_size=2, shuffle=False)
    assert {split: len(part) for split, part in splits.items()} == {"train": 6, "test": 2}
    logs = trained("DPO", splits["train"], tmp_path, splits["test"])
    assert logs[0]["rewards/margins"] == 0
    assert logs[1]["rewards/margins"] > 0


@pytest.mark.skipif(
    not hasattr(kto_trainer, "DataCollatorForVisionUnpairedPreference"), reason="this TRL has no KTO for images"
)
def test_kto_and_sft_take_them_as_the_page_says(rows, tmp_path):
    asked = [{"role": "system", "content": "a"}, {"role": "user", "content": "Describe it"}]
    pairs = make_preference_dataset(rows, asked, rules=PreferenceRules(per_image=2))
    assert [message["role"] for message in pairs[0]["prompt"]] == ["system", "user"]
    data = unpair_preference_dataset(pairs)
    assert (len(data), sum(data["label"])) == (16, 8)
    assert all(entry["loss"] > 0 for entry in trained("KTO", data, tmp_path, loss_type="apo_zero_unpaired"))
    best = pairs.remove_columns("rejected").rename_column("chosen", "completion")
    logs = trained("SFT", best, tmp_path)
    assert logs[1]["loss"] < logs[0]["loss"]


def test_prompts_are_read_as_those_of_prompt_data_and_what_is_left_out_is_logged(rows, caplog):
    def pairs(text):
        chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "A star."}]
        return make_preference_dataset(rows.add_column("chat", [chat] * len(rows)), prompt_column="chat")

    assert pairs("<image>\nWhat is it?")[0]["prompt"] == [{"role": "user", "content": "What is it?"}]
    with pytest.raises(InvalidSampleError, match="its image comes first"):
        pairs("What is <image>?")
    make_preference_dataset(rows.map(lambda row: {"candidates": [*CAPTIONS[:3], "the <image> square"]}))
    assert "4 captions left out: with a placeholder of a chat template" in caplog.text  # at which trainers stop
