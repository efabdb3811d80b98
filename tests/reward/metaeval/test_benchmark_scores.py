"""Scoring a benchmark: equal captions are scored once, scores are kept, and bad rows do not spoil good ones."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from reward import ScoreTable
from reward.errors import DataError
from reward.judges import ScriptedJudge
from reward.metaeval import benchmark_scores
from reward.metaeval.benchmark_scores import score_benchmark
from reward.metaeval.benchmarks import load_benchmark
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from tests.reward.metaeval.small_benchmarks import load_rated, use_metrics, write_pairs, write_rated
from tests.toys import picture_scorer
from tests.toys.picture_scorer import PictureScorer


@pytest.fixture
def log(monkeypatch, tmp_path):
    """A registry with the metric picture, small chunks, and the file in which each scored caption becomes a line."""
    use_metrics(monkeypatch)
    monkeypatch.setattr(benchmark_scores, "CHUNK", 4)
    path = tmp_path / "scored.log"
    path.touch()
    monkeypatch.setenv("PICTURE_LOG", str(path))
    return path


def lines(log):
    return len(log.read_text().splitlines())


def test_what_cannot_be_scored_is_told_and_tried_again_and_the_others_are_scored(log, tmp_path):
    spoilt = {2: {"candidate": "  "}, 3: {"candidate": "fail here"}, 4: {"image": "absent.png"}}
    rated = load_rated(tmp_path, 10, change=lambda row: row.update(spoilt.get(int(row["candidate"].split()[-1]), {})))
    for times in (1, 2):  # of a run with failures nothing is kept
        found = score_benchmark(rated, "picture", folder=tmp_path / "scores")
        assert lines(log) == 8 * times
    assert list(found.errors) == [2, 3, 4]
    assert found.errors[3] == "the caption says fail"
    assert "absent.png' does not exist" in found.errors[4]
    assert np.isfinite(found.scores).all(axis=1).tolist() == [row not in found.errors for row in range(10)]
    assert found.seconds > 0


def test_equal_captions_are_scored_once(log, tmp_path):
    rated = load_rated(tmp_path, 12, images=1, change=lambda row: row.update(candidate=row["candidate"][:3]))
    found = score_benchmark(rated, "picture")
    assert (lines(log), len(found.scores), len(set(found.scores[:, 1]))) == (1, 12, 1)


def test_scores_are_kept_and_belong_to_captions_settings_and_metric(log, tmp_path):
    data, kept = write_rated(tmp_path / "data", 8), tmp_path / "scores"

    def scored(metric="picture", **options):
        before = lines(log)
        found = score_benchmark(load_benchmark("flickr8k-expert", data), metric, folder=kept, **options)
        again = score_benchmark(load_benchmark("flickr8k-expert", data), metric, **options)
        np.testing.assert_array_equal(found.scores, again.scores)
        assert (found.aspects, found.errors) == (again.aspects, again.errors)
        return lines(log) - before - 8  # what `again` scored

    assert [scored(), scored(), scored(references=False), scored()] == [8, 0, 8, 0]
    Image.new("RGB", (4, 4), "white").save(data.parent / "3.png")
    assert [scored(), scored()] == [8, 0]  # another picture under the same name
    assert [scored(dtype="float16"), scored(dtype="float16"), scored()] == [8, 0, 0]
    assert score_benchmark(load_benchmark("flickr8k-expert", data), "length", folder=kept).aspects == ("length",)
    assert len(list(kept.glob("flickr8k-expert-*.json"))) == 5


def test_drawn_references_that_are_kept_load_no_model(log, tmp_path, monkeypatch):
    pairs = load_benchmark("pascal-50s", write_pairs(tmp_path, 4, references=8), reference_draws=2)
    found = [score_benchmark(pairs, metric, folder=tmp_path / "kept") for metric in ("picture", "length")]
    assert [each.scores.shape for each in found] == [(8, 2, 2), (8, 1)]  # length reads no references
    monkeypatch.setattr(benchmark_scores, "load_scorer", None)
    for metric, known in zip(("picture", "length"), found, strict=True):
        again = score_benchmark(pairs, metric, folder=tmp_path / "kept")
        np.testing.assert_array_equal(again.scores, known.scores)


@pytest.mark.parametrize(
    ("metric", "change", "options", "message"),
    [
        ("picture", {"image": None}, {}, r"looks at the images, and these data of flickr8k-expert name none"),
        ("picture", {"image": "gone/1.png"}, {}, r"none of those .* exists, the first being .*gone/1.png; .*--images"),
        ("unigram", {"references": []}, {}, r"'unigram' needs references, and flickr8k-expert has none$"),
        ("unigram", {}, {"references": False}, r"none to give \(--no-references withholds them\)"),
    ],
)
def test_a_metric_whose_needs_are_not_met_is_refused(log, tmp_path, metric, change, options, message):
    with pytest.raises(DataError, match=message):
        score_benchmark(load_rated(tmp_path, 3, change=lambda row: row.update(change)), metric, **options)


def test_rated_aspects_are_compared_with_those_of_the_metric_or_its_reward(log, tmp_path):
    ratings = {"words": [1], "beauty": [1, 2]}
    rated = load_rated(tmp_path / "rated", 4, change=lambda row: row.update(ratings=ratings))
    scores = score_benchmark(rated, "picture").for_aspects(rated)
    table = PictureScorer().score([sample for sample in rated.samples() if sample is not None])
    np.testing.assert_allclose(scores["words"][:, 0], table.column("words"))
    np.testing.assert_allclose(scores["beauty"][:, 0], table.scores.mean(axis=1))
    pairs = load_benchmark("pascal-50s", write_pairs(tmp_path / "pairs", 2))
    assert np.array_equal(score_benchmark(pairs, "length").for_aspects(pairs), [[6.0, 3.0], [3.0, 6.0]])


class Calm(PictureScorer):
    """A checkpoint that has one aspect only, looks at no image, and scores by a corpus if it is told to."""

    spec = replace(picture_scorer.SPEC, aspects=("words",), needs_image=False)
    corpus = ()

    def fit(self, corpus):
        fitted = type(self)()
        fitted.corpus = list(corpus)
        return fitted

    def score(self, samples, **options):
        assert all(sample.image is None for sample in samples)
        return ScoreTable(np.full((len(samples), 1), len(self.corpus)), ("words",))


class Rare(Calm):
    spec = replace(Calm.spec, name="rare", needs_references=True, needs_corpus=True)


def test_a_checkpoint_may_need_less_than_its_metric(monkeypatch, tmp_path):
    use_metrics(monkeypatch, replace(picture_scorer.SPEC, scorer=f"{__name__}:Calm"))
    (tmp_path / "config.json").write_text("{}")
    found = score_benchmark(load_rated(tmp_path / "data", 5, change=lambda row: row.pop("image")), "picture", tmp_path)
    assert (found.aspects, found.errors) == (("words",), {})


def test_a_metric_with_a_corpus_has_the_references_of_the_whole_benchmark(log, tmp_path, monkeypatch):
    use_metrics(monkeypatch, replace(Rare.spec, scorer=f"{__name__}:Rare"))
    for limit in (10, 20):  # other references around it make another score of the same caption
        found = score_benchmark(load_rated(tmp_path / "data", 20, limit=limit), "rare")
        assert set(found.scores[:, 0]) == {float(limit)}


def test_a_caption_without_a_finite_score_has_none(log, tmp_path):
    benchmark, scorer = load_rated(tmp_path / "data", 3), PictureScorer()
    score_benchmark(benchmark, scorer, batch_size=7)
    assert scorer.batch_sizes == [7]
    scorer.score = lambda samples, **options: ScoreTable(np.full((3, 2), np.inf), scorer.spec.aspects)
    found = score_benchmark(benchmark, scorer)
    assert np.isnan(found.scores).all()
    assert (set(found.errors.values()), np.isnan(found.seconds)) == ({"the metric gave no finite score"}, True)


def test_the_prompt_of_a_judged_metric_is_named_by_its_version_and_hash(tmp_path):
    benchmark, judge = load_rated(tmp_path, 1), ScriptedJudge(None, lambda _: {"4": 1})
    scorer = HarmonicScorer(judge, criteria=["correctness"])
    changed = HarmonicScorer(judge, prompt={**scorer.prompt.to_json(), "version": "mine"})
    own, other = (score_benchmark(benchmark, each).prompt for each in (scorer, changed))
    assert re.fullmatch(r"harmonic-\d+ [0-9a-f]{16}", own)
    assert (other[:5], other[-16:] == own[-16:]) == ("mine ", False)
