"""What is asked of every engine that captions: the command, log probabilities to compare with, and a server killed."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.images import load_image
from reward.judges import Question, ServerJudge
from tests.engines.conftest import Run
from tests.engines.servers import EngineServer
from tests.json_lines import read_lines
from tests.reward.scoring.command import count_kept

__all__ = ["asking", "check_killed", "differences"]


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


def check_killed(captions: EngineServer, photos: Path, start: Run, tmp_path: Path) -> None:
    """The server is killed in the middle of a command and started again: nothing is lost, and nothing asked twice."""
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
