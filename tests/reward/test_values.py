"""Columns and cells as other libraries give them, at every place that takes captions, images or references."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from integrations.openrlhf.queries import read_label
from integrations.verl import compute_score
from reward.decoding.selection import rate_candidates, rerank
from reward.errors import CapRewardError, InvalidSampleError
from reward.metrics.words import SPECS
from reward.rewards.completions import read_rows
from reward.rewards.metric_reward import MetricReward
from reward.rewards.text_rewards import LengthReward
from reward.samples import CaptionSample, one_image
from reward.scoring import BatchScorer, rerank_dataset, score_dataset
from reward.values import listed
from tests.reward.scoring.small_data import read_rows as rows_of

CAPTIONS = ["A red star.", "A star."]
REFERENCES = [["A red star.", "A red star."], ["A star on grass."]]
SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "column of datasets": lambda values: Dataset.from_dict({"it": values})["it"],
    "series": lambda values: pd.Series(values, index=["read", "columns"][: len(values)]),
    "array of objects": lambda values: np.array([*values, None], dtype=object)[:-1],
    "array of Arrow": pa.array,
    "chunked": lambda values: pa.chunked_array([values[:1], values[1:]]),
}
SPEC = next(spec for spec in SPECS if spec.name == "length")
NO_LISTS = [("A red star.", "one text, 'A red star.'"), ({"en": "A star."}, "a dict with the keys en"), (3, "got int")]
NO_LISTS += [(pd.DataFrame({"en": ["A star."]}), "got DataFrame"), ({"A star."}, "got set")]


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_column_may_be_of_any_library(kind: str) -> None:
    make = SEQUENCES[kind]
    relative = LengthReward(1, 1, margin=2, relative=True)
    expected = relative([None] * 2, CAPTIONS, references=REFERENCES)
    assert expected == [1.0, 0.75]
    assert relative(make(["Go."] * 2), make(CAPTIONS), refs=make(REFERENCES)) == expected
    rows = read_rows([None] * 2, make(CAPTIONS), {"image": make(["a.png", "b.png"]), "own": make(REFERENCES)}, SPEC)
    assert [row.image for row in rows] == ["a.png", "b.png"]
    rows = read_rows([None] * 2, CAPTIONS, {"own": make(REFERENCES)}, SPEC, references_column="own")
    assert [list(row.references) for row in rows] == REFERENCES
    assert BatchScorer("length", added_only=True)({"caption": make(CAPTIONS)})["length"][:] == pytest.approx([3, 2])
    assert rerank(make(["A star.", "A red star."]), reward="length") == [1, 0]
    rated = rate_candidates(make([["A red star."], ["A star."]]), make([None] * 2), make(REFERENCES), relative)
    assert rated == [[1.0], [0.75]]
    assert one_image(make(["a.png", None])) == "a.png"
    assert CaptionSample("A star.", references=make(REFERENCES[0])).references == tuple(REFERENCES[0])


@pytest.mark.parametrize(("given", "message"), NO_LISTS)
def test_what_is_no_list_is_refused_by_name(given: Any, message: str) -> None:
    reward = MetricReward("length")
    for name in ("completions", "prompts", "references", "image"):
        columns: dict[str, Any] = {"prompts": [None] * 2, "completions": CAPTIONS, name: given}
        with pytest.raises(InvalidSampleError, match=rf"{name}'? must be a list, got.*{message.removeprefix('got ')}"):
            reward(**columns)
    with pytest.raises(InvalidSampleError, match=f"candidates must be a list, .*{message}"):
        rerank(given, reward=reward)
    with pytest.raises(InvalidSampleError, match=f"candidates must be a list, .*{message}"):
        rate_candidates([given], [None], [None], reward)
    assert reward([None] * 2, CAPTIONS, image_size=given, trainer_state=given) == [3.0, 2.0]  # not ours


def of_file(folder: Path, suffix: str, references: Any) -> str | None:
    """The reason why a row of a file has no score."""
    data, out = folder / f"data{suffix}", folder / "out.jsonl"
    row = {"caption": "A star.", "refs": references}
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), data)
    elif suffix == ".csv":
        data.write_text("".join(csv_line(cells) for cells in (list(row), [row["caption"], str(references)])))
    else:
        data.write_text(json.dumps(row) + "\n")
    score_dataset(data, "length", out, overwrite=True)
    error: str | None = rows_of(out)[0]["error"]
    return error


def csv_line(cells: list[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("references", [{"text": ["A star."]}, {"en": "A star.", "de": "Ein Stern."}])
def test_a_dict_is_no_list_of_references(tmp_path: Path, references: dict[str, Any]) -> None:
    """Its keys would be scored; which of its values is meant, nobody can tell."""
    message = "references must be a list, got a dict with the keys " + ", ".join(references)
    reward = LengthReward(1, 1, relative=True, on_error="raise")
    places: list[Callable[[], Any]] = [
        lambda: CaptionSample("A star.", references=references),
        lambda: reward([None], ["A star."], references=[references]),
        lambda: rerank(["A star."], references=references, reward=reward),
        lambda: read_label({"references": references}),
        lambda: asyncio.run(compute_score("", "A star.", references, metric="length", on_error="raise")),
    ]
    for place in places:
        with pytest.raises(InvalidSampleError, match=message):
            place()
    for suffix in (".jsonl", ".parquet", ".csv"):
        assert message in str(of_file(tmp_path, suffix, references))
    batch = {"caption": ["A star."], "references": [references]}
    assert message in BatchScorer("length")(batch)["error"][0]


@pytest.mark.parametrize("missing", [math.nan, np.float32("nan"), pd.NA, pd.NaT, None])
def test_what_tables_write_for_a_missing_value_is_none(tmp_path: Path, missing: Any) -> None:
    assert MetricReward("length")([None] * 2, CAPTIONS, refs=[missing, ["A star.", missing]]) == [3.0, 2.0]
    assert one_image(missing) is None
    assert one_image([missing, "a.png"]) == "a.png"
    assert CaptionSample("A star.", references=missing).references == ()
    assert asyncio.run(compute_score("", "A star.", missing, {"image": missing}, metric="length"))["score"] == 2
    batch = {"caption": CAPTIONS, "references": [missing, ["A star."]]}
    assert BatchScorer("length")(batch)["error"] == [None, None]
    if isinstance(missing, float):
        assert of_file(tmp_path, ".jsonl", float(missing)) is None
        assert read_label({"references": missing})[:2] == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '["A red star.", "It\'s a \\"star\\"."]',
        str(["A red star.", 'It\'s a "star".']),
        str(("A red star.", 'It\'s a "star".')),
        str([np.str_("A red star."), np.str_('It\'s a "star".')]),
        str(np.array(["A red star.", 'It\'s a "star".'], dtype=object)),
        str(np.array(["A red star.", 'It\'s a "star".'])),
    ],
)
def test_a_list_that_a_table_holds_as_text_is_that_list(tmp_path: Path, text: str) -> None:
    expected = ["A red star.", 'It\'s a "star".']
    assert listed(text) == expected
    data, out = tmp_path / "data.csv", tmp_path / "out.jsonl"
    data.write_text(csv_line(["candidates", "refs", "image"]) + csv_line([text, text, "['a.png']"]))
    rerank_dataset(data, "length", out)
    assert rows_of(out)[0]["rewards"] == [3.0, 3.0]
    assert list(read_rows([None], ["A star."], {"refs": [text]}, SPEC)[0].references) == expected
    assert one_image("['a.png']") == "a.png"
    score_dataset(data, "length", tmp_path / "scores.jsonl", candidate_column="candidates")
    assert "candidate must be a string, got list" in rows_of(tmp_path / "scores.jsonl")[0]["error"]


@pytest.mark.parametrize(
    "text", ["[A red star] on grass", "(see left)", "[inaudible]", "{a}", "(1)", "[1] A star", "('A star.')"]
)
def test_other_texts_stay(text: str) -> None:
    assert listed(text) == text


def test_a_broken_list_is_no_text() -> None:
    with pytest.raises(InvalidSampleError, match="looks like a list"):
        listed("['A red star.'; 'A star.']")
    with pytest.raises(CapRewardError, match="looks like a list"):
        MetricReward("length", on_error="raise")([None], ["A star."], refs=["['A star' 'A']x']"])
