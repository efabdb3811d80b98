"""Pairs of captions from columns, from corruptions on demand and from scenes become balanced training rows."""

from collections import Counter

import pytest
from datasets import DatasetDict
from transformers import TrainingArguments

from reward.data.images import load_image
from reward.errors import DataError
from reward.registry import metric_spec
from reward.scenes.error_pairs import CATEGORIES
from reward.training.caption_pairs import FAMILIES, make_table_pairs
from reward.training.config import make_config
from reward.training.rows import load_rows, make_order
from reward.training.splits import as_splits
from tests.reward.training.small_runs import pair_rows


def config(**changes):
    return make_config({"loss": "bce", "scenes_train": 40, "scenes_val": 20, "scenes_test": 0}, changes)


def table(rows, *categories, fresh=True):
    tables = list(as_splits({"train": rows}, None).values())
    return make_table_pairs(tables, config(categories=list(categories)), fresh=fresh)


def load_pairs(*sources, **settings):
    return load_rows(metric_spec("beitscore"), [str(source) for source in sources], config(**settings))


def captions(pairs):
    return [pairs[item]["sample"].candidate for item in range(len(pairs))]


@pytest.mark.parametrize("name", ["caption", "correct"])  # the latter in files of the pairwise benchmark
def test_a_row_of_columns_becomes_a_correct_and_an_incorrect_caption(name):
    pairs = table(pair_rows(**{"caption": None, name: pair_rows()["caption"]}), "count")
    assert (len(pairs), pairs.categories, pairs.counts()) == (8, ("count",), {"count": 4})
    right, wrong = pairs[4], pairs[5]
    assert right["sample"].candidate == "There are 2 red stars. A cat looks at them."
    assert wrong["sample"].candidate == "There are 3 red stars. A cat looks at them."
    assert (right["target"], wrong["target"]) == (1.0, 0.0)
    assert load_image(right["sample"].image).getpixel((0, 0)) == (80, 0, 90)


def test_columns_named_after_categories_hold_texts_lists_or_nothing():
    action, easy = ["A dog.", None, None, "A bird."], [["Far.", "Off."], [], None, ["Away."]]
    rows = pair_rows(incorrect=None, category=None, incorrect_action=action, incorrect_retrieved_easy=easy)
    pairs = table(rows)
    assert list(pairs.categories) == ["action", "retrieved", "repeat", "shuffle"]
    assert pairs.counts() == {"action": 2, "retrieved": 2, "repeat": 4, "shuffle": 4}
    first = pairs.kinds.index(1)
    assert {pairs.draw(first, epoch).incorrect for epoch in range(20)} == {"Far.", "Off."}
    assert "Off." in pairs.texts()
    held_out = table(rows, fresh=False)
    assert len({held_out.draw(first, epoch).incorrect for epoch in range(20)}) == 1


def as_message(texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


BETTER, WORSE = ["A red star.", "Two cats.", "A dog."], ["A star.", "Cats.", "An animal."]
NO_PAIRS = dict.fromkeys(("caption", "incorrect", "category"))
BATTLES = {"source1": ["a"] * 4, "source2": ["b"] * 4, "winner": ["a", "b", "a", "equal"]}
BATTLES |= {"caption1": [BETTER[0], WORSE[1], BETTER[2], "One."], "caption2": [WORSE[0], BETTER[1], WORSE[2], "Two."]}


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"chosen": BETTER, "rejected": WORSE}, id="texts"),
        pytest.param({"chosen": as_message(BETTER), "rejected": as_message(WORSE)}, id="messages"),
        pytest.param(BATTLES, id="battles, one of them a tie"),
    ],
)
def test_preferences_are_pairs_of_one_kind(columns):
    pairs = table(pair_rows(len(next(iter(columns.values()))), **NO_PAIRS, **columns))
    assert (pairs.counts(), captions(pairs)[::2], captions(pairs)[1::2]) == ({"preference": 3}, BETTER, WORSE)


def test_a_corruption_that_a_caption_does_not_allow_is_made_of_another():
    rows = pair_rows(3, caption=["Star.", "Ring.", "A cat sleeps. A dog runs."], incorrect=None, category=None)
    pairs = table(rows, "shuffle")
    drawn = [pairs.draw(number, 0) for number in range(3)]
    assert {pair.correct for pair in drawn} == {"A cat sleeps. A dog runs."}
    assert drawn == [table(rows, "shuffle").draw(number, 0) for number in range(3)]
    with pytest.raises(DataError, match="'shuffle' could not be made from any of 200"):
        table(rows.select([0, 1]), "shuffle").draw(0, 0)


