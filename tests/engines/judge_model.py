"""A small LLaVA that engines can serve and that answers as judges do: a number for FLEUR; Yes, No, digits, letters."""

import re

import torch
from safetensors.torch import load_file, save_file

from tests.toys import toy_judges

_WORDS = [("Y", "e"), ("Ye", "s"), ("N", "o")]
_ANSWERS = ("Yes", "No", *"123456789", *"ABCDE")  # with 0, 17 of the 20 tokens that a server lists
# Channels of the residual stream that no layer writes to: one that is always on, and marks of the token just read.
_ALWAYS, _ZERO, _POINT, _LAST, _CHANNELS = 0, 1, 2, 3, 4
_LEVEL = 6.0  # of a channel that is on


def save_judge(folder, first="0"):
    """Writes a checkpoint under the key names of the Hub: random weights, and a head that leans to answers.

    An answer depends on the image and on every word. Yes, No, digits and the letters A to E are always among the
    likeliest 20 tokens, and `first` is mostly the likeliest: "0" for FLEUR's decimals, "1" for grades. A point follows
    0, a digit the point, and the end that digit, or any other answer.
    """
    attention = {"num_attention_heads": 2, "num_key_value_heads": 2}  # heads of 32, which vLLM has for the CPU
    sizes = {"hidden_size": 64, "intermediate_size": 128, **attention, "tie_word_embeddings": False}
    model, processor = toy_judges.llava(_WORDS, 8192, **sizes)
    _lean(model, processor.tokenizer, first)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    _name_as_on_the_hub(folder / "model.safetensors")


@torch.no_grad()
def _lean(model, tokens, first):
    """Constant channels in what the layers read and the head weighs: a bias, which Llama's head does not have."""
    text, projector = model.model.language_model, model.model.multi_modal_projector.linear_2
    for layer in text.layers:
        layer.self_attn.o_proj.weight[:_CHANNELS] = 0
        layer.mlp.down_proj.weight[:_CHANNELS] = 0
    projector.weight[:_CHANNELS] = 0
    projector.bias[:_CHANNELS] = 0
    projector.bias[_ALWAYS] = _LEVEL
    answers = tokens.convert_tokens_to_ids(list(_ANSWERS))
    digits = tokens.convert_tokens_to_ids(list("123456789"))
    zero, point = tokens.convert_tokens_to_ids(["0", "."])
    text.embed_tokens.weight[:, :_CHANNELS] = 0
    text.embed_tokens.weight[:, _ALWAYS] = _LEVEL
    for channel, marked in ((_ZERO, zero), (_POINT, point), (_LAST, [*answers, *digits])):
        text.embed_tokens.weight[marked, channel] = _LEVEL
    head = model.lm_head.weight
    head *= 0.35
    head[:, :_CHANNELS] = 0
    head[:, _ALWAYS] = -30
    head[[*answers, zero], _ALWAYS] = 6
    head[tokens.convert_tokens_to_ids(first), _ALWAYS] = 11 if first == "0" else 17
    head[[point, tokens.eos_token_id], _ALWAYS] = -8
    head[point, _ZERO] = 40
    head[digits, _POINT], head[zero, _POINT] = 20, -20
    head[tokens.eos_token_id, _LAST] = 80


def _name_as_on_the_hub(weights):
    """Gives the image tower the key names of the LLaVAs on the Hub, the only ones that every transformers 5 reads."""
    tensors = {
        re.sub(r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model.", key): tensor
        for key, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, metadata={"format": "pt"})
