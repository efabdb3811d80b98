"""A small LLaVA as llama.cpp reads it: `model.gguf` with the language model, `mmproj.gguf` with the image tower.

Runs in llama.cpp's environment, which has gguf and no torch. Everything is float32.

llama.cpp puts the class token behind the patches, whose rows it then takes from the second on (its issue 25814): the
language model gets no first patch, and the class token last. The positions are put in that order, so that at least the
tower computes what it was trained for; `tests/engines/test_llama_cpp.py` compares with just that.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

TEXT = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOWER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
}
ALONE = {
    "language_model.model.embed_tokens.weight": "token_embd.weight",
    "language_model.model.norm.weight": "output_norm.weight",
    "language_model.lm_head.weight": "output.weight",
    "vision_tower.vision_model.embeddings.class_embedding": "v.class_embd",
    "vision_tower.vision_model.embeddings.patch_embedding.weight": "v.patch_embd.weight",
    "vision_tower.vision_model.embeddings.position_embedding.weight": "v.position_embd.weight",
    "vision_tower.vision_model.pre_layrnorm.weight": "v.pre_ln.weight",
    "vision_tower.vision_model.pre_layrnorm.bias": "v.pre_ln.bias",
    "multi_modal_projector.linear_1.weight": "mm.0.weight",
    "multi_modal_projector.linear_1.bias": "mm.0.bias",
    "multi_modal_projector.linear_2.weight": "mm.2.weight",
    "multi_modal_projector.linear_2.bias": "mm.2.bias",
}
LAYER = re.compile(r"(language_model\.model|vision_tower\.vision_model\.encoder)\.layers\.(\d+)\.(.+)\.(weight|bias)")


def renamed(key: str) -> str | None:
    """llama.cpp's name of a tensor, None for those that it must not have."""
    if (layer := LAYER.fullmatch(key)) is None:
        return ALONE.get(key)
    text = key.startswith("language_model")
    return f"{'' if text else 'v.'}blk.{layer[2]}.{(TEXT if text else TOWER)[layer[3]]}.{layer[4]}"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key matrix as llama.cpp turns them: two and two side by side, not half and half."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_text(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], output: Path) -> None:
    text, written = config["text_config"], gguf.GGUFWriter(output, "llama")
    heads, groups = text["num_attention_heads"], text["num_key_value_heads"]
    written.add_context_length(text["max_position_embeddings"])
    written.add_embedding_length(text["hidden_size"])
    written.add_feed_forward_length(text["intermediate_size"])
    written.add_block_count(text["num_hidden_layers"])
    written.add_head_count(heads)
    written.add_head_count_kv(groups)
    written.add_rope_dimension_count(text["hidden_size"] // heads)
    written.add_rope_freq_base(text["rope_parameters"]["rope_theta"])
    written.add_layer_norm_rms_eps(text["rms_norm_eps"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = {**tokenizer["model"]["vocab"], **special}
    tokens, kinds = sorted(vocabulary, key=vocabulary.__getitem__), gguf.TokenType
    written.add_tokenizer_model("gpt2")
    written.add_tokenizer_pre("gpt-2")
    written.add_token_list(tokens)
    written.add_token_types([kinds.CONTROL if token in special else kinds.NORMAL for token in tokens])
    written.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    names = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    written.add_bos_token_id(vocabulary[names["bos_token"]])
    written.add_eos_token_id(vocabulary[names["eos_token"]])
    written.add_pad_token_id(vocabulary[names["pad_token"]])
    written.add_add_bos_token(False)
    written.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    for key, tensor in tensors.items():
        if key.startswith("language_model") and (name := renamed(key)) is not None:
            turned = {"attn_q": heads, "attn_k": groups}.get(name.split(".")[-2])
            written.add_tensor(name, interleaved(tensor, turned) if turned else tensor)
    save(written)


def write_tower(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], output: Path) -> None:
    tower, written = config["vision_config"], gguf.GGUFWriter(output, "clip")
    pictures = json.loads((folder / "processor_config.json").read_text(encoding="utf-8"))["image_processor"]
    written.add_bool("clip.has_vision_encoder", True)
    written.add_string("clip.projector_type", "mlp")
    written.add_bool("clip.use_gelu", tower["hidden_act"] != "quick_gelu")
    for name, value in {
        "image_size": tower["image_size"],
        "patch_size": tower["patch_size"],
        "embedding_length": tower["hidden_size"],
        "feed_forward_length": tower["intermediate_size"],
        "block_count": tower["num_hidden_layers"],
        "attention.head_count": tower["num_attention_heads"],
        "projection_dim": config["text_config"]["hidden_size"],
    }.items():
        written.add_uint32(f"clip.vision.{name}", value)
    written.add_float32("clip.vision.attention.layer_norm_epsilon", tower["layer_norm_eps"])
    written.add_array("clip.vision.image_mean", pictures["image_mean"])
    written.add_array("clip.vision.image_std", pictures["image_std"])
    written.add_array("clip.vision.feature_layer", [tower["num_hidden_layers"] + 1 + config["vision_feature_layer"]])
    for key, tensor in tensors.items():
        if not key.startswith("language_model") and (name := renamed(key)) is not None:
            written.add_tensor(name, np.roll(tensor, -1, 0) if "position" in key else tensor)
    save(written)


def save(written: Any) -> None:
    written.write_header_to_file()
    written.write_kv_data_to_file()
    written.write_tensors_to_file()
    written.close()


def convert(folder: Path, output: Path) -> None:
    """Writes both files.

    Args:
        folder: of a LLaVA under the key names of the Hub, with a tokenizer that is a BPE of bytes.
        output: folder, made if absent.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    output.mkdir(parents=True, exist_ok=True)
    write_text(folder, config, tensors, output / "model.gguf")
    write_tower(folder, config, tensors, output / "mmproj.gguf")
