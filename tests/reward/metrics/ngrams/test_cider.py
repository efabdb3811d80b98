"""CIDEr: a stated corpus, its checkpoints, and what refuses to score without one."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError
from reward.metrics.ngrams.cider import CiderScorer
from reward.scoring import score_dataset

pytest.importorskip("pycocoevalcap")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")

_rng = random.Random(5)


def _text() -> str:
    return " ".join(_rng.choice(("a", "dog", "red", "star", "runs", "on", "grass")) for _ in range(_rng.randint(1, 9)))


SAMPLES = [CaptionSample(_text(), references=[_text() for _ in range(3)]) for _ in range(40)]
CORPUS = [sample.references for sample in SAMPLES]


@pytest.fixture(scope="module")
def scorer() -> CiderScorer:
    return CiderScorer().fit(CORPUS)


def test_scores_are_those_of_the_package_on_the_same_corpus(scorer: CiderScorer) -> None:
    from pycocoevalcap.cider.cider import Cider

    references = {row: list(sample.references) for row, sample in enumerate(SAMPLES)}
    expected = Cider().compute_score(references, {row: [sample.candidate] for row, sample in enumerate(SAMPLES)})[1]
    assert np.array_equal(scorer.score(SAMPLES).scores[:, 0], expected)
    assert expected.std() > 0.5


def test_a_score_depends_on_the_corpus_and_not_on_the_call(scorer: CiderScorer) -> None:
    expected = scorer.score(SAMPLES).scores
    turned, half = CiderScorer().fit(CORPUS[::-1]), CiderScorer().fit(CORPUS[:20])
    assert np.array_equal(scorer.score(SAMPLES[:5]).scores, expected[:5])
    assert np.array_equal(turned.score(SAMPLES).scores, expected)
    assert not np.allclose(half.score(SAMPLES).scores, expected)
    assert turned.fingerprint == scorer.fingerprint != half.fingerprint


def test_without_a_corpus_nothing_is_scored_or_saved(tmp_path: Path) -> None:
    empty = load_scorer("cider")
    assert empty.spec.needs_corpus
    with pytest.raises(ConfigError, match=r"call fit\(the references"):
        empty.score(SAMPLES)
    with pytest.raises(ConfigError, match="nothing to save"):
        empty.save_pretrained(tmp_path)
    for metric in (empty, "cider_avg"):
        with pytest.raises(ConfigError, match=r"depend on the other captions of its batch"):
            MetricReward(metric)


@pytest.mark.parametrize("corpus", [[], [["a dog"], ["a dog"]], [["a"], [], None]])
def test_a_corpus_that_tells_no_words_apart_is_refused(corpus: list[list[str]]) -> None:
    with pytest.raises(ConfigError, match="references of a whole data set"):
        CiderScorer().fit(corpus)


def test_a_saved_corpus_serves_as_a_reward(scorer: CiderScorer, tmp_path: Path) -> None:
    scorer.save_pretrained(tmp_path)
    assert CiderScorer.from_pretrained(tmp_path).fingerprint == scorer.fingerprint
    expected = scorer.score(SAMPLES[:3]).scores[:, 0].tolist()
    assert MetricReward("cider", tmp_path).rewards(SAMPLES[:3]) == expected


@pytest.mark.parametrize("content", ["", "[]", '{"a": 0}', '{"a": 99}', '{"a": "b"}'])
def test_damaged_frequencies_are_refused(scorer: CiderScorer, tmp_path: Path, content: str) -> None:
    scorer.save_pretrained(tmp_path)
    (tmp_path / "document_frequencies.json").write_text(content)
    with pytest.raises(CheckpointError, match="holds no document frequencies"):
        CiderScorer.from_pretrained(tmp_path)


def test_a_data_file_is_its_own_corpus_however_it_is_cut_into_parts(tmp_path: Path) -> None:
    rows = [{"candidate": sample.candidate, "references": list(sample.references)} for sample in SAMPLES]
    rows.append({"candidate": "a dog", "references": "one"})  # type: ignore[dict-item]
    data = tmp_path / "captions.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    score_dataset(data, "cider", tmp_path / "scores.jsonl", part_rows=7)
    found = [json.loads(line)["cider"] for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    whole = CiderScorer().fit([*CORPUS, ["one"]])
    expected = whole.score([*SAMPLES, CaptionSample("a dog", references=["one"])]).scores[:, 0]
    assert found == pytest.approx(expected.tolist())
