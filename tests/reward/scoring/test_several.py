"""Several metrics side by side: each scores as it does alone, and the failure of one is no failure of the others."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import CapRewardError
from reward.images import load_image
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.samples import CaptionSample
from reward.score_table import ScoreTable
from reward.scoring import BatchScorer, rerank_dataset, score_dataset
from tests.reward.scoring.small_data import GREYS, read_rows, save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import SPEC, PictureScorer

pytestmark = pytest.mark.slow

METRICS = ["beitscore", "unigram", "vela"]


class Brighter(PictureScorer):
    """A second metric that looks at images."""

    spec = replace(SPEC, name="brighter")


class Half(Brighter):
    """Finds no words."""

    spec = replace(SPEC, name="half")

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        table = super().score(samples, **options)
        return replace(table, scores=table.scores * [1, np.nan])


class Other(Half):
    spec = replace(SPEC, name="other")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows with and without references; one without an image, one with a broken one, a blank caption, and no JSON."""
    save_greys(tmp_path)
    (tmp_path / "bad.png").write_text("no image")
    images = ["0.png", "0.png", "bad.png", None, "1.png", "2.png"]
    captions = ["a red star", "two red boxes " * 400, "a box", "a hat", " ", "a red star on grass"]
    references = [["a star"], None, ["a box"], ["a hat"], ["a hat"], []]
    names = ("image", "candidate", "references")
    rows = [dict(zip(names, row, strict=True)) for row in zip(images, captions, references, strict=True)]
    path = write_lines(tmp_path / "data.jsonl", rows)
    path.write_text(path.read_text() + "no JSON\n")
    return path


@pytest.mark.parametrize(
    ("options", "ending"),
    [({}, ".parquet"), ({"cache": "cache"}, ".jsonl")],
)
def test_each_has_the_scores_that_it_has_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output = tmp_path / f"all{ending}"
    summary = score_dataset(data, METRICS, output, **options)
    rows = read_rows(output)
    failed: list[list[str]] = [[] for _ in rows]
    for metric in METRICS:
        score_dataset(data, metric, tmp_path / f"{metric}{ending}")
        for row, alone, names in zip(rows, read_rows(tmp_path / f"{metric}{ending}"), failed, strict=True):
            own = {name.removeprefix(f"{metric}_"): row.pop(name) for name in list(row) if name.startswith(metric)}
            added = set(alone) - {"image", "candidate", "references", "error"}
            assert own == {name: alone[name] for name in added}
            names += [metric] if alone["error"] else []
    assert [set(row) - {"image", "candidate", "references"} for row in rows] == [{"error"}] * len(rows)
    assert rows[0]["error"] is None
    assert rows[1]["error"] == "unigram: metric 'unigram' needs references, but the sample has none"
    assert re.fullmatch(r"beitscore: image file .*bad.png.*; vela: image file .*bad.png.*", rows[2]["error"])
    assert rows[4]["error"] == "candidate is empty: a caption needs at least one visible character"
    assert [len(names) for names in failed] == [0, 1, 2, 2, 3, 1, 3]
    assert (summary.rows, summary.scored) == (7, 5)
    assert summary.errors == {"unigram": 2, "beitscore": 2, "vela": 2, "candidate": 1, "row": 1}
    assert summary.checkpoints == dict.fromkeys(METRICS, "embedded")


def test_every_image_is_decoded_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Any] = []

    def counted(image: Any, **options: Any) -> Any:
        decoded.append(image)
        return load_image(image, **options)

    monkeypatch.setattr("reward.scoring.pictures.load_image", counted)
    first, second = PictureScorer(), Brighter()
    images = ["0.png", "0.png", "1.png", "2.png"]
    save_greys(tmp_path)
    data = write_lines(tmp_path / "data.jsonl", [{"image": image, "candidate": "a b"} for image in images])
    summary = score_dataset(data, [first, second], tmp_path / "out.jsonl")
    assert decoded == ["0.png", "1.png", "2.png"]
    assert summary.images_decoded == 3
    assert [a.image is b.image for a, b in zip(first.samples, second.samples, strict=True)] == [True] * 4


@pytest.mark.parametrize("metrics", ["unigram", "length_avg", ["unigram", "length"]])
def test_no_image_is_opened_for_metrics_of_texts(tmp_path: Path, metrics: Any) -> None:
    rows = [{"image": image, "candidate": "a b", "references": ["a"]} for image in ("no.png", "bad.png", None)]
    (tmp_path / "bad.png").write_text("no image")
    data = write_lines(tmp_path / "data.jsonl", rows)
    summary = score_dataset(data, metrics, tmp_path / "out.jsonl", image_column="image")
    assert (summary.scored, summary.errors, summary.images_decoded) == (3, {}, 0)
    assert summary.columns["image"] == "image"
    batch = {name: [row[name] for row in rows] for name in rows[0]}
    scorer = BatchScorer(metrics, image_column="image", image_root=tmp_path, added_only=True)
    assert (scorer(batch)["error"], scorer.images_decoded) == ([None] * 3, 0)


