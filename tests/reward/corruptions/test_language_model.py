"""Text-only language models that rewrite captions."""

import json
import shutil

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from reward.corruptions.language_model import load_language_model
from reward.corruptions.rewrites import rewrite_captions
from reward.errors import CheckpointError, JudgeError
from reward.judges import Question
from tests.toy_judges import byte_tokenizer
from tests.toy_models import text_sizes

# As text-only chat models have it: contents are strings, thinking can be switched off.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.strip() }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokens = byte_tokenizer()
    tokens.chat_template = TEMPLATE
    torch.manual_seed(0)
    sizes = text_sizes(tokens, width=32, layers=2, positions=8192)
    config = LlamaConfig(**sizes, initializer_range=0.3)
    LlamaForCausalLM(config).save_pretrained(path)
    tokens.save_pretrained(path)
    return path


def test_writes_what_the_model_writes(folder):
    """Against transformers' own greedy generation."""
    judge = load_language_model(folder, device="cpu")
    questions = [Question(f"Edit this: {text}", system="You edit.") for text in ("a star", "two green rings")]
    answers = judge.generate(questions, max_new_tokens=12)
    tokens = byte_tokenizer()
    for question, answer in zip(questions, answers, strict=True):
        turns = ("system\nYou edit.", f"user\n{question.text}")
        prompt = "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"
        ids = tokens(prompt, return_tensors="pt")
        written = judge.model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert answer.text == tokens.decode(written, skip_special_tokens=True)
    assert answers[0].text != answers[1].text


def test_rewrites_with_it(folder, tmp_path):
    """A random model writes no captions: all its answers are dropped, counted, and kept."""
    judge = load_language_model(folder, device="cpu")
    found = rewrite_captions(["A red star."], judge, tmp_path / "a.jsonl", categories=["noun"], max_new_tokens=8)
    assert list(found) == [[]]
    assert found.counts["noun"] == {"cut": 1}
    header, line = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(header)[1]["run"]["judge"] == str(folder)
    assert json.loads(line)[1]["category"] == "noun"


def test_images_missing_weights_and_folders_without_model_are_refused(folder, tmp_path):
    with pytest.raises(JudgeError, match="reads no images"):
        load_language_model(folder, device="cpu").generate([Question("What is it?", image=Image.new("RGB", (8, 8)))])
    shutil.copytree(folder, tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 weights .*\(model\.norm\.weight\)"):
        load_language_model(tmp_path / "broken")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_language_model(tmp_path)
