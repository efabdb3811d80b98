"""load_scorer: every metric and those of others, unknown names, and what is said once of embedded checkpoints."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import reward.metrics
from reward import (
    BeitScoreReward,
    CaptionSample,
    MetricReward,
    VelaReward,
    list_metrics,
    load_scorer,
    metric_spec,
)
from reward.checkpoints import warn_embedded
from reward.errors import CheckpointError, ConfigError, UnknownMetricError
from reward.metrics import base
from reward.metrics.base import MetricSpec, Scorer, installed_specs
from reward.metrics.words.scorer import LengthScorer
from reward.registry import MetricSource
from reward.scoring import BatchScorer
from tests.toys.loopback_hub import LoopbackHub

# Metrics of another installed distribution, one of them under a name of ours.
FOREIGN = MetricSpec(name="foreign", scorer="reward.metrics.words.scorer:LengthScorer", aspects=("length",))
LENGTH = MetricSpec(name="length", scorer="reward.metrics.words.scorer:UnigramScorer", aspects=("f1",))


def test_every_metric_folder_is_listed_and_no_checkpoint_is_of_two() -> None:
    folders = {module.name for module in pkgutil.iter_modules(reward.metrics.__path__) if module.ispkg} - {"caparena"}
    homes = {name: metric_spec(name).scorer.split(".")[2] for name in list_metrics()}
    assert folders == set(homes.values())
    assert {"beitscore", "vela"} <= folders
    types = [each for name in list_metrics() for each in metric_spec(name).model_types]
    assert len(types) == len(set(types))
    assert [name for name, home in homes.items() if home == "ngrams"] == [
        "bleu1", "bleu2", "bleu3", "bleu4", "cider", "meteor", "rouge_l", "spice"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        (None, {}, UnknownMetricError, "a metric is named by a text such as 'vela', got None"),
        (["vela"], {}, UnknownMetricError, "a metric is named by a text such as 'vela', got ['vela']"),
        ("clip", {}, UnknownMetricError, "no metric is named 'clip'. Nearest: clipscore, refclipscore, longclipscore;"),
        ("vela", {"token_budgt": 5}, ConfigError, "metric 'vela' has no option 'token_budgt'; it has token_budget"),
        ("length", {"source": None}, ConfigError, 'source must be "embedded", a folder or a Hub id, got None'),
    ],
)
def test_bad_arguments_are_refused(name: Any, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        load_scorer(name, **arguments)


@pytest.mark.parametrize("name", list_metrics())
def test_specs_are_consistent_and_their_scorers_exist(name: str) -> None:
    spec = metric_spec(name)
    low, high = spec.range
    assert spec.name == name
    assert spec.aspects
    assert len(set(spec.aspects)) == len(spec.aspects)
    assert set(spec.aliases.values()) <= set(spec.aspects)
    assert low < high
    assert spec.paper
    for method in ("score", "from_pretrained", "save_pretrained"):
        assert callable(getattr(spec.scorer_class(), method))


@pytest.mark.parametrize(
    ("written", "name"), [("ROUGE-L", "rouge_l"), ("Bleu 4", "bleu4"), ("CLIP-Score_avg", "clipscore_avg")]
)
def test_names_may_be_written_as_papers_do(written: str, name: str) -> None:
    assert metric_spec(written) == metric_spec(name)
    assert metric_spec(name).name == name


def test_load_scorer_gives_a_scorer_and_refuses_a_checkpoint_of_another_metric(tmp_path: Path) -> None:
    scorer = load_scorer("length", device="cpu", dtype="float32")
    assert isinstance(scorer, LengthScorer)
    assert isinstance(scorer, Scorer)
    load_scorer("unigram").save_pretrained(tmp_path)
    assert load_scorer("unigram", tmp_path).spec.name == "unigram"
    with pytest.raises(CheckpointError, match="checkpoint of metric 'unigram', but a checkpoint of 'length' is needed"):
        load_scorer("length", tmp_path)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"config.json": {"metric": "length"}}, "length"),
        ({"config.json": {"model_type": "toy"}}, "foreign"),
        ({"config.json": {"model_type": "other", "architectures": ["ToyForScores"]}}, "foreign"),
        ({"config.json": {"model_type": "other"}, "open_clip_config.json": {}}, "clipscore"),
    ],
)
def test_a_checkpoint_alone_says_which_metric_it_is_for(
    files: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, content in files.items():
        (tmp_path / "saved").mkdir(exist_ok=True)
        (tmp_path / "saved" / file).write_text(json.dumps(content))
    toy = replace(FOREIGN, model_types=("toy", "Toy*"))
    monkeypatch.setattr("reward.registry.installed_specs", lambda: installed_specs() | {"foreign": toy})
    monkeypatch.chdir(tmp_path)
    for text in ("saved", "saved/", "./saved", str(tmp_path / "saved")):
        assert MetricSource.parse(text) == MetricSource(name, text)
    if name == "length":
        assert load_scorer("saved").spec.name == load_scorer(tmp_path / "saved").spec.name == "length"
        assert MetricReward("saved").rewards([CaptionSample("two words")]) == [2.0]
        assert BatchScorer("saved", added_only=True)({"caption": ["two words"]})["length"] == [2.0]


def test_a_hub_id_alone_says_which_metric_it_is_for(hub: LoopbackHub) -> None:
    hub.add_repo("somebody/saved", {"config.json": b'{"metric": "length"}', "model.safetensors": b"never fetched"})
    assert MetricSource.parse("somebody/saved@main") == MetricSource("length", "somebody/saved", "main")
    assert load_scorer("somebody/saved").spec.name == "length"
    with pytest.raises(CheckpointError, match=r"no folder .* here, and the Hub refuses .*Repository Not Found"):
        MetricReward("somebody/absent")


def test_a_checkpoint_that_says_nothing_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "toy"}')
    with pytest.raises(CheckpointError, match=rf"its type is toy\): write NAME={tmp_path}; `capreward metrics` lists"):
        load_scorer(tmp_path)
    toys = {name: replace(FOREIGN, name=name, model_types=("toy",)) for name in ("foreign", "strange")}
    monkeypatch.setattr("reward.registry.installed_specs", lambda: toys)
    with pytest.raises(CheckpointError, match=rf"by several metrics: write foreign={tmp_path} or strange={tmp_path}"):
        load_scorer(tmp_path)


def test_metrics_of_other_distributions_are_found_but_cannot_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"foreign": f"{__name__}:FOREIGN", "length": f"{__name__}:LENGTH"}
    points = [EntryPoint(name, place, "capreward.metrics") for name, place in places.items()]
    with monkeypatch.context() as patch:
        patch.setattr(base, "entry_points", lambda group: points if group == "capreward.metrics" else [])
        base.installed_specs.cache_clear()
        assert "foreign" in list_metrics()
        assert isinstance(load_scorer("foreign"), LengthScorer)
        assert metric_spec("length").aspects == ("length",)
    base.installed_specs.cache_clear()


WARNING = "embedded weights know drawings only; for photos: `capreward metrics --for photos`"


@pytest.mark.parametrize(("rank", "times"), [("0", 1), ("1", 0)])
def test_it_is_said_once_and_on_the_first_rank_only(
    rank: str, times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_embedded.cache_clear()
    monkeypatch.setenv("RANK", rank)
    load_scorer("length")
    assert WARNING not in caplog.text  # it has no weights
    for each in (VelaReward(), VelaReward(), BeitScoreReward()):
        each(prompts=["p"], completions=["a star"], image=[Image.new("RGB", (8, 8))])
    load_scorer("clipscore")
    assert caplog.text.count(WARNING) == times


@pytest.mark.slow
def test_the_command_says_it_in_one_line_for_all_its_processes(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "data.jsonl").write_text('{"file_name": "a.png", "candidate": "a star"}\n')
    arguments = ["score", "data.jsonl", "--metric", "vela", "--output", "out.jsonl", "--devices", "cpu,cpu"]
    command = [sys.executable, "-m", "reward.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "drawings only" in line] == [WARNING]
    assert ", metric vela (weights for drawings) -> out.jsonl" in done.stderr


def test_an_address_that_names_another_metric_is_refused() -> None:
    with pytest.raises(ConfigError, match="names the metric 'bleu4', but 'vela' was asked for"):
        load_scorer("vela", "http://127.0.0.1:9#bleu4")
