"""Each setting and each weight of a metric is in the name of what makes its scores, and nothing that a call leaves."""

import pytest
import torch
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.checkpoints.fingerprint_objects import is_told
from reward.checkpoints.fingerprints import metric_identity
from reward.judges import ScriptedJudge
from reward.metrics.options import metric_options
from reward.registry import list_metrics, metric_spec
from reward.scoring.several import Metrics

SETTINGS = [(name, option) for name in list_metrics() for option in metric_options(metric_spec(name))]


@pytest.mark.parametrize(("name", "option"), SETTINGS)
def test_each_setting_of_a_metric_by_name_is_in_its_identity(name, option):
    names = [metric_identity(metric_spec(name), "embedded", options=options) for options in ({}, {option: "1"})]
    assert names[0] != names[1] != metric_identity(metric_spec(name), "embedded", options={option: "2"})
    assert names[1] == metric_identity(metric_spec(name), "embedded", options={option: "1"})


@pytest.mark.parametrize(
    ("name", "options"),
    [("vela", {"token_budget": 9}), ("vela", {"cache_size": "1MB"}), ("clair", {"concurrency": 3, "prices": [1, 2]})],
)
def test_what_changes_no_score_ends_no_run(name, options):
    assert Metrics.of(name, **options).identity == Metrics.of(name).identity


def test_a_file_that_a_setting_names_counts_by_its_content(tmp_path):
    prompt = tmp_path / "prompt.yaml"
    names = set()
    for text in ("rate: one", "rate: two", "rate: one"):
        prompt.write_text(text)
        names.add(str(metric_identity(metric_spec("fleur"), "embedded", options={"prompt": prompt})))
    assert len(names) == 2


def loaded(name, **settings):
    spec = metric_spec(name)
    if spec.sources == "judge":
        return spec.scorer_class()(ScriptedJudge(str), **settings)
    return load_scorer(name, device="cpu", **settings)


LOADED = [
    ("vela", {"dtype": "bfloat16"}),
    ("beitscore", {"dtype": "bfloat16"}),
    ("clipscore", {"dtype": "bfloat16"}),
    ("clipscore", {"prefix": "See: "}),
    ("refclipscore", {"prefix": "See: "}),
    ("fleur", {"use_references": False}),
    ("fleur", {"max_characters": 90}),
    ("fleur", {"seed": 7, "draws": 3, "temperature": 0.5}),
    ("fleur", {"second_decimal": "written"}),
    ("harmoniceval", {"gamma": 0.5}),
    ("harmoniceval", {"criteria": ["fluency"]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), LOADED)
def test_each_setting_of_a_loaded_scorer_is_in_its_fingerprint(name, settings):
    plain = loaded(name).fingerprint
    assert is_told(plain)
    assert loaded(name).fingerprint == plain
    assert loaded(name, **settings).fingerprint != plain


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vela", "beitscore", "clipscore"])
def test_each_weight_is_in_the_fingerprint_and_a_call_and_a_cache_are_not(name, tmp_path):
    scorer = loaded(name)
    before = scorer.fingerprint
    scorer.score([CaptionSample("A star.", Image.new("RGB", (40, 40)), ["A red star."])])
    if name != "beitscore":
        scorer.use_cache(tmp_path)
    assert scorer.fingerprint == before
    names = {before}
    for weight in scorer.model.parameters():
        with torch.no_grad():
            weight.view(-1)[-1] += 1
        names.add(scorer.fingerprint)
    assert len(names) == 1 + len(list(scorer.model.parameters()))
