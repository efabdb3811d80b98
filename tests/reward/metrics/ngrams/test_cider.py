"""CIDEr: a stated corpus, its checkpoints, and what refuses to score without one."""

import random
import shutil

import numpy as np
import pytest

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError
from reward.metaeval.benchmark_scores import score_benchmark
from reward.metaeval.benchmarks.own_captions import load_captions
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.metaeval.captioners import compare_captioners
from reward.metrics.ngrams.cider import CiderScorer
from reward.registry import MetricSource
from reward.scoring import rerank_dataset, score_dataset
from tests.toys.json_lines import read_lines, write_lines

pytest.importorskip("pycocoevalcap")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")

_rng = random.Random(5)


def _text():
    return " ".join(_rng.choice(("a", "dog", "red", "star", "runs", "on", "grass")) for _ in range(_rng.randint(1, 9)))


SAMPLES = [CaptionSample(_text(), references=[_text() for _ in range(3)]) for _ in range(40)]
SAMPLES.append(CaptionSample(_text(), references=SAMPLES[0].references))  # two documents that are equal
CORPUS = [sample.references for sample in SAMPLES]


@pytest.fixture(scope="module")
def scorer():
    return CiderScorer().fit(CORPUS)


def test_scores_are_those_of_the_package_on_the_same_corpus(scorer):
    from pycocoevalcap.cider.cider import Cider

    references = {row: list(sample.references) for row, sample in enumerate(SAMPLES)}
    expected = Cider().compute_score(references, {row: [sample.candidate] for row, sample in enumerate(SAMPLES)})[1]
    assert np.array_equal(scorer.score(SAMPLES).scores[:, 0], expected)
    assert expected.std() > 0.5


def test_a_score_depends_on_the_corpus_and_not_on_the_call(scorer):
    expected = scorer.score(SAMPLES).scores
    turned, half = CiderScorer().fit(CORPUS[::-1]), CiderScorer().fit(CORPUS[:20])
    assert np.array_equal(scorer.score(SAMPLES[:5]).scores, expected[:5])
    assert np.array_equal(turned.score(SAMPLES).scores, expected)
    assert not np.allclose(half.score(SAMPLES).scores, expected)
    assert turned.fingerprint == scorer.fingerprint != half.fingerprint


def test_without_a_corpus_nothing_is_scored_or_saved(tmp_path):
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
def test_a_corpus_that_tells_no_words_apart_is_refused(corpus):
    with pytest.raises(ConfigError, match="references of a whole data set"):
        CiderScorer().fit(corpus)


def test_a_saved_corpus_serves_as_a_reward(scorer, tmp_path):
    scorer.save_pretrained(tmp_path)
    assert CiderScorer.from_pretrained(tmp_path).fingerprint == scorer.fingerprint
    expected = scorer.score(SAMPLES[:3]).scores[:, 0].tolist()
    assert MetricReward("cider", tmp_path).rewards(SAMPLES[:3]) == expected


@pytest.mark.parametrize("content", ["", "[]", '{"a": 0}', '{"a": 99}', '{"a": "b"}'])
def test_damaged_frequencies_are_refused(scorer, tmp_path, content):
    scorer.save_pretrained(tmp_path)
    (tmp_path / "document_frequencies.json").write_text(content)
    with pytest.raises(CheckpointError, match="holds no document frequencies"):
        CiderScorer.from_pretrained(tmp_path)


def _score(data):
    score_dataset(data, "cider", data.with_name("scores.jsonl"), part_rows=7)
    return [row["cider"] for row in read_lines(data.with_name("scores.jsonl"))]


def _rerank(data):
    rerank_dataset(data, "cider", data.with_name("ranked.jsonl"), group_column="image")
    return [row["cider"] for row in read_lines(data.with_name("ranked.jsonl"))]


def _bench(data):
    return score_benchmark(load_ratings(data), "cider").scores[:, 0].tolist()


def _compare(data):
    captioners = {"a": load_captions(data), "b": load_captions(data)}
    (comparison,) = compare_captioners(captioners, [MetricSource("cider")], resamples=10)
    return comparison.scores[0].tolist()


@pytest.mark.parametrize("command", [_score, _rerank, _bench, _compare])
@pytest.mark.parametrize("images_named", [True, False])
def test_documents_are_images_in_every_command(command, images_named, tmp_path):
    names = [f"{row % 8}.png" for row in range(40)] + ["0.png"] * 20  # most captions are of one image
    references = {name: list(sample.references) for name, sample in zip(names, SAMPLES, strict=False)}
    samples = [CaptionSample(_text(), references=references[name]) for name in names]
    rows = [
        {"image": name, "caption": sample.candidate, "references": references[name], "rating": number % 5}
        for number, (name, sample) in enumerate(zip(names, samples, strict=True))
    ]
    if not images_named and command in (_score, _bench):  # the same references are of one image
        rows = [{**row, "image": None} for row in rows]
    expected = CiderScorer().fit(references.values()).score(samples).scores[:, 0]
    if command is _compare:
        expected = [expected[[name == image for name in names]].mean() for image in references]
    assert command(write_lines(tmp_path / "data.jsonl", rows)) == pytest.approx(list(expected))


def test_references_of_an_image_in_several_rows_are_one_document(tmp_path):
    rows = [
        {"image": f"{row // 3}.png", "candidate": sample.candidate, "references": [_text()]}
        for row, sample in enumerate(SAMPLES)
    ]
    rows.append({"image": "0.png", "candidate": "a dog", "references": "one"})
    corpus = [[text for row in rows[start : start + 3] for text in row["references"]] for start in range(0, 40, 3)]
    corpus[0] += ["one"]
    samples = [CaptionSample(row["candidate"], references=list(row["references"])) for row in rows[:-1]]
    expected = CiderScorer().fit(corpus).score(samples).scores[:, 0]
    assert _score(write_lines(tmp_path / "data.jsonl", rows))[:-1] == pytest.approx(expected.tolist())
