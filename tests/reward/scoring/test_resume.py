"""What a second call makes of a run that was stopped or is finished; kills are in `tests/test_part_engine.py`."""

import errno
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from PIL import Image

from reward.errors import OutputError, WeightsError
from reward.judges import Usage
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.kept import Kept
from reward.scoring.runs import ScoringInterrupted, rows_of_part
from reward.scoring.writers import write_rows
from tests.reward.scoring.small_data import Stop, make_data, save_greys, scored
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer


def half_scored(data, output):
    """Six rows are saved, in parts of three."""
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(data, Stop(2), output, part_rows=3)


def part_sizes(output):
    parts = sorted(output.with_name(f"{output.name}.partial").glob("[0-9]*.gz"))
    return [len(rows_of_part(part.name)) for part in parts]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weights": {"words": 1}}, "weights"),
        ({"candidate_column": "n"}, "columns"),
        ({"image_root": "copy"}, "image_root"),
        ({"prefix": "p_"}, "prefix"),
        ({"scorer": ["length", PictureScorer()]}, "metric"),
    ],
)
def test_an_unfinished_run_of_other_settings_is_not_continued(change, named, tmp_path, monkeypatch):
    monkeypatch.chdir(save_greys(tmp_path / "copy").parent)
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    half_scored(data, output)
    other = partial(score_dataset, data, output=output, **{"scorer": PictureScorer(), **change})
    with pytest.raises(OutputError, match=f"differs from this one: .*{named} was .*Start afresh with --overwrite"):
        other()
    assert part_sizes(output) == [3, 3]
    assert other(overwrite=True).resumed_rows == 0


@pytest.mark.parametrize("change", ["row", "picture"])
def test_an_edited_row_or_picture_costs_its_part_alone(change, tmp_path):
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    half_scored(data, output)
    if change == "row":
        data.write_text(data.read_text().replace('"c1"', '"d1"'))
    else:
        Image.new("RGB", (4, 4)).save(tmp_path / "0.png")
    rows, summary = scored(data, output, PictureScorer())
    assert summary.resumed_rows == 3
    assert rows == scored(data, tmp_path / "whole.jsonl", PictureScorer())[0]


def test_a_row_that_was_given_another_image_competes_there_also_for_metrics_that_read_none(tmp_path, monkeypatch):
    rows = [{"image": name, "caption": "a " * length} for name, length in (("1", 1), ("1", 2), ("2", 3))]
    data, output = write_lines(tmp_path / "data.jsonl", rows), tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", stopped)
        with pytest.raises(RuntimeError, match="stopped"):
            rerank_dataset(data, "length", output)
    write_lines(data, [*rows[:2], {**rows[2], "image": "1"}])
    assert [row["rank"] for row in scored(data, output, "length", task=rerank_dataset)[0]] == [3, 2, 1]


def test_an_interrupt_says_what_is_saved_and_moved_data_continue(tmp_path):
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    said = r"stopped; 6 rows are saved in .*out\.jsonl\.partial; run the same again"
    with pytest.raises(ScoringInterrupted, match=said):
        score_dataset(data, Stop(2, KeyboardInterrupt()), output, part_rows=3)
    with pytest.raises(ScoringInterrupted, match="nothing is saved yet"):
        score_dataset(data, Stop(0, KeyboardInterrupt()), tmp_path / "other.jsonl")
    assert not list(tmp_path.glob("other*"))
    assert score_dataset(data.rename(tmp_path / "moved.jsonl"), PictureScorer(), output).resumed_rows == 6


def stopped(*arguments):
    raise RuntimeError("stopped")


def test_a_part_takes_about_a_minute_at_most_and_a_log_has_lines_meanwhile(tmp_path, monkeypatch, capsys):
    """Here a minute is 0.1 s, the first rows are 4, and a row takes 0.02 s; a bar is for a terminal."""
    monkeypatch.setenv("PICTURE_SECONDS", "0.02")
    monkeypatch.setattr("reward.scoring.job.FIRST_ROWS", 4)
    monkeypatch.setattr("reward.scoring.job.PART_SECONDS", 0.1)
    monkeypatch.setattr("reward.scoring.runs.LOG_SECONDS", 0)
    monkeypatch.setattr("reward.scoring.file_run.write_rows", stopped)
    rows = [{"image": f"{n // 10}.png", "candidate": f"c{n}"} for n in range(14)]
    save_greys(tmp_path)
    with pytest.raises(RuntimeError, match="stopped"):
        scored(rows, tmp_path / "out.jsonl", PictureScorer(), progress=True)
    first, *others = part_sizes(tmp_path / "out.jsonl")
    assert (first, first + sum(others)) == (4, 14)
    assert max(others) <= 6
    lines = capsys.readouterr().err.splitlines()
    assert "4/14" in lines[1]
    assert len(lines) >= 2 + len(others)


