"""What VELA and BEiTScore share as trained metrics: budgets, half precision, older checkpoints; caches."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from reward import CaptionSample, load_scorer
from reward.metrics.vela.scorer import VelaScorer
from tests.contract import TOLERANCE
from tests.reward.metrics import tiny_vela
from tests.reward.metrics.beitscore import tiny_beitscore
from tests.reward.metrics.tiny_vela import WORDS, picture

pytestmark = pytest.mark.slow

SAMPLES = [CaptionSample(word, picture(seed), WORDS[:seed]) for word in WORDS for seed in range(3)]


@pytest.fixture(scope="module", params=["vela", "beitscore"])
def scorer(request):
    return VelaScorer(tiny_vela.make_model()) if request.param == "vela" else tiny_beitscore.make_scorer()


@pytest.fixture(scope="module")
def alone(scorer):
    """Scores of `SAMPLES`, each scored by itself."""
    return np.concatenate([scorer.score([sample]).scores for sample in SAMPLES])


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.integers(0, len(SAMPLES) - 1), min_size=1, max_size=8),
    batch_size=st.sampled_from([None, 1, 2, 5]),
    budget=st.sampled_from([1, 60, 300, 8192]),
    window=st.sampled_from([1, 2, 1024]),
)
def test_scores_do_not_depend_on_token_budget_and_window(scorer, alone, rows, batch_size, budget, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(scorer), "window_size", window)
        patch.setattr(scorer, "token_budget", budget)
        table = scorer.score([SAMPLES[row] for row in rows], batch_size=batch_size)
    assert np.abs(table.scores - alone[rows]).max() < TOLERANCE


def test_half_precision_files_and_networks(scorer, tmp_path):
    expected = scorer.score(SAMPLES).scores
    scorer.save_pretrained(tmp_path, card="# Mine\n")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    computed = type(scorer).from_pretrained(tmp_path, device="cpu", dtype="bfloat16")
    heads = {"weight", "bias"} if scorer.spec.name == "vela" else {"head.0.weight", "head.2.bias"}
    dtypes = {name: parameter.dtype for name, parameter in computed.model.named_parameters()}
    assert {dtypes[name] for name in heads} == {torch.float32}
    assert set(dtypes.values()) == {torch.float32, torch.bfloat16}
    assert np.abs(computed.score(SAMPLES).scores - expected).max() < 0.2
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: value.half() for name, value in tensors.items()}, tmp_path / "model.safetensors")
    stored = type(scorer).from_pretrained(tmp_path, device="cpu")
    assert {parameter.dtype for parameter in stored.model.parameters()} == {torch.float32}
    assert 0 < np.abs(stored.score(SAMPLES).scores - expected).max() < 0.02


def test_entries_of_older_checkpoints_are_read(scorer, tmp_path):
    scorer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    older = {"head": "per_aspect"} if scorer.spec.name == "vela" else {}
    file.write_text(json.dumps({**config, **older, "domain": {"about": "drawings", "grounds": []}}))
    again = type(scorer).from_pretrained(tmp_path, device="cpu")
    assert again.model.config == scorer.model.config
    assert np.array_equal(again.score(SAMPLES[:4]).scores, scorer.score(SAMPLES[:4]).scores)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_scores_and_bfloat16_close_ones(scorer, tmp_path):
    expected = scorer.score(SAMPLES).scores
    scorer.save_pretrained(tmp_path)
    for dtype, tolerance in ((None, 1e-4), ("bfloat16", 0.2)):
        found = type(scorer).from_pretrained(tmp_path, device="cuda", dtype=dtype).score(SAMPLES).scores
        assert np.abs(found - expected).max() < tolerance


PIXELS = np.random.default_rng(0).integers(0, 255, (4, 96, 96, 3), dtype=np.uint8)
REFERENCES = [["a red star"], ["a blue circle on a lawn", "grass"], [], ["a star"] * 2]


def samples(word):
    """Three captions with that word for each of four images."""
    images = [Image.fromarray(each) for each in PIXELS]
    rows = list(zip(images, REFERENCES, strict=True))
    return [CaptionSample(f"a {word} star, {n}", image, known) for image, known in rows for n in range(3)]


@pytest.mark.parametrize("name", ["vela", "refclipscore", "clipscore_avg"])
def test_scores_are_those_without_a_cache(name, tmp_path):
    plain = load_scorer(name, device="cpu")
    for word, known in (("red", 0), ("blue", 4)):  # each time another process, and new captions
        scorer = load_scorer(name, device="cpu", cache=tmp_path / "cache", cache_size="5MB")
        table, expected = scorer.score(samples(word)), plain.score(samples(word))
        assert np.allclose(table.scores, expected.scores, rtol=0, atol=1e-6, equal_nan=True)
        assert table.errors == expected.errors
        if name != "refclipscore":  # which reads no image that has no references
            assert (scorer.caches["images"].hits, scorer.caches["images"].misses) == (known, 4 - known)
