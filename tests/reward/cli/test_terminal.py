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
from PIL import Image

from reward.cli.app import COMMANDS
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
    code, _, err = run("score", tmp_path / "a.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl")
    assert code == 1
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
    code, _, err = run("score", "c.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", "--device", "cpu")
    assert code == 130
    assert err.startswith(message)
    assert "Traceback" not in err


# A module that takes its time to be imported, and that sends Ctrl-C in the middle, as a person would who mistyped.
SLOW_MODULE = """
import os, signal, sys, time
{0}
os.kill(os.getpid(), signal.SIGINT)
time.sleep(20)
{1}
"""


@pytest.mark.parametrize("module", ["typer", "torch", "pyarrow"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("try:\n  1", "except BaseException: raise RuntimeError('half imported') from None")],
    ids=["passed on", "turned into another error"],
)
def test_ctrl_c_in_an_import_is_one_line(module: str, before: str, after: str, tmp_path: Path) -> None:
    body = SLOW_MODULE.format(before, after)
    if before:
        body = body.replace("\nos.kill", "\n  os.kill").replace("\ntime.sleep", "\n  time.sleep")
    (tmp_path / f"{module}.py").write_text(body)
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    line = ["score", "c.jsonl", "-m", "length", "-o", "o.parquet", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", "from reward.cli.main import main; main()", *line],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
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
    assert run("score", "c.jsonl", "-m", "length", "-o", "o.jsonl") == (
        1,
        "",
        f"warning: for trials {SHOWN} error: and no data",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
@pytest.mark.parametrize("file", ["o.jsonl.tmp", "o.jsonl.summary.json.tmp"])
def test_a_full_disk_names_the_file(file: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    (tmp_path / file).symlink_to("/dev/full")
    code, _, err = run("score", tmp_path / "c.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl")
    assert code == 1
    assert f"cannot write {tmp_path}/{file.removesuffix('.tmp')}: No space left on device" in err


def make_data(folder: Path) -> None:
    (folder / "bad.png").write_text("no image")
    Image.new("RGB", (8, 8)).save(folder / "good.png")
    row = {"image": "bad.png", "candidate": "a dog", "references": ["a dog"]}
    (folder / "data.jsonl").write_text(json.dumps(row) + "\n")
    rated = [json.dumps({**row, "ratings": [number]}) + "\n" for number in range(4)]
    (folder / "rated.jsonl").write_text("".join(rated))
    names = {"source1": "a", "source2": "b", "caption1": "a dog", "caption2": "a dog runs", "winner": "b"}
    (folder / "battles.json").write_text(json.dumps([{"img": "bad.png", **names}] * 3))
    (folder / "one.json").write_text('{"bad.png": "a dog"}')
    (folder / "two.json").write_text('{"bad.png": "a dog runs"}')
    (folder / "config.json").write_text("{}")


NOTHING_SCORED = {
    "score": "score data.jsonl -m vela -o o.jsonl",
    "rerank": "rerank data.jsonl -m vela -o o.jsonl",
    "bench": "bench -b ratings=rated.jsonl -m vela",
    "compare": "compare vela length -b ratings=rated.jsonl",
    "arena": "arena battles.json -m vela",
    "judge": "judge data.jsonl -m harmoniceval --judge nobody --server http://127.0.0.1:9/v1 -o o.jsonl",
    "battle": "battle one.json two.json --images . --judge nobody --server http://127.0.0.1:9/v1 -o o.json",
    "train": "train vela -o trained --data data.jsonl",
}
NO_DATA = {"metrics", "caparena-auto"}  # lists metrics; shares all of its judging with battle


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - NO_DATA))
def test_a_file_of_which_nothing_could_be_scored_is_an_error(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    code, _, err = run(*NOTHING_SCORED[command].split())
    assert code == 1, err
    assert "error: " in err
    assert "Traceback" not in err
    assert run("--help")[1].count("not one row could be read, scored or judged") == 1


@pytest.mark.parametrize(
    "line",
    [
        "score data.jsonl -m length -o {}/o.jsonl",
        "rerank data.jsonl -m length -o {}/o.jsonl",
        "bench -b ratings=rated.jsonl -m length -o {}/report",
        "arena battles.json -m length -o {}/report",
        "battle one.json two.json --images . --judge nobody --server http://127.0.0.1:9/v1 -o {}/o.json",
        "train vela -o {}/trained",
        "demo -o {}/demo",
    ],
)
@pytest.mark.parametrize("address", ["https://a.org", "s3://bucket", "file:///tmp"])
def test_no_folder_is_named_after_an_address(
    line: str, address: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    code, _, err = run(*line.format(address).split())
    assert code == 1
    assert "is an address; nothing is sent there. Give a path on this disk" in err
    assert sorted(tmp_path.iterdir()) == before