def test_parts_are_small_where_a_judge_is_asked_and_its_answers_are_kept(tmp_path, monkeypatch):
    places = []
    # as one behind a server is
    judge = SimpleNamespace(cache=None, usage=Usage(), close=lambda: places.append(judge.cache))
    scorer = PictureScorer()
    scorer.spec, scorer.judges = replace(scorer.spec, sources="judge"), [judge]
    monkeypatch.setattr("reward.scoring.file_run.write_rows", stopped)
    with pytest.raises(RuntimeError):
        score_dataset(make_data(tmp_path, 130), scorer, tmp_path / "out.jsonl")
    assert part_sizes(tmp_path / "out.jsonl") == [64, 64, 2]
    assert places == [tmp_path / "out.jsonl.partial" / "answers.sqlite", None]


class Retrained(PictureScorer):
    """A checkpoint with one aspect of its own."""

    spec = replace(PictureScorer.spec, aspects=("overall",), aliases={})

    def score(self, samples, **options):
        table = PictureScorer().score(samples)
        return replace(table, scores=table.scores[:, :1], aspects=self.spec.aspects)


def test_a_checkpoint_may_have_aspects_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("reward.registry.installed_specs", lambda: {"picture": PictureScorer.spec})
    monkeypatch.setattr("reward.registry.load_scorer", lambda name, source, **options: Retrained())
    data, options = make_data(tmp_path, 9), {"scorer": "picture", "source": "me/retrained"}
    with pytest.raises(WeightsError, match="unknown aspect 'words'; known: overall"):
        scored(data, tmp_path / "out.jsonl", **options, weights={"words": 1})
    (_, row, *_), _ = scored(data, tmp_path / "out.jsonl", **options)
    assert (row["overall"], "words" in row) == (row["reward"], False)


def test_a_finished_output_is_scored_again_only_if_asked(tmp_path):
    data, output, scorer = make_data(tmp_path, 9), tmp_path / "out.jsonl", PictureScorer()
    run = partial(score_dataset, data, scorer, output)
    first = run()
    count = len(scorer.samples)
    again = run()
    assert (again.already_done, len(scorer.samples)) == (True, count)
    assert (again.rows, again.errors, again.distributions) == (first.rows, first.errors, first.distributions)
    before = output.read_bytes()
    with pytest.raises(OutputError, match="exists already and is not of this run"):
        run(weights={"words": 1})
    data.write_text(data.read_text().replace("c1", "d1"))
    with pytest.raises(OutputError, match="exists already and is not of this run"):
        run()
    assert (output.read_bytes(), len(scorer.samples)) == (before, count)
    assert not run(overwrite=True).already_done
    assert b"d1" in output.read_bytes()


@pytest.mark.parametrize(("task", "ending"), [(score_dataset, "jsonl"), (rerank_dataset, "parquet")])
def test_a_damaged_output_is_not_taken_as_finished(task, ending, tmp_path):
    output = tmp_path / f"out.{ending}"
    run = partial(task, make_data(tmp_path, 6), PictureScorer(), output)
    run()
    content = output.read_bytes()
    middle = len(content) // 2
    for damaged in (b"", content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
        output.write_bytes(damaged)
        with pytest.raises(OutputError, match=r"was changed or damaged\. Move it away, or make it anew with --overwr"):
            run()
    output.write_bytes(content)
    assert run().already_done
    for summary in ("[]", "{", '{"run": {}}'):
        output.with_name(output.name + ".summary.json").write_text(summary)
        with pytest.raises(OutputError, match="exists already and is not of this run"):
            run()


@pytest.mark.parametrize("lines", [["{}\n"], [], ['{"candidate": "d"}\n'] * 2])
def test_data_that_change_while_they_are_scored_are_told(lines, tmp_path, monkeypatch):
    data, output = write_lines(tmp_path / "data.jsonl", [{"candidate": "c"}]), tmp_path / "out.jsonl"

    def edit(*arguments):
        data.write_text("".join(lines))
        write_rows(*arguments)

    monkeypatch.setattr("reward.scoring.file_run.write_rows", edit)
    with pytest.raises(OutputError, match=r"changed.*; run the same again"):
        score_dataset(data, "length", output)
    assert not output.exists()


def test_a_disk_without_locks_loses_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    for name in ("flock", "lockf"):
        monkeypatch.setattr(f"fcntl.{name}", refuse)
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    half_scored(data, output)
    # Another process has made parts of the same rows, of other lengths.
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(data, Stop(1), tmp_path / "other.jsonl", part_rows=4)
    for part in (tmp_path / "other.jsonl.partial").glob("[0-9]*.gz"):
        part.rename(tmp_path / "out.jsonl.partial" / part.name)
    rows, summary = scored(data, output, PictureScorer())
    assert (summary.resumed_rows, len(rows)) == (6, 9)
    for answers in (1, 2):
        with Kept(tmp_path / "answers", {"judge": "a"}) as kept:
            kept.add(["yes"])
            assert list(kept) == ["yes"] * answers
