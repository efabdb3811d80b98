"""Journals and finished outputs that were damaged: never a wrong score, never a traceback, and a way to go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reward.errors import OutputError
from reward.scoring import rerank_dataset, score_dataset
from tests.json_lines import write_lines

ROWS = 6


def cut_in_half(lines: list[bytes], place: int) -> list[bytes]:
    return [*lines[:place], lines[place][: len(lines[place]) // 2] + b"\n", *lines[place + 1 :]]


def exchange(lines: list[bytes], place: int) -> list[bytes]:
    other = (place + 1) % len(lines)
    lines[place], lines[other] = lines[other], lines[place]
    return lines


def change(lines: list[bytes], place: int) -> list[bytes]:
    middle = len(lines[place]) // 2
    lines[place] = lines[place][:middle] + bytes([lines[place][middle] ^ 1]) + lines[place][middle + 1 :]
    return lines


# {kind: (what is done to one of the lines, how many results that loses)}
DAMAGE: dict[str, tuple[Callable[[list[bytes], int], list[bytes]], int]] = {
    "deleted": (lambda lines, place: lines[:place] + lines[place + 1 :], 1),
    "doubled": (lambda lines, place: [*lines[: place + 1], *lines[place:]], 0),
    "exchanged with the next": (exchange, 0),
    "cut in half": (cut_in_half, 1),
    "joined to the next": (lambda lines, place: [*lines[:place], lines[place][:-1], *lines[place + 1 :]], 2),
    "changed in a letter": (change, 1),
    "zeros": (lambda lines, place: [*lines[:place], b"\0" * 40 + b"\n", *lines[place + 1 :]], 1),
    "blank": (lambda lines, place: [*lines[:place], b"\n", *lines[place:]], 0),
}
each_damage = pytest.mark.parametrize("kind", DAMAGE)


def damaged(content: bytes, kind: str, place: int) -> bytes:
    return b"".join(DAMAGE[kind][0](content.splitlines(keepends=True), place))


def make_data(folder: Path) -> Path:
    captions = ["one 1 " + "word " * number if number != 3 else "" for number in range(ROWS)]
    return write_lines(folder / "data.jsonl", [{"n": n, "candidate": caption} for n, caption in enumerate(captions)])


@pytest.fixture
def unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, bytes]:
    """Data, the output to be, whose journal holds every row, and the output of an unbroken run."""
    data, output = make_data(tmp_path), tmp_path / "out.jsonl"
    score_dataset(data, "length", tmp_path / "whole.jsonl")
    with monkeypatch.context() as patch:

        def fail(*arguments: object) -> None:
            raise RuntimeError("killed")

        patch.setattr("reward.scoring.dataset.write_rows", fail)
        with pytest.raises(RuntimeError, match="killed"):
            score_dataset(data, "length", output)
    return data, output, (tmp_path / "whole.jsonl").read_bytes()


@each_damage
@pytest.mark.filterwarnings("ignore:.*(is damaged in line|lacks . rows)")
def test_damaged_journal_costs_only_the_damaged_rows(kind: str, unfinished: tuple[Path, Path, bytes]) -> None:
    data, output, expected = unfinished
    journal = output.with_name("out.jsonl.partial")
    content = journal.read_bytes()
    for place in range(1, 1 + ROWS):
        journal.write_bytes(damaged(content, kind, place))
        last = place == ROWS
        if last and kind == "exchanged with the next":  # with the first line, which says what the journal is of
            with pytest.raises(OutputError, match="its first line is damaged"):
                score_dataset(data, "length", output)
            continue
        summary = score_dataset(data, "length", output)
        assert output.read_bytes() == expected, place
        lost = DAMAGE[kind][1]
        assert summary.new_rows == (min(lost, 1) if last else lost), place
        output.unlink()


@each_damage
def test_a_journal_without_its_first_line_is_refused(kind: str, unfinished: tuple[Path, Path, bytes]) -> None:
    data, output, expected = unfinished
    journal = output.with_name("out.jsonl.partial")
    content = damaged(journal.read_bytes(), kind, 0)
    journal.write_bytes(content)
    if kind == "doubled":
        with pytest.warns(UserWarning, match="is damaged in line 2"):
            score_dataset(data, "length", output)
    else:
        with pytest.raises(OutputError, match="its first line is damaged; move it away, or start afresh with --overw"):
            score_dataset(data, "length", output)
        assert journal.read_bytes() == content
        score_dataset(data, "length", output, overwrite=True)
    assert output.read_bytes() == expected


def test_damage_to_a_journal_is_told(unfinished: tuple[Path, Path, bytes]) -> None:
    data, output, _ = unfinished
    journal = output.with_name("out.jsonl.partial")
    content = journal.read_bytes()
    journal.write_bytes(damaged(damaged(content, "zeros", 2), "zeros", 4))
    with pytest.warns(UserWarning, match=r"out\.jsonl\.partial is damaged in line 3 and 1 more; the results there"):
        score_dataset(data, "length", output)
    output.unlink()
    journal.write_bytes(damaged(content, "deleted", 2))
    with pytest.warns(UserWarning, match="lacks 1 rows, which are scored again: lines of it were deleted"):
        score_dataset(data, "length", output)


def test_a_result_of_another_row_is_refused(unfinished: tuple[Path, Path, bytes], monkeypatch: object) -> None:
    data, output, _ = unfinished
    monkeypatch.setattr("reward.scoring.text_sources.TextSource.fingerprint", lambda source: "a file too large to hash")
    data.write_text(data.read_text().replace("word word word", "word other word"))
    manifest_of = "reward.scoring.dataset._Run._manifest"
    header = json.loads(output.with_name("out.jsonl.partial").read_bytes().splitlines()[0])[1]["run"]
    monkeypatch.setattr(manifest_of, lambda run, task: {name: header[name] for name in header if name != "aspects"})
    with pytest.raises(OutputError, match=r"row 5 of data\.jsonl is not the one that was scored: the data changed"):
        score_dataset(data, "length", output)
    assert not output.exists()


@each_damage
@pytest.mark.parametrize("task", [score_dataset, rerank_dataset])
def test_damaged_output_is_not_taken_as_finished(kind: str, task: Callable[..., object], tmp_path: Path) -> None:
    data, output = make_data(tmp_path), tmp_path / "out.jsonl"
    options = {"group_column": "n"} if task is rerank_dataset else {}
    task(data, "length", output, **options)
    content = output.read_bytes()
    for place in range(ROWS):
        output.write_bytes(damaged(content, kind, place))
        with pytest.raises(OutputError, match=r"was changed or damaged: it .* Move it away, or make it anew with --ov"):
            task(data, "length", output, **options)
    output.write_bytes(content)
    assert task(data, "length", output, **options).already_done


def test_finished_parquet_and_its_summary_are_checked_to_the_last_byte(tmp_path: Path) -> None:
    data, output = make_data(tmp_path), tmp_path / "out.parquet"
    score_dataset(data, "length", output)
    content = output.read_bytes()
    for place in (4, len(content) // 2, len(content) - 1):
        output.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(OutputError, match="does not hold what it held when it was finished"):
            score_dataset(data, "length", output)
    for size in (0, 100, len(content) - 1):
        output.write_bytes(content[:size])
        with pytest.raises(OutputError, match=f"has {size:,} bytes, and had "):
            score_dataset(data, "length", output)
    assert not score_dataset(data, "length", output, overwrite=True).already_done
    assert output.read_bytes() == content
    for summary in ("", "[]", "{", '{"run": {}}', "null"):
        (tmp_path / "out.parquet.summary.json").write_text(summary)
        with pytest.raises(OutputError, match="exists already and is not of this run"):
            score_dataset(data, "length", output)
