"""MetricReward: the contract of a trainer's reward function, without a trainer."""

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

import reward as reward_package
from reward import registry
from reward.data.samples import CaptionSample
from reward.errors import ConfigError, InvalidSampleError, WeightsError
from reward.rewards.combined_reward import AsyncReward, CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.rewards.named_rewards import VelaReward
from tests.toys.toy_scorer import SPEC, ToyScorer
from tests.toys.trainer import RED, TrainerLog, call

INVISIBLE = list("\x00\u200b\u3164\u2800\ufe0f\u115f\u17b4\u034f")  # some are letters or marks to Unicode
THOUGHT = [{"role": "assistant", "content": "<think>Is it red? It is red.</think>\n\na star"}]


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


def logged(reward, completions):
    """The reported columns and means."""
    columns, log = {}, TrainerLog()
    call(reward, completions, log_extra=columns.__setitem__, log_metric=log)
    return columns, log.means


@pytest.mark.parametrize(
    ("options", "completions", "rewards"),
    [
        ({}, ["red star", "a star"], [0.5, 0.25]),
        ({"weights": {"brev": 1, "col": 3}}, ["red star", "a star"], [0.5, 0.125]),
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
        ({}, [*INVISIBLE, " \u2060\ufeff\n", "?!", "\u2b50", "red"], [0.0] * 11 + [1.0]),
    ],
)
def test_rewards(options, completions, rewards):
    assert call(MetricReward(ToyScorer(), **options), completions) == rewards


def test_score_and_rewards_of_samples():
    reward = MetricReward(scorer := ToyScorer(), weights={"col": 1}, batch_size=7)
    samples = [CaptionSample("red star", image="a.png"), CaptionSample("it will fail", image="a.png")]
    table = reward.score(samples)
    assert (table.column("colour")[0], table.errors) == (0.5, {1: "the caption says fail"})
    assert table.reward[0] == reward.rewards(samples)[0] == 0.5  # by the weights of the reward
    assert reward.rewards([*samples, CaptionSample("red")]) == [0.5, None, None]  # no first call, which would raise
    assert reward.score([]).scores.shape == (0, 2)
    assert scorer.modes[0] == (True, 7)  # inference mode, and the batch size is passed on


def test_failures_are_counted_by_kind_and_warned_of_at_powers_of_ten(caplog):
    reward = MetricReward(ToyScorer(), name="caption")
    completions = ["red", "", None, "it will fail", "infinite red", *["red"] * 5]
    with caplog.at_level(logging.WARNING, "reward.rewards.logs"):
        for _ in range(25):
            call(reward, completions, image=[*[RED] * 5, *[None] * 5])
    counted = {"no image": 125, "empty caption": 25, "no caption": 25, "not scored by the metric": 50}
    assert reward.failures == counted
    assert [record.args[1] for record in caplog.records if record.args[3] == "no image"] == [1, 10, 100]
    assert "caption: 1 row so far: no caption" in caplog.text
    assert "the caption says fail" in caplog.text


@pytest.mark.parametrize(
    ("low", "rewards"),
    [
        (0.0, [0.5, 0.0, 0.0, 0.0, 0.25]),
        (-2.0, [0.5, -2.0, -2.0, -2.0, 0.25]),
        (-math.inf, [0.5, 0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_on_error_lowest(low, rewards, monkeypatch):
    monkeypatch.setattr(ToyScorer, "spec", replace(SPEC, range=(low, math.inf)))
    reward = MetricReward(ToyScorer(), on_error="lowest")
    with pytest.raises(InvalidSampleError, match="none of the 2 rows of the first call"):
        call(reward, ["red", "star"], image=[None, None])
    assert call(reward, ["red star", "fail", None, "...", "a star"]) == rewards
    assert reward.failures["no caption"] == 1
    only_lowest = [None if math.isinf(low) else low] * 2
    assert call(reward, ["red", "star"], image=[None, None]) == only_lowest


class Short(ToyScorer):
    """Drops rows."""

    def score(self, samples, **options):
        return super().score(samples[:1], **options)


@pytest.mark.parametrize(
    ("reward", "row", "error", "reason"),
    [
        (MetricReward(ToyScorer(), on_error="raise"), "fail", InvalidSampleError, "the caption says fail"),
        (MetricReward(ToyScorer(), on_error="raise"), None, InvalidSampleError, r"row 1 .*\(no caption\)"),
        (MetricReward(Short()), "star", RuntimeError, "gave 1 scores for 2 samples"),
    ],
)
def test_what_raises_in_the_middle_of_a_training(reward, row, error, reason):
    with pytest.raises(error, match=reason):
        call(reward, ["red", row])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"weights": {"brev": 2, "colour": 2}}, "toy"),
        ({"weights": {"brev": 2}}, "toy_brev"),
        ({"weights": {"brevity": 1, "col": 0.5}}, "toy_col0.5_brev1"),
        ({"source": "name/toy-large.v2/", "weights": {"col": 1}}, "toy_toy-large.v2_col"),
        ({"weights": {"brev": 2}, "name": "mine"}, "mine"),
    ],
)
def test_names_come_from_what_differs_and_not_from_what_else_is_alive(toy, options, name):
    kept = [MetricReward("toy", **options) for _ in range(3)]
    assert [reward.__name__ for reward in kept] == [name] * 3
    assert [aspect.__name__ for aspect in kept[0].aspects()] == [f"{name}_colour", f"{name}_brevity"]


