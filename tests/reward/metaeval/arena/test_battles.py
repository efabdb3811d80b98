"""CapArena's files: battles, captions of models, CapArena-Auto; what is wrong with them is named."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.arena.auto import AutoItem, auto_scores, make_auto_battles, read_auto
from reward.metaeval.arena.battles import make_battles, read_battles, read_captions

ENTRY = {"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}
BASELINES = ["GPT-4o-0806", "CogVLM2-llama3-chat-19B", "MiniCPM-V2.6-8B"]


def write(tmp_path, content, name="file.json"):
    path = tmp_path / name
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_captions_as_json_and_as_lines(tmp_path):
    expected = {"1.jpg": "A dog.", "2.jpg": ""}
    assert read_captions(write(tmp_path, expected)) == expected
    lines = '\ufeff{"image": "1.jpg", "caption": "A dog.", "x": 1}\r\n\n{"image": "2.jpg", "caption": ""}\n'
    assert read_captions(write(tmp_path, lines, "captions.jsonl")) == expected


BAD_FILES = {  # {reader: [(name of the file, its content, message)]}
    read_battles: [
        ("b.json", {}, "must hold a JSON list of battles, got dict"),
        ("b.json", [], "holds no battles"),
        ("b.json", [ENTRY, {**ENTRY, "img": 3}], "battle 2: field 'img' must be a text, got int: 3"),
        ("b.json", [{"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "a"}], "has no field 'caption2'"),
        ("b.json", [{**ENTRY, "source1": ""}], "battle 1: field 'source1' is empty"),
        ("b.json", [{**ENTRY, "source1": "y"}], "battle 1 is one of 'y' against itself"),
        ("b.json", [{**ENTRY, "caption1": "\ud83d"}], "battle 1: field 'caption1' is not valid Unicode"),
        ("b.json", '[{"img": "a", "img": "b"}]', "'img' is there twice"),
        ("b.jsonl", '{"img": "a.jpg"}\n{"img": "b.jpg"}\n', "has an object a line; battles are one JSON list: [{...}"),
    ],
    read_captions: [
        ("c.json", '{"1.jpg": null, "2.jpg": "a"}', "the caption of '1.jpg' must be a text, got NoneType"),
        ("c.json", '{"1.jpg": "a", "1.jpg": "b"}', "'1.jpg' is there twice"),
        ("c.jsonl", '{"caption": "a"}', "needs a column with the image"),
        ("c.csv", "image,caption\n,a\n", "the image of row 1 must be a text, got NoneType"),
    ],
    read_auto: [
        # says where the file is and on what terms
        ("a.json", None, r"there is no file.*njucckevin/CapArena.*600 images.*DOCCI.*licence"),
        ("a.json", "[]", "must hold {image: .*and 'the whole' is none.*njucckevin"),
        ("a.json", {"1": 3}, "and '1' is none: TypeError"),
        ("a.json", {"1": {"captions": {"human": "a"}, "ref_model": "b"}}, "and '1' is none: KeyError: 'b'"),
    ],
}


@pytest.mark.parametrize(
    ("read", "name", "content", "message"), [(read, *row) for read, rows in BAD_FILES.items() for row in rows]
)
def test_bad_files_name_the_fault(read, name, content, message, tmp_path):
    path = tmp_path / name if content is None else write(tmp_path, content, name)
    with pytest.raises(DataError) as caught:
        read(path)
    assert path.name in str(caught.value)
    assert all(part in str(caught.value) for part in message.split(".*"))


def test_every_two_models_meet_on_every_image_in_a_drawn_order():
    captions = {model: {f"{i}.jpg": f"{model} {i}" for i in range(40)} for model in ("x", "y", "z")}
    battles = make_battles(captions, seed=1)
    assert Counter(frozenset((b["source1"], b["source2"])) for b in battles) == {
        frozenset(pair): 40 for pair in ("xy", "xz", "yz")
    }
    for battle in battles:
        number = battle["img"].removesuffix(".jpg")
        for place in "12":
            assert battle[f"caption{place}"] == f"{battle[f'source{place}']} {number}"
    first = sum(battle["source1"] == "x" for battle in battles)
    assert 20 < first < 60  # of 80
    assert make_battles(captions, seed=1) == battles
    turned = make_battles(dict(reversed(captions.items())), seed=1)
    shown = [[(b["img"], b["source1"], b["source2"]) for b in each] for each in (battles, turned)]
    assert sorted(shown[0]) == sorted(shown[1])
    assert make_battles(captions, seed=2) != battles


# CapArena-Auto


@pytest.fixture
def items(tmp_path):
    """Six images, two against each baseline, from a file in the fields of the authors'."""
    entries = {}
    for number in range(6):
        captions = {"human": f"person {number}", **{name: f"{name} on {number}" for name in BASELINES}}
        entries[f"test_{number:05}.jpg"] = {"captions": captions, "ref_model": BASELINES[number % 3]}
    return read_auto(write(tmp_path, entries, "caparena_auto_600.json"))