def test_what_is_left_out_is_told():
    rows = pair_rows(2, incorrect=["there are 0 red stars.  a cat looks at them.", "Another."])
    with pytest.warns(UserWarning, match="1 wrong captions are the correct one"):
        assert captions(table(rows, "count"))[1:] == ["Another."]
    with pytest.warns(UserWarning, match="no pairs of the categories action$"):
        assert table(pair_rows(), "count", "action").categories == ("count",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"caption": None}, "'train' lacks the columns caption"),
        ({"category": None}, r"lacks the columns category \(of the column incorrect\)"),
        ({"caption": ["a", " ", "c", "d"]}, "row 1: candidate is empty"),
        ({"category": ["a", "b", "c", None]}, "row 3: category of a negative must be a string"),
        ({"incorrect_action": [1, 2, 3, 4]}, "row 0: text of a negative must be a string"),
        ({**NO_PAIRS, "chosen": ["a"] * 4, "rejected": [1] * 4}, "row 0: a completion must be a string or a list"),
        ({**NO_PAIRS, **BATTLES, "winner": ["c"] * 4}, "row 0: winner must be 'a', 'b' or 'equal', got 'c'"),
        ({**NO_PAIRS, **BATTLES, "winner": ["equal"] * 4}, "no pairs of the categories preference; it offers repeat"),
        ({"category": ["noun"] * 4}, "no pairs of the categories count; it offers noun, repeat, shuffle"),
    ],
)
def test_bad_columns_name_split_and_row(columns, message):
    with pytest.raises(DataError, match=message):
        table(pair_rows(**columns), *(["count"] if "offers noun" in message else []))


def test_pairs_of_several_sets_are_taken_together_whatever_columns_they_have(tmp_path):
    one, other = pair_rows(2), pair_rows(3, incorrect=None, category=None, incorrect_action=[["A."], [], ["B.", "C."]])
    DatasetDict({"train": one, "val.pairs": one, "test": one}).save_to_disk(tmp_path / "one")
    DatasetDict({"train": other}).save_to_disk(tmp_path / "other")
    parts = load_pairs(tmp_path / "one", tmp_path / "other", categories=["count", "action"])
    assert {part: len(pairs) for part, pairs in parts.items()} == {"train": 8, "val": 4, "test": 4}
    pairs = parts["train"]
    assert (pairs.counts(), captions(pairs)[5]) == ({"count": 2, "action": 2}, "A.")
    assert load_image(pairs[6]["sample"].image).getpixel((0, 0)) == (80, 0, 90)
    with pytest.raises(DataError, match="pairs of the scenes are drawn anew each epoch"):
        load_pairs("scenes", tmp_path / "one")
    with pytest.raises(DataError, match=r"no part 'val': expected val or val\.pairs; there are train"):
        load_pairs(tmp_path / "other")


def test_scenes_give_every_kind_equally_often_and_other_scenes_each_epoch():
    parts, other_seed = load_pairs("scenes"), load_pairs("scenes", seed=1)
    train, held_out = parts["train"], parts["val"]
    assert train.counts() == dict.fromkeys((*CATEGORIES, *FAMILIES), 4)
    first = captions(train)
    assert all(right != wrong for right, wrong in zip(first[::2], first[1::2], strict=True))
    assert first == captions(load_pairs("scenes")["train"]) != captions(other_seed["train"])
    assert not set(first) & set(captions(held_out))
    train.epoch = other_seed["val"].epoch = 1
    assert captions(train) != first
    assert captions(held_out) == captions(other_seed["val"])


def test_scenes_make_foils():
    right, wrong = captions(load_pairs("scenes", categories=["foil"], scenes_train=4)["train"])[:2]
    assert len(set(right.split()) - set(wrong.split())) in (1, 2, 3)


def test_of_the_pool_each_pair_comes_once_and_of_balanced_kinds_all_as_often():
    kinds = ["foil"] * 6 + ["action"] * 2 + ["count"]
    pairs, place = table(pair_rows(9, category=kinds), "foil", "action", "count"), TrainingArguments(use_cpu=True)
    pool, balanced = (list(make_order(pairs, config(sampling=name), place)) for name in ("pool", "balanced"))
    assert sorted(pool) == list(range(18))  # with both captions
    assert Counter(pairs.kinds[row // 2] for row in balanced) == dict.fromkeys(range(3), 6)
