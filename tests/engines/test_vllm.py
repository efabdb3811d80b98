"""vLLM's server: captions of the embedded captioner, and judges, whose scores are those of the same weights here."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from reward import CaptionSample
from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.images import load_image
from reward.judges import LocalJudge, Question, ServerJudge
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.metrics.judge_metric.scorer import ClairScorer, VqaScorer
from tests.engines.conftest import ROOT, Run
from tests.engines.environments import program
from tests.engines.servers import EngineServer
from tests.toys.json_lines import read_lines
from tests.toys.part_tasks import count_kept

CAPTIONS = ("A red star.", "Two blue rings on a beach.", "A dog.", "Nothing is here, but a big sign says STOP.")

_FORM = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 99},
        "reason": {"type": "string", "pattern": "^[a-z]{4,9}$"},
    },
    "required": ["score", "reason"],
    "additionalProperties": False,
}
REFERENCES = ["A red star.", "It is big."]
CLOSE = 1e-4  # measured: 1.2e-6 between scores, 4e-7 a token between log probabilities


def vllm(model: Path, length: int, log: Path, *options: str, **more: str) -> EngineServer:
    sizes = ["--max-model-len", str(length), "--max-num-seqs", "16"]
    command = [str(program("vllm", "vllm")), "serve", str(model), "--host", "127.0.0.1", "--port", "{port}"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    forms = ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    command += ["--dtype", "float32", "--enforce-eager", *sizes, *forms, *options]
    return EngineServer(command, log, {**settings, **quiet, **more})


@pytest.fixture(scope="module")
def captions(captioner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with vllm(captioner, 512, tmp_path_factory.mktemp("vllm") / "captions.log") as server:
        yield server


@pytest.fixture(scope="module")
def served(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerJudge]]:
    """Makes judges behind one server."""
    with vllm(judge, 8192, tmp_path_factory.mktemp("vllm") / "judge.log") as server:
        yield lambda **settings: ServerJudge(str(judge), server.url, **settings)


@pytest.fixture(scope="module")
def local(judge: Path) -> LocalJudge:
    return LocalJudge.from_pretrained(judge, device="cpu")


def asking(server: EngineServer, photos: Path, output: Path, n: int = 8) -> list[object]:
    """`capreward caption` with `n` candidates an image."""
    line: list[object] = ["caption", "--model", server.url, photos, "--n", n, "--metric", "length"]
    return [*line, "--prompt", EMBEDDED_PROMPT, "--max-tokens", 90, "--keep-candidates", "-o", output]


def logprob(model: Any, processor: Any, image: Path, caption: str) -> tuple[float, int]:
    """The log probability of a caption and of its end in one forward pass, and its tokens."""
    asked = [{"type": "image", "image": load_image(image)}, {"type": "text", "text": EMBEDDED_PROMPT}]
    chat: list[Any] = [{"role": "user", "content": asked}]
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    inputs = processor.apply_chat_template(chat, **options)
    tokens = processor.tokenizer(caption, add_special_tokens=False)["input_ids"] + [processor.tokenizer.eos_token_id]
    ids = torch.cat([inputs["input_ids"], torch.tensor([tokens])], 1)
    with torch.inference_mode():
        logits = model(input_ids=ids, pixel_values=inputs["pixel_values"]).logits[0].double()
    told = logits[-1 - len(tokens) : -1].log_softmax(-1)
    return float(told[range(len(tokens)), tokens].sum()), len(tokens)


def differences(server: EngineServer, photos: Path, model: Any, processor: Any) -> list[float]:
    """How far the log probability of each sampled caption is from that of a model here, a token; none of cut ones.

    A model may sample other tokens than the tokenizer makes of the same text (" a" and "t" for " at": one caption of
    600 of the embedded captioner). The text does not tell which, so a few captions cannot be compared.
    """
    asked = ServerJudge("", server.url)
    judge = ServerJudge(asked.models()[0], server.url)
    apart = []
    for photo in sorted(photos.iterdir()):
        question = Question(EMBEDDED_PROMPT, photo)
        for each in judge.sample(question, 8, temperature=1.0, max_new_tokens=90, logprobs=True).result():
            if not each.truncated:
                own, tokens = logprob(model, processor, photo, each.text)
                apart.append(abs(own - float(each.logprob or 0)) / tokens)
    return apart


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
    apart = differences(captions, photos, model, AutoProcessor.from_pretrained(captioner))
    assert len(apart) > 80
    alike = [difference for difference in apart if difference < CLOSE]
    print(f"log probabilities: at most {max(alike):.1e} a token apart over {len(alike)} of {len(apart)} captions")
    assert len(alike) >= len(apart) - 2


def test_a_server_that_is_killed(captions: EngineServer, photos: Path, start: Run, tmp_path: Path) -> None:
    """In the middle of a command, and started again: nothing is lost, and nothing asked twice."""
    line = [*asking(captions, photos, tmp_path / "c.jsonl"), "--model-set", "concurrency=1"]
    file = tmp_path / "c.jsonl.partial"
    command = start(*line)
    limit = time.monotonic() + 120
    while count_kept(file) < 3:
        assert command.poll() is None, command.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.01)
    captions.kill()
    told, _ = command.communicate()
    assert command.returncode == 1, told
    assert "did not answer in 7 tries" in told
    assert "run again to go on" in told
    with closing(sqlite3.connect(file)) as rows:
        stored = [json.loads(answer) for (answer,) in rows.execute("SELECT answer FROM answers")]
    assert 3 <= len(stored) < 12
    captions.start()
    again = start(*line)
    told, _ = again.communicate()
    assert again.returncode == 0, told
    assert f"{12 - len(stored)} questions answered by the model" in told  # nothing twice
    assert f"from 96 candidates ({8 * len(stored)} of them from an earlier run)" in told  # nothing lost
    pools = read_lines(tmp_path / "c.jsonl.candidates.jsonl")
    assert sorted(Path(pool["image"]).name for pool in pools) == sorted(path.name for path in photos.iterdir())
    kept = {caption for pool in pools for caption in pool["candidates"]}
    assert all(len(pool["candidates"]) == 8 for pool in pools)
    assert {text for _, written in stored for text, *_ in written} <= kept


@pytest.fixture(scope="module")
def samples(photos: Path) -> list[CaptionSample]:
    """Four captions of each of four pictures."""
    return [CaptionSample(text, image, REFERENCES) for text in CAPTIONS for image in sorted(photos.iterdir())[:4]]


@pytest.mark.parametrize("scorer", [FleurScorer, HarmonicScorer, VqaScorer])
def test_scores_are_those_of_the_same_weights_here(
    scorer: Any, served: Callable[..., ServerJudge], local: LocalJudge, samples: list[CaptionSample]
) -> None:
    own, there = (scorer(judge).score(samples).scores for judge in (local, served()))
    print(f"{scorer.__name__}: at most {np.abs(own - there).max():.1e} apart over {own.size} scores")
    assert own.std(0).max() > 1e-3
    assert there == pytest.approx(own, abs=CLOSE)


def test_verdicts_are_those_of_the_same_weights_here(
    served: Callable[..., ServerJudge], local: LocalJudge, photos: Path
) -> None:
    images = sorted(photos.iterdir())[:4]
    pairs = [JudgePair(one, other, image) for image in images for one in CAPTIONS for other in CAPTIONS if one < other]
    own, there = (PairwiseJudge(judge, reasons=False).compare(pairs) for judge in (local, served()))
    assert [verdict.winner for verdict in there] == [verdict.winner for verdict in own]
    told = [np.array([verdict.probabilities for verdict in verdicts]) for verdicts in (own, there)]
    assert told[1] == pytest.approx(told[0], abs=CLOSE)


def test_what_a_judge_writes(
    served: Callable[..., ServerJudge], local: LocalJudge, samples: list[CaptionSample]
) -> None:
    """CLAIR reads it: by JSON schema, and without one."""
    told = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _FORM}}
    guided = ClairScorer(served(extra_body={"response_format": told}), max_new_tokens=600).score(samples)
    assert guided.errors == {}
    errors = [ClairScorer(judge, max_new_tokens=8).score(samples).errors for judge in (local, served())]
    assert errors[0] == errors[1]
    assert all("the answer holds no JSON" in reason for reason in errors[1].values())
    assert len(errors[1]) == len(samples)


def test_guided_answers(served: Callable[..., ServerJudge], photos: Path) -> None:
    """A model that never keeps to a form is held to it by vLLM's `structured_outputs`."""
    images = sorted(photos.iterdir())[:3]
    asked = {"regex": r"[a-z ]{5,12}\nVerdict: (1|2|tie)"}
    judge = PairwiseJudge(served(extra_body={"structured_outputs": asked}))
    verdicts = judge.compare([JudgePair("A red star.", "A dog.", image) for image in images])
    assert [verdict.error for verdict in verdicts] == [None] * 3


def test_asynchronous_grpo(captioner: Path, tmp_path: Path) -> None:
    """TRL's trainer, its worker and VELA in it; after each step vLLM gets the adapter."""
    log, output = tmp_path / "vllm.log", tmp_path / "out"
    adapters = ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "6"]  # TRL's max_staleness and 2 more
    allowed = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with vllm(captioner, 512, log, *adapters, **allowed) as server:
        script = [str(program("vllm", "python")), "-m", "tests.engines.async_grpo", server.url.removesuffix("/v1")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        command = [*script, str(captioner), str(output)]
        told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-3000:]
    logs = json.loads((output / "logs.json").read_text())
    assert [entry["step"] for entry in logs] == [1, 2, 3, 4]
    assert all(0 < entry["rewards/vela"] < 1 for entry in logs)
    assert logs[0]["kl"] < 1e-6  # trainer and vLLM give the sampled tokens the same probability
    assert "Loaded new LoRA adapter: name 'trl-policy-v5'" in log.read_text()
