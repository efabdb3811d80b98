"""CapArena's files: battles, captions of models, CapArena-Auto; what is wrong with them is named."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.arena.battles import (
    AutoItem,
    make_auto_battles,
    make_battles,
    read_auto,
    read_battles,
    read_captions,
)
from reward.metaeval.arena.model_ratings import auto_scores
from reward.metaeval.arena.voters import all_voters, by_column, by_judge, by_people
from reward.registry import MetricSource
from tests.reward.metaeval.arena.made_arenas import BASELINES

ENTRY = {"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}


def write(folder, content, name="file.json"):
    path = folder / name
    path.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode())
    return path


GET_IT = r"600 images.*njucckevin/CapArena.*licence.*DOCCI"
BAD_FILES = {  # {reader: [(name of the file, its content, message)]}
    read_battles: [
        ("b.json", {}, "must hold a JSON list of battles; captions of two models or more go to `capreward compare`"),
        ("b.jsonl", '{"image": "1.jpg", "caption": "a"}\n' * 2, "must hold a JSON list of battles; captions of two"),
        ("b.json", [], "holds no battles"),
        ("b.json", [ENTRY, {**ENTRY, "img": 3}], "battle 2: field 'img' must be a text, got int: 3"),
        ("b.json", [{"img": "1.jpg", "source1": "x", "source2": "y"}], "has no field 'caption1'; it has: img"),
        ("b.json", [{**ENTRY, "source1": "y"}], "battle 1 is one of 'y' against itself"),
    ],
    read_captions: [
        ("c.json", '{"1.jpg": null, "2.jpg": "a"}', "the caption of '1.jpg' must be a text, got NoneType"),
        ("c.jsonl", '{"image": "1", "caption": "a"}\n' * 2, "'1' is there twice; which one is meant"),
        ("c.csv", "image,caption\n,a\n", "the image of row 1 must be a text, got NoneType"),
    ],
    read_auto: [
        ("a.json", None, f"there is no file.*{GET_IT}"),
        ("a.json", "[]", rf"must hold \{{image: .*and 'the whole' is none.*{GET_IT}"),
        ("a.json", {"1": {"captions": {"human": "a"}, "ref_model": "b"}}, "and '1' is none: KeyError: 'b'"),
    ],
}


@pytest.mark.parametrize(
    ("read", "name", "content", "message"), [(read, *row) for read, rows in BAD_FILES.items() for row in rows]
)
def test_bad_files_name_the_fault(read, name, content, message, tmp_path):
    if content is not None:
        write(tmp_path, content, name)
    with pytest.raises(DataError, match=f"(?s){message}") as error:
        read(tmp_path / name)
    assert name in str(error.value)


def test_every_two_models_meet_on_every_image_in_a_drawn_order():
    captions = {model: {f"{i}.jpg": f"{model} {i}" for i in range(40)} for model in ("x", "y", "z")}
    battles = make_battles(captions, seed=1)
    pairs = Counter(frozenset((battle["source1"], battle["source2"])) for battle in battles)
    assert pairs == {frozenset(pair): 40 for pair in ("xy", "xz", "yz")}
    for battle in battles:
        number = battle["img"].removesuffix(".jpg")
        assert [battle[f"caption{n}"] for n in "12"] == [f"{battle[f'source{n}']} {number}" for n in "12"]
    assert 20 < sum(battle["source1"] == "x" for battle in battles) < 60  # of 80
    turned = make_battles(dict(reversed(captions.items())), seed=1)
    assert sorted(turned, key=str) == sorted(battles, key=str)
    assert make_battles(captions, seed=2) != battles


def test_each_image_meets_its_baseline_but_a_baseline_not_itself(tmp_path):
    """Six images, two against each baseline, from a file in the fields of the authors'."""
    entries = {}
    for number in range(6):
        captions = {"human": f"person {number}", **{name: f"{name} on {number}" for name in BASELINES}}
        entries[f"test_{number:05}.jpg"] = {"captions": captions, "ref_model": BASELINES[number % 3]}
    items = read_auto(write(tmp_path, entries, "caparena_auto_600.json"))
    battles = make_auto_battles(items, {item.image: f"mine {item.image}" for item in items}, "mine", seed=3)
    for item, battle in zip(items, battles, strict=True):
        captions = {battle["source1"]: battle["caption1"], battle["source2"]: battle["caption2"]}
        assert captions == {"mine": f"mine {item.image}", item.baseline: item.caption}
        assert (battle["ref"], battle["ref_model"]) == (item.reference, item.baseline)
    assert {battle["source1"] == "mine" for battle in battles} == {True, False}

    model = BASELINES[1]
    battles += make_auto_battles(items, {item.image: "a" for item in items}, model)
    scores = auto_scores(battles, np.array([float(battle["source1"] != battle["ref_model"]) for battle in battles]))
    assert [(score["model"], score["score"]) for score in scores] == [("mine", 100), (model, pytest.approx(200 / 3))]
    assert (len(battles), scores[1]["baselines"][model]["itself"]) == (10, True)


