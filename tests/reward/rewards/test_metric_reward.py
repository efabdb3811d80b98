"""MetricReward: the contract of a trainer's reward function, without a trainer."""

from __future__ import annotations

import copy
import logging
import math
import pickle
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import TrainerState

import reward as reward_package
from reward import registry
from reward.errors import CapRewardError, ConfigError, InvalidSampleError, UnknownMetricError, WeightsError
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.rewards.named_rewards import VelaReward
from reward.samples import CaptionSample
from tests.toys.toy_scorer import SPEC, ToyScorer
from tests.toys.trainer_log import TrainerLog

LOGGER = "reward.rewards.logs"


@pytest.fixture
def toy(monkeypatch):
    """Installs the toy metric under its name, as an entry point would; gives the list of scorers that are loaded."""
    loaded, load = [], ToyScorer.from_pretrained

    def listed(source, **options):
        loaded.append(load(source, **options))
        return loaded[-1]

    monkeypatch.setattr(registry, "installed_specs", lambda: {"toy": SPEC})
    monkeypatch.setattr(ToyScorer, "from_pretrained", listed)
    return loaded


def call(reward, completions, **columns):
    columns.setdefault("image", [Image.new("RGB", (4, 4), "red")] * len(completions))
    return reward(prompts=["Describe."] * len(completions), completions=completions, completion_ids=None, **columns)


def logged(reward, completions):
    """The reported columns and means."""
    columns, log = {}, TrainerLog()
    call(reward, completions, log_extra=columns.__setitem__, log_metric=log)
    return columns, log.means


THOUGHT = [{"role": "assistant", "content": "<think>Is it red? It is red.</think>\n\na star"}]


@pytest.mark.parametrize(
    ("options", "completions", "rewards"),
    [
        ({}, ["red star", "a star"], [0.5, 0.25]),
        ({"weights": {"col": 3, "brev": 1}}, ["red star", "a star"], [0.5, 0.125]),
        ({"weights": {"brevity": 2}}, ["red star", "a star"], [0.5, 0.5]),
        # an empty caption gets the lowest reward there is; where brevity counts against it, its worst is 1
        ({"weights": {"col": 2, "brev": -1}}, ["", "star", "red"], [-1.0, -1.0, 1.0]),
        ({"on_error": "raise"}, [""], [0.0]),  # and is no error
        # an aspect without weight does not spoil the reward
        ({"weights": {"brev": 1}}, ["infinite red"], [0.5]),
        # reasoning is cut unless it is asked for
        ({"weights": {"brev": 1}}, [THOUGHT, "<think>cut off", "a star"], [0.5, 0.0, 0.5]),
        ({"weights": {"brev": 1}, "strip_thinking": False}, [THOUGHT], [1 / 8]),
        # a completion that is no Unicode fails alone
        ({}, ["a red dog", "half \ud83d"], [pytest.approx(1 / 3), None]),
        # what shows nothing, though some have the category of a letter or mark, and what holds no word, is empty
        *(
            ({}, [caption, "red", ""], [0.0, 1.0, 0.0])
            for caption in (*"\x00\u200b\u3164\u2800\ufe0f\u115f\u17b4\u034f", " \u2060\ufeff\n", ".", "?!", "\u2b50")
        ),
    ],
)
def test_rewards(options, completions, rewards):
    reward = MetricReward(ToyScorer(), **options)
    assert call(reward, completions) == rewards
    assert reward.failures["no caption"] == rewards.count(None)
    assert all(type(value) is float for value in call(reward, completions) if value is not None)


def test_score_and_rewards_of_samples():
    reward = MetricReward(scorer := ToyScorer(), weights={"col": 1}, batch_size=7)
    samples = [CaptionSample("red star", image="a.png"), CaptionSample("it will fail", image="a.png")]
    with torch.enable_grad():
        table = reward.score(samples)
        assert torch.is_grad_enabled()
    assert table.column("colour")[0] == 0.5
    assert table.errors == {1: "the caption says fail"}
    assert reward.rewards(samples) == [0.5, None]
    assert reward.score([]).scores.shape == (0, 2)
    assert scorer.modes[0] == (True, 7)  # inference mode, and the batch size is passed on


