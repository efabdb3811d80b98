"""What names a function of one's own: its source and what it was made with, and never what a call leaves in it."""

import importlib
import sys

import pytest

from reward import CaptionSample
from reward.checkpoints.fingerprint_objects import is_told
from reward.metrics.function import FunctionScorer
from tests.reward.checkpoints.test_fingerprints import cell

SAMPLES = [CaptionSample("A star."), CaptionSample("A tree by a lake.")]
FILE = """
import functools

SCALE = 2.0
memory = {}

def words(text):
    return len(text.split())

def scored(samples):
    return [words(sample.candidate) * SCALE for sample in samples]

@functools.lru_cache
def cached(text):
    return words(text)

def with_cache(samples):
    return [cached(sample.candidate) for sample in samples]

def with_memory(samples, memo={}):
    for sample in samples:
        memory[sample.candidate] = memo[sample.candidate] = words(sample.candidate)
    return [memo[sample.candidate] for sample in samples]

def scaled(samples, scale=1.0):
    return [scale * words(sample.candidate) for sample in samples]

def made(scale):
    def inner(samples, *, factor=scale):
        return [factor * scale * words(sample.candidate) for sample in samples]
    return inner

two, three = made(2), made(3)
by_lambda = lambda samples: [1.0 for sample in samples]

def remembering():
    seen = {}
    def inner(samples):
        for sample in samples:
            seen[sample.candidate] = words(sample.candidate)
        return [seen[sample.candidate] for sample in samples]
    return inner

class Rater:
    def rewards(self, samples):
        return scored(samples)

class Named(Rater):
    fingerprint = "rater 1"

closure, rater, named = remembering(), Rater(), Named()
pair = (lambda samples: [1.0 for _ in samples], lambda samples: [2.0 for _ in samples])
one, other = pair
"""
TOLD = ["scored", "with_cache", "with_memory", "two", "by_lambda", "named"]
UNTOLD = {
    "closure": "'seen': it holds a dict, which calls may fill",
    "rater": "it holds a Rater, which has no attribute fingerprint",
    "one": "is one of several functions in a line",
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes a module of a user, and gives one of its functions as a metric."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, text=FILE):
        (tmp_path / "users_metric.py").write_text(text)
        sys.modules.pop("users_metric", None)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        module = importlib.import_module("users_metric")
        monkeypatch.setitem(sys.modules, "users_metric", module)
        return FunctionScorer(getattr(module, name))

    return make


@pytest.mark.parametrize("name", TOLD)
def test_a_call_and_a_comment_make_no_other_function(name, load):
    scorer = load(name)
    before = scorer.fingerprint
    assert is_told(before)
    scorer.score(SAMPLES)
    assert scorer.fingerprint == before
    commented = FILE.replace("return len", "# a comment\n    return len")
    assert load(name, commented).fingerprint == before


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("edit", [("len(text.split())", "len(text)"), ("SCALE = 2.0", "SCALE = 3.0")])
def test_a_line_of_its_file_makes_another_function(name, edit, load):
    assert load(name).fingerprint != load(name, FILE.replace(*edit)).fingerprint or name == "named"


def test_what_it_was_made_with_counts(load):
    assert load("two").fingerprint != load("three").fingerprint
    function = load("scaled").function
    prints = [FunctionScorer(function, scale=scale).fingerprint for scale in (1, 2, 2)]
    assert prints[0] != prints[1] == prints[2]


@pytest.mark.parametrize(("name", "reason"), UNTOLD.items())
def test_what_cannot_be_told_has_a_new_name_each_time_that_says_why(name, reason, load):
    scorer = load(name)
    first, second = scorer.fingerprint, scorer.fingerprint
    assert first != second
    assert not is_told(first)
    assert reason in first


def test_a_function_of_a_notebook_counts_with_what_it_names():
    source = "SCALE = {}\ndef words(text): return {}\ndef f(samples): return [words(each) for each in samples]\n"

    def fingerprint(scale, result):
        return FunctionScorer(cell(source.format(scale, result), "f")).fingerprint

    assert is_told(fingerprint(1, "SCALE"))
    assert fingerprint(1, "SCALE") == fingerprint(1, "SCALE")
    assert len({fingerprint(1, "SCALE"), fingerprint(2, "SCALE"), fingerprint(1, "2")}) == 3
    assert "'SCALE': it holds a dict" in fingerprint("{}", "SCALE")
