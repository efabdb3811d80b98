"""`capreward metrics --check`: what a checkpoint is and why it will fail, told before its weights are fetched."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from reward.checkpoints.weight_files import read_header
from reward.cli.sizes import measure_size
from tests.toys.toy_clips import toy_clip

CARD = b"---\nlicense: mit\n---\n# A model\n"
BERT = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}
GEMMA = {"architectures": ["Gemma3ForSequenceClassification"], "model_type": "gemma3"}
LLAVA = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
HEAD = {"score.weight": np.zeros((1, 8), np.float16), "model.weight": np.zeros((1000, 8), np.float16)}
NO_HEAD = {"model.weight": np.zeros((1000, 8), np.float16)}


def files(config, tensors=NO_HEAD, **others):
    content = {"config.json": json.dumps(config).encode(), "README.md": CARD, "code.py": b"1"}
    if tensors is not None:
        content["model.safetensors"] = save(tensors)
    return {**content, **{name.replace("__", "."): data for name, data in others.items()}}


RERANKER = b'{"model_type": "CrossEncoder"}'
INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}).encode()
# (files, what is typed before the id, what is printed; nothing fails where it is no reason).
CHECKS = {
    "a bare id": (files(BERT), "", "metric  crossencoder"),
    "a head": (files(GEMMA, HEAD), "vlmreward=", "8,008 numbers, mostly float16"),
    "a judge": (files(LLAVA), "vqascore=", "licence mit"),
    "nobody": (files(LLAVA), "", "will fail 'org/model' does not say which metric it is for"),
    "another metric": (files({"metric": "beitscore"}), "vela=", "of metric 'beitscore', but a checkpoint of 'vela'"),
    "no head": (files(GEMMA), "vlmreward=", "will fail no weight begins with score. or v_head.summary."),
    "a head for a judge": (files(GEMMA, HEAD), "vqascore=", "the head of a reward model: write vlmreward=org/model"),
    "a pickle": (files(BERT, None, pytorch_model__bin=b"1"), "crossencoder=", "there is pytorch_model.bin, and not"),
    "a lost shard": (files(BERT, model__safetensors__index__json=INDEX), "", "names model-00001-of-00002.safetensors"),
    "adapters": (files(LLAVA, adapter_config__json=b"{}"), "vqascore=", "it holds adapters: merge them"),
    "a reranker": (files(LLAVA, config_sentence_transformers__json=RERANKER), "", "metric  crossencoder"),
    "no modules": (files(LLAVA), "crossencoder=", "no modules.json of sentence-transformers says how it scores"),
    "another type": (files(BERT), "bertscore=", "metric  bertscore, though its files are those of crossencoder"),
    "no weights": ({**files(BERT), "model.safetensors": b"<html>"}, "", "model.safetensors cannot be read"),
    "no CLIP": (files(LLAVA), "clipscore=", "will fail CLIP 'org/model' is a 'llava', which does not embed"),
    "code": (files({"model_type": "own", "auto_map": {}}), "vqascore=", "does not know its type 'own'"),
}


@pytest.mark.parametrize(("content", "prefix", "line"), CHECKS.values(), ids=CHECKS)
def test_what_is_on_the_hub_or_in_a_folder_is_told(content, prefix, line, run, hub, tmp_path, monkeypatch):
    hub.add_repo("org/model", content)
    fails = not any(word in line for word in ("metric  ", "numbers", "licence"))
    out, _ = run("metrics", "-m", f"{prefix}org/model", "--check", code=int(fails))
    assert line in out
    assert ("will fail" in out) == fails
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.safetensors")), "weights were fetched"
    monkeypatch.chdir(tmp_path)
    for name, data in content.items():
        (tmp_path / "org" / "model").mkdir(parents=True, exist_ok=True)
        (tmp_path / "org" / "model" / name).write_bytes(data)
    here, _ = run("metrics", f"{prefix}org/model", "--check", code=int(fails))
    assert here == out


def test_what_is_no_checkpoint_is_refused(run, hub):
    for name in ("vela", "vela=embedded", "clipscore=ViT-B-32:openai", "crossencoder=http://127.0.0.1:9/v1"):
        assert "as in vlmreward=name/model" in run("metrics", name, "--check", code=1)[1]
    assert "the Hub refuses no/model" in run("metrics", "vlmreward=no/model", "--check", code=1)[1]
    assert "it needs a checkpoint" in run("metrics", "--check", code=2)[1]


def test_sizes_need_no_weights(run, hub, tmp_path):
    toy_clip(tmp_path / "toy")
    weights = {name: (tmp_path / "toy" / name).read_bytes() for name in ("config.json", "model.safetensors")}
    hub.add_repo("org/clip", weights)
    hub.add_repo("org/judge", files(LLAVA))
    here = measure_size(f"clipscore={tmp_path / 'toy'}")
    assert here == measure_size("clipscore=org/clip")
    shapes = read_header(tmp_path / "toy" / "model.safetensors").shapes.values()
    assert here.parameters == sum(map(math.prod, shapes))
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.safetensors")), "weights were fetched"
    assert re.search(r"org/judge +│ +0.01 │ not counted", run("metrics", "-m", "vqascore=org/judge", "--size")[0])
    # OpenAI's: 4.37 of the image and 2.90 of the caption, which is what papers give.
    assert round(measure_size("clipscore=ViT-B-32:openai").layers / 1e9, 2) == 7.27