def test_the_score_is_half_of_each_sum_and_the_mean_of_the_three():
    """200 battles a baseline: 120 wins, 20 ties, 60 losses; 10 wins, 180 losses, 10 that cannot be read; ties only."""
    battles, points = [], []
    for baseline, counts in zip(BASELINES, ((120, 20, 60, 0), (10, 0, 180, 10), (0, 200, 0, 0)), strict=True):
        for number, won in enumerate(np.repeat([1, 0.5, 0, np.nan], counts)):
            one = {"source1": "mine", "source2": baseline, "caption1": "a b c", "caption2": "d"}
            other = {"source1": baseline, "source2": "mine", "caption1": "d", "caption2": "a b c"}
            turned = number % 2
            battles.append({"img": f"{baseline} {number}", **(other if turned else one), "ref_model": baseline})
            points.append(1 - won if turned else won)
    [score] = auto_scores(battles, np.array(points))
    parts = score["baselines"]
    assert [part["score"] for part in parts.values()] == [(120 - 60) / 2, (10 - 180) / 2, 0.0]
    assert parts[BASELINES[1]] == {"wins": 10, "ties": 0, "losses": 180, "unjudged": 10, "itself": False, "score": -85}
    assert (score["score"], score["mean_words"]) == (pytest.approx((30 - 85 + 0) / 3), 3)
    assert np.isnan(auto_scores(battles[:1], np.array([np.nan]))[0]["score"])


ONE, TWO = {"1": "a"}, {"1": "a", "2": "b"}
ITEM = AutoItem("1", "b", "c", "r")
NOBODY = np.full(1, np.nan)
REFUSALS = [  # (function, arguments, message)
    (make_battles, [{"x": ONE}], "at least two models, got 1"),
    (make_battles, [{"x": TWO, "y": ONE}], "1 of the 2 images in the captions of 'x' are missing"),
    (make_auto_battles, [[ITEM], {}, "mine"], "1 of the 1 images in the benchmark are missing"),
    (make_auto_battles, [[ITEM], ONE, "human"], "give the model another name"),
    (make_auto_battles, [[ITEM], ONE, "b"], "nobody else to meet"),
    (auto_scores, [[{**ENTRY, "ref_model": "z"}], np.ones(1)], "'ref_model' must be one of 'x' and 'y'"),
    (auto_scores, [[{**ENTRY, "ref_model": "y"}] * 2, np.ones(2)], "'x' is on '1.jpg' twice"),
    (by_people, [[{**ENTRY, "winner": "z"}]], "'x' and 'y' on '1.jpg': 'winner' must be one of 'x', 'y', 'equal', got"),
    (by_judge, [[{**ENTRY, "judge": 1}]], "'judge' must be one of 'Caption 1 is better.', .*got 1"),
    (by_column, [[{**ENTRY, "s": [1, 2, 3]}], "s", NOBODY], "'s' must hold two numbers"),
    (by_column, [[{**ENTRY, "s": [True, 1]}], "s", NOBODY], "'s' must hold two numbers"),
    (by_column, [[{**ENTRY, "s": [None, None], "t": 1}], "s", NOBODY], "no battle has scores 's'.* first battle: s"),
    (all_voters, [[{**ENTRY, "source1": "human"}], [MetricSource("length")]], "all battles are of the source 'human'"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), REFUSALS)
def test_what_is_no_arena_is_refused(function, arguments, message):
    options = {"images": Path()} if function is all_voters else {}
    with pytest.raises(DataError, match=message):
        function(*arguments, **options)
