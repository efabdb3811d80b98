"""Real runs of TRL's trainers with our rewards and a tiny vision-language policy."""

import logging
import threading

import pytest
import trl
from datasets import Dataset
from packaging.version import Version

from integrations.trl import make_prompt_dataset
from reward import AsyncReward, CombinedReward
from reward.rewards.metric_reward import MetricReward
from tests.integrations.short_training import BOTH_TRAINERS, COLOURS, train
from tests.toys.toy_scorer import ToyScorer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows():
    return Dataset.from_dict({"picture": COLOURS, "refs": [["A red star."], ["Green."], [], None]})


@pytest.fixture(scope="module")
def data(rows):
    return make_prompt_dataset(rows, "Describe it", image_column="picture", references_column="refs")


class Recorder(ToyScorer):
    """Keeps the samples it was given."""

    def __init__(self):
        super().__init__()
        self.samples = []

    def score(self, samples, **options):
        self.samples += samples
        return super().score(samples, **options)


@pytest.mark.parametrize("classes", BOTH_TRAINERS)
def test_conversational_prompts_with_images(classes, data, tmp_path):
    scorer = Recorder()
    reward = MetricReward(scorer, name="caption", weights={"brev": 1})
    for entry in train([reward], data, tmp_path, *classes, beta=0.0, log_completions=True):
        assert float(entry["rewards/caption/mean"]) == pytest.approx(float(entry["caption/brevity"]), abs=1e-5)
        assert 0 <= float(entry["caption/colour"]) <= 1
        assert float(entry["caption/unscored"]) == 0
    assert all(inference for inference, _ in scorer.modes)
    # each image came with its own references
    known = {(255, 0, 0): ("A red star.",), (0, 128, 0): ("Green.",), (0, 0, 255): (), (255, 255, 255): ()}
    assert all(sample.references == known[sample.image.getpixel((0, 0))] for sample in scorer.samples)


def test_plain_prompts_with_the_image_for_the_reward_only_and_rows_without_one(rows, tmp_path, caplog):
    reward = MetricReward(scorer := Recorder(), name="caption", image_column="picture")
    plain = rows.map(lambda row, i: {"picture": None if i < 2 else row["picture"]}, with_indices=True)
    plain = plain.add_column("prompt", ["USER: Describe it ASSISTANT:"] * len(rows))
    with caplog.at_level(logging.WARNING, "reward.rewards.metric_reward"):
        logs = train([reward], plain, tmp_path)
    assert {sample.image.size for sample in scorer.samples} == {(32, 32)}
    assert sum(float(entry["caption/unscored"]) for entry in logs) == pytest.approx(1.0)  # half of two steps' rows
    assert reward.failures["no image"] == 4
    assert "so far: no image" in caplog.text


def test_aspects_share_a_forward_pass_and_a_combination_logs_its_parts(data, tmp_path):
    aspects = MetricReward(scorer := Recorder(), name="caption").aspects()
    parts = [MetricReward(ToyScorer(), name="toy"), MetricReward("length", name="words")]
    both = CombinedReward(parts, weights=[1, 0.25], name="both")
    options = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [2.0, 1.0, 1.0]}
    for entry in train([*aspects, both], data, tmp_path, **options):
        assert {"rewards/caption_colour/mean", "rewards/caption_brevity/mean", "both/unscored"} <= set(entry)
        expected = (float(entry["both/toy"]) + 0.25 * float(entry["both/words"])) / 1.25
        assert float(entry["rewards/both/mean"]) == pytest.approx(expected, abs=1e-6)
    assert len(scorer.calls) == 2  # one per step, for two rewards


@pytest.mark.skipif(Version(trl.__version__) < Version("1.10"), reason="TRL before 1.10 takes no streams")
def test_a_stream_of_several_images_a_row(rows, tmp_path):
    pairs = Dataset.from_dict({"images": [[image, image] for image in rows["picture"]], "refs": rows["refs"]})
    stream = make_prompt_dataset(pairs.to_iterable_dataset(), "Describe it")
    seen = []

    def words(completions, images, references, **_):
        seen.extend(zip(images, references, strict=True))
        return [float(len(completion[0]["content"].split())) for completion in completions]

    train([words], stream, tmp_path)
    assert all(len(images) == 2 for images, _ in seen)
    assert {images[0].getpixel((0, 0)) for images, references in seen if references == ["A red star."]} == {(255, 0, 0)}


def test_asynchronous_rewards_overlap(data, tmp_path):
    """Each of the two rewards waits for the other, so that the run ends only if both are asked at the same time."""
    together, threads = threading.Barrier(2, timeout=60), set()

    def waits(completions, **_):
        threads.add(threading.get_ident())
        together.wait()
        return [1.0] * len(completions)

    train([AsyncReward(waits), AsyncReward(waits), MetricReward("length")], data, tmp_path)
    assert threading.get_ident() not in threads
