"""Builds and loads CLIPs of open_clip, and refuses configurations that name code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from reward.backbones.clip import ClipTokenizer, HubClipTokenizer, OpenClipTowers, make_bpe_tokenizer
from reward.backbones.fit import foreign_errors, on_meta
from reward.checkpoints.folders import OPEN_CLIP_CONFIG, WEIGHT_SUFFIXES, config_folder, unsharded_loading
from reward.checkpoints.weight_files import refuse_stored_integers
from reward.errors import CheckpointError


def build_clip(model_cfg: dict[str, Any]) -> nn.Module:
    """Builds a CLIP of open_clip with random weights, which the caller must load or train.

    Args:
        model_cfg: `{"embed_dim", "vision_cfg", "text_cfg", "quick_gelu"?}` as in open_clip's configuration files.
    """
    from open_clip import CLIP

    with foreign_errors("model_cfg"):
        if model_cfg["text_cfg"].get("hf_model_name"):
            raise CheckpointError("model_cfg.text_cfg.hf_model_name names a network outside of the checkpoint")
        _refuse_fetched_tower(model_cfg, "model_cfg")
        return CLIP(**model_cfg)


def _refuse_fetched_tower(model_cfg: dict[str, Any], where: str) -> None:
    """Refuses a vision tower that timm would fetch from the Hub; one that timm itself knows has a plain name."""
    vision = model_cfg["vision_cfg"]
    name = str(vision.get("timm_model_name") or "")
    if ":" in name or "/" in name:
        raise CheckpointError(
            f"{where}.vision_cfg.timm_model_name {name!r} names a network outside of the checkpoint; "
            "a tower that timm knows has a plain name, such as 'vit_base_patch16_224'"
        )
    if vision.get("timm_model_pretrained"):
        raise CheckpointError(
            f"{where}.vision_cfg.timm_model_pretrained asks for weights outside of the checkpoint: set it to false"
        )


def _check_config(checkpoint: str) -> bool:
    """Refuses a folder or Hub repository that needs code.

    Returns:
        Whether its captions are read by a tokenizer of transformers.
    """
    from transformers import AutoConfig, AutoModel

    where = f"open_clip model {checkpoint!r}"
    with foreign_errors(f"{where}: its {OPEN_CLIP_CONFIG}"):
        text = (config_folder(checkpoint) / OPEN_CLIP_CONFIG).read_text(encoding="utf-8")
        model_cfg: dict[str, Any] = json.loads(text)["model_cfg"]
        # open_clip itself sets timm_model_pretrained, which is left in many files, to false
        vision = {**model_cfg["vision_cfg"], "timm_model_pretrained": False}
        _refuse_fetched_tower({"vision_cfg": vision}, f"{where}: model_cfg")
        language_model = model_cfg["text_cfg"].get("hf_model_name")
        if language_model:
            # open_clip would ask on stdin whether to run code; here it is refused
            with on_meta():
                config = AutoConfig.from_pretrained(language_model, trust_remote_code=False)
                AutoModel.from_config(config, trust_remote_code=False)
        return bool(model_cfg["text_cfg"].get("hf_tokenizer_name"))


def load_open_clip(name: str) -> OpenClipTowers:
    """Loads the towers of a model of open_clip, in float32.

    Args:
        name: a folder, a Hub id with or without `hf-hub:`, or ARCHITECTURE:TAG.
    """
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    checkpoint = name.removeprefix("hf-hub:")
    is_folder = Path(checkpoint).is_dir()
    tag = None
    tokenizer_options = {}
    if ":" in checkpoint and not is_folder:
        model, tag = checkpoint.split(":", 1)
    else:
        model = f"{'local-dir' if is_folder else 'hf-hub'}:{checkpoint}"
        if _check_config(checkpoint):
            # overrides tokenizer_kwargs of the configuration, which could allow code
            tokenizer_options = {"trust_remote_code": False}
    try:
        with unsharded_loading():
            # open_clip only warns if the weights were trained with the other activation
            is_quick = tag is not None and bool(get_pretrained_cfg(model, tag).get("quick_gelu", False))
            clip = open_clip.create_model(model, pretrained=tag, require_pretrained=True, force_quick_gelu=is_quick)
            tokenizer = open_clip.get_tokenizer(model, **tokenizer_options)
    except Exception as error:  # open_clip raises many built-in errors for files that do not fit
        raise CheckpointError(
            f"cannot load the open_clip model {name!r}: {error}. Expected a folder or Hub repository with "
            "open_clip_config.json and open_clip_model.safetensors, or ARCHITECTURE:TAG as in "
            "open_clip.list_pretrained()."
        ) from error
    if tag is None:
        files = [file for file in config_folder(checkpoint).glob("open_clip_*") if file.suffix in WEIGHT_SUFFIXES]
        refuse_stored_integers(files, clip, where=f"open_clip model {name!r}")
    texts: ClipTokenizer | HubClipTokenizer
    if isinstance(tokenizer, open_clip.SimpleTokenizer):
        texts = make_bpe_tokenizer(tokenizer)
    else:
        texts = HubClipTokenizer(tokenizer)
    return OpenClipTowers(clip, texts, dict(open_clip.get_model_preprocess_cfg(clip)))
