"""What a user may give for a reward, what is refused before a model is loaded, and `load()`, which loads at once."""

import pickle
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

import reward as package
from reward import (
    AsyncReward,
    CaptionSample,
    CombinedReward,
    FleurReward,
    HarmonicReward,
    LengthReward,
    MetricReward,
    RepetitionReward,
    TournamentReward,
    VelaReward,
    load_scorer,
)
from reward.errors import CheckpointError, ConfigError, UnknownMetricError, WeightsError
from reward.metrics.fleur.prompt import FleurPrompt
from reward.metrics.words.scorer import LengthScorer
from reward.rewards.rating import rates_captions
from tests.toys.toy_judges import RecordingJudge
from tests.toys.trainer import call

EMBEDDED = Path(package.__file__).parent / "assets" / "vela"
IMAGE = Image.new("RGB", (4, 4))
SAMPLES = [CaptionSample("a red star", image=IMAGE, references=["A star."]), CaptionSample("red")]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory: a checkpoint of `length`, a folder with a CLIP, one with a model, a file."""
    LengthScorer().save_pretrained(tmp_path / "lengths")
    for folder, name, text in (("clip", "open_clip_config", "{}"), ("model", "config", '{"model_type": "llava"}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.json").write_text(text)
    (tmp_path / "weights.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("metric", "source", "message"),
    [
        ("clipscore", "ViT-B-32", "there is no folder .* here, and a Hub id has the form .*, or ARCHITECTURE:TAG"),
        ("vela", "modle", "Did you mean 'model'?"),
        ("vela", Path("runs/photos"), "does not exist"),
        ("vela", "model/nothere", "does not exist; a folder 'model' is here, .* hf download model/nothere --local-dir"),
        ("fleur", "lengths", "a checkpoint of metric 'length', but a checkpoint of 'fleur' is needed"),
    ],
)
def test_what_is_no_source_is_refused_when_the_reward_is_made(metric, source, message):
    for make in (MetricReward, load_scorer):
        with pytest.raises(CheckpointError, match=message):
            make(metric, source)
    for named in (VelaReward, TournamentReward):
        with pytest.raises(CheckpointError, match="there is no folder"):
            named("no-such-folder")


@pytest.mark.parametrize(
    ("make", "arguments", "options", "error", "message"),
    [
        (MetricReward, ["length"], {"on_error": "ignore"}, ValueError, "on_error must be"),
        (FleurReward, ["absent/model"], {"prompt": "absent.yaml"}, ConfigError, "cannot be read"),
        (HarmonicReward, ["absent/model"], {"weights": {"taste": 1}}, WeightsError, "taste"),
        (HarmonicReward, ["absent/model"], {"task": "documents"}, ConfigError, "is not given the questions"),
        (TournamentReward, ["absent/model"], {"max_comparisons": 0}, ValueError, "must be at least 1, got 0"),
        (LengthReward, [], {}, ConfigError, "needs low, high or both"),
        (RepetitionReward, [3], {"window": 2}, ConfigError, "1 <= n <= window"),
        (rates_captions, [torch.nn.Linear(1, 1)], {}, ConfigError, "got Linear"),
        (AsyncReward, [AsyncReward(MetricReward("length"))], {}, TypeError, "needs a plain reward function"),
        (rates_captions, [MetricReward], {}, ConfigError, r"the class MetricReward: write MetricReward\(\)"),
        (rates_captions, ["no such metric"], {}, UnknownMetricError, "no such metric"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_the_reward_is_made(make, arguments, options, error, message):
    with pytest.raises(error, match=message):
        make(*arguments, **options)


def test_a_prompt_is_read_when_the_reward_is_made(tmp_path):
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({**FleurPrompt.of().to_json(), "candidate": "It: {candidate}"}))
    judge = RecordingJudge("no number")
    reward = FleurReward(judge, prompt=tmp_path / "p.yaml")
    (tmp_path / "p.yaml").unlink()
    call(reward, ["A red dot."])
    assert "It: > A red dot." in judge.asked[0].text


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("metric", "source"),
    [
        *(("vela", source) for source in ("name/repo", EMBEDDED, "http://127.0.0.1:9")),
        *(("clipscore", source) for source in ("clip", "weights.pt", "ViT-B-32:openai", "hf-hub:a/b")),
        *(("fleur", "model"), ("bertscore", "roberta-large"), ("length", "lengths")),
    ],
)
def test_what_may_be_a_source_is_accepted_without_being_loaded(metric, source):
    assert MetricReward(metric, source).source == source


def test_load_loads_every_part_at_once_and_gives_the_reward_back():
    parts = [MetricReward("length", name=name) for name in "abc"]
    inner = CombinedReward(parts[:1], "min"), parts[1].aspect("length")
    for reward in (CombinedReward(inner), AsyncReward(parts[2])):
        assert reward.load() is reward
    assert all(part._shared.scorer is not None for part in parts)
    assert pickle.loads(pickle.dumps(parts[0]))._shared.scorer is None
    with pytest.raises(CheckpointError, match="cannot be reached"):
        VelaReward("name/of-nothing-at-all").load()


def test_a_reward_function_gets_what_captions_have():
    seen = {}

    def everything(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return torch.tensor([0.5, 2.0])

    assert rates_captions(everything).rewards(SAMPLES) == [0.5, 2.0]
    images = {"image": [IMAGE, None], "images": [[IMAGE], []]}
    texts = {"prompts": [None, None], "completions": ["a red star", "red"], "references": [["A star."], []]}
    assert seen == images | texts