def test_missing_data_give_none_and_what_the_policy_wrote_never_does(caplog):
    reward = MetricReward(ToyScorer(), name="caption")
    image = Image.new("RGB", (4, 4))
    empty = [{"role": "assistant", "content": ""}]
    completions = ["red", "red", "", " \n", empty, None, "it will fail", "infinite red", ""]
    with caplog.at_level(logging.WARNING, LOGGER):
        rewards = call(reward, completions, image=[image, None, *[image] * 6, None])
    assert rewards == [1.0, None, 0.0, 0.0, 0.0, None, None, None, None]
    failures = {"no image": 2, "empty caption": 3, "no caption": 1, "not scored by the metric": 2}
    assert reward.failures == failures
    assert len(caplog.records) == 4
    assert "caption: 1 row so far: no caption" in caplog.text
    assert "the caption says fail" in caplog.text


def test_warnings_come_at_powers_of_ten_with_the_running_count(caplog):
    reward = MetricReward(ToyScorer(), name="caption")
    image = Image.new("RGB", (4, 4))
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(25):
            call(reward, ["red"] * 6, image=[image, *[None] * 5])
    assert [record.args[1] for record in caplog.records] == [5, 10, 100]
    assert reward.failures["no image"] == 125


@pytest.mark.parametrize(
    ("completions", "columns", "message"),
    [
        (["red"], {"image": [None]}, "row 0 cannot be scored .no image."),
        (["red", None], {}, "row 1 cannot be scored .no caption."),
        (["red"], {"references": [5]}, "references must be a list"),
        (["it will fail"], {}, "the caption says fail"),
    ],
)
def test_on_error_raise(completions, columns, message):
    with pytest.raises(InvalidSampleError, match=message):
        call(MetricReward(ToyScorer(), on_error="raise"), completions, **columns)


def test_faults_of_the_setup_raise_in_any_case():
    class Short(ToyScorer):
        def score(self, samples, **options):
            return super().score(samples[:1], **options)

    with pytest.raises(RuntimeError, match="gave 1 scores for 2 samples"):
        call(MetricReward(Short()), ["red", "star"])
    with pytest.raises(InvalidSampleError, match="'picture', which is no column"):
        call(MetricReward(ToyScorer(), image_column="picture"), ["red"])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("length",), {"on_error": "ignore"}, ValueError, "on_error must be"),
        (("length",), {"batch_size": 0}, ValueError, "batch_size must be at least 1, .* got 0"),
        (("length",), {"batch_size": "4"}, ValueError, "batch_size must be at least 1, .* got '4'"),
        (("length", None), {}, CapRewardError, "source must be"),
        ((None,), {}, CapRewardError, "a metric is named by a text such as 'vela', got None"),
        (("nonsense",), {}, UnknownMetricError, "no metric is named 'nonsense'"),
        *(
            ((metric, "name/repo"), {"weights": weights}, WeightsError, "weight|aspect")
            for metric, weights in [
                *(("length", weights) for weights in ({"taste": 1}, {"length": math.nan}, {"length": -1}, {})),
                *(("vela", weights) for weights in ({"desc": "1"}, {"desc": 0}, {"desc": 1, "descriptiveness": 1})),
                ("vela", [1, 2, 3]),
            ]
        ),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments, options, error, message):
    with pytest.raises(error, match=message):
        MetricReward(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "toy"),
        ({"weights": {"brev": 2, "colour": 2}}, "toy"),
        ({"weights": {"brev": 2}}, "toy_brev"),
        ({"weights": {"brevity": 1, "col": 0.5}}, "toy_col0.5_brev1"),
        ({"source": "runs/photos/"}, "toy_photos"),
        ({"source": "name/toy-large.v2", "weights": {"col": 1}}, "toy_toy-large.v2_col"),
        ({"weights": {"brev": 2}, "name": "toy"}, "toy"),
    ],
)
def test_names_come_from_what_differs_and_not_from_what_else_is_alive(toy, options, name):
    kept = [MetricReward("toy", **options) for _ in range(3)]
    assert [reward.__name__ for reward in kept] == [name] * 3
    assert [aspect.__name__ for aspect in kept[0].aspects()] == [f"{name}_colour", f"{name}_brevity"]