def test_logs_of_a_reward_and_of_its_aspects():
    completions = ["red", "a star", None, "star " * 60, "...", "infinite red"]
    columns, means = logged(MetricReward(ToyScorer(), name="caption"), completions)
    np.testing.assert_allclose(columns["caption/colour"], [1, 0, math.nan, 0, 0, math.nan])  # "..." has the lowest
    assert columns["caption/brevity"][-1] == 0.5
    assert all(type(value) is float for values in columns.values() for value in values)
    assert (means["caption/colour"], means["caption/unscored"], means["caption/truncated"]) == (1 / 4, 2 / 6, 1 / 6)
    for aspect in MetricReward(ToyScorer(), name="caption").aspects():  # they log the shares of the whole reward
        assert logged(aspect, completions) == ({}, {"caption/unscored": 2 / 6, "caption/truncated": 1 / 6})


def test_a_caption_without_a_word_is_logged_as_what_it_got_where_the_metric_has_no_bound(monkeypatch):
    monkeypatch.setattr(ToyScorer, "spec", replace(SPEC, range=(-math.inf, math.inf)))
    columns, means = logged(MetricReward(ToyScorer(), name="caption"), ["red", "a star", "..."])
    assert (columns["caption/colour"], columns["caption/brevity"]) == ([1, 0, 0], [1, 0.5, 0.5])
    assert (means["caption/colour"], means["caption/unscored"]) == (1 / 3, 0)


class Trainer:
    """Hands its rewards what TRL's trainers do."""

    def __init__(self, *reward_funcs):
        self.reward_funcs = reward_funcs

    def log_extra(self, name, values):
        pass

    def step(self, completions):
        for reward in self.reward_funcs:
            call(reward, completions, log_extra=self.log_extra)


def test_two_rewards_of_one_name_in_one_trainer_are_refused():
    reward, other = MetricReward(ToyScorer()), MetricReward(ToyScorer())
    Trainer(reward, AsyncReward(reward), MetricReward(ToyScorer(), name="other")).step(["red"])
    with pytest.raises(ConfigError, match=r"two rewards of this trainer are named 'toy'.*name='...'"):
        Trainer(reward, AsyncReward(other)).step(["red"])
    Trainer(CombinedReward([other, words()])).step(["red"])  # another trainer


def words(**options):
    return MetricReward("length", name="words", **options)


@pytest.mark.parametrize(
    ("rewards", "names"),
    [
        (lambda: [MetricReward(ToyScorer()), words()], "toy, words"),
        (lambda: [words(), MetricReward(ToyScorer()), MetricReward(ToyScorer(), name="other")], "words, toy, other"),
        (lambda: [MetricReward(ToyScorer()), lambda completions, **_: [1.0] * len(completions)], "toy, <lambda>"),
        (lambda: [MetricReward(ToyScorer())], None),
        (lambda: MetricReward(ToyScorer()).aspects(), None),  # they lack the same rows
        (lambda: [CombinedReward([MetricReward(ToyScorer()), words()])], None),
        (lambda: [MetricReward(ToyScorer(), on_error="lowest"), words()], None),
    ],
)
def test_a_trainer_that_sums_several_rewards_is_warned_of_once(rewards, names, caplog):
    trainer = Trainer(*rewards())
    with caplog.at_level(logging.WARNING, "reward.rewards.trainers"):
        trainer.step(["red", "a star"])
        assert caplog.text.count("several rewards") == 0
        for _ in range(2):
            trainer.step(["red", "fail"])
    told = [record.getMessage() for record in caplog.records if "several rewards" in record.getMessage()]
    assert len(told) == (names is not None)
    if names is not None:
        assert "toy gave None to a row" in told[0]
        assert f"reward_funcs=[CombinedReward([{names}])]" in told[0]


