"""Scoring a benchmark: equal captions are scored once, and bad rows do not spoil good ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reward import CaptionSample, ScoreTable
from reward.errors import DataError
from reward.metaeval import scoring
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.scoring import score_benchmark
from tests.reward.metaeval.small_benchmarks import use_metrics, write_pairs, write_rated
from tests.toys import picture_scorer
from tests.toys.picture_scorer import PictureScorer


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A registry with the metric picture, small chunks, and the file in which each scored caption becomes a line."""
    use_metrics(monkeypatch)
    monkeypatch.setattr(scoring, "CHUNK", 4)
    path = tmp_path / "scored.log"
    path.touch()
    monkeypatch.setenv("PICTURE_LOG", str(path))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rated(tmp_path / "a folder", 30)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_what_cannot_be_scored_is_counted(log: Path, tmp_path: Path) -> None:
    spoilt = {2: {"candidate": "  "}, 3: {"candidate": "fail here"}, 4: {"image": "absent.png"}}
    data = write_rated(tmp_path, 10, change=lambda row: row.update(spoilt.get(int(row["candidate"].split()[-1]), {})))
    benchmark = load_benchmark("flickr8k-expert", data)
    found = score_benchmark(benchmark, "picture")
    assert list(found.errors) == [2, 3, 4]
    assert found.errors[3] == "the caption says fail"
    assert "absent.png' does not exist" in found.errors[4]
    assert np.isfinite(found.scores[[0, 1, 5, 6, 7, 8, 9]]).all()
    assert np.isnan(found.scores[[2, 3, 4]]).all()
    assert len(lines(log)) == 8
    assert found.seconds > 0


def test_equal_captions_are_scored_once(log: Path, tmp_path: Path) -> None:
    data = write_rated(tmp_path, 12, images=1, change=lambda row: row.update(candidate=row["candidate"][:3]))
    found = score_benchmark(load_benchmark("flickr8k-expert", data), "picture")
    assert len(lines(log)) == 1
    assert len(set(found.scores[:, 1])) == 1
    assert len(found.scores) == 12


def test_scores_are_kept_and_belong_to_captions_settings_and_metric(log: Path, tmp_path: Path) -> None:
    data, kept = write_rated(tmp_path / "data", 8), tmp_path / "scores"

    def scored(metric: str = "picture", **options: Any) -> int:
        before = len(lines(log))
        found = score_benchmark(load_benchmark("flickr8k-expert", data), metric, folder=kept, **options)
        again = score_benchmark(load_benchmark("flickr8k-expert", data), metric, **options)
        np.testing.assert_array_equal(found.scores, again.scores)
        assert (found.aspects, found.errors) == (again.aspects, again.errors)
        return len(lines(log)) - before - 8  # what `again` scored

    assert [scored(), scored(), scored(references=False), scored()] == [8, 0, 8, 0]
    Image.new("RGB", (4, 4), "white").save(data.parent / "3.png")
    assert [scored(), scored()] == [8, 0]  # another picture under the same name
    assert [scored(dtype="float16"), scored(dtype="float16"), scored()] == [8, 0, 0]
    assert score_benchmark(load_benchmark("flickr8k-expert", data), "length", folder=kept).aspects == ("length",)
    assert len(list(kept.glob("flickr8k-expert-*.json"))) == 5
    spoilt = write_rated(tmp_path / "spoilt", 8, change=lambda row: row.update(candidate="fail " + row["candidate"]))
    for _ in range(2):  # what failed is tried again
        before = len(lines(log))
        assert len(score_benchmark(load_benchmark("flickr8k-expert", spoilt), "picture", folder=kept).errors) == 8
        assert len(lines(log)) == before + 8


class Calm(PictureScorer):
    """A checkpoint that has one aspect only and looks at no image."""

    spec = replace(picture_scorer.SPEC, aspects=("words",), needs_image=False)
    loaded = 0

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        assert all(sample.image is None for sample in samples)
        return ScoreTable(np.array([[len(sample.candidate)] for sample in samples]), ("words",))

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> PictureScorer:
        cls.loaded += 1
        return cls()


