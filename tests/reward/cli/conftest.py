"""Calls the `capreward` command inside the test's own process, if need be in a folder with a file of every kind."""

import json
import sys
from collections.abc import Callable

import pytest
from PIL import Image

from reward.cli.main import main
from tests.toys.json_lines import write_lines

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(monkeypatch, capsys):
    """Calls the command, which must end in the exit code `code`, 0 by default, and print no traceback.

    Gives stdout, and stderr with its line breaks as spaces and without the boxes around messages.
    """
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CAPREWARD_DEBUG", raising=False)

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["capreward", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert (stop.value.code or 0, "Traceback" in captured.err) == (code, False), captured.err
        return captured.out, " ".join(captured.err.replace("│", " ").split())

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: a file of every kind that a command reads, all but good.jsonl about an image that is none."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "bad.png").write_text("no image")
    row = {"image": "bad.png", "candidate": "a dog", "references": ["a dog"]}
    write_lines(folder / "data.jsonl", [row])
    write_lines(folder / "rated.jsonl", [{**row, "ratings": [n, n], "good": n, "bad": -n} for n in range(4)])
    write_lines(folder / "prose.jsonl", [{**row, "text": "A dog runs over wet grass at dawn."}])
    write_lines(folder / "unscored.jsonl", [{**row, "reward": None, "error": "bad.png is no image"}])
    names = {"source1": "a", "source2": "b", "caption1": "a dog", "caption2": "a dog runs", "winner": "b"}
    (folder / "battles.json").write_text(json.dumps([{"img": "bad.png", **names}] * 3))
    (folder / "one.json").write_text('{"bad.png": "a dog"}')
    (folder / "two.json").write_text('{"bad.png": "a dog runs"}')
    (folder / "config.json").write_text("{}")
    (folder / "notes.md").write_text("# Notes of mine")
    (folder / "empty.jsonl").touch()
    (folder / "empty").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "good.png")
    write_lines(folder / "good.jsonl", [{**row, "image": "good.png"}])
    return folder
