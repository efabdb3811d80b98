"""What is refused when a reward is made, before a model is loaded; and `load()`, which loads at once."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

import reward
from reward import (
    AsyncReward,
    BeitScoreReward,
    CombinedReward,
    FleurReward,
    LengthReward,
    MetricReward,
    TournamentReward,
    VelaReward,
    load_scorer,
)
from reward.errors import CheckpointError
from reward.metrics.words.scorer import LengthScorer

ASSETS = Path(reward.__file__).parent / "assets"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory: a checkpoint of `length`, a folder without a model, one with a CLIP, a file."""
    LengthScorer().save_pretrained(tmp_path / "lengths")
    for folder in ("empty", "clip", "model"):
        (tmp_path / folder).mkdir()
    (tmp_path / "clip" / "open_clip_config.json").write_text("{}")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llava"}')
    (tmp_path / "weights.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)


NO_FOLDER = "there is no folder .* here, and a Hub id has the form 'name/repo'"
REFUSED = [
    ("vela", "no-such-folder", NO_FOLDER),
    ("fleur", "no-such-folder", NO_FOLDER),
    ("clipscore", "ViT-B-32", f"{NO_FOLDER}, or ARCHITECTURE:TAG"),
    ("vela", "modle", f"{NO_FOLDER}. Did you mean 'model'?"),
    ("vela", Path("runs/photos"), "does not exist"),
    ("vela", "a name/of a folder", "no folder 'a name/of a folder' here, and Repo id must"),
    ("vela", "model/nothere", "does not exist; a folder 'model' is here, .* hf download model/nothere --local-dir"),
    ("fleur", "lengths", "a checkpoint of metric 'length', but a checkpoint of 'fleur' is needed"),
    ("vela", "model", "of no metric of this library"),
    ("vela", "weights.pt", "is a file; give the folder"),
    ("fleur", "embedded", "no judge for fleur is shipped"),
]
ACCEPTED = [
    *(("vela", source) for source in ("name/repo", ASSETS / "vela", "http://127.0.0.1:9")),
    *(("clipscore", source) for source in ("clip", "weights.pt", "ViT-B-32:openai", "hf-hub:a/b")),
    *(("fleur", "model"), ("bertscore", "roberta-large"), ("length", "lengths")),
]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("metric", "source", "message"), REFUSED)
def test_what_is_no_source_is_refused_when_the_reward_is_made(metric, source, message):
    for make in (MetricReward, load_scorer):
        with pytest.raises(CheckpointError, match=message):
            make(metric, source)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("metric", "source"), ACCEPTED)
def test_what_may_be_a_source_is_accepted_without_being_loaded(metric, source):
    assert MetricReward(metric, source).source == source


@pytest.mark.parametrize("make", [VelaReward, BeitScoreReward, FleurReward, TournamentReward])
def test_rewards_with_a_name_of_their_own_refuse_it_too(make):
    with pytest.raises(CheckpointError, match=NO_FOLDER):
        make("no-such-folder")


def is_loaded(part):
    return part._shared.scorer is not None


def test_load_loads_at_once_and_gives_the_reward_back():
    reward = BeitScoreReward()
    assert not is_loaded(reward)
    assert reward.load() is reward
    assert is_loaded(reward)
    assert not is_loaded(pickle.loads(pickle.dumps(reward)))
    with pytest.raises(CheckpointError, match="cannot be reached"):
        VelaReward("name/of-nothing-at-all").load()


def test_load_reaches_every_part_of_a_combination():
    parts = [MetricReward("length", name=name) for name in "abcd"]
    plain = lambda completions, **kwargs: [0.0] * len(completions)  # noqa: E731
    whole = CombinedReward([CombinedReward(parts[:1], "min"), AsyncReward(parts[1]).reward, plain])
    assert whole.load() is whole
    parts[2].aspect("length").load()
    waiting = AsyncReward(parts[3])
    assert waiting.load() is waiting
    assert all(map(is_loaded, parts))
    assert LengthReward(1, 2).load()(["Describe."], ["A star."]) == [1.0]
    assert asyncio.run(waiting(prompts=["Describe."], completions=["A star."])) == [2.0]
