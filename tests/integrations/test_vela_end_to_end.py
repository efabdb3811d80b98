"""VelaReward with a real (random, tiny) VELA checkpoint: in GRPO, in best-of-N, in reranking, and across processes."""

from __future__ import annotations

import logging
import pickle

import pytest
import torch
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from trl import GRPOConfig, GRPOTrainer

from integrations.hf_generate import BestOfN, rerank
from integrations.trl import make_prompt_dataset
from reward import CaptionSample, VelaReward, load_scorer
from tests.toy_captioners import NO_IMAGE_TOKEN, llava, llava_inputs

IMAGES = [PILImage.effect_noise((32, 32), 50 + 40 * i).convert("RGB") for i in range(4)]
WEIGHTS = {"desc": 1, "rel": 2, "flu": 1}


def test_grpo_logs_the_reward_and_its_aspects(vela_folder, tmp_path):
    features = Features({"image": Image(), "refs": List(Value("string"))})
    rows = Dataset.from_dict({"image": IMAGES, "refs": [["A red star."], ["Green."], [], None]}, features)
    model, processor = llava()
    before = [value.clone() for value in model.parameters()]
    config = GRPOConfig(
        output_dir=str(tmp_path),
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
    )
    reward = VelaReward(vela_folder, WEIGHTS, name="vela", device="cpu")
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward],
        args=config,
        train_dataset=make_prompt_dataset(rows, references_column="refs"),
        processing_class=processor,
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    for entry in logs:
        aspects = [float(entry[f"vela/{aspect}"]) for aspect in ("descriptiveness", "relevance", "fluency")]
        mean = (aspects[0] + 2 * aspects[1] + aspects[2]) / 4
        assert float(entry["rewards/vela/mean"]) == pytest.approx(mean, abs=2e-3)  # logs are rounded
        assert float(entry["rewards/vela/std"]) > 0
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_broken_image_gives_none_and_leaves_the_others_their_scores(vela_folder, caplog):
    reward = VelaReward(vela_folder, WEIGHTS, device="cpu")
    completions = ["A red star.", "A red star.", "A red star.", "", [{"role": "assistant", "content": "A red star."}]]
    images = [IMAGES[0], None, b"not an image", IMAGES[0], IMAGES[0].copy()]
    with caplog.at_level(logging.WARNING, "reward.functions.metric_reward"):
        rewards = reward(prompts=["p"] * 5, completions=completions, image=images)
    alone = reward.rewards([CaptionSample("A red star.", image=IMAGES[0])])[0]
    assert rewards[0] == pytest.approx(alone, abs=1e-5)
    assert rewards[4] == rewards[0]  # equal pixels in another object
    assert rewards[1] is rewards[2] is None
    assert rewards[3] == 0.0
    assert reward.failures == {"no image": 1, "not scored by the metric": 1, "empty caption": 1}
    assert len(caplog.records) == 3


def test_rewards_are_the_scorers_scores_weighted_also_after_pickling(vela_folder):
    samples = [CaptionSample(text, image=IMAGES[0], references=["A star."]) for text in ("A red star.", "Stars, two.")]
    table = load_scorer("vela", vela_folder, device="cpu").score(samples)
    reward = VelaReward(vela_folder, WEIGHTS, device="cpu")
    expected = table.combine({"descriptiveness": 1, "relevance": 2, "fluency": 1}).tolist()
    assert reward.rewards(samples) == pytest.approx(expected, abs=1e-6)
    data = pickle.dumps(reward)
    assert len(data) < 10_000  # no weights in it
    assert pickle.loads(data).rewards(samples) == pytest.approx(expected, abs=1e-6)


def test_best_of_n_returns_the_caption_that_rerank_puts_first(vela_folder):
    model, processor = llava()
    inputs = llava_inputs(processor, IMAGES[:2], ["Describe it", "Describe"])
    reward = VelaReward(vela_folder, WEIGHTS, device="cpu")
    strategy = BestOfN(reward, n=8, processor=processor, images=IMAGES[:2], include_greedy=True)
    torch.manual_seed(0)
    best = model.generate(**inputs, custom_generate=strategy, max_new_tokens=8)
    texts = processor.batch_decode(best[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    for text, captions, image in zip(texts, strategy.last.captions, IMAGES, strict=False):
        assert text.strip() == captions[rerank(captions, image=image, reward=reward)[0]]


def test_loading_draws_no_random_numbers(vela_folder):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    VelaReward(vela_folder, device="cpu").rewards([CaptionSample("A red star.", image=IMAGES[0])])
    assert torch.equal(torch.rand(3), expected)
