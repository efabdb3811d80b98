"""Resuming: what an unfinished run goes on with, and what it refuses; kills are in `tests/test_part_engine.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest

from reward.errors import OutputError, WeightsError
from reward.metrics.base import MetricSpec
from reward.score_table import ScoreTable
from reward.scoring import score_dataset
from reward.scoring.parts import rows_of
from reward.scoring.runs import ScoringInterrupted
from tests.reward.scoring.small_data import make_data, save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow


class Stop(PictureScorer):
    """Raises `error` at the n-th call."""

    def __init__(self, calls: int, error: BaseException) -> None:
        super().__init__()
        self.calls, self.error = calls, error

    def score(self, samples: Any, **options: Any) -> Any:
        self.calls -= 1
        if self.calls < 0:
            raise self.error
        return super().score(samples, **options)


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder", "jsonl"])
def test_other_inputs_go_on_at_the_right_row(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.scoring.arrow_sources.TABLE_ROWS", 3)
    captions = [f"c{number}" for number in range(20)]
    data, table = tmp_path / f"data.{kind}", datasets.Dataset.from_dict({"id": list(range(20)), "caption": captions})
    if kind == "csv":
        table.to_csv(data)
    elif kind == "parquet":
        pq.write_table(table.data.table, data, row_group_size=4)
    elif kind == "jsonl":  # whose captions are made of each row
        write_lines(data, [{"id": n, "messages": [{"role": "assistant", "content": f"c{n}"}]} for n in range(20)])
    else:
        table.save_to_disk(str(data))
    output, stopping, going_on = tmp_path / "out.jsonl", Stop(2, RuntimeError()), PictureScorer()
    stopping.spec = going_on.spec = replace(PictureScorer.spec, needs_image=False)
    monkeypatch.setattr("tests.toys.picture_scorer.load_image", lambda image: 0.0)
    with pytest.raises(RuntimeError):
        score_dataset(data, stopping, output, part_rows=3)
    assert score_dataset(data, going_on, output, part_rows=5).resumed_rows == 6
    assert [sample.candidate for sample in going_on.samples] == captions[6:]
    written = [(int(row["id"]), row["caption"], row["error"]) for row in read_lines(output)]
    assert written == [(number, caption, None) for number, caption in enumerate(captions)]


def test_finished_output_is_not_scored_again(tmp_path: Path) -> None:
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    first = score_dataset(data, PictureScorer(), output)
    scorer = PictureScorer()
    again = score_dataset(data, scorer, output)
    assert (again.already_done, scorer.samples) == (True, [])
    assert (again.rows, again.errors, again.distributions) == (first.rows, first.errors, first.distributions)
    before = output.read_bytes()
    data.write_text(data.read_text().replace("c1", "d1"))
    for options in ({"weights": {"words": 1}}, {}):
        with pytest.raises(OutputError, match="exists already and is not of this run"):
            score_dataset(data, scorer, output, **options)
    assert (output.read_bytes(), scorer.samples) == (before, [])
    assert not score_dataset(data, scorer, output, overwrite=True).already_done
    assert b"d1" in output.read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [("out.jsonl", "exists already"), ("out.jsonl.partial", "is there, but is no folder of a run")],
)
def test_a_file_of_somebody_else_is_not_replaced(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious\n")
    with pytest.raises(OutputError, match=message):
        score_dataset(make_data(tmp_path, 3), PictureScorer(), tmp_path / "out.jsonl")
    assert (tmp_path / name).read_text() == "precious\n"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weights": {"words": 1}}, "weights"),
        ({"candidate_column": "n"}, "columns"),
        ({"image_root": "copy"}, "image_root"),
        ({"prefix": "p_"}, "prefix"),
        ({"scorer": "length"}, "metric"),
        ({"scorer": ["length", PictureScorer()]}, "metric"),
    ],
)
def test_unfinished_run_of_other_settings_is_not_continued(
    change: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(save_greys(tmp_path / "copy").parent)
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError):
        score_dataset(data, Stop(2, RuntimeError()), output, part_rows=3)
    saved = sorted((tmp_path / "out.jsonl.partial").iterdir())
    scorer = change.pop("scorer", PictureScorer())
    with pytest.raises(OutputError, match=f"differs from this one: .*{named} was .*Start afresh with --overwrite"):
        score_dataset(data, scorer, output, **change)
    assert sorted((tmp_path / "out.jsonl.partial").iterdir()) == saved
    assert score_dataset(data, scorer, output, **change, overwrite=True).resumed_rows == 0


def test_an_edited_row_costs_its_part_alone(tmp_path: Path) -> None:
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError):
        score_dataset(data, Stop(2, RuntimeError()), output, part_rows=3)
    data.write_text(data.read_text().replace('"c1"', '"d1"'))
    assert score_dataset(data, PictureScorer(), output).resumed_rows == 3
    assert read_lines(output)[1]["candidate"] == "d1"
    score_dataset(data, PictureScorer(), tmp_path / "whole.jsonl")
    assert output.read_text() == (tmp_path / "whole.jsonl").read_text()


def test_an_interrupt_says_what_is_saved_and_moved_data_continue(tmp_path: Path) -> None:
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    said = r"stopped; 6 rows are saved in .*out\.jsonl\.partial; run the same again"
    with pytest.raises(ScoringInterrupted, match=said):
        score_dataset(data, Stop(2, KeyboardInterrupt()), output, part_rows=3)
    with pytest.raises(ScoringInterrupted, match="nothing is saved yet"):
        score_dataset(data, Stop(0, KeyboardInterrupt()), tmp_path / "other.jsonl")
    assert score_dataset(data.rename(tmp_path / "moved.jsonl"), PictureScorer(), output).resumed_rows == 6


def test_parts_are_small_where_a_judge_is_asked_and_its_answers_are_kept(tmp_path: Path) -> None:
    """A judge behind a server keeps answers; here it only says where."""
    places: list[Any] = []

    class Keeping:
        cache: Any = None

        def close(self) -> None:
            places.append(self.cache)

    data, scorer = make_data(tmp_path, 70), PictureScorer()
    scorer.spec, scorer.judges = replace(scorer.spec, sources="judge"), [Keeping()]  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", stopped)
        with pytest.raises(RuntimeError):
            score_dataset(data, scorer, tmp_path / "out.jsonl")
    parts = (tmp_path / "out.jsonl.partial").glob("[0-9]*.gz")
    assert sorted(len(rows_of(part.name)) for part in parts) == [6, 64]
    assert places == [tmp_path / "out.jsonl.partial" / "answers.sqlite", None]


def stopped(*arguments: Any) -> None:
    raise RuntimeError("stopped")


class Retrained(PictureScorer):
    """A checkpoint with one aspect of its own."""

    spec = MetricSpec("picture", "tests.toys.picture_scorer:PictureScorer", ("overall",), has_embedded=True)

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        table = PictureScorer().score(samples)
        return ScoreTable(table.scores[:, :1], self.spec.aspects, table.errors, table.truncated)


def test_checkpoint_with_other_aspects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.registry.installed_specs", lambda: {"picture": PictureScorer.spec})
    monkeypatch.setattr("reward.registry.load_scorer", lambda name, source, **options: Retrained())
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    with pytest.raises(WeightsError, match="unknown aspect 'words'; known: overall"):
        score_dataset(data, "picture", output, source="me/retrained", weights={"words": 1})
    assert not list(tmp_path.glob("out*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", stopped)
        with pytest.raises(RuntimeError):
            score_dataset(data, "picture", output, source="me/retrained", weights={"overall": 1})
    assert score_dataset(data, "picture", output, source="me/retrained", weights={"overall": 1}).resumed_rows == 9
    row = read_lines(output)[1]
    assert row["overall"] == row["reward"]
    assert "words" not in row
