"""`make gpu` without a GPU: stages that fail, runs that go on, the page, and the stages as far as they go."""

from __future__ import annotations

import argparse
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from reward.metrics.bertscore.scorer import BertScorer
from tests import toy_captioners
from tests.benchmarks import bench_sizes
from tests.benchmarks.gpu import card, command, scores, sizes, steps, training
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report, read_result, write_result
from tests.benchmarks.gpu.stages import STAGES, Stage
from tests.fake_cuda import FakeDevice


def in_process(name: str, options: argparse.Namespace, seconds: float) -> None:
    write_result(options.output, command.run_stage(name, options, card.facts(True)))


def test_without_a_card_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main([]) == 2
    for version, reason in (("13.2", "finds no card or no driver"), (None, "is a build without CUDA")):
        monkeypatch.setattr(torch.version, "cuda", version)
        assert command.main([]) == 2
        assert reason in (said := capsys.readouterr().err)
        assert "make gpu SIMULATED=1" in said


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four stages in the place of the real ones; gives the names of those that have run."""
    ran: list[str] = []

    def stage(name: str, end: Any) -> Stage:
        def run(report: Report, place: Place) -> None:
            ran.append(name)
            report.row("Speed", metric=name, captions_a_second=len(ran))
            end(report)

        return Stage(f"what {name} is for", run)

    def raises(error: Exception) -> Any:
        def end(report: Report) -> None:
            raise error

        return end

    stages = {
        "good": stage("good", lambda report: report.note("a | b")),
        "broken": stage("broken", raises(ValueError("no such thing\nand more"))),
        "large": stage("large", raises(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"))),
        "far": stage("far", lambda report: report.row("Differences", score=report.check(0.3, 0.2, "vela"))),
    }
    monkeypatch.setattr(command, "STAGES", stages)
    return ran


def test_a_stage_that_fails_says_so_and_a_second_run_goes_on(ran: list[str], tmp_path: Path) -> None:
    arguments = ["--simulated", "--output", str(tmp_path / "gpu")]
    assert command.main(arguments, in_process) == 1
    assert ran == ["good", "broken", "large", "far"]
    results = [read_result(tmp_path / "gpu", name) for name in ran]
    assert [result and result.status for result in results] == ["done", "FAILED", "lacks memory", "FAILED"]
    page = (tmp_path / "gpu.md").read_text()
    assert "| good | done | 0 | a \\| b |" in page
    assert "| broken | FAILED | 0 | ValueError: no such thing |" in page
    assert "| large | lacks memory | 0 | CUDA out of memory |" in page
    assert "| far | FAILED | 0 | vela: 0.3 is above the bound 0.2 |" in page
    assert "## Speed\n\n| metric | captions a second |\n| --- | --- |\n| good | 1 |\n| broken | 2 |\n" in page
    assert "| **3.0e-01** |" in page
    assert f"| torch | {torch.__version__} |" in page
    assert command.main([*arguments, "--only", "good", "broken"], in_process) == 1
    assert ran[4:] == ["broken"]
    assert command.main([*arguments, "--only", "good", "--again"], in_process) == 0
    assert ran[5:] == ["good"]


def test_what_another_card_has_found_is_measured_anew(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--simulated", "--output", str(tmp_path / "gpu"), "--only", "good"]
    command.main(arguments, in_process)
    facts = card.facts(True) | {"card": "another"}
    monkeypatch.setattr(card, "facts", lambda simulated: facts)
    command.main(arguments, in_process)
    command.main(arguments, in_process)
    assert ran == ["good", "good"]


def test_a_process_that_dies_or_has_no_time(ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--simulated", "--output", str(tmp_path / "gpu"), "--only", "good", "far"]

    def dies(name: str, options: argparse.Namespace, seconds: float) -> None:
        if name == "far":
            raise subprocess.TimeoutExpired("python", seconds)

    assert command.main(arguments, dies) == 1
    assert "good: FAILED, 0 s. its process ended without a result; see good.log" in capsys.readouterr().out
    far = read_result(tmp_path / "gpu", "far")
    assert far is not None
    assert far.note == "stopped after 900 s; see far.log"
    assert command.main([*arguments, "--minutes", "0.001"], dies) == 1
    assert "far: no time left, 0 s. the same command goes on" in capsys.readouterr().out
    (tmp_path / "gpu" / "good.json").write_text("{")  # cut off
    assert command.main(arguments, in_process) == 1
    assert ran == ["good", "far"]


def test_a_stage_that_is_stopped_keeps_its_tables(ran: list[str], tmp_path: Path) -> None:
    def stops(name: str, options: argparse.Namespace, seconds: float) -> None:
        written: list[str] = []

        def row(report: Report, place: Place) -> None:
            report.row("Speed", metric=name)
            found = read_result(options.output, name)
            assert found is not None
            written.append(found.status)

        command.STAGES[name] = Stage(name, row)
        result = command.run_stage(name, options, card.facts(True))
        assert (written, result.status) == (["stopped"], "done")
        write_result(options.output, replace(result, status=written[0]))
        raise subprocess.TimeoutExpired("python", seconds)

    assert command.main(["--simulated", "--output", str(tmp_path / "gpu"), "--only", "good"], stops) == 1
    page = (tmp_path / "gpu.md").read_text()
    assert "| good | FAILED | 0 | stopped after 900 s; see good.log |" in page
    assert "## Speed\n\n| metric |\n| --- |\n| good |" in page


def test_a_stage_in_a_process_counts_the_size_of_a_paper(tmp_path: Path) -> None:
    assert command.main(["--simulated", "--output", str(tmp_path / "gpu"), "--only", "size-bertscore"]) == 0
    page = (tmp_path / "gpu.md").read_text()
    assert "| metric | captions an image | TFLOP counted | GiB counted |" in page
    assert page.count("| bertscore | ") == 2


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("grpo-beitscore", "GRPO with LoRA"),
        ("best-of-n", "Best of 8"),
        ("photos", "The recipe of docs/PHOTOS.md"),
        ("graphs", "torch.compile and CUDA graphs"),
        ("prefixes", "States of VELA's prompts"),
    ],
)
def test_stages_run_without_a_card(name: str, title: str, tmp_path: Path) -> None:
    report = Report()
    STAGES[name].run(report, Place(True, tmp_path))
    assert report.faults == []
    (found,) = report.tables
    assert found.startswith(title)


def test_a_training_step_is_counted_as_capreward_train_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, beitscore = bench_sizes.training_steps(training.LENGTHS)
    monkeypatch.setattr(bench_sizes, "training_steps", lambda lengths: [beitscore])
    report = Report()
    training.measure(report, Place(True, tmp_path))
    ((row,),) = report.tables.values()
    assert (row["metric"], row["batch"], row["GiB counted"]) == ("beitscore", "24", "17.4")  # an H200 took 17.6


def test_scores_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scores.sources(tmp_path)
    monkeypatch.setattr(scores, "sources", lambda folder: {name: found[name] for name in ("clipscore", "vqascore")})
    report = Report()
    scores.compare(report, Place(True, tmp_path))
    assert report.faults == []
    assert [row["float32"] for row in report.tables[scores.TITLE]] == ["runs", "runs"]
    monkeypatch.setitem(scores.BOUNDS, "bfloat16", 1e-9)
    scores.compare(report, Place(True, tmp_path))
    assert [fault.partition(":")[0] for fault in report.faults] == ["clipscore, bfloat16", "vqascore, bfloat16"]


def test_what_is_measured_stands_beside_what_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines for a real card, on the CPU in its place."""

    def make(device: Any, layers: int) -> sizes.Score:
        tokens = toy_captioners.tokenizer()
        tokens.cls_token, tokens.sep_token = tokens.bos_token, tokens.eos_token
        few = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = RobertaConfig(vocab_size=len(tokens), max_position_embeddings=514, **few)
        model = device.build(lambda: RobertaModel(config, add_pooling_layer=False).eval(), torch.bfloat16)
        assert model.dtype == torch.bfloat16
        return BertScorer(model, tokens, layer=2).score

    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**30)
    monkeypatch.setattr(Card, "name", "cpu")
    monkeypatch.setattr(sizes, "measured_peaks", lambda *_, **__: (1e12, 1e9))
    monkeypatch.setattr(sizes, "SECONDS", 0.1)
    monkeypatch.setitem(sizes.METRICS, "tiny", make)
    report = Report()
    sizes.measure(report, Place(False, tmp_path), "tiny", groups=(1, 2))
    (rows,) = report.tables.values()
    assert [row["captions an image"] for row in rows] == ["1", "2"]
    assert all(float(row["captions/s"]) > 0 and row["GiB"] == "1.00" for row in rows)
    assert report.notes == ["the card reaches 1 TFLOP/s in products of bfloat16"]
    assert torch.get_default_dtype() == torch.float32


def test_a_smaller_policy_takes_the_place_of_one_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "Card", FakeDevice)
    report, layers = Report(), []

    def work(name: str, model: Any, processor: Any) -> None:
        layers.append(model.config.text_config.num_hidden_layers)
        assert len(model.model.language_model.layers) == layers[-1]
        assert model.dtype == torch.bfloat16
        if layers[-1] > 6:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    steps._with_room(report, Place(False, tmp_path), work)
    assert layers == [36, 18, 6]
    assert report.notes == ["no room for Qwen2.5-VL-3B", "no room for 18 layers of Qwen2.5-VL-3B"]
