"""The registry: every folder of reward.metrics, entry points of other distributions, and unknown names."""

from __future__ import annotations

import pkgutil
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import reward.metrics
from reward import list_metrics, load_scorer, metric_spec
from reward.errors import CheckpointError, ConfigError, UnknownMetricError
from reward.metrics import base
from reward.metrics.base import MetricSpec, Scorer
from reward.metrics.words.scorer import LengthScorer

# Metrics of another installed distribution, one of them under a name of ours.
FOREIGN = MetricSpec(name="foreign", scorer="reward.metrics.words.scorer:LengthScorer", aspects=("length",))
LENGTH = MetricSpec(name="length", scorer="reward.metrics.words.scorer:UnigramScorer", aspects=("f1",))


def test_every_metric_folder_is_listed() -> None:
    folders = {module.name for module in pkgutil.iter_modules(reward.metrics.__path__) if module.ispkg} - {"caparena"}
    homes = {name: metric_spec(name).scorer.split(".")[2] for name in list_metrics()}
    assert folders == set(homes.values())
    assert {"beitscore", "vela"} <= folders
    assert [name for name, home in homes.items() if home == "ngrams"] == [
        "bleu1", "bleu2", "bleu3", "bleu4", "cider", "meteor", "rouge_l", "spice"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        (None, {}, UnknownMetricError, "a metric is named by a string, got None; installed: beitscore"),
        (5, {}, UnknownMetricError, "a metric is named by a string, got 5; installed: beitscore"),
        (["vela"], {}, UnknownMetricError, "a metric is named by a string, got ['vela']; installed: beitscore"),
        ("velo", {}, UnknownMetricError, f"no metric is named 'velo'; installed: {', '.join(list_metrics())}"),
        ("length", {"source": None}, ConfigError, 'source must be "embedded", a folder or a Hub id, got None'),
        ("length", {"device": "gpu9"}, ConfigError, "device must be such as 'cpu', 'cuda' or 'cuda:1', got 'gpu9'"),
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
