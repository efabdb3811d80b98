"""Charts, example scenes and the HTML of the report."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from integrations.demo.choosing import ChoicePart
from integrations.demo.quality import Example, JudgedCaption, fact_words, make_examples
from integrations.demo.report import curves, interval_plot, write_report
from integrations.demo.results import QUICK, Results
from reward import ScoreTable
from reward.metaeval import Interval
from reward.scenes import describe, make_error, render, sample_scene

CHOICE = ("greedy", "one sample", "best of 4 by VELA", "best of 4 by the oracle")
SCENE = sample_scene(random.Random(3))


class Even:
    """Scores every caption alike."""

    def score(self, samples, *, batch_size=None, progress=False):
        return ScoreTable(np.full((len(samples), 1), 0.25), ("relevance",))


def test_an_interval_plot_places_dots_on_its_axis_and_escapes_labels():
    rows = {"<a> & b": Interval(0.5, 0.4, 0.6), "low": Interval(-3.0, -4.0, 0.0)}
    tree = ElementTree.fromstring(interval_plot(rows, "F1 & more"))
    dots = [float(dot.get("cx")) for dot in tree.iter("circle")]
    whiskers = [line for line in tree.iter("line") if line.get("class") == "whisker"]
    lines = [(float(line.get("x1")), float(line.get("x2"))) for line in whiskers]
    ticks = {text.text: float(text.get("x")) for text in tree.iter("text") if text.get("class") == "tick"}
    assert dots[0] == pytest.approx((ticks["0.4"] + ticks["0.6"]) / 2, abs=0.2)
    assert lines[0] == pytest.approx((ticks["0.4"], ticks["0.6"]))
    assert dots[1] == ticks["0"]  # what lies outside stays at the edge
    assert [text.text for text in tree.iter("text") if text.get("class") == "label"] == ["<a> & b", "low"]
    assert [text.text for text in tree.iter("text") if text.get("class") == "axis"] == ["F1 & more"]


@pytest.mark.parametrize("line", [[(1.0, 0.5)], [(1.0, 0.5), (2.0, 0.5)], [(step, step / 50) for step in range(1, 50)]])
def test_curves_draw_points_and_their_running_mean(line):
    tree = ElementTree.fromstring(curves({"reward": line}, smooth=3))
    raw, smooth = (
        [float(point.split(",")[1]) for point in tree.find(f".//polyline[@class='line0 {kind}']").get("points").split()]
        for kind in ("raw", "smooth")
    )
    assert len(raw) == len(smooth) == len(line)
    assert all(0 <= y <= 250 for y in raw)
    if len(line) > 3:
        assert raw[0] > raw[-1]  # a rising curve goes up
        assert smooth[10] == pytest.approx(np.mean(raw[9:12]), abs=0.1)


def test_every_kind_of_fact_has_words():
    facts = {fact[0]: fact for k in range(60) for fact in sample_scene(random.Random(k)).facts()}
    facts["spatial"] = ("spatial", "star", "above", "ring")
    assert len(facts) >= 9
    for fact in facts.values():
        words = fact_words(fact)
        assert re.fullmatch(r"[\w ]+", words)
        assert words != " ".join(map(str, fact[1:])) or fact[0] in ("object", "action", "spatial")


def test_examples_name_what_is_false_and_count_what_is_missing():
    rng = random.Random(0)
    wrong = make_error(SCENE, "background", rng)
    systems = {"true": [describe(SCENE, rng).text], "false": [describe(wrong, rng).text], "empty": [""]}
    (example,) = make_examples([render(SCENE)], [()], [SCENE.to_json()], systems, {"Even": Even()})
    true, false, empty = example.captions
    assert (true.f1, true.wrong, true.missing) == (1.0, [], 0)
    assert false.wrong == [f"background {wrong.background}"]
    assert false.missing == 1
    assert (empty.text, empty.recall) == ("(empty)", 0)
    assert true.scores == {"Even": 0.25}


def test_captions_cannot_write_html(tmp_path):
    caption = JudgedCaption("greedy", "<script>alert(1)</script> & more", {}, 0.5, 0.5, 0.5, ["<b>"], 0)
    results = Results("1.0", "embedded", None, "embedded", QUICK)
    html = write_report(tmp_path, results, [Example(Image.new("RGB", (8, 8)), [caption])]).read_text(encoding="utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in html
    assert "&lt;b&gt;" in html
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "report.html"]


def test_a_card_says_what_fell_beside_the_gain(tmp_path):
    rise, fall, level = Interval(0.2, 0.1, 0.3), Interval(-0.2, -0.3, -0.1), Interval(0.0, -0.1, 0.1)
    measures = {"f1": rise, "recall": level, "precision": fall, "faults": rise, "false_actions": fall}
    measures |= {"missed_actions": rise, "false_signs": level, "missed_signs": fall, "words": rise}
    results = Results("1.0", "embedded", None, "embedded", QUICK)
    results.choice = ChoicePart(
        1,
        4,
        dict.fromkeys(CHOICE, measures),
        {f"{CHOICE[2]} - {CHOICE[0]}": measures},
        {"VELA": 0.5, "other": -0.2},
        {},
        [],
        {"VELA": []},
    )
    html = write_report(tmp_path, results).read_text(encoding="utf-8")
    told = " ".join(html.split())
    assert "VELA goes 50 % of the way there" in told
    assert "other chooses worse captions than greedy decoding writes" in told
    assert re.findall(r'<dt>(.*?)</dt><dd class="(\w+)">\S+ (\w+)</dd>', html) == [
        ("recall", "level", "level"),
        ("precision", "down", "worse"),
        ("flaws of language", "down", "worse"),
        ("false actions", "up", "better"),
        ("actions left out", "down", "worse"),
        ("false claims of signs", "level", "level"),
        ("facts of signs left out", "up", "better"),
        ("words", "level", "more"),
    ]
    row = html[html.index(f"{CHOICE[2]} − {CHOICE[0]}") :].partition("</tr>")[0]
    assert re.findall(r'<td class="(\w*)">', row) == ["up", "level", "down", "down", "level"]
    assert html.index("<details") < html.index("<table")  # tables are folded


def test_scenes_stand_right_below_the_cards(tmp_path):
    caption = JudgedCaption("greedy", "A star.", {}, 0.5, 0.5, 0.5, [], 0)
    examples = [Example(Image.new("RGB", (8, 8)), [caption])] * 3
    html = write_report(tmp_path, Results("1.0", "embedded", None, "embedded", QUICK), examples).read_text("utf-8")
    shown, _, folded = html.partition("<details")
    assert (shown.count("<img"), folded.count("<img")) == (2, 1)
    assert "<h2>" not in shown[shown.index('<div class="cards">') : shown.index("<img")].partition("<h2>Two")[0]
