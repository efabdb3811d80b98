"""A function as a metric: how it is called, found, named, refused and told from its older self."""

import asyncio
import functools
import json
import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from reward import CaptionSample, CombinedReward, MetricReward, load_scorer
from reward.cli.options import read_metrics
from reward.decoding.selection import rerank
from reward.errors import CheckpointError, ConfigError, UnknownMetricError
from reward.rewards.combined_reward import AsyncReward, rates_captions
from reward.scoring.batch_scorer import BatchScorer
from tests.contract import ScorerContract
from tests.toys.pictures import png

RED = Image.new("RGB", (4, 4), "red")
SAMPLES = [CaptionSample("a red star", png(RED), ["A star."]), CaptionSample("red", RED)]
FILE = """
import dataclasses
import beside

@dataclasses.dataclass
class Words:
    weight: float = 2.0
    def __call__(self, samples):
        return [self.weight * len(sample.candidate.split()) for sample in samples]

def length(samples):
    return [float(len(sample.candidate.split())) for sample in samples]

def polite(prompts, completions, **columns):
    return [float("please" in text) for text in completions]

def broken(samples):
    return [1 / 0 for sample in samples]

words, number = Words(3.0), 5
"""


def words(samples):
    return [float(len(sample.candidate.split())) for sample in samples]


def redness(captions, images):
    return [image.getpixel((0, 0))[0] + len(text) for text, image in zip(captions, images, strict=True)]


class Rater:
    def __init__(self, weight=1.0):
        self.weight = weight

    def __call__(self, samples):
        return [self.weight * value for value in words(samples)]

    def rate(self, samples):
        return self(samples)


class OtherLibrary:
    """An object of another library, as many have them."""

    def score(self, images, captions):
        return of_lists(images, captions)


async def later(samples):
    await asyncio.sleep(0)
    return words(samples)


async def each_later(text):
    await asyncio.sleep(0)
    return len(text.split())


def of_lists(images, captions):
    return [len(text.split()) * (image.mode == "RGB") for image, text in zip(images, captions, strict=True)]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of functions in a path with a blank, which is also the current folder."""
    folder = tmp_path / "my metrics"
    folder.mkdir()
    (folder / "beside.py").write_text("")
    path = folder / "my_metric.py"
    path.write_text(FILE)
    monkeypatch.chdir(folder)
    return path


class TestContract(ScorerContract):
    """What holds of every metric, but for saving: nothing in a checkpoint runs code."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls):
        return load_scorer(redness)

    def test_pickled_and_saved_scorers_score_alike(self, scorer, tmp_path):
        copy = pickle.loads(pickle.dumps(scorer))
        assert self.scores(copy, SAMPLES).tolist() == self.scores(scorer, SAMPLES).tolist()
        with pytest.raises(ConfigError, match="nothing in a checkpoint runs code"):
            scorer.save_pretrained(tmp_path)

    test_checkpoints_of_other_metrics_and_missing_ones_are_refused = None


WAYS = [
    (words, "words"),
    (lambda samples: np.array(words(samples)), "function"),
    (lambda samples: [torch.tensor(value) for value in words(samples)], "function"),
    (lambda samples, scale=1, **_: (scale * value for value in words(samples)), "function"),
    (Rater, "Rater"),
    (Rater(), "Rater"),
    (Rater().rate, "rate"),
    (functools.partial(words), "words"),
    (lambda completions, **columns: [len(text.split()) for text in completions], "function"),
    (lambda **columns: [len(text.split()) for text in columns["completions"]], "function"),
    (of_lists, "of_lists"),
    (lambda image, caption: len(caption.split()) * (image.size == (4, 4)), "function"),
    (lambda text: len(text.split()), "function"),
    (lambda caption, references=(): len(caption.split()), "function"),
    (lambda captions: [len(text.split()) for text in captions], "function"),
    (OtherLibrary(), "OtherLibrary"),
    (later, "later"),
    (each_later, "each_later"),
    (AsyncReward(MetricReward("length")), "length"),
    (CombinedReward(["length", words], "min"), "min_length_words"),
]


