"""Finished outputs that were damaged, and data that change meanwhile: never a wrong score, and a way to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reward.errors import OutputError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.writers import write_rows
from tests.toys.json_lines import write_lines

pytestmark = pytest.mark.slow


def make_data(folder: Path) -> Path:
    captions = ["one 1 " + "word " * number if number != 3 else "" for number in range(6)]
    return write_lines(folder / "data.jsonl", [{"n": n, "candidate": caption} for n, caption in enumerate(captions)])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("word word word", "word other word"),
        lambda text: text + '{"n": 7, "candidate": "one more"}\n',
        lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    ],
)
def test_data_that_change_while_they_are_scored_are_told(
    change: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, output = make_data(tmp_path), tmp_path / "out.jsonl"

    def edit(*arguments: object) -> None:
        data.write_text(change(data.read_text()))
        write_rows(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("reward.scoring.file_run.write_rows", edit)
        with pytest.raises(OutputError, match=r"changed.*; run the same again"):
            score_dataset(data, "length", output, part_rows=2)
    assert not output.exists()
    score_dataset(data, "length", output)
    score_dataset(data, "length", tmp_path / "fresh.jsonl")
    assert output.read_text() == (tmp_path / "fresh.jsonl").read_text()


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("task", [score_dataset, rerank_dataset])
def test_damaged_output_is_not_taken_as_finished(task: Callable[..., object], ending: str, tmp_path: Path) -> None:
    data, output = make_data(tmp_path), tmp_path / f"out{ending}"
    options = {"group_column": "n"} if task is rerank_dataset else {}
    task(data, "length", output, **options)
    content = output.read_bytes()
    middle = len(content) // 2
    for damaged in (b"", content[:-1], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
        output.write_bytes(damaged)
        with pytest.raises(OutputError, match=r"was changed or damaged\. Move it away, or make it anew with --overwr"):
            task(data, "length", output, **options)
    output.write_bytes(content)
    assert task(data, "length", output, **options).already_done  # type: ignore[attr-defined]
    for summary in ("", "[]", "{", '{"run": {}}', "null"):
        output.with_name(output.name + ".summary.json").write_text(summary)
        with pytest.raises(OutputError, match="exists already and is not of this run"):
            task(data, "length", output, **options)
