"""CapArena's files: battles, captions of models, CapArena-Auto; what is wrong with them is named."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.errors import DataError
from reward.metaeval.arena.battles import Battle, make_battles, outcome, read_battles, tally
from reward.metaeval.arena.caparena_auto import AutoItem, make_auto_battles, read_auto, score_auto
from reward.metaeval.arena.captions import read_captions

ENTRY = {"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}
ALL = {**ENTRY, "ref": "A pet.", "winner": "x", "cluster": "2", "in-400": True, "judge": "Tie.", "judge_reason": "?"}
WORDS = ["Caption 1 is better.", "Caption 2 is better.", "Tie."]
BASELINES = ["GPT-4o-0806", "CogVLM2-llama3-chat-19B", "MiniCPM-V2.6-8B"]


def write(tmp_path, content, name="file.json"):
    path = tmp_path / name
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_battle_keeps_its_other_fields_and_loses_an_earlier_judgement(tmp_path):
    battle, blank = read_battles(write(tmp_path, [ALL, {**ENTRY, "ref": " "}]))
    assert battle == Battle("1.jpg", "x", "y", "A dog.", "A cat.", "A pet.", record=battle.record)
    assert battle.to_json() == {name: value for name, value in ALL.items() if not name.startswith("judge")}
    assert blank.ref is None
    assert Battle("1.jpg", "x", "y", "A dog.", "A cat.").to_json() == ENTRY


def test_captions_as_json_and_as_lines(tmp_path):
    expected = {"1.jpg": "A dog.", "2.jpg": ""}
    assert read_captions(write(tmp_path, expected)) == expected
    lines = '\ufeff{"image": "1.jpg", "caption": "A dog.", "x": 1}\r\n\n{"image": "2.jpg", "caption": ""}\n'
    assert read_captions(write(tmp_path, lines, "captions.jsonl")) == expected


BAD_FILES = {  # {reader: [(name of the file, its content, message)]}
    read_battles: [
        ("b.json", "[{", "is not valid JSON"),
        ("b.json", {}, "must hold a JSON list of battles, got dict"),
        ("b.json", [], "holds no battles"),
        ("b.json", [ENTRY, "x"], "battle 2 must be a JSON object, got str"),
        ("b.json", [ENTRY, {**ENTRY, "img": 3}], "battle 2: field 'img' must be a text, got int: 3"),
        ("b.json", [{"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "a"}], "has no field 'caption2'"),
        ("b.json", [{**ENTRY, "source1": ""}], "battle 1: field 'source1' is empty"),
        ("b.json", [{**ENTRY, "source1": "y"}], "battle 1 is one of 'y' against itself"),
        ("b.json", [{**ENTRY, "ref": ["a"]}], "battle 1: field 'ref' must be a text, got list"),
        ("b.json", [{**ENTRY, "caption1": "\ud83d"}], "battle 1: field 'caption1' is not valid Unicode"),
        ("b.json", '[{"img": "a", "img": "b"}]', "'img' is there twice"),
        ("b.jsonl", '{"img": "a.jpg"}\n{"img": "b.jpg"}\n', "has an object a line; battles are one JSON list: [{...}"),
    ],
    read_captions: [
        ("c.json", None, "there is no file"),
        ("c.json", b'{"1.jpg": "caf\xe9"}', "is not valid JSON: 'utf-8' codec"),
        ("c.json", "[1]", "is no file of JSON objects: entry 1 is not a JSON object but int"),
        ("c.json", "{}", "holds no rows"),
        ("c.json", '{"1.jpg": null, "2.jpg": "a"}', "the caption of '1.jpg' must be a text, got NoneType"),
        ("c.json", '{"1.jpg": "a", "1.jpg": "b"}', "'1.jpg' is there twice"),
        ("c.jsonl", '{"image": "1", "caption": "a"}\n{"image": "1", "caption": "a"}', "'1' is there twice"),
        ("c.jsonl", '{"image": "1", "caption": "a"}\n{"image": "2"}', "the caption of '2' must be a text"),
        ("c.jsonl", '{"caption": "a"}', "needs a column with the image"),
        ("c.csv", "image,caption\n,a\n", "the image of row 1 must be a text, got NoneType"),
        ("c.jsonl", "3", "line 1 is not a JSON object but int"),
        ("c.jsonl", "\n\n", "holds no rows"),
    ],
    read_auto: [
        # says where the file is and on what terms
        ("a.json", None, r"there is no file.*njucckevin/CapArena.*600 images.*DOCCI.*licence"),
        ("a.json", "[]", "must hold one JSON object"),
        ("a.json", {"1": 3}, "'1' must have 'captions'"),
        (
            "a.json",
            {"1": {"captions": {"human": "a"}}},
            "'1' must have 'ref_model', the name of a baseline; it has: cap",
        ),
        ("a.json", {"1": {"captions": {"human": "a"}, "ref_model": "b"}}, "no caption of 'b'; it has those of: human"),
        ("a.json", {"1": {"captions": {"b": "a"}, "ref_model": "b"}}, "'1' has no caption of 'human'"),
        ("a.json", {"1": {"captions": {"b": 3, "human": "a"}, "ref_model": "b"}}, "caption of 'b' must be a text"),
    ],
}


@pytest.mark.parametrize(
    ("read", "name", "content", "message"), [(read, *row) for read, rows in BAD_FILES.items() for row in rows]
)
def test_bad_files_name_the_fault(read, name, content, message, tmp_path):
    path = tmp_path / name if content is None else write(tmp_path, content, name)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert all(part in str(caught.value) for part in message.split(".*"))


def test_every_two_models_meet_on_every_image_in_a_drawn_order():
    captions = {model: {f"{i}.jpg": f"{model} {i}" for i in range(40)} for model in ("x", "y", "z")}
    references = {f"{i}.jpg": f"person {i}" for i in range(40)}
    battles = make_battles(captions, references, seed=1)
    assert Counter(frozenset((b.source1, b.source2)) for b in battles) == {
        frozenset(pair): 40 for pair in ("xy", "xz", "yz")
    }
    for battle in battles:
        number = battle.img.removesuffix(".jpg")
        assert (battle.caption1, battle.caption2) == (f"{battle.source1} {number}", f"{battle.source2} {number}")
        assert battle.ref == f"person {number}"
    first = sum(battle.source1 == "x" for battle in battles)
    assert 20 < first < 60  # of 80
    assert make_battles(captions, references, seed=1) == battles
    turned = make_battles(dict(reversed(captions.items())), references, seed=1)
    shown = [[(b.img, b.source1, b.source2) for b in each] for each in (battles, turned)]
    assert sorted(shown[0]) == sorted(shown[1])
    assert make_battles(captions, references, seed=2) != battles


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([*WORDS, None])), max_size=12))
def test_one_wins_what_the_other_loses(battles):
    entries = []
    for turned, judge in battles:
        sources = {"source1": "y", "source2": "x"} if turned else {"source1": "x", "source2": "y"}
        entries.append({**ENTRY, **sources, **({} if judge is None else {"judge": judge})})
    counts = tally(entries)
    if entries:
        assert counts["x"]["wins"] == counts["y"]["losses"]
        assert counts["x"]["losses"] == counts["y"]["wins"]
        assert counts["x"]["ties"] == counts["y"]["ties"] == sum(judge == "Tie." for _, judge in battles)
        assert sum(counts["x"].values()) == len(battles)


@pytest.mark.parametrize(("judge", "expected"), [("Caption 1 is better", 1), ("Tie", 0), ("Caption 2 is better.", -1)])
def test_verdicts_with_and_without_a_full_stop(judge, expected):
    entry = {**ENTRY, "judge": judge}
    assert (outcome(entry, 1), outcome(entry, 2)) == (expected, -expected)
    with pytest.raises(DataError, match=r"'judge' must be .*, got 'Both'"):
        tally([entry, {**ENTRY, "judge": "Both"}])


# CapArena-Auto


@pytest.fixture
def auto_file(tmp_path):
    """Six images, two against each baseline, in the fields of the authors' file."""
    entries = {}
    for number in range(6):
        baseline = BASELINES[number % 3]
        captions = {"human": f"person {number}", **{name: f"{name} on {number}" for name in BASELINES}}
        entries[f"test_{number:05}.jpg"] = {"captions": captions, "ref_model": baseline}
    return write(tmp_path, entries, "caparena_auto_600.json")