@pytest.mark.parametrize(("function", "name"), WAYS)
def test_every_kind_of_function_is_a_metric(function, name):
    scorer = load_scorer(function)
    assert (scorer.spec.name, scorer.spec.aspects) == (name, (name,))
    for batch_size in (None, 1):
        assert scorer.score(SAMPLES, batch_size=batch_size).scores.tolist() == [[3.0], [1.0]]


@pytest.mark.parametrize("given", [words, "my_metric.py:length", "my_metric:length", "length", load_scorer("length")])
def test_whatever_takes_the_name_of_a_metric_takes_a_function(given, file):
    for reward in (MetricReward(given), rates_captions(given), CombinedReward([given, "length"], "min")):
        assert reward.rewards(SAMPLES) == [3.0, 1.0]
    assert rerank(["red", "a red star"], reward=given) == [1, 0]
    assert BatchScorer(given, added_only=True)({"caption": ["a red star"]})["reward"] == [3.0]


def test_what_else_stands_in_a_file_and_takes_options(file):
    for name, score in (("Words", 6.0), ("words", 9.0), ("polite", 0.0)):
        copy = pickle.loads(pickle.dumps(load_scorer(f"my_metric.py:{name}")))
        assert (copy.spec.name, copy.score(SAMPLES).scores[0, 0]) == (name, score)
    assert MetricReward("brevity", "my_metric.py:length").__name__ == "brevity"
    assert repr(MetricReward(words)) == "MetricReward(name='words', weights={'words': 1.0})"
    doubled = load_scorer(lambda samples, scale: [scale * value for value in words(samples)], scale=2.0)
    assert doubled.score(SAMPLES).scores[0, 0] == 6.0
    [chosen] = read_metrics(["my_metric.py:Words"], ["weight=4"])
    assert pickle.loads(pickle.dumps(chosen.load(device="cpu"))).score(SAMPLES).scores[0, 0] == 12.0
    file.write_text("from reward import load_scorer\nscorer = load_scorer('length')\ndef error(samples): return [1.0]")
    assert load_scorer("my_metric.py:scorer").spec.name == "length"
    assert load_scorer("my_metric.py:error").spec.aspects == ("score",)


@pytest.mark.parametrize("kind", ["samples", "attribute", "images", "image", "part"])
def test_pictures_are_opened_for_who_names_them_as_a_parameter_or_says_so(kind):
    seen = []

    def of_samples(samples):
        seen.extend(sample.image for sample in samples)
        return [1.0] * len(samples)

    of_trainer = lambda completions, images: [seen.append(image) or 1.0 for [image] in images]  # noqa: E731
    of_one = lambda text, image: seen.append(image) or 1.0  # noqa: E731
    of_samples.needs_image = kind == "attribute"
    functions = {"images": of_trainer, "image": of_one, "part": CombinedReward([of_one, "length"], "min")}
    scorer = load_scorer(functions.get(kind, of_samples))
    table = scorer.score([CaptionSample("a", "absent.png"), CaptionSample("a", SAMPLES[0].image), CaptionSample("a")])
    if kind == "samples":
        assert (table.errors, seen) == ({}, ["absent.png", SAMPLES[0].image, None])
    else:
        assert sorted(table.errors) == [0, 2]
        assert [image.mode for image in seen] == ["RGB"]
        assert scorer.spec.needs_image


