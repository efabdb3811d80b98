"""Text-only language models that rewrite captions."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from reward.corruptions.language_model import load_language_model
from reward.corruptions.rewrites import rewrite_captions
from reward.errors import CheckpointError, JudgeError
from reward.judges import Question
from tests.toy_judges import byte_tokenizer

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
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=8192,
        initializer_range=0.3,
        pad_token_id=tokens.pad_token_id,
        bos_token_id=tokens.bos_token_id,
        eos_token_id=tokens.eos_token_id,
    )
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


def test_images_are_refused(folder):
    from PIL import Image

    judge = load_language_model(folder, device="cpu")
    with pytest.raises(JudgeError, match="reads no images"):
        judge.generate([Question("What is it?", image=Image.new("RGB", (8, 8)))], max_new_tokens=2)


def test_missing_weights_are_refused(folder, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 weights .*\(model\.norm\.weight\)"):
        load_language_model(tmp_path / "broken")


def test_a_folder_without_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_language_model(tmp_path)