def test_each_image_meets_its_baseline(items):
    battles = make_auto_battles(items, {item.image: f"mine {item.image}" for item in items}, "mine", seed=3)
    assert len(battles) == 6
    for item, battle in zip(items, battles, strict=True):
        captions = {battle["source1"]: battle["caption1"], battle["source2"]: battle["caption2"]}
        assert captions == {"mine": f"mine {item.image}", item.baseline: item.caption}
        assert (battle["ref"], battle["ref_model"]) == (item.reference, item.baseline)
    assert {battle["source1"] == "mine" for battle in battles} == {True, False}


def test_the_score_is_half_of_each_sum_and_the_mean_of_the_three():
    """200 battles a baseline: 120 wins, 20 ties, 60 losses; 10 wins, 180 losses, 10 that cannot be read; ties only."""
    results = {BASELINES[0]: (120, 20, 60, 0), BASELINES[1]: (10, 0, 180, 10), BASELINES[2]: (0, 200, 0, 0)}
    battles, points = [], []
    for baseline, counts in results.items():
        for number, won in enumerate(np.repeat([1, 0.5, 0, np.nan], counts)):
            turned = number % 2
            pair, texts = ("mine", baseline), ("a b c", "d")
            entry = dict(zip(("source1", "source2"), pair[:: 1 - 2 * turned], strict=True))
            entry |= dict(zip(("caption1", "caption2"), texts[:: 1 - 2 * turned], strict=True))
            battles.append({"img": f"{baseline} {number}", **entry, "ref_model": baseline})
            points.append(1 - won if turned else won)
    [score] = auto_scores(battles, np.array(points))
    parts = score["baselines"]
    assert [part["score"] for part in parts.values()] == [(120 - 60) / 2, (10 - 180) / 2, 0.0]
    assert parts[BASELINES[1]] == {"wins": 10, "ties": 0, "losses": 180, "unjudged": 10, "itself": False, "score": -85}
    assert score["score"] == pytest.approx((30 - 85 + 0) / 3)
    assert score["mean_words"] == 3
    assert np.isnan(auto_scores(battles[:1], np.array([np.nan]))[0]["score"])


def test_a_model_that_is_a_baseline_does_not_meet_itself(items):
    model = BASELINES[1]
    battles = make_auto_battles(items, {item.image: "a" for item in items}, model)
    assert len(battles) == 4
    rows = [*battles, *make_auto_battles(items, {item.image: "a" for item in items}, "other")]
    scores = auto_scores(rows, np.array([float(row["source1"] != row["ref_model"]) for row in rows]))
    assert [(score["model"], score["score"]) for score in scores] == [("other", 100), (model, pytest.approx(200 / 3))]
    assert scores[1]["baselines"][model]["itself"] is True


def test_captions_for_other_images_and_battles_of_others_are_refused(items):
    captions = {item.image: "a" for item in items}
    one, two = {"1": "a"}, {"1": "a", "2": "b"}
    for refused, message in (
        (lambda: make_battles({"x": one}), "at least two models, got 1"),
        (lambda: make_battles({"x": two, "y": one}), "1 of the 2 images in the captions of 'x' are missing"),
        (lambda: make_auto_battles(items, {items[0].image: "a"}, "mine"), "5 of the 6 images in the benchmark are mis"),
        (lambda: make_auto_battles(items, captions, "human"), "give the model another name"),
        (lambda: make_auto_battles([AutoItem("1", "b", "c", "r")], {"1": "a"}, "b"), "nobody else to meet"),
        (lambda: auto_scores([{**ENTRY, "ref_model": "z"}], np.ones(1)), "'ref_model' must be one of 'x' and 'y'"),
        (lambda: auto_scores([{**ENTRY, "ref_model": "y"}] * 2, np.ones(2)), "'x' is on '1.jpg' twice"),
    ):
        with pytest.raises(DataError, match=message):
            refused()