def test_none_and_what_is_not_finite_is_no_score_and_a_wordless_caption_is_no_way_out():
    def some(samples):
        return [{"none": None, "inf": float("inf")}.get(sample.candidate, True) for sample in samples]

    table = load_scorer(some).score([CaptionSample(text) for text in ("none", "inf", "a")])
    assert table.errors == {0: "some gave None", 1: "some gave inf"}
    assert table.scores[2, 0] == 1.0
    reward = MetricReward(lambda completions: [-float(len(text)) for text in completions])
    assert reward(["Describe."] * 3, ["a star", "red", "..."]) == [-6.0, -3.0, -6.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda samples: [1.0], r"function gave 1 numbers for 2 captions: a metric is def metric\(samples\)"),
        (lambda samples: ["1.0", "a"], r"function gave '1.0' \(str\) for a caption"),
        (lambda samples: [each.text for each in samples], r"raised AttributeError: .*test_function.py, line"),
        (lambda caption: 1 / ("dog" in caption), "raised ZeroDivisionError: .*the caption is 'a red star'; give None"),
        (lambda x: [1.0], r"function takes \(x\): a metric is def metric\(samples\), def metric\(captions, images\)"),
        (lambda text, images: 1.0, "function needs images, and captions come with caption, text, image"),
        (len, r"len takes \(obj\): a metric is def metric\(samples\)"),
        (
            min,
            r"min does not say which parameters it has .*: wrap it, as in def metric\(caption\): return min\(caption\)",
        ),
        (torch.nn.Linear(1, 1), r"Linear is a network, and no metric by itself: write load_scorer\(METRIC, FOLDER\)"),
        (lambda completions, solution, **columns: [1.0], "function needs solution, and captions come with prompts"),
        (type("Needy", (), {"__init__": lambda self, model: None}), "Needy cannot be called with no arguments"),
    ],
)
def test_a_function_that_is_no_metric_is_told_what_is(function, message):
    with pytest.raises(ConfigError, match=message):
        load_scorer(function).score(SAMPLES)


@pytest.mark.parametrize("metric", [torch.nn.Linear(1, 1), min, object(), lambda x: 1.0])
def test_what_cannot_be_a_metric_is_refused_before_it_scores(metric):
    for take in (load_scorer, MetricReward, BatchScorer):
        with pytest.raises((ConfigError, UnknownMetricError)):
            take(metric)


PLACES = {
    "my_metrc.py:length": "there is no file my_metrc.py .*Did you mean 'my_metric.py'",
    "my_metric.py:lenght": "my_metric.py has no function 'lenght'. Did you mean 'length'. It has: Words, length",
    "my_metric.py": "'my_metric.py' names no function: write my_metric.py:Words",
    "my_metric.py:number": "number is no function: a metric is",
    "my_metric.py:broken": r"broken raised ZeroDivisionError: .* \(.*my_metric.py, line 18\)",
    "no_module:length": "no metric is named 'no_module:length'.* a function my_metric.py:length",
    "wrong.py:length": "wrong.py cannot be run: SyntaxError",
    "lacking:length": "the module lacking cannot be imported: ModuleNotFoundError: No module named 'not_there'",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_without_a_function_is_told_what_is_there(place, file):
    file.with_name("wrong.py").write_text("def length(:")
    file.with_name("lacking.py").write_text("import not_there")
    with pytest.raises((ConfigError, UnknownMetricError), match=PLACES[place]):
        load_scorer(place).score(SAMPLES)


@pytest.mark.parametrize("place", ["my_metric.py:length", "my_metric:length", "my_metric.py"])
def test_a_function_that_a_checkpoint_names_is_not_run(place, file):
    file.write_text("raise SystemExit('it was run')")
    (file.parent / "checkpoint").mkdir()
    (file.parent / "checkpoint" / "config.json").write_text(json.dumps({"metric": place}))
    for given in (["checkpoint"], ["vela", "checkpoint"], ["length_avg", "checkpoint"]):
        with pytest.raises((CheckpointError, UnknownMetricError)):
            load_scorer(*given)


def test_an_edited_file_is_another_metric(file):
    first = load_scorer("my_metric.py:length")
    assert load_scorer("my_metric.py:length").fingerprint == first.fingerprint
    stamp = os.stat(file)
    file.write_text(FILE.replace("float(len(sample.candidate.split()))", "float(len(sample.candidate))  "))
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # of equal size, too
    second = load_scorer("my_metric.py:length")
    assert second.fingerprint != first.fingerprint
    assert second.score(SAMPLES).scores[0, 0] == 10.0
