"""Two scorers on the same rows: figures, worst rows, the command and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.matching import match_rows
from reward.metric_source import MetricSource
from reward.samples import ScoreTable
from tests.reward.cli.conftest import Run, run
from tests.toy_scorer import SPEC, ToyScorer

__all__ = ["run"]  # the fixture

CAPTIONS = ["red star", "a red star", "a star on grass", "star", "it will fail"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"candidate": text, "image": None, "words": len(text.split()) + (0.5 if row == 2 else 0), "colour": "x"}
        for row, text in enumerate(CAPTIONS)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


class Blind(ToyScorer):
    """The toy metric without images, with its colours off by `shift`."""

    spec = replace(SPEC, needs_image=False)

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = shift

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        table = super().score(samples, **options)
        return ScoreTable(table.scores + np.array([self.shift, 0]), table.aspects, table.errors, table.truncated)


def test_scorers_aspect_by_aspect(data: Path) -> None:
    found = match_rows(data, Blind(), Blind(0.25), worst=2)
    colour = found.aspects["colour"]
    assert set(found.aspects) == {"colour", "brevity", "reward"}
    assert (colour.largest, colour.mean, colour.rows) == (pytest.approx(0.25), pytest.approx(0.25), 4)
    assert (colour.correlation, colour.ranks, colour.tau) == (pytest.approx(1), pytest.approx(1), pytest.approx(1))
    assert [each["difference"] for each in colour.worst] == pytest.approx([0.25, 0.25])
    assert found.aspects["brevity"].largest == 0
    assert found.aspects["brevity"].worst == []
    assert (found.rows, found.neither, found.only_first, found.only_second) == (5, 1, 0, 0)
    assert "fail" in found.problem
    assert found.exceeds(0.2)
    assert not found.exceeds(0.3)


def test_a_row_that_one_side_lacks_exceeds_every_tolerance(data: Path) -> None:
    found = match_rows(data, "length", Blind())
    assert list(found.aspects) == ["reward"]
    assert found.only_first == 1
    assert found.exceeds(1e9)


def test_a_metric_against_a_column(data: Path, run: Run) -> None:
    found = match_rows(data, "length", MetricSource("words", is_column=True))
    assert found.aspects["reward"].worst == [{"row": 3, "first": 4.0, "second": 4.5, "difference": 0.5}]
    out, _ = run("match", data, "length", "column:words", "--tolerance", 0.5)
    assert "column:words" in out
    out, err = run("match", data, "length", "column:words", "--tolerance", 0.4, "--json", code=3)
    assert json.loads(out)["within"] is False
    assert "the largest difference is 0.5, above the tolerance of 0.4" in err


@pytest.mark.parametrize(("column", "problem"), [("colour", "holds what is no number"), ("gone", "the columns are")])
def test_columns_that_cannot_be(data: Path, column: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        match_rows(data, "length", f"column:{column}")


def test_too_few_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"candidate": "a star"}\n')
    with pytest.raises(DataError, match="1 rows have a score of both"):
        match_rows(tmp_path / "rows.jsonl", "length", "length")