def test_a_checkpoint_may_need_less_than_its_metric(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_metrics(monkeypatch, replace(picture_scorer.SPEC, scorer="tests.reward.metaeval.test_scoring:Calm"))
    from tests.reward.metaeval import test_scoring

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    data = write_rated(tmp_path, 5)
    for image in tmp_path.glob("*.png"):
        image.unlink()
    benchmark = load_benchmark("flickr8k-expert", data)
    found = score_benchmark(benchmark, "picture", folder)
    assert (found.aspects, found.errors) == (("words",), {})
    assert test_scoring.Calm.loaded == 1


@pytest.mark.parametrize(
    ("metric", "change", "options", "message"),
    [
        ("picture", {"image": None}, {}, r"looks at the images, and these data of flickr8k-expert name none"),
        ("picture", {"image": "gone/1.png"}, {}, r"none of those .* exists, the first being .*gone/1.png; .*--images"),
        ("unigram", {"references": []}, {}, r"'unigram' needs references, and flickr8k-expert has none$"),
        ("unigram", {}, {"references": False}, r"none to give \(--no-references withholds them\)"),
    ],
)
def test_a_metric_whose_needs_are_not_met_is_refused(
    log: Path, tmp_path: Path, metric: str, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    benchmark = load_benchmark("flickr8k-expert", write_rated(tmp_path, 3, change=lambda row: row.update(change)))
    with pytest.raises(DataError, match=message):
        score_benchmark(benchmark, metric, **options)


def test_pairs_and_aspects(log: Path, tmp_path: Path) -> None:
    pairs = load_benchmark("pascal-50s", write_pairs(tmp_path / "pairs", 6))
    found = score_benchmark(pairs, "length").for_aspects(pairs)
    assert isinstance(found, np.ndarray)
    assert found[:2].tolist() == [[6.0, 3.0], [3.0, 6.0]]

    data = write_rated(tmp_path / "rated", 4, change=lambda row: row.update(ratings={"words": [1], "beauty": [1, 2]}))
    rated = load_benchmark("flickr8k-expert", data)
    scores = score_benchmark(rated, "picture").for_aspects(rated)
    assert isinstance(scores, dict)
    table = PictureScorer().score([sample for sample in rated.samples() if sample is not None])
    np.testing.assert_allclose(scores["words"][:, 0], table.column("words"))
    np.testing.assert_allclose(scores["beauty"][:, 0], table.scores.mean(axis=1))  # no such aspect: the reward


class Rare(PictureScorer):
    """Scores by a corpus, as CIDEr does."""

    spec = replace(Calm.spec, name="rare", needs_references=True, needs_corpus=True)

    def fit(self, corpus: Any) -> PictureScorer:
        fitted = Rare()
        fitted.corpus = [list(references) for references in corpus]  # type: ignore[attr-defined]
        return fitted

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        return ScoreTable(np.full((len(samples), 1), len(self.corpus)), ("words",))  # type: ignore[attr-defined]


def test_a_metric_with_a_corpus_has_the_references_of_the_whole_benchmark(
    log: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_metrics(monkeypatch, replace(Rare.spec, scorer="tests.reward.metaeval.test_scoring:Rare"))
    for limit in (10, 20):  # other references around it make another score of the same caption
        found = score_benchmark(load_benchmark("flickr8k-expert", data, limit=limit), "rare")
        assert set(found.scores[:, 0]) == {float(limit)}


def test_samples_are_given_as_they_are_and_without_a_finite_score_have_none(log: Path, data: Path) -> None:
    benchmark, scorer = load_benchmark("flickr8k-expert", data, limit=3), PictureScorer()
    score_benchmark(benchmark, scorer, batch_size=7)
    assert all(isinstance(sample, CaptionSample) and sample.image is not None for sample in scorer.samples)
    assert scorer.batch_sizes == [7]
    scorer.score = lambda samples, **options: ScoreTable(np.full((3, 2), np.inf), scorer.spec.aspects)  # type: ignore[method-assign]
    found = score_benchmark(benchmark, scorer)
    assert np.isnan(found.scores).all()
    assert set(found.errors.values()) == {"the metric gave no finite score"}
    assert np.isnan(found.seconds)