def test_two_rewards_of_one_name_in_one_trainer_are_refused():
    reward = MetricReward(ToyScorer())
    state = TrainerState()
    for _ in range(2):
        call(reward, ["red"], trainer_state=state)
    for other in (MetricReward(ToyScorer()), copy.deepcopy(reward)):
        with pytest.raises(ConfigError, match=r"two rewards of this trainer are named 'toy'.*name='...'"):
            call(other, ["red"], trainer_state=state)
        call(other, ["red"], trainer_state=TrainerState())  # another trainer
        call(reward, ["red"], trainer_state=state)
    call(MetricReward(ToyScorer(), name="other"), ["red"], trainer_state=state)


def test_logs_of_a_reward_and_of_its_aspects():
    columns, means = logged(MetricReward(ToyScorer(), name="caption"), ["red", "a star", None, "star " * 60])
    assert list(columns) == ["caption/colour", "caption/brevity"]
    assert all(type(value) is float for values in columns.values() for value in values)
    np.testing.assert_allclose(columns["caption/colour"], [1, 0, math.nan, 0])
    assert means["caption/colour"] == pytest.approx(1 / 3)
    assert means["caption/unscored"] == means["caption/truncated"] == 0.25
    columns, means = logged(MetricReward(ToyScorer(), name="caption"), ["red", "..."])  # which has no word
    assert (columns["caption/colour"], means["caption/unscored"]) == ([1.0, 0.0], 0.0)
    for aspect in MetricReward(ToyScorer(), name="caption").aspects():  # they log the shares of the whole reward
        columns, means = logged(aspect, ["red", None, "star " * 60, "a star"])
        assert (columns, means) == ({}, {"caption/unscored": 0.25, "caption/truncated": 0.25})


def test_what_has_no_finite_number_is_logged_as_nan_and_without_a_mean():
    reward = MetricReward(ToyScorer(), name="caption")
    columns, _ = logged(reward, ["infinite red"])
    assert math.isnan(columns["caption/colour"][0])
    assert columns["caption/brevity"] == [0.5]
    assert logged(reward, ["it will fail"])[1] == {"caption/unscored": 1.0, "caption/truncated": 0.0}
    assert logged(reward, [])[1] == {}


def test_aspects_share_one_forward_pass():
    scorer = ToyScorer()
    colour, brevity = MetricReward(scorer, weights={"col": 1}).aspects()
    captions, images = ["red star", "a star", ""], [Image.new("RGB", (4, 4)) for _ in range(3)]
    assert call(colour, captions, image=images) == [0.5, 0.0, 0.0]
    assert call(brevity, captions, image=images) == [0.5, 0.5, 0.0]
    assert len(scorer.calls) == 1
    assert colour.failures["empty caption"] == 1  # counted once, not once an aspect

    for again in (["red star", "star", ""], list(captions)):  # other lists: another pass
        call(brevity, again, image=images)
    call(colour, captions, image=[Image.new("RGB", (4, 4), "blue") for _ in range(3)])
    assert len(scorer.calls) == 4
    samples = [CaptionSample("red star", image="a.png")]
    assert (colour.rewards(samples), brevity.rewards(samples)) == ([0.5], [0.5])
    assert len(scorer.calls) == 5


def test_the_way_of_a_caption_to_the_tensor_and_back_crosses_eleven_files():
    reward, picture, package = (
        VelaReward().load(),
        Image.new("RGB", (96, 96), "red"),
        Path(reward_package.__file__).parent,
    )
    files = set()

    def see(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if event == "call" and package in file.parents:
            files.add(str(file.relative_to(package)))

    call = partial(reward, [[{"role": "user", "content": "Describe."}]], references=[["A star."]], trainer_state=reward)
    call([[{"role": "assistant", "content": "A star."}]], images=[[picture]])  # what is loaded at first is not counted
    sys.setprofile(see)
    try:
        call([[{"role": "assistant", "content": "A red star."}]], images=[[picture.copy()]])
    finally:
        sys.setprofile(None)
    assert len(files) <= 11, sorted(files)
    assert {"rewards/metric_reward.py", "metrics/vela/model.py", "score_table.py"} < files


def test_an_aspect_takes_no_score_of_the_rows_before():
    """A trainer that fills its lists anew, with other captions and pictures, asks the same aspect again."""
    first, second = MetricReward(ToyScorer()).aspects()
    captions, images = ["red"], [Image.new("RGB", (4, 4))]
    assert [call(asked, captions, image=images) for asked in (first, second)] == [[1.0], [1.0]]
    captions[0] = "a red star at night"
    assert [call(asked, captions, image=images) for asked in (second, first)] == [[0.2], [0.2]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetricReward(ToyScorer(), name="caption"),
        lambda: CombinedReward([MetricReward(ToyScorer(), name="caption")]),
        lambda: MetricReward(ToyScorer(), name="caption").aspects()[0],
    ],
)
def test_a_mean_over_processes_weighs_each_row_alike(make):
    log = TrainerLog()
    for completions in (["red", None, None], ["a star"] * 4, []):  # each process makes its own reward
        call(make(), completions, log_metric=log)
    known = {"caption/colour": 1 / 5, "caption/unscored": 2 / 7, "caption/truncated": 0}
    assert {name: value for name, value in log.means.items() if name in known} == pytest.approx(
        {name: value for name, value in known.items() if name in log.means}
    )
    assert "caption/unscored" in log.means


