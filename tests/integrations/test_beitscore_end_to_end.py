"""BeitScoreReward with a real (random, tiny) checkpoint: in GRPO beside and mixed with VelaReward, and in best-of-N."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, Image
from PIL import Image as PILImage
from trl import GRPOConfig, GRPOTrainer

from integrations.hf_generate import BestOfN, rerank
from integrations.trl import make_prompt_dataset
from reward import BeitScoreReward, VelaReward, WeightedReward
from tests.reward.metrics.beitscore.tiny_beitscore import make_scorer
from tests.toy_captioners import NO_IMAGE_TOKEN, llava, llava_inputs

IMAGES = [PILImage.effect_noise((32, 32), 50 + 40 * i).convert("RGB") for i in range(4)]


@pytest.fixture(scope="module")
def beitscore_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beitscore")
    make_scorer().save_pretrained(folder)
    return folder


def train(rewards: list[Any], folder: Path, **options: Any) -> tuple[list[dict[str, Any]], bool]:
    """Two steps of GRPO; gives the logs, and whether the policy changed."""
    rows = Dataset.from_dict({"image": IMAGES}, Features({"image": Image()}))
    model, processor = llava()
    before = [value.clone() for value in model.parameters()]
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs=NO_IMAGE_TOKEN,
        report_to="none",
        save_strategy="no",
        **options,
    )
    data = make_prompt_dataset(rows)
    trainer = GRPOTrainer(
        model=model, reward_funcs=rewards, args=config, train_dataset=data, processing_class=processor
    )
    trainer.train()
    changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return [entry for entry in trainer.state.log_history if "reward" in entry], changed


def test_both_metrics_as_separate_reward_functions(vela_folder: Path, beitscore_folder: Path, tmp_path: Path) -> None:
    vela = VelaReward(vela_folder, name="vela", device="cpu")
    beitscore = BeitScoreReward(beitscore_folder, name="beitscore", device="cpu")
    logs, changed = train([vela, beitscore], tmp_path, reward_weights=[0.7, 0.3])
    assert len(logs) == 2
    assert changed
    for entry in logs:
        means = [float(entry[f"rewards/{name}/mean"]) for name in ("vela", "beitscore")]
        assert float(entry["reward"]) == pytest.approx(0.7 * means[0] + 0.3 * means[1], abs=2e-3)  # logs are rounded
        assert means[1] == pytest.approx(float(entry["beitscore/overall"]), abs=2e-3)
        assert float(entry["rewards/beitscore/std"]) > 0
        assert float(entry["beitscore/unscored"]) == float(entry["vela/unscored"]) == 0


def test_both_metrics_as_one_reward_function(vela_folder: Path, beitscore_folder: Path, tmp_path: Path) -> None:
    parts = [
        (VelaReward(vela_folder, name="vela", device="cpu"), 0.7),
        (BeitScoreReward(beitscore_folder, name="beitscore", device="cpu"), 0.3),
    ]
    reward = pickle.loads(pickle.dumps(WeightedReward(parts, name="mix")))
    logs, changed = train([reward], tmp_path, log_completions=True)
    assert len(logs) == 2
    assert changed
    for entry in logs:
        expected = 0.7 * float(entry["mix/vela"]) + 0.3 * float(entry["mix/beitscore"])
        assert float(entry["rewards/mix/mean"]) == pytest.approx(expected, abs=2e-3)
        assert float(entry["beitscore/overall"]) == pytest.approx(float(entry["mix/beitscore"]), abs=2e-3)
        assert float(entry["mix/unscored"]) == 0


def test_best_of_n_returns_the_caption_that_rerank_puts_first(beitscore_folder: Path) -> None:
    model, processor = llava()
    inputs = llava_inputs(processor, IMAGES[:2], ["Describe it", "Describe"])
    reward = BeitScoreReward(beitscore_folder, device="cpu")
    strategy = BestOfN(reward, n=8, processor=processor, images=IMAGES[:2], include_greedy=True)
    torch.manual_seed(0)
    best = model.generate(**inputs, custom_generate=strategy, max_new_tokens=8)
    texts = processor.batch_decode(best[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    for text, captions, image in zip(texts, strategy.last.captions, IMAGES, strict=False):
        assert text.strip() == captions[rerank(captions, image=image, reward=reward)[0]]
