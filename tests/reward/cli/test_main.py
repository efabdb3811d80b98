"""The `capreward` command: subcommands, help, exit codes and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import reward
from reward.cli.app import COMMANDS
from reward.cli.main import main
from reward.registry import list_metrics
from tests.json_lines import read_lines, write_lines
from tests.reward.cli.conftest import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"caption": "a red star", "refs": ["one red star"]}, {"caption": "", "refs": ["x"]}]
    return write_lines(tmp_path / "captions.jsonl", rows)


def test_score_writes_the_file_and_says_what_it_did(run: Run, data: Path) -> None:
    output = data.with_name("scores.jsonl")
    code, out, err = run("score", data, "--metric", "unigram", "--output", output)
    assert (code, out) == (0, "")
    assert [row["f1"] for row in read_lines(output)] == [pytest.approx(2 / 3), None]
    assert "columns read: candidate = caption, references = refs" in err
    assert "1 not scored (candidate); the first is row 2: candidate is empty" in err
    assert "scored 2 rows" in err


@pytest.mark.parametrize(("own", "used"), [(None, "passive"), ("active", "active")])
def test_threads_do_not_spin_unless_the_user_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, own: str | None, used: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", own or "")
    if own is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert run("--version")[0] == 0
    assert os.environ["OMP_WAIT_POLICY"] == used


def test_rerank_writes_the_best(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"candidates": ["a", "a b"]}\n')
    code, _, err = run("rerank", tmp_path / "c.jsonl", "--metric", "length", "-o", tmp_path / "best.jsonl")
    assert (code, json.loads((tmp_path / "best.jsonl").read_text())["best"]) == (0, "a b")
    assert "reranked 1 rows" in err


def test_quiet_prints_only_errors(run: Run, data: Path) -> None:
    code, out, err = run("score", data, "-m", "length", "-o", data.with_name("s.parquet"), "--quiet")
    assert (code, out) == (0, "")
    assert err.startswith("1 not scored (candidate)")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-m", "lenght"], 1, "error: no metric is named 'lenght'; installed: "),
        (["-m", "length", "-w", "colour=1"], 1, "error: weights name an unknown aspect 'colour'; known: length"),
        (["-m", "length", "-w", "length=nan"], 1, "must be a finite number, got nan"),
        (["-m", "length", "-w", "length"], 2, "'length' is not of the form aspect=number"),
        (["-m", "length", "-w", "length=1,length=2"], 2, "'length=2' is not of the form aspect=number"),
        (["-m", "length", "--candidate-column", "text"], 1, "error: --candidate-column names 'text', which"),
        (["-m", "length", "--batch-size", "0"], 2, "--batch-size"),
        ([], 2, "Missing option '--metric'"),
    ],
)
def test_wrong_arguments_are_one_line(run: Run, data: Path, arguments: list[str], code: int, message: str) -> None:
    got, out, err = run("score", data, "-o", data.with_name("s.jsonl"), *arguments)
    assert (got, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
    assert not data.with_name("s.jsonl").exists()


def test_missing_file_and_markup_in_names(run: Run, tmp_path: Path) -> None:
    code, _, err = run("score", tmp_path / "[bold]none.jsonl", "-m", "length", "-o", tmp_path / "s.jsonl")
    assert (code, err) == (1, f"error: there is no file {tmp_path}/[bold]none.jsonl")


def test_nothing_scored_is_an_error_but_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"candidate": ""}\n')
    code, _, err = run("score", tmp_path / "c.jsonl", "-m", "length", "-o", tmp_path / "s.jsonl")
    assert code == 1
    assert "error: no caption could be scored" in err
    assert "candidate is empty" in (tmp_path / "s.jsonl").read_text()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPREWARD_DEBUG", "1")
    line = ["score", str(tmp_path / "none.jsonl"), "-m", "length", "-o", str(tmp_path / "s.jsonl")]
    monkeypatch.setattr(sys, "argv", ["capreward", *line])
    with pytest.raises(reward.errors.DataError, match="there is no file"):
        main()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "reward.cli.main", "metrics"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: cannot write: No space left on device. What was saved before stays; make room and run the same again"
    ]


def test_metrics_lists_every_metric(run: Run) -> None:
    code, out, _ = run("metrics")
    assert code == 0
    assert set(list_metrics()) <= set(out.split())


def test_version_and_help(run: Run) -> None:
    assert run("--version")[:2] == (0, f"capreward {reward.__version__}\n")
    code, out, _ = run("--help")
    assert code == 0
    assert set(COMMANDS) <= set(out.split())


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"train"}))  # which shows how to start several processes
def test_help_of_each_command_has_an_example(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    examples = [line for line in out.splitlines() if line.strip().startswith(f"capreward {command}")]
    assert examples
    assert all(option in out for example in examples for option in example.split() if option.startswith("-"))
    if "--judge" in out:
        assert all(part in out for part in ("--server http://localhost:8000/v1", "OPENAI_API_KEY"))


def test_help_loads_no_heavy_library() -> None:
    heavy = ["torch", "transformers", "datasets", "pandas", "pyarrow", "trl", "open_clip"]
    code = f"import sys, reward.cli.main; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_images_are_found_beside_the_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reward import registry
    from tests.picture_scorer import SPEC

    monkeypatch.setattr(registry, "installed_specs", lambda: {"picture": SPEC})
    Image.new("RGB", (4, 4), "white").save(tmp_path / "white.png")
    (tmp_path / "c.csv").write_text("file_name,cand\nwhite.png,a b\n")
    code, _, err = run("score", tmp_path / "c.csv", "-m", "picture", "-o", tmp_path / "s.jsonl", "-w", "bright=1")
    assert (code, json.loads((tmp_path / "s.jsonl").read_text())["reward"]) == (0, 1.0)
    assert "1 images decoded" in err
