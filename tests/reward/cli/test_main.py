"""The `capreward` command: help, exit codes, and what reaches the terminal: no escapes, one line for an error."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from rich.table import Table

import reward
from reward.cli.app import COMMANDS, Command, app
from reward.cli.main import main
from reward.cli.terminal import console, print_json, printable
from reward.data.column_names import names_in_words
from reward.errors import DataError
from reward.registry import list_metrics
from reward.scoring.runs import ScoringInterrupted

GROUP = typer.main.get_command(app)
SCORE = ("score", "c.jsonl", "-m", "length", "-o", "o.jsonl")


def test_threads_spin_for_a_moment_only_unless_the_environment_says_otherwise(run, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that what the command sets is undone afterwards
    run("--version")
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("active", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    run("--version")
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("passive", "10000")


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("CAPREWARD_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["capreward", *SCORE])
    with pytest.raises(DataError, match="there is no file"):
        main()


def test_version_metrics_and_commands_are_listed(run):
    assert run("--version")[0] == f"capreward {reward.__version__}\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # as it was before
    assert set(list_metrics()) <= set(run("metrics")[0].split())
    assert set(COMMANDS) <= set(GROUP.commands) <= set(run("--help")[0].split())


@pytest.mark.parametrize("command", [None, *GROUP.commands])
def test_help_fits_80_columns_cuts_no_name_and_has_an_example(command, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*filter(None, [command]), "--help", "--all")[0]
    assert [line for line in text.splitlines() if len(line) > 80] == []
    names = {name for each in (GROUP.commands[command] if command else GROUP).params for name in each.opts}
    assert {name for name in names if name.startswith("-")} <= set(re.split(r"[\s,]+", text)), "a name is cut"
    if command is None:
        assert "..." not in text.partition("Commands:")[2]  # what they do is said whole
        assert "not one row could be read, scored or judged" in " ".join(text.split())
        return
    examples = [line.split() for line in text.splitlines() if line.strip().startswith(f"capreward {command}")]
    assert examples or command in ("train", "demo")  # which show how to start several processes, or need no option
    assert {word for example in examples for word in example if word.startswith("-")} <= names


@pytest.mark.parametrize("command", GROUP.commands)
def test_help_shows_at_most_16_options_and_says_where_the_others_are(command, run):
    def shown(*line):
        return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", run(command, *line)[0], re.MULTILINE))

    first, every = shown("-h"), shown("--help", "--all")
    assert len(first) <= 16
    assert GROUP.commands[command].common <= {name for each in GROUP.commands[command].params for name in each.opts}
    told = f"{len(every - first)} more options: capreward {command} --help --all"
    assert (told in run(command, "--help")[0]) == (first != every)
    assert first == shown("-h")  # after all of them were shown


@pytest.mark.parametrize("role", ["candidate", "candidates", "image", "references", "rating"])
def test_help_names_the_columns_that_readers_find(role, run):
    command = {"candidates": "rerank", "rating": "bench"}.get(role, "score")
    assert f"default: {names_in_words(role)}" in " ".join(run(command, "--help", "--all")[0].split())


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_no_text_steers_the_terminal(run, tmp_path, capsys):
    table = Table(f"head {ESCAPES}", title=f"title {ESCAPES}")
    table.add_row(f"cell {ESCAPES}")
    for text in (f"[bold]:smile: {ESCAPES}", table):
        console(stderr=False).print(text, style="red", soft_wrap=True)
    print_json({"key": ESCAPES})
    printed = capsys.readouterr().out
    assert f"[bold]:smile: {SHOWN}" in printed
    assert all(f"{part} {SHOWN}" in printed for part in ("head", "title", "cell"))
    assert not set(ESCAPES) & set(printed) - set("]0;owned[2J31m")
    assert json.loads(printed[printed.index("{") :]) == {"key": ESCAPES}
    assert printable("a\tb\nc é 🌟") == "a\tb\nc é 🌟"
    (tmp_path / "a.jsonl").write_text(json.dumps({ESCAPES: 1}))
    _, err = run("score", tmp_path / "a.jsonl", "-m", "length", "-o", tmp_path / "o.jsonl", code=1)
    assert f"The columns are: {SHOWN}." in err


@pytest.mark.parametrize(
    ("error", "place", "message"),
    [
        (KeyboardInterrupt(), "torch.empty", "stopped"),  # while an option is checked
        (ScoringInterrupted(7, Path("o.partial")), "reward.scoring.dataset.score_dataset", "stopped; 7 rows are saved"),
    ],
)
def test_ctrl_c_is_one_line(error, place, message, run, monkeypatch):
    def stop(*arguments, **options):
        raise error

    monkeypatch.setattr(place, stop)
    assert run(*SCORE, "--device", "cpu", code=130)[1].startswith(message)


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
@pytest.mark.parametrize(
    ("module", "error"),
    [("typer", "KeyboardInterrupt"), ("torch", "RuntimeError('half imported')"), ("pyarrow", "KeyboardInterrupt")],
)
def test_ctrl_c_in_an_import_is_one_line(module, error, tmp_path):
    (tmp_path / f"{module}.py").write_text(SLOW_MODULE.format(error))
    (tmp_path / "c.jsonl").write_text('{"candidate": "a"}')
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    command = [sys.executable, "-c", "from reward.cli.main import main; main()", *SCORE[:-1], "o.parquet"]
    command += ["--device", "cpu"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]  # of pyarrow, which is loaded for the output, with what is saved
    assert (done.returncode, last.partition(";")[0]) == (130, "stopped")
    assert "Traceback" not in done.stderr


def test_warnings_are_one_line(run, monkeypatch):
    def warn(*arguments, **options):
        warnings.warn(f"for trials {ESCAPES}", stacklevel=2)
        raise DataError("and no data")

    monkeypatch.setattr("reward.scoring.dataset.score_dataset", warn)
    assert run(*SCORE, code=1) == ("", f"warning: for trials {SHOWN} error: and no data")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
def test_a_full_disk_is_one_line(run, tmp_path):
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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-o o.jsonl -o o.jsonl --quiet --quiet", "--metric: is missing"),  # equal values and flags may be repeated
        ("-o first --output second", "--output: takes one value, got first and second; leave out all but one"),
        ("-w desc=1 --weights rel=2", "write --weights desc=1,rel=2"),
        ("--devices cuda:0 --devices cuda:1", "write --devices cuda:0,cuda:1"),
    ],
)
def test_no_command_keeps_the_last_of_a_repeated_option_in_silence(run, line, told):
    assert told in run("score", "data.jsonl", *line.split(), code=2)[1]
    assert all(isinstance(command, Command) for command in GROUP.commands.values())  # which refuses it
