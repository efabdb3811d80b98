"""`capreward demo`: report, figures, files, help, interruption."""

import contextlib
import io
import json
import re

import datasets
import pandas
import pytest
import transformers
import typer
from rich.console import Console

from integrations.demo import run as demo_run
from integrations.demo.command import demo
from integrations.demo.run import QUICK, SEED, Sizes, run_demo
from reward.errors import CheckpointError, OutputError
from reward.scenes import make_dataset
from tests.toys.pages import Page

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def libraries_as_before():
    """The command makes libraries quiet, as it has a process of its own."""
    verbosity = transformers.utils.logging.get_verbosity()
    yield
    transformers.utils.logging.set_verbosity(verbosity)
    transformers.utils.logging.enable_progress_bar()
    datasets.enable_progress_bars()


def test_the_report_shows_every_part_and_the_command_prints_its_figures(tmp_path):
    output, printed = tmp_path / "new" / "folder", io.StringIO()
    with libraries_as_before(), contextlib.redirect_stdout(printed):
        demo(output, quick=True)
    figures = json.loads((output / "figures.json").read_text(encoding="utf-8"))
    page = Page(output / "report.html")
    assert [address[:22] for address in page.pictures] == ["data:image/png;base64,"] * QUICK.scenes
    choice = figures["choice"]
    greedy, best = (choice["means"][name]["f1"]["value"] for name in ("greedy", f"best of {QUICK.n} by VELA"))
    titles = ("1 · Do the metrics agree with simulated raters?", f"2 · Best of {QUICK.n}", "3 · GRPO", "4 · Offline")
    rows = ("VELA, with references", "BEiTScore", "unigram F1", "CLIP score", "ceiling (truth)", "single rater")
    caption = " ".join(choice["captions"]["greedy"][0].split())
    for part in (*titles, *rows, caption, f"{choice['means']['one sample']['f1']['value']:.3f}"):
        assert part in page.shown
    assert "nan" not in re.findall(r"\w+", page.shown.lower())
    assert list(figures["seconds"]) == ["agreement", "best of n", "offline scoring", "GRPO"]
    assert [step["step"] for step in figures["grpo"]["curve"]] == [1, 2]
    assert set(figures["grpo"]["means"]) == {"greedy, before", "sampled, before", "greedy, after", "sampled, after"}
    assert f"Best of {QUICK.n}: {greedy:.2f} -> {best:.2f}, " in printed.getvalue()

    # Files are scored as best of n scored the images in memory.
    scored = pandas.read_parquet(output / "offline" / "scores.parquet")
    for index, texts in enumerate(choice["candidates"]):
        rows = scored[scored["image"] == f"images/scene_{index:03d}.png"]
        rewards = dict(zip(texts, choice["rewards"]["VELA"][index], strict=True))
        assert len(rows) > 0
        assert rows["reward"].tolist() == pytest.approx([rewards[text] for text in rows["candidate"]], abs=1e-5)


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
    monkeypatch.setattr(demo_run, "run_demo", lambda output, sizes, console: run_quickly(output))
    with libraries_as_before(), pytest.raises(typer.Exit) as ended:
        demo(tmp_path, quick=True)
    assert ended.value.exit_code == 130
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in ("Stopped during “GRPO”", "Not finished: 1 of 2 steps", "greedy, before"):
        assert text in html
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["stopped"], figures["choice"], len(figures["grpo"]["curve"])) == ("GRPO", None, 1)


def test_what_is_amiss_is_said_before_any_work(run_quickly, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        run_quickly(tmp_path / "file" / "demo")
    with pytest.raises(CheckpointError, match="policy"):
        run_quickly(tmp_path, captioner=str(tmp_path / "nothing"))
