"""VelaReward and BeitScoreReward with checkpoints of random weights: in GRPO, best-of-N, reranking, and pickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.hf_generate import BestOfN, rerank
from reward import BeitScoreReward, CaptionSample, CombinedReward, VelaReward, load_scorer
from tests.integrations.short_training import noise_images, train, with_images
from tests.toys.toy_captioners import llava, llava_inputs

IMAGES = noise_images()
WEIGHTS = {"desc": 1, "rel": 2, "flu": 1}


@pytest.fixture(params=["vela", "beitscore"])
def reward(request: pytest.FixtureRequest, scene_vela_folder: Path, scene_beitscore_folder: Path) -> Any:
    if request.param == "vela":
        return VelaReward(scene_vela_folder, WEIGHTS, device="cpu")
    return BeitScoreReward(scene_beitscore_folder, device="cpu")


@pytest.mark.slow
def test_grpo_with_both_metrics_as_separate_reward_functions_and_as_one(
    scene_vela_folder: Path, scene_beitscore_folder: Path, tmp_path: Path
) -> None:
    def both_named(*names: str) -> list[Any]:
        vela = VelaReward(scene_vela_folder, WEIGHTS, name=names[0], device="cpu")
        return [vela, BeitScoreReward(scene_beitscore_folder, name=names[1], device="cpu")]

    mix = pickle.loads(pickle.dumps(CombinedReward(both_named("own", "other"), weights=[0.7, 0.3], name="mix")))
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8}
    options = {**sizes, "reward_weights": [0.7, 0.3, 0.0], "log_completions": True}
    for entry in train([*both_named("vela", "beitscore"), mix], with_images(IMAGES), tmp_path, **options):
        means = {name: float(entry[f"rewards/{name}/mean"]) for name in ("vela", "beitscore", "mix")}
        aspects = [float(entry[f"vela/{aspect}"]) for aspect in ("descriptiveness", "relevance", "fluency")]
        both = 0.7 * means["vela"] + 0.3 * means["beitscore"]
        logged = {
            "vela": (aspects[0] + 2 * aspects[1] + aspects[2]) / 4,
            "beitscore": float(entry["beitscore/overall"]),
            "mix": 0.7 * float(entry["mix/own"]) + 0.3 * float(entry["mix/other"]),
        }
        assert means == pytest.approx(logged, abs=2e-3)  # logs are rounded
        assert [float(entry["reward"]), means["mix"]] == pytest.approx([both, both], abs=2e-3)
        assert all(float(entry[f"rewards/{name}/std"]) > 0 for name in means)
        assert all(float(entry[f"{name}/unscored"]) == 0 for name in means)


def test_rewards_are_the_scorers_scores_weighted_also_after_pickling(reward: Any) -> None:
    samples = [CaptionSample(text, image=IMAGES[0], references=["A star."]) for text in ("A red star.", "Stars, two.")]
    table = load_scorer(reward.spec.name, reward.source, device="cpu").score(samples)
    expected = table.combine(WEIGHTS if len(table.aspects) == 3 else None).tolist()
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    assert reward.rewards(samples) == pytest.approx(expected, abs=1e-6)
    assert torch.equal(torch.rand(3), first)  # loading has drawn no random numbers
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
