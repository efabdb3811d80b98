"""`transformers serve` of this environment: a caption a request, sampled only if the model says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reward import CaptionSample
from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.errors import JudgeError
from reward.judges import LocalJudge, Question, ServerJudge
from reward.metrics.fleur.scorer import FleurScorer
from tests.engines.conftest import Run
from tests.engines.environments import program
from tests.engines.servers import EngineServer
from tests.toys.json_lines import read_lines


@contextmanager
def serving(model: Path, log: Path) -> Iterator[EngineServer]:
    command = [str(program("transformers_serve", "transformers")), "serve", str(model), "--device", "cpu"]
    with EngineServer([*command, "--host", "127.0.0.1", "--port", "{port}"], log) as server:
        yield server


def asking(server: EngineServer, photos: Path, output: Path, model: object = "") -> list[object]:
    line = ["caption", "--model", f"{server.url}#{model}", photos, "--n", 3, "--metric", "length", "--max-tokens", 90]
    return [*line, "--prompt", EMBEDDED_PROMPT, "--keep-candidates", "-o", output]


def told_by(start: Run, *line: object, code: int = 0) -> str:
    command = start(*line)
    told, _ = command.communicate()
    assert command.returncode == code, told
    return " ".join(told.split())


def test_captions_of_a_model_that_does_not_sample(captioner: Path, photos: Path, start: Run, tmp_path: Path) -> None:
    with serving(captioner, tmp_path / "log") as server:
        line = asking(server, photos, tmp_path / "c.jsonl")
        told = told_by(start, *line, code=1)
        assert "needs the model's name, as it does not list its models: give http" in told
        told = told_by(start, *asking(server, photos, tmp_path / "c.jsonl", "other"), code=1)
        assert "the server refuses the question (Error code: 400 - Server is pinned to" in told
        told = told_by(start, *asking(server, photos, tmp_path / "c.jsonl", captioner))
        assert 'generation_config.json has "do_sample": true' in told
        assert "36 questions answered by the model" in told
        pools = read_lines(tmp_path / "c.jsonl.candidates.jsonl")
        assert all(len(set(pool["candidates"])) == 1 for pool in pools)


def test_captions_of_a_model_that_samples(captioner: Path, photos: Path, start: Run, tmp_path: Path) -> None:
    model = shutil.copytree(captioner, tmp_path / "captioner")
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**settings, "do_sample": True}))
    with serving(model, tmp_path / "log") as server:
        told = told_by(start, *asking(server, photos, tmp_path / "c.jsonl", model))
    assert "captioned 12 of 12 images from 36 candidates" in told
    assert "does not sample" not in told
    pools = read_lines(tmp_path / "c.jsonl.candidates.jsonl")
    assert sum(len(set(pool["candidates"])) > 1 for pool in pools) > 6


def test_a_judge(judge: Path, photos: Path, tmp_path: Path) -> None:
    local = LocalJudge.from_pretrained(judge, device="cpu")
    questions = [Question(f"How good is {number}?", image) for number, image in enumerate(sorted(photos.iterdir()))]
    with serving(judge, tmp_path / "log") as server:
        served = ServerJudge(str(judge), server.url)
        written = [[each.text for each in one.generate(questions, max_new_tokens=8)] for one in (local, served)]
        assert written[0] == written[1]  # which shows that the pictures arrive
        assert len(set(written[0])) > 1
        with pytest.raises(JudgeError, match=r"no log probabilities.*transformers serve has none"):
            served.answer_distribution(questions[:1], ["Yes", "No"])
        table = FleurScorer(served).score([CaptionSample("A dog.", questions[0].image)])
        assert "transformers serve has none" in table.errors[0]
