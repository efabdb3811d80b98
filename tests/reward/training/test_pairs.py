"""Pairs of captions from columns, from corruptions on demand and from scenes become balanced training rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TrainingArguments

from reward.errors import DataError
from reward.images import load_image
from reward.registry import metric_spec
from reward.scenes.pairs import CATEGORIES
from reward.training.config import TrainingConfig, make_config
from reward.training.pairs import FAMILIES, CaptionPairs, TablePairs, make_table_pairs
from reward.training.rows import load_rows, make_order
from reward.training.sampling import EpochOrder, balanced_draw
from reward.training.tables import tables_of
from tests.reward.training.small_runs import pair_rows


def config(**changes: Any) -> TrainingConfig:
    return make_config({"loss": "bce", "scenes_train": 40, "scenes_val": 20, "scenes_test": 0}, changes)


def table(rows: Any, *categories: str, fresh: bool = True) -> TablePairs:
    tables = list(tables_of({"train": rows}, None).values())
    return make_table_pairs(tables, config(categories=list(categories)), fresh=fresh)


def load_pairs(source: str | Path, settings: TrainingConfig) -> dict[str, CaptionPairs]:
    found = load_rows(metric_spec("beitscore"), [str(source)], settings)
    assert all(isinstance(rows, CaptionPairs) for rows in found.values())
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["caption", "correct"])  # the latter in files of the pairwise benchmark
def test_a_row_of_columns_becomes_a_correct_and_an_incorrect_caption(name: str) -> None:
    columns = {"caption": None, name: pair_rows()["caption"]}
    pairs = table(pair_rows(**columns), "count")
    assert (len(pairs), pairs.categories, pairs.counts()) == (8, ("count",), {"count": 4})
    right, wrong = pairs[4], pairs[5]
    assert right["sample"].candidate == "There are 2 red stars. A cat looks at them."
    assert wrong["sample"].candidate == "There are 3 red stars. A cat looks at them."
    assert (right["target"], wrong["target"]) == (1.0, 0.0)
    assert right["sample"].image is not None
    assert load_image(right["sample"].image).getpixel((0, 0)) == (80, 0, 90)


def test_columns_named_after_categories_hold_texts_lists_or_nothing() -> None:
    action, easy = ["A dog.", None, None, "A bird."], [["Far.", "Off."], [], None, ["Away."]]
    rows = pair_rows(incorrect=None, category=None, incorrect_action=action, incorrect_retrieved_easy=easy)
    pairs = table(rows)
    assert list(pairs.categories) == ["action", "retrieved", "repeat", "shuffle"]
    assert Counter(pairs.kinds) == {0: 2, 1: 2, 2: 4, 3: 4}
    first = pairs.kinds.index(1)
    assert {pairs.draw(first, epoch).incorrect for epoch in range(20)} == {"Far.", "Off."}
    assert "Off." in pairs.texts()
    held_out = table(rows, fresh=False)
    assert len({held_out.draw(first, epoch).incorrect for epoch in range(20)}) == 1


def test_word_level_corruptions_are_made_on_demand_and_repeatably() -> None:
    pairs = table(pair_rows(), "shuffle", "repeat")
    drawn = [pairs.draw(number, 1) for number in range(8)]
    assert drawn == [table(pair_rows(), "shuffle", "repeat").draw(number, 1) for number in range(8)]
    assert drawn != [pairs.draw(number, 2) for number in range(8)]
    for number, pair in enumerate(drawn):
        same = Counter(pair.incorrect.lower().replace(".", "").split())
        given = Counter(pair.correct.lower().replace(".", "").split())
        assert (same == given) if pairs.kinds[number] == 0 else (same > given)


def test_a_corruption_that_a_caption_does_not_allow_is_made_of_another() -> None:
    rows = pair_rows(3, caption=["Star.", "Ring.", "A cat sleeps. A dog runs."], incorrect=None, category=None)
    pairs = table(rows, "shuffle")
    assert {pairs.draw(number, 0).correct for number in range(3)} == {"A cat sleeps. A dog runs."}
    with pytest.raises(DataError, match="'shuffle' could not be made from any of 200"):
        table(pair_rows(1, caption=["Star."], incorrect=None, category=None), "shuffle").draw(0, 0)


def test_what_is_left_out_is_told() -> None:
    rows = pair_rows(2, incorrect=["there are 0 red stars.  a cat looks at them.", "Another."])
    with pytest.warns(UserWarning, match="1 wrong captions are the correct one"):
        pairs = table(rows, "count")
    assert [pairs.draw(number, 0).incorrect for number in range(len(pairs.kinds))] == ["Another."]
    with pytest.warns(UserWarning, match="no pairs of the categories action$"):
        assert table(pair_rows(), "count", "action").categories == ("count",)
    with pytest.raises(DataError, match="no pairs of the categories action; it offers count, repeat, shuffle"):
        table(pair_rows(), "action")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"caption": None}, "'train' lacks the columns caption"),
        ({"image": None}, r"lacks the columns image \(or file_name\)"),
        ({"category": None}, r"lacks the columns category \(of the column incorrect\)"),
        ({"caption": ["a", " ", "c", "d"]}, "row 1: candidate is empty"),
        ({"caption": ["a", None, "c", "d"]}, "row 1: candidate must be a string"),
        ({"incorrect": ["a", "b", "", "d"]}, "row 2: text of a negative must be a string"),
        ({"category": ["a", "b", "c", None]}, "row 3: category of a negative must be a string"),
        ({"incorrect_action": [1, 2, 3, 4]}, "row 0: text of a negative must be a string"),
        ({"n": 0}, "split 'train' is empty"),
    ],
)
def test_bad_columns_name_split_and_row(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(pair_rows(**columns))


def test_parts_are_found_and_missing_or_empty_ones_named(tmp_path: Path) -> None:
    DatasetDict({"train": pair_rows(), "val.pairs": pair_rows(2), "test": pair_rows(1)}).save_to_disk(tmp_path / "a")
    parts = load_pairs(tmp_path / "a", config(categories=["count"]))
    assert {part: len(pairs) for part, pairs in parts.items()} == {"train": 8, "val": 4, "test": 2}
    DatasetDict({"train": pair_rows()}).save_to_disk(tmp_path / "b")
    with pytest.raises(DataError, match=r"no part 'val': expected val or val\.pairs; there are train"):
        load_pairs(tmp_path / "b", config())


def test_scenes_give_every_kind_equally_often_and_other_scenes_each_epoch() -> None:
    parts = load_pairs("scenes", config())
    train = parts["train"]
    assert train.categories == (*CATEGORIES, *FAMILIES)
    assert set(train.counts().values()) == {4}

    def captions(pairs: CaptionPairs, epoch: int) -> list[str]:
        pairs.epoch = epoch
        return [pairs[item]["sample"].candidate for item in range(len(pairs))]

    first = captions(train, 0)
    assert all(right != wrong for right, wrong in zip(first[::2], first[1::2], strict=True))
    assert first == captions(load_pairs("scenes", config())["train"], 0) != captions(train, 1)
    assert first != captions(load_pairs("scenes", config(seed=1))["train"], 0)
    assert captions(parts["val"], 0) == captions(load_pairs("scenes", config(seed=1))["val"], 5)
    assert not set(first) & set(captions(parts["val"], 0))
    with pytest.raises(DataError, match="no errors of the kinds taste; known: spatial"):
        load_pairs("scenes", config(categories=["taste"]))
    foil = load_pairs("scenes", config(categories=["foil"]))["train"]
    captions_of = [{foil[item + wrong]["sample"].candidate for wrong in (0, 1)} for item in range(0, len(foil), 2)]
    assert {len(pair) for pair in captions_of} == {2}
    with pytest.warns(UserWarning, match="the scenes make every kind of error equally often"):
        load_pairs("scenes", config(sampling="pool"))


def test_sorting_by_length_moves_rows_whole() -> None:
    rows = pair_rows(3, caption=["A long caption of a star.", "Star.", "A star."], incorrect=["x", "y", "z"])
    ordered = table(rows, "count").sorted_by_length()
    assert [row["sample"].candidate for row in ordered] == [
        "Star.",
        "y",
        "A star.",
        "z",
        "A long caption of a star.",
        "x",
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60), st.text(max_size=3))
def test_kinds_are_drawn_equally_often_whatever_the_data_hold(kinds: list[int], seed: str) -> None:
    drawn = balanced_draw(kinds, seed)
    assert len(drawn) == len(kinds)
    counts = Counter(kinds[place] for place in drawn)
    assert not kinds or max(counts.values()) - min(counts.values()) <= 1
    again = Counter(drawn)
    for kind in set(kinds):  # no pair a second time before all of its kind came once
        uses = [again[place] for place, other in enumerate(kinds) if other == kind]
        assert max(uses) - min(uses) <= 1


@pytest.mark.slow
def test_the_pool_has_kinds_as_often_as_the_paper_counts_them() -> None:
    """Training pairs of its table 7 in thousands, each caption with one pair of retrieved and one of shuffled ones."""
    table = {"foil": 366, "action": 119, "noun_attribute": 119, "spatial": 119, "actant_swap": 118, "count": 121}
    rows = sum(table.values())
    kinds = [name for name, count in {**table, "shuffle": rows, "retrieved": rows}.items() for _ in range(count)]
    numbers = [sorted(set(kinds)).index(kind) for kind in kinds]
    orders = {name: sampling_order(numbers, name) for name in ("pool", "balanced")}
    assert sorted(orders["pool"]) == list(range(2 * len(kinds)))  # each pair once, with both captions
    shares = {name: Counter(kinds[row // 2] for row in order[::2]).most_common() for name, order in orders.items()}
    pool = {kind: count / len(kinds) for kind, count in shares["pool"]}
    assert (round(pool["foil"], 3), round(pool["retrieved"], 3)) == (0.127, 0.333)
    assert {round(count / len(kinds), 3) for _, count in shares["balanced"]} == {0.125}


def sampling_order(kinds: list[int], sampling: str) -> list[int]:
    """The order of an epoch of pairs of these kinds, as a run takes it."""
    names = [f"kind {kind}" for kind in kinds]
    rows = Dataset.from_dict({"file_name": ["a.png"], "caption": ["A."]}).select([0] * len(kinds))
    rows = rows.add_column("incorrect", ["B."] * len(kinds)).add_column("category", names)
    pairs = table(rows, *sorted(set(names)))
    return list(make_order(pairs, config(sampling=sampling), TrainingArguments(use_cpu=True)))


def test_pairs_of_several_sets_are_taken_together_whatever_columns_they_have(tmp_path: Path) -> None:
    one, other = pair_rows(2), pair_rows(3, incorrect=None, category=None, incorrect_action=[["A."], [], ["B.", "C."]])
    for name, rows in (("one", one), ("other", other)):
        DatasetDict({"train": rows, "val": rows}).save_to_disk(tmp_path / name)
    sources = [str(tmp_path / name) for name in ("one", "other")]
    pairs = load_rows(metric_spec("beitscore"), sources, config(categories=["count", "action"]))["train"]
    assert isinstance(pairs, TablePairs)
    assert pairs.counts() == {"count": 2, "action": 2}
    assert [pairs[2 * k + 1]["sample"].candidate for k in (0, 2)] == [
        "There are 1 red stars. A cat looks at them.",
        "A.",
    ]
    assert load_image(pairs[6]["sample"].image).getpixel((0, 0)) == (80, 0, 90)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="pairs of the scenes are drawn anew each epoch"):
        load_rows(metric_spec("beitscore"), ["scenes", sources[0]], config())


def test_epochs_differ_and_repeat_and_both_captions_of_a_pair_are_in_one_batch() -> None:
    kinds = [0] * 9 + [1]
    orders = [EpochOrder(None, 50, 4, seed=1)]
    orders += [EpochOrder(list(range(10)), 10, 2, seed=0, draw=lambda seed: balanced_draw(kinds, seed), step=2)]
    for order, count in zip(orders, (50, 20), strict=True):
        first = list(order)
        assert len(first) == len(order) == count
        order.epoch = 1
        assert first != list(order)
        order.epoch = 0
        assert first == list(order)
    assert all(right + 1 == wrong and right % 2 == 0 for right, wrong in zip(first[::2], first[1::2], strict=True))
    assert first.count(18) == 5
    assert list(EpochOrder(None, 50, 4, seed=2)) != list(orders[0])
