"""`--set` reaches the metric in every command that scores, and a changed setting is another run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reward.cli.options import read_metrics
from reward.metrics.base import installed_specs
from reward.metrics.scorer import CandidateScores
from reward.metrics.words import LENGTH
from reward.metrics.words.scorer import LengthScorer
from tests.toys.json_lines import read_lines, write_lines

SPEC = replace(LENGTH, name="scaled", scorer=f"{__name__}:Scaled", aspects=("scaled",), range=(-99, 99))


class Scaled(LengthScorer):
    """The number of words times a factor, which may stand in a file."""

    spec = SPEC

    def __init__(self, *, factor=1.0, prompt=None):
        self.factor = factor if prompt is None else float(Path(prompt).read_text())

    @classmethod
    def from_pretrained(cls, source="embedded", *, device=None, **settings):
        return cls(**{name: value for name, value in settings.items() if name in ("factor", "prompt")})

    def score_groups(self, groups, batch_size):
        counted = super().score_groups(groups, batch_size).scores
        return CandidateScores([[self.factor * count for count in row] for row in counted])


@pytest.fixture(autouse=True)
def scaled(monkeypatch, tmp_path):
    known = installed_specs() | {"scaled": SPEC}
    monkeypatch.setattr("reward.registry.installed_specs", lambda: known)
    monkeypatch.chdir(tmp_path)
    write_lines(Path("lists.jsonl"), [{"candidates": ["a", "a b"]}])
    ratings = [{"candidate": "a b" * n, "ratings": [n, n], "references": ["a"]} for n in range(1, 9)]
    write_lines(Path("rated.jsonl"), [{**row, "image": f"{n}.png"} for n, row in enumerate(ratings)])


def test_values_are_those_of_yaml_where_they_are_no_texts():
    written = {"factor=yes": True, "factor=a=b": "a=b", "prompt=": "", "prompt=A photo of ": "A photo of "}
    written |= {"prompt=Score: (\\d)": "Score: (\\d)", "prompt=[0-9]+": "[0-9]+"}
    for text, value in written.items():
        assert read_metrics(["scaled"], [text])[0].options == ((text.partition("=")[0], value),)
    [one, other] = read_metrics(["scaled", "length", "scaled"], ["scaled.factor=2", "SCALED.prompt=a.txt"])
    assert (one.options, other.options) == ((("factor", 2), ("prompt", "a.txt")), ())


@pytest.mark.slow
def test_every_command_that_scores_has_it(run):
    told = ("-m", "scaled", "--set", "factor=-2")
    run("score", "rated.jsonl", *told, "-o", "s.jsonl")
    assert [row["scaled"] for row in read_lines(Path("s.jsonl"))][:2] == [-4, -6]
    several = ("-m", "scaled", "-m", "length", "--set", "scaled.factor=-2", "--weights", "scaled=1,length=1")
    run("rerank", "lists.jsonl", *several, "-o", "several.jsonl")
    assert read_lines(Path("several.jsonl"))[0]["best"] == "a"
    tau = {}
    for sign in (1, -2):
        line = ("bench", "-b", "ratings=rated.jsonl", "-m", "scaled", "--set", f"factor={sign}", "-o", f"{sign}.json")
        run(*line, "--resamples", 10, "--quiet")
        [row] = json.loads(Path(f"{sign}.json").read_text())["tables"][0]["rows"]
        label, estimate, *_ = row.values()
        tau[label] = estimate["value"]
    assert tau["scaled (factor=1)"] == -tau["scaled (factor=-2)"]
    assert "scaled (factor=-2)" in run("audit", "-n", 2, "--json", "--quiet", *told)[0]


def test_a_changed_setting_or_file_of_one_is_another_run(run):
    line = ("score", "rated.jsonl", "-m", "scaled", "-o", "s.jsonl", "--set")
    Path("factor.txt").write_text("3")
    run(*line, "prompt=factor.txt")
    assert "complete already" in run(*line, "prompt=factor.txt")[1]
    Path("factor.txt").write_text("4")
    for other in ("prompt=factor.txt", "factor=3"):
        assert "is not of this run (other input, metric or settings)" in run(*line, other, code=1)[1]
