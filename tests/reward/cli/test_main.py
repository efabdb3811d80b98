"""The `capreward` command: help, exit codes, and what reaches the terminal: no escapes, one line for an error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperOption

import reward
from reward.cli.app import COMMANDS, app
from reward.cli.main import main
from reward.cli.terminal import console, plain, print_json
from reward.errors import DataError
from reward.registry import list_metrics
from reward.scoring.runs import ScoringInterrupted
from tests.reward.cli.conftest import Run
from tests.toys.json_lines import read_lines, write_lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"caption": "a red star", "refs": ["one red star"]}, {"caption": "", "refs": ["x"]}]
    return write_lines(tmp_path / "captions.jsonl", rows)


def test_score_writes_the_file_and_says_what_it_did(run: Run, data: Path) -> None:
    output = data.with_name("scores.jsonl")
    out, err = run("score", data, "--metric", "unigram", "--output", output)
    assert out == ""
    assert [row["f1"] for row in read_lines(output)] == [pytest.approx(2 / 3), None]
    assert "columns read: candidate = caption, references = refs" in err
    assert "1 not scored (candidate); the first is row 2: candidate is empty" in err
    assert "scored 2 rows" in err
    out, err = run("score", data, "-m", "length", "-o", data.with_name("s.parquet"), "--quiet")
    assert out == ""
    assert err.startswith("1 not scored (candidate)")


@pytest.mark.parametrize(
    ("own", "used"),
    [
        ({}, {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ({"GOMP_SPINCOUNT": "0"}, {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}),
    ],
)
def test_threads_spin_for_a_moment_only_unless_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], used: dict[str, str]
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that what the command sets is undone afterwards
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    run("--version")
    assert {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ} == used


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPREWARD_DEBUG", "1")
    line = ["score", str(tmp_path / "none.jsonl"), "-m", "length", "-o", str(tmp_path / "s.jsonl")]
    monkeypatch.setattr(sys, "argv", ["capreward", *line])
    with pytest.raises(reward.errors.DataError, match="there is no file"):
        main()


def test_version_metrics_and_commands_are_listed(run: Run) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert run("--version")[0] == f"capreward {reward.__version__}\n"
    assert signal.getsignal(signal.SIGINT) is handler
    assert set(list_metrics()) <= set(run("metrics")[0].split())
    assert set(COMMANDS) <= set(run("--help")[0].split())


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"train"}))  # which shows how to start several processes
def test_help_of_each_command_has_an_example(run: Run, command: str) -> None:
    out, _ = run(command, "--help")
    examples = [line for line in out.splitlines() if line.strip().startswith(f"capreward {command}")]
    assert examples
    assert all(option in out for example in examples for option in example.split() if option.startswith("-"))
    if "--judge " in out:
        assert "http://localhost:8000/v1#MODEL" in out


@pytest.mark.parametrize("command", [None, *typer.main.get_command(app).commands])  # type: ignore[attr-defined]
def test_help_fits_80_columns_and_cuts_no_name(command: str | None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*filter(None, [command]), "--help")[0]
    assert [line for line in text.splitlines() if len(line) > 80] == []
    group: Any = typer.main.get_command(app)
    names = {name for each in (group.commands[command] if command else group).params for name in each.opts}
    assert {name for name in names if name.startswith("-")} <= set(re.split(r"[\s,]+", text)), "a name is cut"
    if command is None:
        assert set(group.commands) <= set(text.split())
        assert "..." not in text.partition("Commands:")[2]  # what they do is said whole


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_no_text_steers_the_terminal(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    out = console(stderr=False)
    table = Table(f"head {ESCAPES}", title=f"title {ESCAPES}")
    table.add_row(f"cell {ESCAPES}")
    for text in (f"[bold]:smile: {ESCAPES}", table):
        out.print(text, style="red", soft_wrap=True)
    print_json({"key": ESCAPES})
    printed = capsys.readouterr().out
    assert f"[bold]:smile: {SHOWN}" in printed
    assert all(f"{part} {SHOWN}" in printed for part in ("head", "title", "cell"))
    assert not set(ESCAPES) & set(printed) - set("]0;owned[2J31m")
    assert json.loads(printed[printed.index("{") :]) == {"key": ESCAPES}
    assert plain("a\tb\nc é 🌟") == "a\tb\nc é 🌟"
    (tmp_path / "a.jsonl").write_text(json.dumps({ESCAPES: 1}))
    _, err = run("score", tmp_path / "a.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", code=1)
    assert f"The columns are: {SHOWN}." in err


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyboardInterrupt(), "stopped"), (ScoringInterrupted(7, Path("o.partial")), "stopped; 7 rows are saved in o.p")],
)
@pytest.mark.parametrize("place", ["reward.scoring.dataset.score_dataset", "torch.empty"])
def test_ctrl_c_is_one_line(
    error: KeyboardInterrupt, message: str, place: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(place, stop)
    _, err = run("score", "c.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", "--device", "cpu", code=130)
    assert err.startswith(message)


# A module that takes its time to be imported, and that sends Ctrl-C in the middle, as a person would who mistyped.
SLOW_MODULE = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)
except BaseException:
    raise {} from None
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "torch", "pyarrow"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "RuntimeError('half imported')"])
def test_ctrl_c_in_an_import_is_one_line(module: str, error: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW_MODULE.format(error))
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    line = ["score", "c.jsonl", "-m", "length", "-o", "o.parquet", "--device", "cpu"]
    command = [sys.executable, "-c", "from reward.cli.main import main; main()", *line]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]  # of pyarrow, which is loaded for the output, with what is saved
    assert (done.returncode, last.partition(";")[0]) == (130, "stopped")
    assert "Traceback" not in done.stderr


def test_warnings_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*arguments: object, **options: object) -> None:
        warnings.warn(f"for trials {ESCAPES}", stacklevel=2)
        raise DataError("and no data")

    monkeypatch.setattr("reward.scoring.dataset.score_dataset", warn)
    said = ("", f"warning: for trials {SHOWN} error: and no data")
    assert run("score", "c.jsonl", "-m", "length", "-o", "o.jsonl", code=1) == said


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
def test_a_full_disk_is_one_line(run: Run, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "reward.cli.main", "metrics"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    told = "No space left on device. What was saved before stays; make room and run the same again\n"
    assert (done.returncode, done.stderr) == (1, f"error: cannot write: {told}")
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    for name in ("o.jsonl", "o.jsonl.summary.json"):
        (tmp_path / f"{name}.tmp").symlink_to("/dev/full")
        _, err = run("score", tmp_path / "c.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", code=1)
        assert f"cannot write {tmp_path}/{name}: No space left on device" in err
        (tmp_path / f"{name}.tmp").unlink(missing_ok=True)


# No command keeps the last of a repeated option in silence.

OPTIONS = {
    name: [option for option in command.params if isinstance(option, TyperOption)]
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_of_one_value_is_refused_when_repeated(run: Run, name: str) -> None:
    single = [option for option in OPTIONS[name] if not option.is_flag and not option.multiple]
    for option in single:
        _, err = run(name, option.opts[0], "first", option.opts[-1], "second", code=2)
        assert f"Invalid value for {max(option.opts, key=len)}: takes one value, got first and second; " in err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("score data.jsonl -w desc=1 --weights rel=2", "write --weights desc=1,rel=2"),
        ("score data.jsonl --devices cuda:0 --devices cuda:1", "write --devices cuda:0,cuda:1"),
    ],
)
def test_says_how_one_value_holds_both(run: Run, line: str, told: str) -> None:
    assert told in run(*line.split(), code=2)[1]


def test_equal_values_flags_and_lists_may_be_repeated(run: Run) -> None:
    line = "score absent.jsonl -m length -m unigram -o o.jsonl -o o.jsonl --quiet --quiet"
    assert "error: there is no file absent.jsonl" in run(*line.split(), code=1)[1]
