"""load_scorer: every metric and those of others, unknown names, and what is said once of embedded checkpoints."""

import json
import pkgutil
import re
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
import torch

import reward.metrics
from reward import CaptionSample, MetricReward, list_metrics, load_scorer, metric_spec
from reward.checkpoints.folders import warn_embedded
from reward.errors import CapRewardError
from reward.metrics import base
from reward.metrics.base import MetricSpec, installed_specs
from reward.metrics.words.scorer import LengthScorer
from reward.registry import MetricSource
from reward.scoring import BatchScorer

# Metrics of another installed distribution, one of them under a name of ours.
FOREIGN = MetricSpec(name="foreign", scorer="reward.metrics.words.scorer:LengthScorer", aspects=("length",))
LENGTH = MetricSpec(name="length", scorer="reward.metrics.words.scorer:UnigramScorer", aspects=("f1",))


def test_every_metric_folder_is_listed_with_a_scorer_and_no_checkpoint_is_of_two():
    specs = {name: metric_spec(name) for name in list_metrics()}
    folders = {module.name for module in pkgutil.iter_modules(reward.metrics.__path__) if module.ispkg} - {"caparena"}
    assert folders == {spec.scorer.split(".")[2] for spec in specs.values()}
    types = [each for spec in specs.values() for each in spec.model_types]
    assert len(types) == len(set(types))
    for name, spec in specs.items():
        assert (spec.name, bool(spec.paper)) == (name, True)
        assert len(set(spec.aspects)) == len(spec.aspects) > 0, name
        assert set(spec.aliases.values()) <= set(spec.aspects), name
        assert spec.range[0] < spec.range[1], name
        for method in ("score", "from_pretrained", "save_pretrained"):
            assert callable(getattr(spec.scorer_class(), method)), name


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([None], {}, "a metric is named by a text such as 'vela', got None"),
        (["clip"], {}, "no metric is named 'clip'\\. Nearest: clipscore, refclipscore, longclipscore;"),
        (["vela_avg_avg"], {}, "no metric is named 'vela_avg_avg'"),
        (["correlate"], {}, "no metric is named 'correlate'\\. The metrics are beitscore, bertscore, .*, vqascore;"),
        (["vela"], {"token_budgt": 5}, "metric 'vela' has no option 'token_budgt'; it has token_budget"),
        (["vela"], {"model": "x"}, r'its source, as in load_scorer\("vela", "FOLDER"\) or -m vela=FOLDER'),
        (["vela"], {"batch_size": 64}, r"belongs to the call: scorer.score\(data, batch_size=64\)"),
        (["length", None], {}, 'source must be "embedded", a folder or a Hub id, got None'),
        (["length"], {"revision": "v2"}, "revision='v2' needs a Hub id, but source is 'embedded'"),
        *[([name], {"device": "gpu9"}, "device .*gpu9") for name in ("vela", "beitscore", "clipscore")],
        *[([name], {"dtype": "int8"}, "dtype must be such as") for name in ("vela", "beitscore", "clipscore")],
        *[(["vela"], {"device": device}, f"device .*{device}") for device in ("cuda:99", 1.5)],
        (["vela"], {"dtype": 7}, "dtype must be such as"),
        (["vela", "http://127.0.0.1:9#bleu4"], {}, "names the metric 'bleu4', but 'vela' was asked for"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(CapRewardError, match=message):
        load_scorer(*arguments, **options)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ROUGE-L", "rouge_l"),
        ("Bleu 4", "bleu4"),
        ("CLIP-Score_avg", "clipscore_avg"),
        ("BLEU", "bleu4"),
        ("rouge_avg", "rouge_l_avg"),
    ],
)
def test_names_may_be_written_as_papers_do(written, name):
    assert metric_spec(written) == metric_spec(name)
    assert MetricSource.parse(written).name == name


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"config.json": {"metric": "length"}}, "length"),
        ({"config.json": {"model_type": "toy"}}, "foreign"),
        ({"config.json": {"model_type": "other", "architectures": ["ToyForScores"]}}, "foreign"),
        ({"config.json": {"model_type": "other"}, "open_clip_config.json": {}}, "clipscore"),
    ],
)
def test_a_checkpoint_alone_says_which_metric_it_is_for(files, name, tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()
    for file, content in files.items():
        (tmp_path / "saved" / file).write_text(json.dumps(content))
    toy = replace(FOREIGN, model_types=("toy", "Toy*"))
    specs = installed_specs() | {"foreign": toy}
    for module in ("registry", "metrics.checkpoint_metric"):
        monkeypatch.setattr(f"reward.{module}.installed_specs", lambda: specs)
    monkeypatch.chdir(tmp_path)
    for text in ("saved", "./saved/", str(tmp_path / "saved")):
        assert MetricSource.parse(text) == MetricSource(name, text)


def test_a_saved_metric_needs_no_name_wherever_a_metric_is_named(tmp_path):
    load_scorer("length").save_pretrained(tmp_path)
    assert load_scorer(tmp_path).spec.name == load_scorer(str(tmp_path)).spec.name == "length"
    assert MetricReward(str(tmp_path)).rewards([CaptionSample("two words")]) == [2.0]
    assert BatchScorer(str(tmp_path), added_only=True)({"caption": ["two words"]})["length"] == [2.0]
    with pytest.raises(CapRewardError, match="checkpoint of metric 'length', but a checkpoint of 'unigram' is needed"):
        load_scorer("unigram", tmp_path)


def test_a_hub_id_alone_says_which_metric_it_is_for(hub):
    hub.add_repo("somebody/saved", {"config.json": b'{"metric": "length"}', "model.safetensors": b"never fetched"})
    assert MetricSource.parse("somebody/saved@main") == MetricSource("length", "somebody/saved", "main")
    assert load_scorer("somebody/saved").spec.name == "length"
    with pytest.raises(CapRewardError, match=r"no folder .* here, and the Hub refuses .*Repository Not Found"):
        MetricReward("somebody/absent")


def test_a_checkpoint_that_says_nothing_needs_a_name(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "toy"}')
    with pytest.raises(CapRewardError, match=rf"its type is toy\): write NAME={tmp_path}; `capreward metrics` lists"):
        load_scorer(tmp_path)
    toys = {name: replace(FOREIGN, name=name, model_types=("toy",)) for name in ("foreign", "strange")}
    monkeypatch.setattr("reward.metrics.checkpoint_metric.installed_specs", lambda: toys)
    with pytest.raises(CapRewardError, match=rf"by several metrics: write foreign={tmp_path} or strange={tmp_path}"):
        load_scorer(tmp_path)


@pytest.fixture
def install(monkeypatch):
    """Takes {name: place} for the entry points of other distributions."""

    def installed(places):
        points = [EntryPoint(name, place, "capreward.metrics") for name, place in places.items()]
        monkeypatch.setattr(base, "entry_points", lambda group: points if group == "capreward.metrics" else [])
        base.installed_specs.cache_clear()

    yield installed
    monkeypatch.undo()
    base.installed_specs.cache_clear()


def test_metrics_of_other_distributions_are_found_but_cannot_replace_ours(install):
    install({"foreign": f"{__name__}:FOREIGN", "length": f"{__name__}:LENGTH"})
    assert "foreign" in list_metrics()
    assert isinstance(load_scorer("foreign"), LengthScorer)
    assert metric_spec("length").aspects == ("length",)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_package:SPEC", "no_such_package:SPEC: ModuleNotFoundError: No module named 'no_such"),
        (f"{__name__}:no_such_name", "AttributeError: .*no_such_name"),
        ("math:sqrt", "it is no MetricSpec; a function needs no entry point: write -m math:sqrt"),
    ],
)
def test_a_broken_metric_of_another_distribution_is_named_once_and_breaks_nothing(place, message, install, caplog):
    install({"broken": place, "foreign": f"{__name__}:FOREIGN"})
    assert [name in list_metrics() for name in ("broken", "foreign", "length")] == [False, True, True]
    assert load_scorer("foreign").score(["two words"]).mean() == 2
    [record] = caplog.records
    assert re.search(f"the metric broken is left out, .*{message}", record.message)


@pytest.mark.parametrize(("rank", "started_by", "times"), [("0", None, 1), ("1", None, 0), ("0", "another process", 0)])
def test_what_embedded_weights_know_is_said_once_and_by_the_first_process_only(
    rank, started_by, times, monkeypatch, caplog
):
    warn_embedded.cache_clear()
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("reward.checkpoints.folders.multiprocessing.parent_process", lambda: started_by)
    for name in ("length", "beitscore", "beitscore"):  # the first has no weights
        load_scorer(name, device="cpu")
    assert caplog.text.count("embedded weights know drawings only; for photos: `capreward metrics --for") == times


@pytest.mark.parametrize("name", ["vela", "beitscore", "clipscore"])
def test_a_default_dtype_of_the_users_program_changes_no_weight(name):
    usual = load_scorer(name).fingerprint
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert load_scorer(name).fingerprint == usual
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


def test_weights_for_drawings_are_known_from_those_of_a_user(tmp_path):
    load_scorer("beitscore", device="cpu").save_pretrained(tmp_path)
    known = {text: MetricSource.parse(text).knows_drawings_only for text in ("vela", "length", str(tmp_path))}
    assert known == {"vela": True, "length": False, str(tmp_path): False}
