"""Builds CLIPs from configurations of open_clip, and refuses those that name code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from reward.backbones.fit import foreign_errors, on_meta
from reward.checkpoints import OPEN_CLIP_CONFIG
from reward.errors import CheckpointError

__all__ = ["OPEN_CLIP_CONFIG", "build_clip", "check_open_clip"]


def build_clip(model_cfg: dict[str, Any]) -> nn.Module:
    """Builds a CLIP of open_clip with random weights, which the caller must load or train.

    Args:
        model_cfg: `{"embed_dim", "vision_cfg", "text_cfg", "quick_gelu"?}` as in open_clip's configuration files.

    Raises:
        CheckpointError: not such a configuration, or its text tower would be downloaded.
    """
    from open_clip import CLIP

    with foreign_errors("model_cfg"):
        if model_cfg["text_cfg"].get("hf_model_name"):
            raise CheckpointError("model_cfg.text_cfg.hf_model_name names a network outside of the checkpoint")
        _refuse_fetched_tower(model_cfg, "model_cfg")
        return CLIP(**model_cfg)


def _refuse_fetched_tower(model_cfg: dict[str, Any], where: str) -> None:
    """A vision tower is a network that timm itself knows: timm would fetch another from where its name says."""
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


def check_open_clip(name: str, download: Callable[[str, str], Path]) -> dict[str, Any]:
    """Reads the `model_cfg` of a folder or Hub repository; {} for built-in architectures.

    Args:
        name: `"local-dir:folder"`, `"hf-hub:org/name"`, or the name of an architecture of open_clip.
        download: downloads a file, (repository, file name) -> path.

    Raises:
        CheckpointError: no such configuration, or a network that needs to run code.
    """
    from transformers import AutoConfig, AutoModel

    scheme, _, place = name.rpartition(":")
    if not scheme:
        return {}
    path = Path(place) / OPEN_CLIP_CONFIG if scheme == "local-dir" else download(place, OPEN_CLIP_CONFIG)
    with foreign_errors(f"open_clip model {name!r}: its {OPEN_CLIP_CONFIG}"):
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["model_cfg"]
        # open_clip itself sets timm_model_pretrained, which is left in many files, to false
        vision = {**config["vision_cfg"], "timm_model_pretrained": False}
        _refuse_fetched_tower({"vision_cfg": vision}, f"open_clip model {name!r}: model_cfg")
        if config["text_cfg"].get("hf_model_name"):
            # open_clip would ask on stdin whether to run code; here it is refused
            with on_meta():
                inner = AutoConfig.from_pretrained(config["text_cfg"]["hf_model_name"], trust_remote_code=False)
                AutoModel.from_config(inner, trust_remote_code=False)
    return config
