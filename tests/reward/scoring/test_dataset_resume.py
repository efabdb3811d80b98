"""Resuming: killed at whatever moment, the same call gives the same output, and scores no saved row again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.errors import OutputError, WeightsError
from reward.metrics.base import MetricSpec
from reward.samples import ScoreTable
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.dataset import ScoringInterrupted
from tests.json_lines import read_lines, write_lines
from tests.picture_scorer import PictureScorer
from tests.reward.scoring.command import Command
from tests.reward.scoring.small_data import make_data, save_greys


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


def interrupt(*arguments: Any) -> None:
    """Ctrl-C. Python may run a few more lines before it looks at a signal; a sleep is ended by it."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, bytes]:
    """Data, the output of an uninterrupted run, and the journal as it was at the end of that run."""
    folder = tmp_path_factory.mktemp("whole")
    data = make_data(folder, 40)
    score_dataset(data, PictureScorer(), folder / "out.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reward.scoring.dataset.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            score_dataset(data, PictureScorer(), folder / "cut.jsonl", chunk_rows=4)
    journal = (folder / "cut.jsonl.partial").read_bytes()
    assert journal.count(b"\n") == 1 + 40
    return data, (folder / "out.jsonl").read_text(), journal


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1), chunk_rows=st.integers(1, 50), parquet=st.booleans())
def test_run_cut_at_any_byte_goes_on_to_the_same_output(
    whole: tuple[Path, str, bytes], share: float, chunk_rows: int, parquet: bool
) -> None:
    data, expected, journal = whole
    output = data.parent / ("resumed.parquet" if parquet else "resumed.jsonl")
    output.unlink(missing_ok=True)
    cut = journal[: int(share * len(journal))]
    output.with_name(output.name + ".partial").write_bytes(cut)
    scorer = PictureScorer()
    summary = score_dataset(data, scorer, output, chunk_rows=chunk_rows)
    saved = max(0, cut.count(b"\n") - 1)
    assert (summary.rows, summary.resumed_rows, summary.new_rows) == (40, saved, 40 - saved)
    assert all(int(sample.candidate[1:]) >= saved for sample in scorer.samples)
    assert max(Counter(sample.candidate for sample in scorer.samples).values(), default=1) == 1
    rows = [json.loads(line) for line in expected.splitlines()]
    if parquet:
        names = list(rows[0])
        assert pq.read_table(output).to_pylist() == [{name: row.get(name) for name in names} for row in rows]
    else:
        assert output.read_text() == expected
    assert not output.with_name(output.name + ".partial").exists()


@pytest.mark.parametrize("rows_at_a_time", [1, 3, 4096])
@pytest.mark.parametrize("kind", ["csv", "parquet", "folder", "jsonl"])
def test_other_inputs_go_on_at_the_right_row(
    kind: str, rows_at_a_time: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reward.scoring.arrow_sources.TABLE_ROWS", rows_at_a_time)
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
    monkeypatch.setattr("tests.picture_scorer.load_image", lambda image: 0.0)
    with pytest.raises(RuntimeError):
        score_dataset(data, stopping, output, chunk_rows=3)
    assert score_dataset(data, going_on, output, chunk_rows=5).resumed_rows == 6
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
    [("out.jsonl", "exists already"), ("out.jsonl.partial", "is there, but is no journal of a run")],
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
        ({"data": "edited"}, "input"),
        ({"scorer": "length"}, "metric"),
    ],
)
def test_unfinished_run_of_other_settings_is_not_continued(
    change: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(save_greys(tmp_path / "copy").parent)
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError):
        score_dataset(data, Stop(2, RuntimeError()), output, chunk_rows=3)
    saved = (tmp_path / "out.jsonl.partial").read_bytes()
    if change.pop("data", None):
        data.write_text(data.read_text().replace("c1", "d1"))
    scorer = change.pop("scorer", PictureScorer())
    with pytest.raises(OutputError, match=f"differs from this one: .*{named} was .*Start afresh with --overwrite"):
        score_dataset(data, scorer, output, **change)
    assert (tmp_path / "out.jsonl.partial").read_bytes() == saved
    assert score_dataset(data, scorer, output, **change, overwrite=True).resumed_rows == 0


