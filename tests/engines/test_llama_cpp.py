"""llama.cpp's server: captions of the embedded captioner, and judges that score as the same weights do here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from reward.judges import LocalJudge, ServerJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.metrics.judge_metric.scorer import VqaScorer
from tests.engines.captions import asking, check_killed, differences
from tests.engines.conftest import Run
from tests.engines.environments import program
from tests.engines.judging import check_scores, check_verdicts, check_written
from tests.engines.servers import EngineServer
from tests.json_lines import read_lines

CLOSE = 1e-3  # its GELU reads a table in half precision: measured 7e-5 a token, 8e-4 of a score from 1 to 5
SLOTS = 8


def llama_cpp(model: Path, tokens: int, folder: Path) -> EngineServer:
    script = Path(__file__).with_name("llama_cpp_server.py")
    command = [program("llama_cpp", "python"), script, model, folder / model.name, "{port}", SLOTS, tokens]
    return EngineServer([str(part) for part in command], folder / f"{model.name}.log", seconds=60)


def as_llama_cpp_reads(model: Any, processor: Any) -> None:
    """The language model gets what llama.cpp gives it of the image: no first patch, and the class token last."""
    model.config.vision_feature_select_strategy = "full"
    processor.vision_feature_select_strategy = "default"  # one token less than the tower has
    model.model.multi_modal_projector.register_forward_pre_hook(
        lambda _, given: (torch.cat([given[0][:, 2:], given[0][:, :1]], 1),)
    )


@pytest.fixture(scope="module")
def captions(captioner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with llama_cpp(captioner, 512, tmp_path_factory.mktemp("llama")) as server:
        yield server


@pytest.fixture(scope="module")
def plain_judge(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The judge with a template that has nothing of its own beside an image, as llama.cpp puts none there."""
    folder = shutil.copytree(judge, tmp_path_factory.mktemp("plain") / "judge")
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("<image>\n", "<image>"))
    return folder


@pytest.fixture(scope="module")
def served(plain_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerJudge]]:
    """Makes judges behind one server."""
    with llama_cpp(plain_judge, 8192, tmp_path_factory.mktemp("llama")) as server:
        yield lambda **settings: ServerJudge(plain_judge.name, server.url, **settings)


@pytest.fixture(scope="module")
def local(plain_judge: Path) -> LocalJudge:
    model = AutoModelForImageTextToText.from_pretrained(plain_judge, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(plain_judge)
    as_llama_cpp_reads(model, processor)
    return LocalJudge(model, processor)


def test_captions_and_their_log_probabilities(
    captions: EngineServer, captioner: Path, photos: Path, start: Run, tmp_path: Path
) -> None:
    command = start(*asking(captions, photos, tmp_path / "c.jsonl"))
    told, _ = command.communicate()
    assert command.returncode == 0, told
    assert "12 questions answered by the model" in told  # all 8 candidates of an image come in one reply
    assert "captioned 12 of 12 images from 96 candidates" in told
    assert all(len(set(pool["candidates"])) > 1 for pool in read_lines(tmp_path / "c.jsonl.candidates.jsonl"))
    model = AutoModelForImageTextToText.from_pretrained(captioner, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(captioner)
    as_llama_cpp_reads(model, processor)
    apart = differences(captions, photos, model, processor)
    assert len(apart) > 80
    alike = [difference for difference in apart if difference < CLOSE]
    print(f"log probabilities: at most {max(alike):.1e} a token apart over {len(alike)} of {len(apart)} captions")
    assert len(alike) >= len(apart) - 2


def test_a_server_that_is_killed(captions: EngineServer, photos: Path, start: Run, tmp_path: Path) -> None:
    check_killed(captions, photos, start, tmp_path)


def test_what_is_not_as_elsewhere(captions: EngineServer, photos: Path, start: Run, tmp_path: Path) -> None:
    def told_by(*more: object, code: int = 0) -> str:
        command = start(*asking(captions, photos, tmp_path / "c.jsonl", SLOTS + 1), *more)
        told, _ = command.communicate()
        assert command.returncode == code, told
        return " ".join(told.split())

    told = told_by(code=1)
    assert "Value must be between 1 <= value <= 8, but got 9); if these are too many at once, give a smaller" in told
    every = '{"top_k": 0, "top_p": 1, "min_p": 0}'  # else it samples from a part of the tokens
    told = told_by("--chunk", SLOTS, "--model-set", f"extra_body={every}")
    assert "captioned 12 of 12 images from 108 candidates" in told


@pytest.mark.parametrize("scorer", [FleurScorer, HarmonicScorer, VqaScorer])
def test_scores_are_those_of_the_same_weights_here(
    scorer: Any, served: Callable[..., ServerJudge], local: LocalJudge, photos: Path
) -> None:
    check_scores(scorer, local, served(), photos, CLOSE)


def test_verdicts_are_those_of_the_same_weights_here(
    served: Callable[..., ServerJudge], local: LocalJudge, photos: Path
) -> None:
    check_verdicts(local, served(), photos, CLOSE)


def test_what_a_judge_writes(served: Callable[..., ServerJudge], local: LocalJudge, photos: Path) -> None:
    check_written(served, local, photos)
