"""The whole demo with models of random weights: report, figures, files, interruption."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from integrations.demo import run as demo_run
from integrations.demo.results import QUICK, SEED
from integrations.demo.run import run_demo
from reward.errors import CheckpointError, OutputError
from reward.scenes import make_dataset


def silent():
    return Console(file=io.StringIO(), width=100)


@pytest.fixture(scope="module")
def finished(scene_vela_folder, scene_beitscore_folder, captioner_folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("demo") / "new" / "folder"
    console = silent()
    models = {"vela": scene_vela_folder, "beitscore": scene_beitscore_folder, "captioner": captioner_folder}
    results = run_demo(output, QUICK, **models, console=console)
    return output, results, console.file.getvalue()


class Tags(HTMLParser):
    """Collects attributes that load something, and checks that tags are closed in order."""

    VOID = ("meta", "img", "circle", "line", "br")

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_report_is_one_file_that_needs_nothing_else(finished):
    output, _, _ = finished
    html = (output / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert len(tags.loaded) == QUICK.scenes
    assert all(address.startswith("data:image/png;base64,") for address in tags.loaded)
    assert not re.search(r"https?://|@import|url\(|<script|<link", html)
    assert "prefers-color-scheme: dark" in html


def test_the_report_shows_every_part(finished):
    output, results, printed = finished
    tags = Tags()
    tags.feed((output / "report.html").read_text(encoding="utf-8"))
    text = " ".join(" ".join(tags.text).split())
    for heading in (
        "1 · Do the metrics agree with raters?",
        f"2 · Best of {QUICK.n}",
        "3 · GRPO",
        "4 · Offline scoring",
        "Captions",
    ):
        assert heading in text
    for name in (
        "VELA, with references",
        "BEiTScore",
        f"best of {QUICK.n} by BEiTScore",
        "unigram F1",
        "CLIP score",
        "ceiling (truth)",
        "single rater",
    ):
        assert name in text
        assert name in printed
    assert f"{results.choice.means['one sample']['words'].value:.3f}" in text
    assert " ".join(results.choice.captions["greedy"][0].split()) in text
    assert "nan" not in re.findall(r"\w+", text.lower())
    assert results.stopped is None
    assert list(results.seconds) == ["agreement", "best of n", "offline scoring", "GRPO"]


def test_figures_are_those_of_the_run(finished):
    output, results, _ = finished
    figures = json.loads((output / "figures.json").read_text(encoding="utf-8"))
    assert figures["agreement"]["samples"] == QUICK.samples
    cell = figures["agreement"]["agreement"]["length"]["desc"]
    assert cell["value"] == results.agreement.agreement["length"]["desc"].value
    assert cell["low"] <= cell["value"] <= cell["high"]
    assert [entry["step"] for entry in figures["grpo"]["curve"]] == [1, 2]
    assert set(figures["grpo"]["means"]) == {"greedy, before", "sampled, before", "greedy, after", "sampled, after"}
    assert len(figures["choice"]["candidates"][0]) == QUICK.n


def test_the_scored_file_is_there_with_its_images(finished):
    import pyarrow.parquet

    output, results, _ = finished
    rows = pyarrow.parquet.read_table(output / "offline" / "scores.parquet").to_pylist()
    lines = [json.loads(line) for line in (output / "offline" / "captions.jsonl").read_text().splitlines()]
    assert [row["candidate"] for row in rows] == [line["candidate"] for line in lines]
    assert (
        len(list((output / "offline" / "images").iterdir()))
        == QUICK.scenes
        == results.offline.summary["images_decoded"]
    )
    # scored from the PNG files as best-of-N scored them in memory
    known = {
        (f"images/scene_{index:03d}.png", text): reward
        for index, (texts, rewards) in enumerate(
            zip(results.choice.candidates, results.choice.rewards["VELA"], strict=True)
        )
        for text, reward in zip(texts, rewards, strict=True)
    }
    assert len(rows) > 0
    for row in rows:
        assert row["reward"] == pytest.approx(known[row["image"], row["candidate"]], abs=1e-5)


def test_training_and_held_out_scenes_are_different():
    held_out, trained = make_dataset(300, SEED)["scene"], make_dataset(480, SEED + 1)["scene"]
    assert not set(held_out) & set(trained)


def test_stopped_in_the_middle_of_grpo_the_report_keeps_what_there_is(
    scene_vela_folder, captioner_folder, tmp_path, monkeypatch
):
    calls = []
    whole = demo_run.VelaReward.__call__

    def interrupted(self, *arguments, **columns):
        calls.append(1)
        if len(calls) == 2:  # the second step
            raise KeyboardInterrupt
        return whole(self, *arguments, **columns)

    monkeypatch.setattr(demo_run.VelaReward, "__call__", interrupted)
    results = run_demo(tmp_path, QUICK, vela=scene_vela_folder, captioner=captioner_folder, console=silent())
    assert results.stopped == "GRPO"
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Stopped during “GRPO”" in html
    assert "Not finished: 1 of 2 steps" in html
    assert "greedy, before" in html
    assert "4 · Offline scoring" in html
    assert len(json.loads((tmp_path / "figures.json").read_text())["grpo"]["curve"]) == 1


def test_stopped_at_once_there_is_a_report_that_says_so(scene_vela_folder, captioner_folder, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_run, "measure_agreement", stop)
    results = run_demo(tmp_path, QUICK, vela=scene_vela_folder, captioner=captioner_folder, console=silent())
    assert (results.stopped, results.choice) == ("agreement", None)
    assert "Stopped during “agreement”" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_an_error_before_any_work(scene_vela_folder, captioner_folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        run_demo(tmp_path / "file" / "demo", QUICK, vela=scene_vela_folder, captioner=captioner_folder)


def test_a_missing_checkpoint_is_named(scene_vela_folder, tmp_path):
    with pytest.raises(CheckpointError, match="captioner"):
        run_demo(tmp_path, QUICK, vela=scene_vela_folder, captioner=tmp_path / "nothing", console=silent())
