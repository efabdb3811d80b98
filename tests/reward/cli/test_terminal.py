"""What reaches the terminal: no escapes of files, one line for Ctrl-C, warnings and full disks, and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from reward.cli.terminal import console, plain, print_json
from reward.errors import DataError
from reward.scoring.dataset import ScoringInterrupted
from tests.reward.cli.conftest import Run

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_no_text_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_escapes_of_a_file_are_shown_not_sent(run: Run, tmp_path: Path) -> None:
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
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in done.stderr


def test_the_handler_of_ctrl_c_is_put_back(run: Run) -> None:
    before = signal.getsignal(signal.SIGINT)
    run("--version")
    assert signal.getsignal(signal.SIGINT) is before


def test_warnings_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*arguments: object, **options: object) -> None:
        warnings.warn(f"for trials {ESCAPES}", stacklevel=2)
        raise DataError("and no data")

    monkeypatch.setattr("reward.scoring.dataset.score_dataset", warn)
    said = ("", f"warning: for trials {SHOWN} error: and no data")
    assert run("score", "c.jsonl", "-m", "length", "-o", "o.jsonl", code=1) == said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
@pytest.mark.parametrize("file", ["o.jsonl.tmp", "o.jsonl.summary.json.tmp"])
def test_a_full_disk_names_the_file(file: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    (tmp_path / file).symlink_to("/dev/full")
    _, err = run("score", tmp_path / "c.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", code=1)
    assert f"cannot write {tmp_path}/{file.removesuffix('.tmp')}: No space left on device" in err