def test_aspects_share_one_forward_pass():
    scorer = ToyScorer()
    colour, brevity = MetricReward(scorer, weights={"col": 1}).aspects()
    captions, images = ["red star", "a star", ""], [RED] * 3
    assert call(colour, captions, image=images) == [0.5, 0.0, 0.0]
    assert call(brevity, captions, image=images) == [0.5, 0.5, 0.0]
    assert len(scorer.calls) == 1
    assert colour.failures["empty caption"] == 1  # counted once, not once an aspect
    captions[0] = "a red star at night"  # a trainer that fills its lists anew asks the same aspects again
    assert [call(asked, captions, image=images)[0] for asked in (brevity, colour)] == [0.2, 0.2]
    call(colour, captions, image=images)
    assert call(brevity, ["red"], image=[RED]) == [1.0]  # other lists: another pass
    assert len(scorer.calls) == 4


def test_the_way_of_a_caption_to_the_tensor_and_back_crosses_eleven_files():
    reward, picture = VelaReward().load(), Image.new("RGB", (96, 96), "red")
    package, files = Path(reward_package.__file__).parent, set()

    def see(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if event == "call" and package in file.parents:
            files.add(str(file.relative_to(package)))

    ask = partial(reward, ["Describe."], references=[["A star."]])
    ask(["A star."], images=[[picture]])  # what is loaded at first is not counted
    sys.setprofile(see)
    try:
        ask(["A red star."], images=[[picture.copy()]])
    finally:
        sys.setprofile(None)
    assert len(files) <= 11, sorted(files)
    assert {"rewards/metric_reward.py", "metrics/vela/model.py", "data/score_table.py"} < files


def test_the_model_stays_behind_when_a_reward_is_pickled(toy):
    reward = MetricReward("toy", weights={"col": 1}, device="cpu")
    before = pickle.loads(pickle.dumps(reward))
    assert call(reward, ["red star"]) == [0.5]
    after = pickle.loads(pickle.dumps(reward))
    assert [call(copied, ["red star"]) for copied in (before, after)] == [[0.5]] * 2
    assert len(toy) == 3
    captions, images = ["red"], [RED]
    for aspect in pickle.loads(pickle.dumps(MetricReward("toy").aspects())):
        call(aspect, captions, image=images)
    assert [len(scorer.calls) for scorer in toy] == [1] * 4  # the aspects still share a forward pass


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
    reward, start = MetricReward("toy"), threading.Barrier(4)

    def one(number):
        start.wait()
        return call(reward, ["red"] * (number + 1))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(4)))
    assert results == [[1.0] * (number + 1) for number in range(4)]
    assert [(scorer.most_threads_inside, len(scorer.calls)) for scorer in toy] == [(1, 4)]  # loaded once


MESSAGE = st.builds(lambda text: [{"role": "assistant", "content": text}], st.text(max_size=9))
ROW = st.tuples(
    st.one_of(st.none(), st.integers(), st.text(max_size=20), MESSAGE),
    st.one_of(st.none(), st.just("a.png")),
    st.one_of(st.none(), st.lists(st.text(max_size=5), max_size=2)),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(ROW, max_size=6))
def test_any_rows_give_one_finite_number_or_none_each(rows):
    completions, images, references = zip(*rows, strict=True) if rows else ((), (), ())
    reward = MetricReward(ToyScorer())
    call(reward, ["red"])  # the first call may raise
    rewards = call(reward, list(completions), image=list(images), references=list(references))
    assert len(rewards) == len(rows)
    assert all(value is None or (type(value) is float and math.isfinite(value)) for value in rewards)


def test_the_checkpoint_decides_over_aspects_and_needs(monkeypatch):
    spec = replace(SPEC, scorer="tests.toys.toy_scorer:BrevityScorer")
    monkeypatch.setattr(registry, "installed_specs", lambda: {"toy": spec})
    assert call(MetricReward("toy"), ["red star"], image=[None]) == [0.5]
    assert call(MetricReward("toy", weights={"brev": 2}), ["red star"]) == [0.5]
    colour, brevity = MetricReward("toy").aspects()
    assert call(brevity, ["red star"]) == [0.5]
    for absent in (MetricReward("toy", weights={"col": 1}), colour):
        with pytest.raises(WeightsError, match="unknown aspect 'col"):
            call(absent, ["red star"])
