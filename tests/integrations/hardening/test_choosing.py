"""Which captions are rated, and what becomes of ratings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from integrations.hardening.choosing import Written, choose_captions, novelty
from integrations.hardening.rating import rate_by_metric, rated_rows, read_rows, write_ratings, write_rows
from reward.errors import ConfigError, DataError
from reward.registry import metric_spec

VELA = metric_spec("vela")
HONEST = [
    Written(f"{n}.png", f"Number {n} shows a {word} by a lake.", 0.5 + n / 99, 0.5 + n / 99)
    for n, word in enumerate("abcdefgh")
]
TRICK = Written("0.png", "star star star, star star star, star star star, star", 0.9, 0.1)


@pytest.mark.parametrize("rule", ["disagreement", "novelty"])
def test_what_the_metric_likes_and_may_be_wrong_about_comes_first(rule: str) -> None:
    known = [each.caption for each in HONEST]
    chosen, left_out = choose_captions([*HONEST, TRICK], 3, rule=rule, known=known)
    assert chosen[0].place == len(HONEST)
    assert chosen[0].reason.startswith("reward 0.900, ")
    assert (len(chosen), left_out["ranked lower"]) == (3, 6)
    assert novelty([TRICK.caption], known)[0] > novelty(known, known).max()


def test_the_control_has_the_same_size_and_limits() -> None:
    doubled = [*HONEST, *(each._replace(caption=each.caption.upper()) for each in HONEST), TRICK]
    doubled += [
        Written("0.png", "...", 0.5, 0.5),
        Written("1.png", "A star.", None, 0.5),
        Written("1.png", "A.", math.nan),
    ]
    for rule, lost in (("disagreement", 2), ("random", 2)):
        chosen, left_out = choose_captions(doubled, 99, rule=rule, per_image=1, rated={"7.png": [HONEST[7].caption]})
        assert len({doubled[each.place].image for each in chosen}) == len(chosen) == 7
        assert left_out["nearly the same as another"] + left_out["beyond the most of an image"] == 10
        assert (left_out["without a word"], left_out.total() - 11) == (1, lost)
    places = [[each.place for each in choose_captions(HONEST, 3, rule="random", seed=seed)[0]] for seed in (0, 0, 1)]
    assert places[0] == places[1] != places[2]


def test_nothing_to_choose_says_why() -> None:
    with pytest.raises(DataError, match="no caption of 8 can be chosen: 8 nearly the same as another"):
        choose_captions(HONEST, 2, rule="random", rated={each.image: [each.caption] for each in HONEST})
    with pytest.raises(DataError, match="8 without a second metric's score"):
        choose_captions([each._replace(second=None) for each in HONEST], 2)
    with pytest.raises(ConfigError, match="must be one of disagreement, novelty, random, got 'best'"):
        choose_captions(HONEST, 2, rule="best")


def row(caption: str, **ratings: Any) -> dict[str, Any]:
    return {"image": f"{caption}.png", "caption": caption, **ratings}


def test_ratings_of_people_are_checked_and_become_a_data_set(tmp_path: Path) -> None:
    asked = [row(f"c{n}") for n in range(30)]
    rows = [row(f"c{n}", descriptiveness=n % 5 + 1, relevance=4.5, fluency=None if n == 29 else 5) for n in range(30)]
    rated, unrated = rated_rows(rows, asked, VELA, "rated.jsonl")
    assert (len(rated), unrated) == (29, 1)
    for faulty, message in (
        (row("other"), r"rated.jsonl, row 1: its image and caption are none of those"),
        (row("c0", fluency=6), r"row 1: fluency must be a number from 1 to 5, or null, got 6"),
        (row("c0", fluency="4"), "got '4'"),
        (row("c0", fluency=4), "no row has a rating of descriptiveness, relevance, fluency; fill in"),
    ):
        with pytest.raises(DataError, match=message):
            rated_rows([faulty], asked, VELA, "rated.jsonl")
    parts = write_ratings(tmp_path / "ratings", {tmp_path / "round_1": rated}, VELA)
    train, val = (read_rows(tmp_path / "ratings" / f"{part}.jsonl") for part in ("train", "val"))
    assert (parts["train"], parts["val"]) == (len(train), len(val))
    assert {each["image"] for each in train}.isdisjoint(each["image"] for each in val)
    first = next(each for each in [*train, *val] if each["cand"] == "c1")
    assert (first["image"], first["descriptiveness"], first["fluency"]) == ("../round_1/c1.png", 0.25, 1.0)


def test_a_metric_as_rater_is_mapped_to_five_points(tmp_path: Path) -> None:
    write_rows(tmp_path / "to_rate.jsonl", [row("a red star", references=["a red star"], relevance=None)])
    [rated] = rate_by_metric(tmp_path / "to_rate.jsonl", VELA, "unigram")
    assert [rated[aspect] for aspect in VELA.aspects] == [5.0, 5.0, 5.0]
    assert "rater_reward" not in rated
    with pytest.raises(ConfigError, match=r"the scores of length lie in \[0, inf\], so they are no ratings"):
        rate_by_metric(tmp_path / "to_rate.jsonl", VELA, "length")
