"""`capreward demo`: report, figures, files, help, interruption."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys

import datasets
import pyarrow.parquet
import pytest
import transformers
import typer
from rich.console import Console

from integrations.demo import run as demo_run
from integrations.demo.command import demo
from integrations.demo.run import QUICK, SEED, Sizes, run_demo
from reward.errors import CheckpointError, OutputError
from reward.scenes import make_dataset
from tests.toys.json_lines import read_lines

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def libraries_as_before():
    """The command makes libraries quiet, as it has a process of its own."""
    verbosity = transformers.utils.logging.get_verbosity()
    yield
    transformers.utils.logging.set_verbosity(verbosity)
    transformers.utils.logging.enable_progress_bar()
    datasets.enable_progress_bars()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of `capreward demo --quick`, its figures, and what it printed."""
    output, printed = tmp_path_factory.mktemp("demo") / "new" / "folder", io.StringIO()
    with libraries_as_before(), contextlib.redirect_stdout(printed):
        demo(output, quick=True)
    return output, json.loads((output / "figures.json").read_text(encoding="utf-8")), printed.getvalue()


def test_the_report_is_one_file_that_needs_nothing_else_and_shows_every_part(finished):
    output, figures, printed = finished
    html = (output / "report.html").read_text(encoding="utf-8")
    loaded = re.findall(r'\s(?:src|href|srcset)="([^"]*)"', html)
    assert len(loaded) == QUICK.scenes
    assert all(address.startswith("data:image/png;base64,") for address in loaded)
    assert not re.search(r"https?://|@import|url\((?!#)|<script|<link", html)
    assert "prefers-color-scheme: dark" in html

    text = " ".join(re.sub("<[^>]*>", " ", html).split())
    choice = figures["choice"]
    greedy, best = (choice["means"][name]["f1"]["value"] for name in ("greedy", f"best of {QUICK.n} by VELA"))
    for shown in (
        *(
            "1 · Do the metrics agree with simulated raters?",
            f"2 · Best of {QUICK.n}",
            "3 · GRPO",
            "4 · Offline scoring",
        ),
        *("VELA, with references", "BEiTScore", "unigram F1", "CLIP score", "ceiling (truth)", "single rater"),
        *("Two scenes, and what was written about them", " ".join(choice["captions"]["greedy"][0].split())),
        f"{choice['means']['one sample']['f1']['value']:.3f}",
    ):
        assert shown in text
    assert "nan" not in re.findall(r"\w+", text.lower())
    assert list(figures["seconds"]) == ["agreement", "best of n", "offline scoring", "GRPO"]
    assert [entry["step"] for entry in figures["grpo"]["curve"]] == [1, 2]
    assert set(figures["grpo"]["means"]) == {"greedy, before", "sampled, before", "greedy, after", "sampled, after"}
    assert f"Best of {QUICK.n}: {greedy:.2f} -> {best:.2f}, " in printed
    assert re.findall("^(Agreement|Best|Offline|GRPO)", printed, re.MULTILINE) == [
        *("Agreement", "Best", "Offline", "GRPO")
    ]
    assert f"report: {output / 'report.html'}" in " ".join(printed.split())


def test_files_are_scored_as_best_of_n_scored_the_images_in_memory(finished):
    output, figures, _ = finished
    rows = pyarrow.parquet.read_table(output / "offline" / "scores.parquet").to_pylist()
    lines = read_lines(output / "offline" / "captions.jsonl")
    assert [row["candidate"] for row in rows] == [line["candidate"] for line in lines]
    assert len(rows) > 0
    choice = zip(figures["choice"]["candidates"], figures["choice"]["rewards"]["VELA"], strict=True)
    known = {
        (f"images/scene_{index:03d}.png", text): reward
        for index, (texts, rewards) in enumerate(choice)
        for text, reward in zip(texts, rewards, strict=True)
    }
    expected = [known[row["image"], row["candidate"]] for row in rows]
    assert [row["reward"] for row in rows] == pytest.approx(expected, abs=1e-5)


def test_the_command_helps_without_heavy_imports():
    code = (
        "import sys; sys.argv = ['capreward', 'demo', '--help']\n"
        "from reward.cli.main import main\n"
        "try: main()\nfinally: print(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--quick" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_training_and_held_out_scenes_are_different():
    sizes = Sizes()
    held_out, trained = make_dataset(sizes.samples, SEED), make_dataset(sizes.steps * sizes.prompts, SEED + 1)
    assert not set(held_out["scene"]) & set(trained["scene"])


@pytest.fixture
def run_quickly(scene_vela_folder, scene_beitscore_folder, captioner_folder):
    """Runs the demo with models of random weights, and prints nothing."""
    folders = {"vela": scene_vela_folder, "beitscore": scene_beitscore_folder, "captioner": captioner_folder}
    models = {name: str(folder) for name, folder in folders.items()}
    console = Console(file=io.StringIO(), width=100)
    return lambda output, **others: run_demo(output, QUICK, **(models | others), console=console)


def test_stopped_in_the_middle_of_grpo_the_report_keeps_what_there_is(run_quickly, tmp_path, monkeypatch):
    steps, score = [], demo_run.MetricReward.__call__

    def interrupted(self, *arguments, **columns):
        steps.append(1)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return score(self, *arguments, **columns)

    for part in ("agreement", "choice", "offline"):
        monkeypatch.setattr(demo_run._Demo, part, lambda self, status: None)
    monkeypatch.setattr(demo_run.MetricReward, "__call__", interrupted)
    assert run_quickly(tmp_path)["stopped"] == "GRPO"
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in ("Stopped during “GRPO”", "Not finished: 1 of 2 steps", "greedy, before"):
        assert text in html
    assert len(json.loads((tmp_path / "figures.json").read_text())["grpo"]["curve"]) == 1


def test_stopped_at_once_there_is_a_report_that_says_so_and_the_command_is_no_success(
    run_quickly, tmp_path, monkeypatch
):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_run, "measure_agreement", stop)
    monkeypatch.setattr(demo_run, "run_demo", lambda output, sizes, console: run_quickly(output))
    with libraries_as_before(), pytest.raises(typer.Exit) as ended:
        demo(tmp_path, quick=True)
    assert ended.value.exit_code == 130
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["stopped"], figures["choice"]) == ("agreement", None)
    assert "Stopped during “agreement”" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_amiss_is_said_before_any_work(run_quickly, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        run_quickly(tmp_path / "file" / "demo")
    with pytest.raises(CheckpointError, match="policy"):
        run_quickly(tmp_path, captioner=str(tmp_path / "nothing"))
