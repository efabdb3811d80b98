"""Real runs of TRL's trainers with our rewards and a tiny vision-language policy."""

from __future__ import annotations

import logging

import pytest
import trl
from datasets import Dataset, Features, Image, List, Value
from packaging.version import Version

from integrations.trl import make_prompt_dataset
from reward import CombinedReward, LengthReward, RepetitionReward
from reward.rewards.metric_reward import MetricReward
from tests.integrations.short_training import BOTH_TRAINERS, COLOURS, train
from tests.toys.toy_scorer import ToyScorer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows():
    features = Features({"picture": Image(), "refs": List(Value("string"))})
    return Dataset.from_dict({"picture": COLOURS, "refs": [["A red star."], ["Green."], [], None]}, features)


class Recorder(ToyScorer):
    """Keeps the samples it was given."""

    def __init__(self):
        super().__init__()
        self.samples = []

    def score(self, samples, **options):
        self.samples += samples
        return super().score(samples, **options)


@pytest.mark.parametrize(("trainer_class", "config"), BOTH_TRAINERS)
def test_conversational_prompts_with_images(trainer_class, config, rows, tmp_path):
    scorer = Recorder()
    reward = MetricReward(scorer, name="caption", weights={"brev": 1})
    data = make_prompt_dataset(rows, "Describe it", image_column="picture", references_column="refs")
    logs = train([reward], data, tmp_path, trainer_class, config, beta=0.0, log_completions=True)
    for entry in logs:
        assert float(entry["rewards/caption/mean"]) == pytest.approx(float(entry["caption/brevity"]), abs=1e-5)
        assert 0 <= float(entry["caption/colour"]) <= 1
        assert float(entry["caption/unscored"]) == 0
    assert all(inference for inference, _ in scorer.modes)
    # each image came with its own references
    known = {(255, 0, 0): ("A red star.",), (0, 128, 0): ("Green.",), (0, 0, 255): (), (255, 255, 255): ()}
    assert all(sample.references == known[sample.image.getpixel((0, 0))] for sample in scorer.samples)


def test_plain_prompts_with_the_image_in_a_column_for_the_reward_only(rows, tmp_path):
    scorer = Recorder()
    reward = MetricReward(scorer, name="caption", image_column="picture", references_column="refs")
    data = rows.add_column("prompt", ["USER: Describe it ASSISTANT:"] * len(rows))
    logs = train([reward], data, tmp_path)
    assert all(float(entry["caption/unscored"]) == 0 for entry in logs)
    assert scorer.samples
    assert all(sample.image.size == (32, 32) for sample in scorer.samples)


def test_aspects_as_rewards_of_their_own_share_a_forward_pass(rows, tmp_path):
    scorer = Recorder()
    rewards = MetricReward(scorer, name="caption").aspects()
    data = make_prompt_dataset(rows, "Describe it", image_column="picture")
    options = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [2.0, 1.0]}
    logs = train(list(rewards), data, tmp_path, **options)
    assert all({"rewards/caption_colour/mean", "rewards/caption_brevity/mean"} <= set(entry) for entry in logs)
    assert len(scorer.calls) == 2  # one per step, for two rewards


def test_rows_without_an_image_are_left_out_with_a_counted_warning(rows, tmp_path, caplog):
    reward = MetricReward(Recorder(), name="caption", image_column="picture")
    plain = rows.map(lambda row, i: {"picture": None if i < 2 else row["picture"]}, with_indices=True)
    data = plain.add_column("prompt", ["USER: Describe it ASSISTANT:"] * len(rows))
    with caplog.at_level(logging.WARNING, "reward.rewards.metric_reward"):
        logs = train([reward], data, tmp_path)
    assert sum(float(entry["caption/unscored"]) for entry in logs) == pytest.approx(1.0)  # half of two steps' rows
    assert reward.failures["no image"] == 4
    assert "so far: no image" in caplog.text


@pytest.mark.skipif(Version(trl.__version__) < Version("1.10"), reason="TRL before 1.10 takes no streams")
def test_a_stream_of_several_images_a_row(rows, tmp_path):
    pairs = Features({"images": List(Image()), "refs": List(Value("string"))})
    stream = Dataset.from_dict({"images": [[image, image] for image in rows["picture"]], "refs": rows["refs"]}, pairs)
    data = make_prompt_dataset(stream.to_iterable_dataset(), lambda row: f"Describe it {len(row['refs'] or [])}")
    seen = []

    def words(completions, images, references, **_):
        seen.extend(zip(images, references, strict=True))
        return [float(len(completion[0]["content"].split())) for completion in completions]

    train([words], data, tmp_path)
    assert all(len(images) == 2 for images, _ in seen)
    assert {images[0].getpixel((0, 0)) for images, references in seen if references == ["A red star."]} == {(255, 0, 0)}


def test_a_nested_combination_logs_its_parts(rows, tmp_path):
    toy = MetricReward(ToyScorer(), name="toy")
    both = CombinedReward([toy.aspect("brev"), RepetitionReward(n=1)], "harmonic", name="both")
    brief = CombinedReward([both, LengthReward(high=3, margin=6)], "product", name="brief")
    nested = CombinedReward([brief, MetricReward("length", name="words")], weights=[1, 0.25], name="nested")
    data = make_prompt_dataset(rows, "Describe it", image_column="picture", references_column="refs")
    for entry in train([nested], data, tmp_path, scale_rewards="batch"):
        expected = (float(entry["nested/brief"]) + 0.25 * float(entry["nested/words"])) / 1.25
        assert float(entry["reward"]) == pytest.approx(expected, abs=1e-6)
        assert {"brief/both", "both/toy_brevity", "both/repetition", "nested/unscored"} <= set(entry)
