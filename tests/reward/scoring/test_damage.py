"""Finished outputs that were damaged, and parts of other rows: never a wrong score, and a way to go on."""

from __future__ import annotations

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


DAMAGE: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "deleted": lambda lines, place: lines[:place] + lines[place + 1 :],
    "doubled": lambda lines, place: [*lines[: place + 1], *lines[place:]],
    "exchanged with the next": exchange,
    "cut in half": cut_in_half,
    "joined to the next": lambda lines, place: [*lines[:place], lines[place][:-1], *lines[place + 1 :]],
    "changed in a letter": change,
    "zeros": lambda lines, place: [*lines[:place], b"\0" * 40 + b"\n", *lines[place + 1 :]],
    "blank": lambda lines, place: [*lines[:place], b"\n", *lines[place:]],
}


def damaged(content: bytes, kind: str, place: int) -> bytes:
    return b"".join(DAMAGE[kind](content.splitlines(keepends=True), place))


def make_data(folder: Path) -> Path:
    captions = ["one 1 " + "word " * number if number != 3 else "" for number in range(ROWS)]
    return write_lines(folder / "data.jsonl", [{"n": n, "candidate": caption} for n, caption in enumerate(captions)])


def test_data_that_change_while_they_are_scored_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, output = make_data(tmp_path), tmp_path / "out.jsonl"

    def edit(*arguments: object) -> bool:
        data.write_text(data.read_text().replace("word word word", "word other word"))
        return write(*arguments)

    from reward.scoring.writers import write_rows as write

    with monkeypatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", edit)
        with pytest.raises(OutputError, match=r"data\.jsonl changed while it was scored; run the same again"):
            score_dataset(data, "length", output, part_rows=2)
    assert not output.exists()
    assert score_dataset(data, "length", output).resumed_rows == 4  # the part of that row is scored again


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("task", [score_dataset, rerank_dataset])
def test_damaged_output_is_not_taken_as_finished(kind: str, task: Callable[..., object], tmp_path: Path) -> None:
    data, output = make_data(tmp_path), tmp_path / "out.jsonl"
    options = {"group_column": "n"} if task is rerank_dataset else {}
    task(data, "length", output, **options)
    content = output.read_bytes()
    for place in range(ROWS):
        output.write_bytes(damaged(content, kind, place))
        with pytest.raises(OutputError, match=r"was changed or damaged\. Move it away, or make it anew with --ov"):
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
        with pytest.raises(OutputError, match="does not hold what it held"):
            score_dataset(data, "length", output)
    assert not score_dataset(data, "length", output, overwrite=True).already_done
    assert output.read_bytes() == content
    for summary in ("", "[]", "{", '{"run": {}}', "null"):
        (tmp_path / "out.parquet.summary.json").write_text(summary)
        with pytest.raises(OutputError, match="exists already and is not of this run"):
            score_dataset(data, "length", output)
