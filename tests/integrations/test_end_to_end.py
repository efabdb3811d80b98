"""VelaReward and BeitScoreReward with real (random, tiny) checkpoints: in GRPO, best-of-N, reranking, and pickled."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, Image, List, Value

from integrations.hf_generate import BestOfN, rerank
from integrations.trl import make_prompt_dataset
from reward import BeitScoreReward, CaptionSample, VelaReward, WeightedReward, load_scorer
from tests.integrations.short_training import noise_images, train, with_images
from tests.reward.metrics.beitscore.tiny_beitscore import make_scorer
from tests.toy_captioners import llava, llava_inputs

IMAGES = noise_images()
WEIGHTS = {"desc": 1, "rel": 2, "flu": 1}
SIZES = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8}


@pytest.fixture(scope="module")
def beitscore_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beitscore")
    make_scorer().save_pretrained(folder)
    return folder


@pytest.fixture(params=["vela", "beitscore"])
def reward(request: pytest.FixtureRequest, vela_folder: Path, beitscore_folder: Path) -> Any:
    if request.param == "vela":
        return VelaReward(vela_folder, WEIGHTS, device="cpu")
    return BeitScoreReward(beitscore_folder, device="cpu")


def test_grpo_logs_the_reward_and_its_aspects(vela_folder: Path, tmp_path: Path) -> None:
    features = Features({"image": Image(), "refs": List(Value("string"))})
    rows = Dataset.from_dict({"image": IMAGES, "refs": [["A red star."], ["Green."], [], None]}, features)
    data = make_prompt_dataset(rows, references_column="refs")
    for entry in train([VelaReward(vela_folder, WEIGHTS, name="vela", device="cpu")], data, tmp_path, **SIZES):
        aspects = [float(entry[f"vela/{aspect}"]) for aspect in ("descriptiveness", "relevance", "fluency")]
        mean = (aspects[0] + 2 * aspects[1] + aspects[2]) / 4
        assert float(entry["rewards/vela/mean"]) == pytest.approx(mean, abs=2e-3)  # logs are rounded
        assert float(entry["rewards/vela/std"]) > 0


def test_both_metrics_as_separate_reward_functions(vela_folder: Path, beitscore_folder: Path, tmp_path: Path) -> None:
    vela = VelaReward(vela_folder, name="vela", device="cpu")
    beitscore = BeitScoreReward(beitscore_folder, name="beitscore", device="cpu")
    data = with_images(IMAGES)
    for entry in train([vela, beitscore], data, tmp_path, **SIZES, reward_weights=[0.7, 0.3]):
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
    for entry in train([reward], with_images(IMAGES), tmp_path, **SIZES, log_completions=True):
        expected = 0.7 * float(entry["mix/vela"]) + 0.3 * float(entry["mix/beitscore"])
        assert float(entry["rewards/mix/mean"]) == pytest.approx(expected, abs=2e-3)
        assert float(entry["beitscore/overall"]) == pytest.approx(float(entry["mix/beitscore"]), abs=2e-3)
        assert float(entry["mix/unscored"]) == 0


def test_a_broken_image_gives_none_and_leaves_the_others_their_scores(
    vela_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_rewards_are_the_scorers_scores_weighted_also_after_pickling(reward: Any) -> None:
    samples = [CaptionSample(text, image=IMAGES[0], references=["A star."]) for text in ("A red star.", "Stars, two.")]
    table = load_scorer(reward.spec.name, reward.source, device="cpu").score(samples)
    expected = table.combine(WEIGHTS if len(table.aspects) == 3 else None).tolist()
    assert reward.rewards(samples) == pytest.approx(expected, abs=1e-6)
    data = pickle.dumps(reward)
    assert len(data) < 10_000  # no weights in it
    assert pickle.loads(data).rewards(samples) == pytest.approx(expected, abs=1e-6)


def test_best_of_n_returns_the_caption_that_rerank_puts_first(reward: Any) -> None:
    model, processor = llava()
    inputs = llava_inputs(processor, IMAGES[:2], ["Describe it", "Describe"])
    strategy = BestOfN(reward, n=8, processor=processor, images=IMAGES[:2], include_greedy=True)
    torch.manual_seed(0)
    best = model.generate(**inputs, custom_generate=strategy, max_new_tokens=8)
    texts = processor.batch_decode(best[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    for text, captions, image in zip(texts, strategy.last.captions, IMAGES, strict=False):
        assert text.strip() == captions[rerank(captions, image=image, reward=reward)[0]]


def test_loading_draws_no_random_numbers(reward: Any) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    reward.rewards([CaptionSample("A red star.", image=IMAGES[0])])
    assert torch.equal(torch.rand(3), expected)