def test_an_aspect_without_a_score_leaves_the_others(tmp_path: Path) -> None:
    save_greys(tmp_path)
    data = write_lines(tmp_path / "data.jsonl", [{"image": "1.png", "candidate": "a b"}])
    score_dataset(data, [Half(), Other()], tmp_path / "out.jsonl")
    [row] = read_lines(tmp_path / "out.jsonl")
    for name in ("half", "other"):
        assert row[f"{name}_brightness"] == pytest.approx(GREYS[1] / 255)
        assert row[f"{name}_words"] is row[f"{name}_reward"] is None
    assert row["error"] == "half: the metric gave no finite score; other: the metric gave no finite score"


@pytest.mark.parametrize("own", [None, {"flu": 1, "relevance": 3}])
def test_candidates_are_ordered_by_the_weighted_mean(tmp_path: Path, own: dict[str, float] | None) -> None:
    metrics = ["vela", "beitscore"]
    image = str(save_greys(tmp_path) / "0.png")
    candidates = ["a red star", "a plain grey square", "grass", ""]
    rows = write_lines(tmp_path / "rows.jsonl", [{"image": image, "candidate": each} for each in candidates])
    lists = write_lines(tmp_path / "lists.jsonl", [{"image": image, "candidates": candidates}])
    weights = {"vela": 3, "BEiTScore": 1} | {f"vela_{aspect}": weight for aspect, weight in (own or {}).items()}
    mean = CombinedReward([MetricReward("vela", weights=own), MetricReward("beitscore")], weights=[3, 1])
    expected = mean.rewards([CaptionSample(each, image) for each in candidates[:3]])
    rerank_dataset(rows, metrics, tmp_path / "ranked.jsonl", weights=weights)
    ranked = read_lines(tmp_path / "ranked.jsonl")
    assert [row["reward"] for row in ranked] == [*(pytest.approx(each) for each in expected), None]
    order = sorted(range(3), key=lambda place: -float(expected[place] or 0))
    assert [row["rank"] for row in ranked] == [*(order.index(place) + 1 for place in range(3)), None]
    rerank_dataset(lists, metrics, tmp_path / "best.jsonl", weights=weights)
    [best] = read_lines(tmp_path / "best.jsonl")
    assert best["order"] == [*order, 3]
    for name in ("vela_reward", "beitscore_reward"):
        assert best[name] == [ranked[place][name] for place in best["order"]]
    assert best["error"].startswith("candidate 4: candidate is empty")


def test_a_batch_has_the_same_columns(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": "a b", "references": ["a"]}, {"candidate": "a b c"}])
    score_dataset(data, ["unigram", "length"], tmp_path / "out.jsonl")
    expected = read_lines(tmp_path / "out.jsonl")
    scored = BatchScorer(["unigram", "length"], added_only=True)(
        {"candidate": ["a b", "a b c"], "references": [["a"], None]}
    )
    assert scored == {name: [row[name] for row in expected] for name in scored}
    assert list(scored) == [name for name in expected[0] if name not in ("candidate", "references")]


@pytest.mark.parametrize(
    ("metrics", "options", "message"),
    [
        ([], {}, "an empty list of metrics scores nothing"),
        (["length", "lenght"], {}, "no metric is named 'lenght'"),
        (["vela=a", "VELA=b"], {}, "metric 'vela' is there twice"),
        (
            ["vela", "length"],
            {"weights": {"vela": 0.7}},
            "length has no weight: write --weights vela=0.7,length=WEIGHT",
        ),
        (["vela", "length"], {"weights": {"vela": math.nan, "length": 1}}, "metric 'vela' must be a finite number"),
        (["vela", "length"], {"weights": {"vela": 1, "length": -1}}, "weights must sum to a positive number"),
        (["vela", "length"], {"source": "runs/a"}, "write NAME=FOLDER or NAME=HUB_ID@REVISION for each of several"),
        (["unigram", "length"], {"weights": {"f1": 1}}, "which is no metric and no aspect here; nearest: unigram_f1"),
        (["unigram", "length"], {"cache": "c"}, "metric 'unigram' keeps nothing on disk: leave out cache="),
        (["cider", "length"], {}, "metric 'cider' needs a column with the references, but none is named"),
        (["length", "vela"], {"image_column": "x"}, "--image-column names 'x', which is no column"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    tmp_path: Path, metrics: Any, options: dict[str, Any], message: str
) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": "a", "image": "i.png"}])
    with pytest.raises(CapRewardError, match=re.escape(message)):
        score_dataset(data, metrics, tmp_path / "out.jsonl", **options)
    assert not list(tmp_path.glob("out*"))


def test_order_needs_weights(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidates": ["a"]}])
    with pytest.raises(
        CapRewardError, match=r"give each metric a weight in the mean, as in --weights unigram=0\.5,length=0\.5"
    ):
        rerank_dataset(data, ["unigram", "length"], tmp_path / "out.jsonl")


def test_a_list_of_one_is_that_one(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": "a b"}])
    for name, metric in ("one", "length"), ("list", ["length"]):
        score_dataset(data, metric, tmp_path / f"{name}.jsonl")
    assert (tmp_path / "list.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    runs = [json.loads((tmp_path / f"{name}.jsonl.summary.json").read_text())["run"] for name in ("one", "list")]
    assert runs[0] == runs[1]
