"""vLLM's server: captions of the embedded captioner, and judges, whose scores are those of the same weights here."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor, BertConfig, BertForSequenceClassification

from reward import CaptionSample, load_scorer
from reward.data.images import load_image
from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.judges import LocalJudge, Question, ServerJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.metrics.judge_metric.scorer import ClairScorer, VqaScorer
from tests.engines.environments import program
from tests.engines.judge_model import save_judge
from tests.toys.json_lines import read_lines
from tests.toys.loopback_service import ServerProcess
from tests.toys.toy_clips import bert_tokenizer

CAPTIONS = ("A red star.", "Two blue rings on a beach.", "A dog.", "Nothing is here, but a big sign says STOP.")
REFERENCES = ["A red star.", "It is big."]
_FIELDS = {
    "score": {"type": "integer", "minimum": 1, "maximum": 99},
    "reason": {"type": "string", "pattern": "^[a-z]{4,9}$"},
}
_FORM = {"type": "object", "properties": _FIELDS, "required": [*_FIELDS], "additionalProperties": False}
CLOSE = 1e-4  # measured: 1.2e-6 between scores, 4e-7 a token between log probabilities


def vllm(model, length, folder, *options):
    command = [str(program("vllm", "vllm")), "serve", str(model), "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(length), "--max-num-seqs", "16"]
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}', *options]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    settings |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    return ServerProcess(command, settings, log=folder / "vllm.log", seconds=280)


@pytest.fixture(scope="module")
def judge(request, tmp_path_factory):
    """The folder of a judge whose answers mostly begin with a token."""
    folder = tmp_path_factory.mktemp("judge")
    save_judge(folder, request.param)
    return folder


@pytest.fixture(scope="module")
def served(judge, tmp_path_factory):
    with vllm(judge, 8192, tmp_path_factory.mktemp("vllm")) as server:
        yield lambda **settings: ServerJudge(str(judge), f"{server.url}/v1", **settings)


@pytest.fixture(scope="module")
def local(judge):
    return LocalJudge.from_pretrained(judge, device="cpu")


def logprob(model, processor, image, caption):
    """The log probability of a caption and of its end in one forward pass, and its tokens."""
    asked = [{"type": "image", "image": load_image(image)}, {"type": "text", "text": EMBEDDED_PROMPT}]
    chat = [{"role": "user", "content": asked}]
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    inputs = processor.apply_chat_template(chat, **options)
    tokens = processor.tokenizer(caption, add_special_tokens=False)["input_ids"] + [processor.tokenizer.eos_token_id]
    ids = torch.cat([inputs["input_ids"], torch.tensor([tokens])], 1)
    with torch.inference_mode():
        logits = model(input_ids=ids, pixel_values=inputs["pixel_values"]).logits[0].double()
    told = logits[-1 - len(tokens) : -1].log_softmax(-1)
    return float(told[range(len(tokens)), tokens].sum()), len(tokens)


def differences(server, photos, model, processor):
    """How far the log probability of each sampled caption is from that of a model here, a token; none of cut ones.

    A model may sample other tokens than the tokenizer makes of the same text (" a" and "t" for " at": one caption of
    600 of the embedded captioner). The text does not tell which, so a few captions cannot be compared.
    """
    asked = ServerJudge("", f"{server.url}/v1")
    judge = ServerJudge(asked.models()[0], f"{server.url}/v1")
    apart = []
    for photo in sorted(photos.iterdir()):
        question = Question(EMBEDDED_PROMPT, photo)
        for each in judge.sample(question, 8, temperature=1.0, max_new_tokens=90, logprobs=True).result():
            if not each.truncated:
                own, tokens = logprob(model, processor, photo, each.text)
                apart.append(abs(own - float(each.logprob or 0)) / tokens)
    return apart


def test_captions_and_their_log_probabilities(captioner, photos, start, tmp_path):
    with vllm(captioner, 512, tmp_path) as server:
        line = ["caption", "--model", f"{server.url}/v1", photos, "--n", 8, "--metric", "length"]
        line += ["--prompt", EMBEDDED_PROMPT]
        command = start(*line, "--max-tokens", 90, "--keep-candidates", "-o", tmp_path / "c.jsonl")
        told, _ = command.communicate()
        assert command.returncode == 0, told
        model = AutoModelForImageTextToText.from_pretrained(captioner, dtype=torch.float32).eval()
        apart = differences(server, photos, model, AutoProcessor.from_pretrained(captioner))
    assert "12 questions answered by the model" in told  # all 8 candidates of an image come in one reply
    assert "captioned 12 of 12 images from 96 candidates" in told
    assert all(len(set(pool["candidates"])) > 1 for pool in read_lines(tmp_path / "c.jsonl.candidates.jsonl"))
    alike = [difference for difference in apart if difference < CLOSE]
    print(f"log probabilities: at most {max(alike):.1e} a token apart over {len(alike)} of {len(apart)} captions")
    assert len(apart) > 80
    assert len(alike) >= len(apart) - 2


@pytest.fixture(scope="module")
def samples(photos):
    return [CaptionSample(text, image, REFERENCES) for text in CAPTIONS for image in sorted(photos.iterdir())[:4]]


@pytest.mark.parametrize(
    ("judge", "scorer"), [("0", FleurScorer), ("1", HarmonicScorer), ("1", VqaScorer)], indirect=["judge"]
)
def test_scores_are_those_of_the_same_weights_here(scorer, served, local, samples):
    own, there = (scorer(judge).score(samples).scores for judge in (local, served()))
    print(f"{scorer.__name__}: at most {np.abs(own - there).max():.1e} apart over {own.size} scores")
    assert own.std(0).max() > 1e-3
    assert there == pytest.approx(own, abs=CLOSE)


@pytest.mark.parametrize("judge", ["0"], indirect=True)
def test_what_a_judge_writes(served, local, samples):
    """CLAIR reads it: by JSON schema, and without one."""
    told = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _FORM}}
    guided = ClairScorer(served(extra_body={"response_format": told}), max_new_tokens=600).score(samples)
    assert guided.errors == {}
    errors = [ClairScorer(judge, max_new_tokens=8).score(samples).errors for judge in (local, served())]
    assert errors[0] == errors[1]
    assert all("the answer holds no JSON" in reason for reason in errors[1].values())
    assert len(errors[1]) == len(samples)


def save_reranker(folder):
    torch.manual_seed(0)
    tokens = bert_tokenizer(64)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokens), max_position_embeddings=64, num_labels=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def save_reward_model(folder, head="score.weight"):
    """A LLaVA with a head for scores, whose name is another for vLLM than on the Hub."""
    save_judge(folder)
    torch.manual_seed(0)
    tensors = {**load_file(folder / "model.safetensors"), head: torch.randn(1, 64)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["LlavaForSequenceClassification"]
    one_number = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    config |= one_number  # by this vLLM knows a reranker,
    config["text_config"] |= one_number  # and by this the size of the head
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_rerankers_and_reward_models_score_as_here(photos, tmp_path):
    samples = [CaptionSample(text, str(photos / "00.png"), REFERENCES) for text in CAPTIONS]
    here = {
        "crossencoder": save_reranker(tmp_path / "reranker"),
        "vlmreward": save_reward_model(tmp_path / "reward"),
    }
    served = {
        "crossencoder": (here["crossencoder"], 64),
        "vlmreward": (save_reward_model(tmp_path / "served", "language_model.score.weight"), 8192),
    }
    for metric, (folder, length) in served.items():
        options = {"query": "references"} if metric == "crossencoder" else {}
        with vllm(folder, length, tmp_path, "--runner", "pooling", "--convert", "classify") as server:
            there = load_scorer(metric, f"{server.url}/v1", **options).score(samples)
            # A model that takes images can be a reranker, too: vLLM writes both into its chat template.
            if metric == "vlmreward":
                ranked = load_scorer("crossencoder", f"{server.url}/v1", activation="none").score(samples)
                assert len(set(ranked.scores[:, 0])) == len(samples)
        expected = load_scorer(metric, here[metric], device="cpu").score(samples)
        assert there.scores == pytest.approx(expected.scores, rel=CLOSE)