def test_an_interrupt_says_what_is_saved_and_moved_data_continue(tmp_path: Path) -> None:
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    said = r"stopped; 7 rows are saved in .*out\.jsonl\.partial; run the same again"
    with pytest.raises(ScoringInterrupted, match=said):
        score_dataset(data, Stop(2, KeyboardInterrupt()), output, chunk_rows=3)
    assert score_dataset(data.rename(tmp_path / "moved.jsonl"), PictureScorer(), output).resumed_rows == 7


def test_an_interrupt_while_the_first_rows_are_saved_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, output = make_data(tmp_path, 10), tmp_path / "out.jsonl"
    journal = tmp_path / "out.jsonl.partial"

    def sync(number: int) -> None:
        if journal.read_bytes().count(b"\n") > 1:  # after the line that describes the run
            interrupt()

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", sync)
        with pytest.raises(ScoringInterrupted, match="4 rows are saved"):
            score_dataset(data, PictureScorer(), output, chunk_rows=4)
    scorer = PictureScorer()
    assert score_dataset(data, scorer, output).resumed_rows == 4
    assert scorer.samples[0].candidate == "c4"


def test_rerank_resumes(tmp_path: Path) -> None:
    save_greys(tmp_path)
    rows = [{"image": f"{number % 3}.png", "candidates": [f"a{number}", f"b {number}", ""]} for number in range(12)]
    data = write_lines(tmp_path / "candidates.jsonl", rows)
    rerank_dataset(data, PictureScorer(), tmp_path / "whole.jsonl")
    with pytest.raises(RuntimeError):
        rerank_dataset(data, Stop(1, RuntimeError()), tmp_path / "best.jsonl", chunk_rows=3)
    scorer = PictureScorer()
    assert rerank_dataset(data, scorer, tmp_path / "best.jsonl", chunk_rows=3).resumed_rows == 6
    assert len(scorer.samples) == 12
    assert (tmp_path / "best.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


@pytest.mark.parametrize("more", [[], ["length"]])
def test_killed_process_loses_and_repeats_no_row(tmp_path: Path, more: list[str]) -> None:
    data = make_data(tmp_path, 300)
    expected = tmp_path / "expected.jsonl"
    score_dataset(data, [PictureScorer(), *more], expected)
    options = [text for name in more for text in ("-m", name)]
    command = Command(tmp_path, seconds=0.003)
    process = command.start_and_wait_for_rows(64, *options)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not command.output.exists()
    saved = command.journal.read_bytes().count(b"\n") - 1
    assert 64 <= saved < 300
    process = command.start(*options)
    message = process.communicate()[1]
    assert process.returncode == 0, message
    assert f"scored 300 rows ({saved} of them by an earlier run)" in message
    assert command.output.read_text() == expected.read_text()
    counts = Counter((tmp_path / "log.txt").read_text().split())
    wanted = {row["candidate"] for row in map(json.loads, expected.read_text().splitlines()) if row["error"] is None}
    assert set(counts) == wanted
    assert all(counts[caption] == 1 for caption in wanted if int(caption[1:]) < saved)
    process = command.start(*options)
    assert "is complete already" in process.communicate()[1]
    assert process.returncode == 0
    assert Counter((tmp_path / "log.txt").read_text().split()) == counts


def test_interrupted_process_and_a_second_one_beside_it(tmp_path: Path) -> None:
    make_data(tmp_path, 400)
    command = Command(tmp_path, seconds=0.05)  # the second process starts before it is done
    process = command.start_and_wait_for_rows(64)
    second = command.start()
    assert "another process is writing" in second.communicate()[1]
    assert second.returncode == 1
    process.send_signal(signal.SIGINT)
    message = process.communicate()[1]
    assert process.returncode == 130
    assert "rows are saved in" in message
    assert "run the same again" in message.replace("\n", " ")
    assert "Traceback" not in message


class Retrained(PictureScorer):
    """A checkpoint with one aspect of its own."""

    spec = MetricSpec("picture", "tests.picture_scorer:PictureScorer", ("overall",), has_embedded=True)

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
        patch.setattr("reward.scoring.dataset.write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            score_dataset(data, "picture", output, source="me/retrained", weights={"overall": 1})
    assert score_dataset(data, "picture", output, source="me/retrained", weights={"overall": 1}).resumed_rows == 9
    row = read_lines(output)[1]
    assert row["overall"] == row["reward"]
    assert "words" not in row