def test_each_image_meets_its_baseline(auto_file):
    items = read_auto(auto_file)
    battles = make_auto_battles(items, {item.image: f"mine {item.image}" for item in items}, "mine", seed=3)
    assert len(battles) == 6
    for item, battle in zip(items, battles, strict=True):
        captions = {battle.source1: battle.caption1, battle.source2: battle.caption2}
        assert captions == {"mine": f"mine {item.image}", item.baseline: item.caption}
        assert battle.ref == item.reference
        assert battle.to_json()["ref_model"] == item.baseline
    assert {battle.source1 == "mine" for battle in battles} == {True, False}


def test_the_score_is_half_of_each_sum_and_the_mean_of_the_three():
    """200 battles a baseline: 120 wins, 20 ties, 60 losses; then 10 wins, 190 losses; then ties only."""
    results = {BASELINES[0]: (120, 20, 60), BASELINES[1]: (10, 0, 190), BASELINES[2]: (0, 200, 0)}
    entries = []
    for baseline, (wins, ties, losses) in results.items():
        for number, points in enumerate([1] * wins + [0] * ties + [-1] * losses):
            first = number % 2 == 0
            judge = "Tie." if not points else WORDS[0] if (points > 0) == first else WORDS[1]
            sources = ("mine", baseline) if first else (baseline, "mine")
            texts = ("a b c", "d") if first else ("d", "a b c")
            entry = dict(zip(("source1", "source2", "caption1", "caption2"), (*sources, *texts), strict=True))
            entries.append({"img": "i", **entry, "judge": judge})
    score = score_auto(entries, "mine", BASELINES)
    assert [part.score for part in score.baselines.values()] == [(120 - 60) / 2, (10 - 190) / 2, 0.0]
    assert score.score == pytest.approx((30 - 90 + 0) / 3)
    assert score.mean_words == 3


