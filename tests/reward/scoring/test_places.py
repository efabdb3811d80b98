"""Places that are not as usual: no home, no locks, links, terminals without Unicode, pictures beside the data."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from reward.checkpoints import fingerprints
from reward.checkpoints.fingerprints import fingerprint_file, hash_file
from reward.cli import terminal
from reward.errors import OutputError
from reward.report.scored_data import read_scored
from reward.report.scores import scores_report
from reward.scoring import score_dataset
from reward.scoring.readers import open_source
from reward.training.splits import _load
from tests.reward.scoring.small_data import read_rows, save_greys
from tests.toys.json_lines import write_lines

ROWS = [{"caption": "犬が走る → ✓"}, {"caption": "a b"}]
TERMINALS = {
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("name", TERMINALS)
def test_commands_print_on_terminals_without_unicode(name, tmp_path):
    write_lines(tmp_path / "data.jsonl", ROWS)
    environment = {**os.environ, **TERMINALS[name], "PYTHONPATH": str(Path(__file__).parents[3])}
    line = [sys.executable, "-m", "reward.cli.main", "score", "data.jsonl", "-m", "length"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert b"\\u72ac" in done.stdout


def test_json_on_a_terminal_without_unicode_is_json(monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", stdout)
    terminal.print_json(["犬 🌟"])
    stdout.seek(0)
    assert json.loads(stdout.read()) == ["犬 🌟"]


@pytest.mark.parametrize("home", [None, "/proc/none"])
def test_a_file_is_named_without_a_home_that_can_be_written(home, tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "_KEPT_FROM", 1)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path if home is None else path.replace("~", home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("a")
    assert fingerprint_file(tmp_path / "data") == hash_file(tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_of_a_linked_output_the_target_is_written_and_the_link_stays(tmp_path):
    data, link, target = write_lines(tmp_path / "data.jsonl", ROWS), tmp_path / "out.csv", tmp_path / "disk" / "x.bin"
    link.symlink_to(target)
    for _ in range(2):
        score_dataset(data, "length", link, overwrite=True)
        assert (link.is_symlink(), target.read_text().splitlines()[0]) == (
            True,
            "caption,length,reward,truncated,error",
        )
    assert [path.name for path in target.parent.iterdir()] == ["x.bin"]
    (tmp_path / "data.csv").symlink_to(data)
    with pytest.raises(OutputError, match="is the input"):
        score_dataset(data, "length", tmp_path / "data.csv")


@pytest.mark.parametrize("scores", [[0.5] * 3, [0.1, 0.1 + 2e-17, 0.1 + 1e-17], [1e300] * 2])
def test_scores_that_are_equal_have_a_histogram(scores, tmp_path):
    frame = pd.DataFrame({"caption": "a", "reward": [1.0] * len(scores), "more": scores})
    frame.to_parquet(tmp_path / "data.parquet")
    scores_report(read_scored(tmp_path / "data.parquet")).write(tmp_path / "page.html")
    assert "more" in (tmp_path / "page.html").read_text()


def test_a_folder_of_splits_is_read_as_its_data_and_not_as_the_pictures_beside_them(tmp_path):
    save_greys(tmp_path / "train2014")
    for split in ("train", "val"):
        write_lines(tmp_path / f"{split}.jsonl", [{"image": "train2014/0.png", "caption": split, "rating": 1.0}])
    splits = _load(tmp_path, str(tmp_path))
    assert {name: rows["caption"][:] for name, rows in splits.items()} == {"train": ["train"], "validation": ["val"]}
    score_dataset(open_source(tmp_path, split="validation"), "length", tmp_path / "scores" / "out.jsonl")
    assert read_rows(tmp_path / "scores" / "out.jsonl")[0]["caption"] == "val"
