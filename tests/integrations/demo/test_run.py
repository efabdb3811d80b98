"""`capreward demo`: report, figures, files, help, interruption."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from rich.console import Console

from integrations.demo import run as demo_run
from integrations.demo.run import QUICK, SEED, run_demo
from reward.errors import CheckpointError, OutputError
from reward.scenes import make_dataset
from tests.toys.json_lines import read_lines

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of `capreward demo --quick`, its figures, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "reward.cli.main", "demo", "--quick", "--output", "new/folder"]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert "report: new/folder/report.html" in done.stdout
    output = folder / "new" / "folder"
    return output, json.loads((output / "figures.json").read_text(encoding="utf-8")), done.stdout


class Tags(HTMLParser):
    """Collects texts and attributes that load something, and checks that tags are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.loaded, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_report_is_one_file_that_needs_nothing_else_and_shows_every_part(finished):
    output, figures, printed = finished
    html = (output / "report.html").read_text(encoding="utf-8")
    tags = Tags(html)
    assert tags.open == []
    assert len(tags.loaded) == QUICK.scenes
    assert all(address.startswith("data:image/png;base64,") for address in tags.loaded)
    assert not re.search(r"https?://|@import|url\((?!#)|<script|<link", html)
    assert "prefers-color-scheme: dark" in html

    text = " ".join(" ".join(tags.text).split())
    questions = (
        "1 · Do the metrics agree with simulated raters?",
        f"2 · Best of {QUICK.n}",
        "3 · GRPO",
        "4 · Offline scoring",
    )
    assert all(heading in text for heading in (*questions, "Two scenes, and what was written about them"))
    rows = ("VELA, with references", "BEiTScore", "unigram F1", "CLIP score", "ceiling (truth)", "single rater")
    assert all(name in text for name in (*rows, f"best of {QUICK.n} by BEiTScore"))
    choice = figures["choice"]
    means = (choice["means"][name]["f1"]["value"] for name in ("greedy", f"best of {QUICK.n} by VELA"))
    assert f"Best of {QUICK.n}: {' -> '.join(f'{value:.2f}' for value in means)}, " in printed
    titles = ("Agreement with simulated raters", "Best of", "Offline scoring", "GRPO")
    assert all(len(re.findall(f"^{title}", printed, re.MULTILINE)) == 1 for title in titles)
    assert f"{choice['means']['one sample']['f1']['value']:.3f}" in text
    assert " ".join(choice["captions"]["greedy"][0].split()) in text
    assert "nan" not in re.findall(r"\w+", text.lower())


def test_figures_are_those_of_the_run(finished):
    _, figures, _ = finished
    assert (figures["vela"], figures["beitscore"], figures["stopped"]) == ("embedded", "embedded", None)
    assert list(figures["seconds"]) == ["agreement", "best of n", "offline scoring", "GRPO"]
    assert figures["agreement"]["samples"] == QUICK.samples
    cell = figures["agreement"]["agreement"]["length"]["desc"]
    assert cell["low"] <= cell["value"] <= cell["high"]
    assert [entry["step"] for entry in figures["grpo"]["curve"]] == [1, 2]
    assert set(figures["grpo"]["means"]) == {"greedy, before", "sampled, before", "greedy, after", "sampled, after"}
    assert figures["grpo"]["differences"]
    assert len(figures["choice"]["candidates"][0]) == QUICK.n


def test_the_scored_file_is_there_with_its_images(finished):
    import pyarrow.parquet

    output, figures, _ = finished
    rows = pyarrow.parquet.read_table(output / "offline" / "scores.parquet").to_pylist()
    lines = read_lines(output / "offline" / "captions.jsonl")
    assert [row["candidate"] for row in rows] == [line["candidate"] for line in lines]
    images = list((output / "offline" / "images").iterdir())
    assert len(images) == QUICK.scenes == figures["offline"]["images"]
    # scored from the PNG files as best-of-N scored them in memory
    choice = zip(figures["choice"]["candidates"], figures["choice"]["rewards"]["VELA"], strict=True)
    known = {
        (f"images/scene_{index:03d}.png", text): reward
        for index, (texts, rewards) in enumerate(choice)
        for text, reward in zip(texts, rewards, strict=True)
    }
    assert len(rows) > 0
    assert [row["reward"] for row in rows] == pytest.approx(
        [known[row["image"], row["candidate"]] for row in rows], abs=1e-5
    )


def test_the_command_helps_without_heavy_imports(tmp_path):
    code = (
        "import sys; sys.argv = ['capreward', 'demo', '--help']\n"
        "from reward.cli.main import main\n"
        "try: main()\nfinally: print(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "--quick" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_training_and_held_out_scenes_are_different():
    held_out, trained = make_dataset(300, SEED)["scene"], make_dataset(480, SEED + 1)["scene"]
    assert not set(held_out) & set(trained)


@pytest.fixture
def run_quickly(scene_vela_folder, scene_beitscore_folder, captioner_folder):
    """Runs the demo with models of random weights, and prints nothing."""
    folders = {"vela": scene_vela_folder, "beitscore": scene_beitscore_folder, "captioner": captioner_folder}
    models = {name: str(folder) for name, folder in folders.items()}
    console = Console(file=io.StringIO(), width=100)
    return lambda output, **others: run_demo(output, QUICK, **(models | others), console=console)


def test_stopped_in_the_middle_of_grpo_the_report_keeps_what_there_is(run_quickly, tmp_path, monkeypatch):
    calls = []
    whole = demo_run.MetricReward.__call__

    def interrupted(self, *arguments, **columns):
        calls.append(1)
        if len(calls) == 2:  # the second step
            raise KeyboardInterrupt
        return whole(self, *arguments, **columns)

    monkeypatch.setattr(demo_run.MetricReward, "__call__", interrupted)
    assert run_quickly(tmp_path)["stopped"] == "GRPO"
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in ("Stopped during “GRPO”", "Not finished: 1 of 2 steps", "greedy, before", "4 · Offline scoring"):
        assert text in html
    assert len(json.loads((tmp_path / "figures.json").read_text())["grpo"]["curve"]) == 1


def test_stopped_at_once_there_is_a_report_that_says_so(run_quickly, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_run, "measure_agreement", stop)
    results = run_quickly(tmp_path)
    assert (results["stopped"], results["choice"]) == ("agreement", None)
    assert "Stopped during “agreement”" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_amiss_is_said_before_any_work(run_quickly, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        run_quickly(tmp_path / "file" / "demo")
    with pytest.raises(CheckpointError, match="policy"):
        run_quickly(tmp_path, captioner=str(tmp_path / "nothing"))
