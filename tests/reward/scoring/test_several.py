"""Several metrics side by side: each scores as it does alone, and the failure of one is no failure of the others."""

import re
from dataclasses import replace

import numpy as np
import pytest

from reward.data.samples import CaptionSample
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.scoring import rerank_dataset
from reward.scoring.several import Metrics
from tests.reward.scoring.small_data import GREYS, save_greys, scored
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import SPEC, PictureScorer

METRICS = ["beitscore", "unigram", "vela"]
ADDED_LATER = {"image", "candidate", "references", "error"}


class Half(PictureScorer):
    """A second metric that looks at images, and finds no words."""

    spec = replace(SPEC, name="half")

    def score(self, samples, **options):
        table = super().score(samples, **options)
        return replace(table, scores=table.scores * [1, np.nan])


class Other(Half):
    spec = replace(SPEC, name="other")


@pytest.mark.slow
def test_each_has_the_scores_that_it_has_alone(tmp_path):
    (save_greys(tmp_path) / "bad.png").write_text("no image")
    given = [
        ("0.png", "a red star", ["a star"]),
        ("0.png", "two red boxes " * 400, None),
        ("bad.png", "a box", ["a box"]),
        (None, "a hat", ["a hat"]),
        ("1.png", " ", ["a hat"]),
    ]
    rows = [dict(zip(("image", "candidate", "references"), row, strict=True)) for row in given]
    data = write_lines(tmp_path / "data.jsonl", rows)
    data.write_text(data.read_text() + "no JSON\n")
    got, summary = scored(data, tmp_path / "all.jsonl", METRICS, cache=tmp_path / "cache")
    failed = [0] * len(got)
    for metric in METRICS:
        for place, alone in enumerate(scored(data, tmp_path / f"{metric}.jsonl", metric)[0]):
            own = {name: got[place].pop(f"{metric}_{name}") for name in set(alone) - ADDED_LATER}
            assert own == {name: pytest.approx(alone[name], abs=1e-6) for name in own}
            failed[place] += alone["error"] is not None
    assert [set(row) - ADDED_LATER for row in got] == [set()] * 6
    assert failed == [0, 1, 2, 2, 3, 3]
    assert got[0]["error"] is None
    assert got[1]["error"] == "unigram: metric 'unigram' needs references, but the sample has none"
    assert re.fullmatch(r"beitscore: image file .*bad.png.*; vela: image file .*bad.png.*", got[2]["error"])
    assert got[4]["error"] == "candidate is empty: a caption needs at least one visible character"
    assert (summary.rows, summary.scored) == (6, 5)  # a caption without a word has the lowest reward
    assert summary.errors == {"unigram": 1, "beitscore": 2, "vela": 2, "candidate": 1, "row": 1}
    assert summary.checkpoints == dict.fromkeys(METRICS, "embedded")


def test_an_image_is_decoded_once_for_all_and_an_aspect_without_a_score_leaves_the_others(tmp_path):
    save_greys(tmp_path)
    rows = [{"image": image, "candidate": "a b"} for image in ("1.png", "1.png", "2.png")]
    first, second = Half(), Other()
    (row, *_), summary = scored(rows, tmp_path / "out.jsonl", [first, second])
    assert summary.images_decoded == 2
    assert [a.image is b.image for a, b in zip(first.samples, second.samples, strict=True)] == [True] * 3
    for name in ("half", "other"):
        assert row[f"{name}_brightness"] == pytest.approx(GREYS[1] / 255)
        assert row[f"{name}_words"] is row[f"{name}_reward"] is None
    assert row["error"] == "half: the metric gave no finite score; other: the metric gave no finite score"


@pytest.mark.slow
def test_candidates_are_ordered_by_the_weighted_mean(tmp_path):
    metrics, own = ["vela", "beitscore"], {"flu": 1, "relevance": 3}
    image = str(save_greys(tmp_path) / "0.png")
    candidates = ["a red star", "a plain grey square", "grass", ""]
    weights = {"vela": 3, "BEiTScore": 1} | {f"vela_{aspect}": weight for aspect, weight in own.items()}
    mean = CombinedReward([MetricReward("vela", weights=own), MetricReward("beitscore")], weights=[3, 1])
    expected = np.array(mean.rewards([CaptionSample(each, image) for each in candidates[:3]]), float)
    order = np.argsort(-expected).tolist()
    options = {"task": rerank_dataset, "weights": weights}
    rows = [{"image": image, "candidate": each} for each in candidates]
    ranked, _ = scored(rows, tmp_path / "ranked.jsonl", metrics, **options)
    assert [row["reward"] for row in ranked] == [*map(pytest.approx, expected), 0.0]
    assert [row["rank"] for row in ranked] == [*(order.index(place) + 1 for place in range(3)), 4]
    [best], _ = scored([{"image": image, "candidates": candidates}], tmp_path / "best.jsonl", metrics, **options)
    assert best["order"] == [*order, 3]
    assert best["vela_reward"] == [ranked[place]["vela_reward"] for place in best["order"]]
    assert best["error"].startswith("candidate 4: candidate is empty")


def test_an_option_that_nobody_chose_makes_no_other_run():
    assert Metrics.of("vela", dtype=None).identity == Metrics.of("vela").identity
    assert Metrics.of("vela", dtype="float64").identity != Metrics.of("vela").identity


def test_a_caption_without_a_word_has_no_reward_of_a_metric_that_lacks_its_references(tmp_path):
    rows = [{"caption": "...", "references": []}, {"caption": "a", "references": ["a"]}]
    (row, _), _ = scored(rows, tmp_path / "out.jsonl", ["unigram", "length"])
    assert (row["unigram_reward"], row["length_reward"]) == (None, 0.0)
