"""The parts of the demo one by one: the oracle's verdicts, agreement, choosing, captions, the report."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from integrations.demo import captioner, quality
from integrations.demo.quality import CLAIMS, MEASURES, compare_systems, judge_captions, make_examples, mean_quality
from integrations.demo.report import write_report
from integrations.hf_generate.best_of_n import RatedCandidates
from reward import MetricReward, load_scorer
from reward.decoding.selection import rate_candidates
from reward.metaeval import Interval
from reward.scenes import Action, Oracle, Sign, describe, drop_facts, make_error, render, sample_scene

SCENES = [sample_scene(random.Random(f"demo parts {index}")) for index in range(12)]


def captions_of_quality(keep, seed):
    rng = random.Random(seed)
    return [describe(scene, rng, facts=drop_facts(scene, keep, rng)).text for scene in SCENES]


def test_quality_is_the_oracles_verdict_averaged_within_a_scene_and_compared_scene_by_scene():
    texts = {"full": captions_of_quality(1.0, 0), "poor": captions_of_quality(0.3, 0)}
    full, poor = (judge_captions(captions, SCENES) for captions in texts.values())
    assert set(full) == {*MEASURES, *CLAIMS}
    assert all(not full[name].any() for name in CLAIMS)
    assert poor["missed_actions"].sum() > 0
    assert full["f1"] == pytest.approx(np.ones(12))
    assert full["words"][0] == len(texts["full"][0].split())
    both = mean_quality(list(zip(*texts.values(), strict=True)), SCENES)
    assert both["recall"] == pytest.approx((full["recall"] + poor["recall"]) / 2)
    means, differences = compare_systems({"full": full, "poor": poor}, [("full", "poor")], resamples=200)
    gap = differences["full - poor"]["f1"]
    assert gap.value == pytest.approx(means["full"]["f1"].value - means["poor"]["f1"].value)
    assert gap.low > 0


def test_false_and_missing_claims_are_counted():
    actors = [entity.noun for entity in SCENES[0].entities[:2]]
    described = replace(SCENES[0], action=Action(actors[0], "push", actors[1]), sign=None)
    scene = replace(described, action=None, sign=Sign("STOP", 4))
    quality = judge_captions([describe(described, random.Random(0)).text], [scene])
    assert [int(quality[name][0]) for name in CLAIMS] == [1, 0, 0, 2]


class OracleReward:
    def __init__(self, images):
        self.scenes = {image.tobytes(): scene for image, scene in zip(images, SCENES, strict=True)}

    def rewards(self, samples):
        return [Oracle().score(sample.candidate, self.scenes[sample.image.tobytes()]).f1 for sample in samples]


def test_the_gap_to_the_oracle_is_closed_by_the_oracle_and_not_by_chance(monkeypatch):
    candidates = [list(group) for group in zip(*(captions_of_quality(0.6, seed) for seed in range(8)), strict=True)]

    def planted(model, processor, images, references, reward, *, do_sample=True, **sizes):
        if not do_sample:
            return RatedCandidates([[text] for text in captions_of_quality(0.3, 0)], [], [])
        return RatedCandidates(candidates, rate_candidates(candidates, images, [()] * len(images), reward), [])

    for module in (quality, captioner):
        monkeypatch.setattr(module, "best_of", planted)
    images = list(map(render, SCENES))
    rewards = {"length": MetricReward("length"), "truth": OracleReward(images)}
    choice = quality.measure_choice(None, None, images, None, SCENES, rewards, n=8, resamples=200)
    assert choice["captions"]["greedy"] == captions_of_quality(0.3, 0)
    assert choice["gap_closed"]["truth"] == pytest.approx(1)
    assert 0 < choice["gap_closed"]["length"] < 1
    assert choice["differences"]["best of 8 by truth - greedy"]["f1"].low > 0
    assert choice["captions"]["best of 8 by truth"] == choice["captions"]["best of 8 by the oracle"]
    mean = np.mean([judge_captions(g, [s] * 8)["f1"] for g, s in zip(candidates, SCENES, strict=True)])
    assert choice["means"]["one sample"]["f1"].value == pytest.approx(mean)


def test_examples_name_what_is_false_and_count_what_is_missing():
    rng, scene = random.Random(0), sample_scene(random.Random(3))
    wrong = make_error(scene, "background", rng)
    systems = {"true": [describe(scene, rng).text], "false": [describe(wrong, rng).text], "empty": [""]}
    scorers = {"Words": load_scorer("length")}
    (example,) = make_examples([render(scene)], [()], [scene.to_json()], systems, scorers)
    true, false, empty = example["captions"]
    assert (true["f1"], true["wrong"], true["missing"]) == (1.0, [], 0)
    assert true["scores"] == {"Words": len(true["text"].split())}
    assert (false["wrong"], false["missing"]) == ([f"background {wrong.background}"], 1)
    assert (empty["text"], empty["recall"]) == ("(empty)", 0)


def test_the_page_shows_what_fell_beside_a_gain_and_lets_no_caption_write_html(tmp_path):
    rise, fall, level = Interval(0.2, 0.1, 0.3), Interval(-0.2, -0.3, -0.1), Interval(0.0, -0.1, 0.1)
    measures = {"f1": rise, "recall": level, "precision": fall, "faults": rise, "false_actions": fall}
    measures |= {"missed_actions": rise, "false_signs": level, "missed_signs": fall, "words": rise}
    systems = ("greedy", "one sample", "best of 4 by VELA", "best of 4 by the oracle")
    results = dict.fromkeys(("agreement", "offline", "grpo", "stopped")) | {"version": "1.0", "seconds": {}}
    results |= dict.fromkeys(("vela", "beitscore", "captioner"), "embedded") | {"sizes": {"scenes": 1, "samples": 1}}
    results["choice"] = {"scenes": 1, "n": 4, "means": dict.fromkeys(systems, measures), "rewards": {"VELA": []}}
    results["choice"]["differences"] = {"best of 4 by VELA - greedy": measures}
    results["choice"]["gap_closed"] = {"VELA": 0.5, "other": -0.2}
    caption = {"system": "greedy", "text": "<script>alert(1)</script> & more", "scores": {}, "wrong": ["<b>"]}
    caption |= {"f1": 0.5, "recall": 0.5, "precision": 0.5, "missing": 0}
    examples = [{"image": Image.new("RGB", (8, 8)), "captions": [caption]}] * 3
    html = write_report(tmp_path, results, examples).read_text(encoding="utf-8")
    assert "<script" not in html
    text = " ".join(html.split())
    for part in (
        "VELA goes 50 % of the way there",
        "other chooses worse captions than greedy decoding writes",
        "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more",
        "&lt;b&gt;",
    ):
        assert part in text
    shown = re.findall(r'<dt>(.*?)</dt><dd class="(\w+)">\S+ (\w+)</dd>', html)
    assert (len(shown), shown[1]) == (8, ("precision", "down", "worse"))
    assert shown[3:5] == [("false actions", "up", "better"), ("actions left out", "down", "worse")]
    assert shown[-1] == ("words", "level", "more")
    row = html[html.index("best of 4 by VELA − greedy") :].partition("</tr>")[0]
    assert re.findall(r'<span class="(\w*)">[+-]', row) == ["up", "level", "down", "down", "level"]
    first, _, folded = html.partition("<details")
    assert (first.count("<img"), folded.count("<img"), "<table" in first) == (2, 1, False)