def test_pickle_round_trip_before_and_after_loading(toy):
    reward = MetricReward("toy", weights={"col": 1}, name="caption", device="cpu")
    before = pickle.loads(pickle.dumps(reward))
    assert call(reward, ["red star"]) == [0.5]
    after = pickle.loads(pickle.dumps(reward))
    for copied in (before, after, copy.deepcopy(reward)):
        assert copied.__name__ == "caption"
        assert call(copied, ["red star"]) == [0.5]
    assert len(toy) == 4  # the model stays behind, and every copy loads its own
    captions, images = ["red"], [Image.new("RGB", (4, 4))]
    for aspect in pickle.loads(pickle.dumps(MetricReward("toy").aspects())):
        call(aspect, captions, image=images)
    assert [len(scorer.calls) for scorer in toy] == [1] * 5  # the aspects still share a forward pass


def test_loading_is_lazy_on_the_own_device_and_leaves_random_states_alone(toy):
    reward = MetricReward("toy", source="some/folder", revision="main", dtype="bfloat16")
    assert toy == []
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    call(reward, ["red"])
    source, options = toy[0].loaded_with
    assert (source, options["revision"], options["dtype"]) == ("some/folder", "main", "bfloat16")
    assert options["device"] == ("cuda:0" if torch.cuda.is_available() else "cpu")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


def test_threads_take_turns(toy):
    reward = MetricReward("toy")
    start = threading.Barrier(4)

    def one(number):
        start.wait()
        return call(reward, ["red"] * (number + 1))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(4)))
    assert results == [[1.0] * (number + 1) for number in range(4)]
    assert [(scorer.most_threads_inside, len(scorer.calls)) for scorer in toy] == [(1, 4)]  # loaded once


COMPLETION = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=20),
    st.builds(lambda text: [{"role": "assistant", "content": text}], st.text(max_size=9)),
)
ROW = st.tuples(
    COMPLETION, st.one_of(st.none(), st.just("a.png")), st.one_of(st.none(), st.lists(st.text(max_size=5), max_size=2))
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, max_size=6))
def test_any_rows_give_one_finite_number_or_none_each(rows):
    completions, images, references = zip(*rows, strict=True) if rows else ((), (), ())
    reward = MetricReward(ToyScorer())
    call(reward, ["red"])  # the first call may raise
    rewards = call(reward, list(completions), image=list(images), references=list(references))
    assert len(rewards) == len(rows)
    assert all(value is None or (type(value) is float and math.isfinite(value)) for value in rewards)


def test_the_checkpoint_decides_over_aspects_and_needs(monkeypatch):
    monkeypatch.setattr(
        registry, "installed_specs", lambda: {"toy": replace(SPEC, scorer="tests.toys.toy_scorer:BrevityScorer")}
    )
    assert call(MetricReward("toy"), ["red star"], image=[None]) == [0.5]
    assert call(MetricReward("toy", weights={"brev": 2}), ["red star"]) == [0.5]
    with pytest.raises(WeightsError, match="unknown aspect 'col'"):
        call(MetricReward("toy", weights={"col": 1}), ["red star"])
    colour, brevity = MetricReward("toy").aspects()
    assert call(brevity, ["red star"]) == [0.5]
    with pytest.raises(WeightsError, match="unknown aspect 'colour'"):
        call(colour, ["red star"])
