"""Strategies by name: what each chooses, and that a wrong option is refused before any work."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from reward.decoding.strategies import CHOOSING, check_strategy, parse_options
from reward.errors import ConfigError

CAPTIONS = ["two dogs", "a red star", "a red star left", "a star"]
REWARDS = [0.9, 0.5, None, 0.1]


def choices(name: str, **options: Any) -> Counter[int]:
    choosing, rng = check_strategy(name, options, behind_server=True), np.random.default_rng(0)
    return Counter(choosing.choose(CAPTIONS, REWARDS, rng, **options) for _ in range(300))


def test_what_each_chooses() -> None:
    assert choices("best-of-n") == choices("best-of-poisson") == choices("soft-best-of-n", temperature=0) == {0: 300}
    assert 80 < choices("soft-best-of-n", temperature=1e9)[3] < 120  # one of the three with a reward
    assert choices("mbr") == {1: 300}
    assert choices("mbr", keep=1) == {0: 300}
    rng = np.random.default_rng(0)
    counts = [CHOOSING["best-of-poisson"].count(8, rng) for _ in range(1000)]
    assert (min(counts) >= 1, np.mean(counts)) == (True, pytest.approx(8, abs=0.3))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("beam", {}, r"no strategy is named 'beam' .*: best-of-n, soft-best-of-n, best-of-poisson, mbr"),
        ("soft-best-of-n", {}, "needs --option temperature=VALUE"),
        ("soft-best-of-n", {"temperature": "hot"}, r"cannot work with \{'temperature': 'hot'\}"),
        ("soft-best-of-n", {"temperature": -1}, "cannot work with"),
        ("mbr", {"utility": "no metric"}, "no metric is named 'no metric'"),
        ("mbr", {"utility": "vela"}, "cannot work with"),
        ("mbr", {"k": 3}, "has no such option; it has utility, keep, aggregate"),
    ],
)
def test_what_cannot_be_chosen_by(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_strategy(name, options, behind_server=True)


@pytest.mark.parametrize("texts", [["temperature"], ["=1"], ["a=1", "a=2"]])
def test_options_are_names_with_values(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="must be NAME=VALUE, with each name once"):
        parse_options(texts)
