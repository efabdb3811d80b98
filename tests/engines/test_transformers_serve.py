"""`transformers serve` of this environment: a caption a request, sampled only if the model says so."""

import json
import shutil

import pytest

from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.errors import JudgeError
from reward.judges import LocalJudge, Question, ServerJudge
from tests.engines.environments import program
from tests.toys.json_lines import read_lines
from tests.toys.loopback_service import ServerProcess


def serving(model, log):
    command = [str(program("transformers_serve", "transformers")), "serve", str(model), "--device", "cpu"]
    command += ["--host", "127.0.0.1", "--port", "{port}"]
    return ServerProcess(command, {"HF_HUB_OFFLINE": "1"}, log=log, seconds=280)


@pytest.mark.parametrize("samples", [False, True])
def test_captions(samples, captioner, photos, start, tmp_path):
    model = shutil.copytree(captioner, tmp_path / "captioner")
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**settings, "do_sample": samples}))

    def told(name, code):
        line = ["caption", "--model", f"{server.url}/v1#{name}", photos, "--n", 3, "--metric", "length"]
        line += ["--max-tokens", 90, "--prompt", EMBEDDED_PROMPT, "--keep-candidates", "-o", tmp_path / "c.jsonl"]
        command = start(*line)
        text, _ = command.communicate()
        assert command.returncode == code, text
        return " ".join(text.split())

    with serving(model, tmp_path / "log") as server:
        assert "needs the model's name, as it does not list its models: give http" in told("", 1)
        assert "the server refuses the question (Error code: 400 - Server is pinned to" in told("other", 1)
        text = told(model, 0)
    assert "captioned 12 of 12 images from 36 candidates" in text
    assert ('generation_config.json has "do_sample": true' in text) == (not samples)
    pools = read_lines(tmp_path / "c.jsonl.candidates.jsonl")
    different = sum(len(set(pool["candidates"])) > 1 for pool in pools)
    assert different > 6 if samples else different == 0


def test_a_judge(judge, photos, tmp_path):
    local = LocalJudge.from_pretrained(judge, device="cpu")
    questions = [Question(f"How good is {number}?", image) for number, image in enumerate(sorted(photos.iterdir()))]
    with serving(judge, tmp_path / "log") as server:
        served = ServerJudge(str(judge), f"{server.url}/v1")
        written = [[each.text for each in one.generate(questions, max_new_tokens=8)] for one in (local, served)]
        assert written[0] == written[1]  # which shows that the pictures arrive
        assert len(set(written[0])) > 1
        with pytest.raises(JudgeError, match=r"no log probabilities.*transformers serve has none"):
            served.answer_distribution(questions[:1], ["Yes", "No"])