def test_unjudged_battles_count_in_nothing():
    entries = [{**ENTRY, "judge": WORDS[0]}, ENTRY]
    part = score_auto(entries, "x", ["y"]).baselines["y"]
    assert (part.score, part.unjudged, part.judged) == (100.0, 1, 1)
    empty = score_auto([ENTRY], "x", ["y"])
    assert math.isnan(empty.score)
    assert empty.to_json()["score"] is None


def test_a_model_that_is_a_baseline_does_not_meet_itself(auto_file):
    items = read_auto(auto_file)
    model = BASELINES[1]
    battles = make_auto_battles(items, {item.image: "a" for item in items}, model)
    assert len(battles) == 4
    entries = [{**battle.to_json(), "judge": WORDS[0 if battle.source1 == model else 1]} for battle in battles]
    score = score_auto(entries, model, BASELINES)
    assert [part.score for part in score.baselines.values()] == [100.0, 0.0, 100.0]
    assert score.score == pytest.approx(200 / 3)


def test_captions_for_other_images_and_battles_of_others_are_refused(auto_file):
    items = read_auto(auto_file)
    captions = {item.image: "a" for item in items}
    one, two = {"1": "a"}, {"1": "a", "2": "b"}
    for refused, message in (
        (lambda: make_battles({"x": one}), "at least two models, got 1"),
        (lambda: make_battles({"x": two, "y": one}), "1 of the 2 images in the captions of 'x' are missing"),
        (lambda: make_battles({"x": one, "y": two}), "missing in the captions of 'x': 2"),
        (lambda: make_battles({"x": one, "y": one}, {"2": "r"}), "missing in the references: 1"),
        (lambda: make_auto_battles(items, {items[0].image: "a"}, "mine"), "5 of the 6 images in the benchmark are mis"),
        (lambda: make_auto_battles(items, captions, "human"), "give the model another name"),
        (lambda: make_auto_battles([AutoItem("1", "b", "c", "r")], {"1": "a"}, "b"), "nobody else to meet"),
        (lambda: score_auto([ENTRY], "z", ["y"]), "between 'x' and 'y', not 'z'"),
        (lambda: score_auto([ENTRY], "x", ["w"]), "against 'y', which is none of w"),
    ):
        with pytest.raises(DataError, match=message):
            refused()
