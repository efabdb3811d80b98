"""Checks types and sizes in configurations of open_clip, and the code they name, before open_clip reads them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from reward.backbones.fit import check_layers, check_memory, foreign_errors, on_meta
from reward.errors import CheckpointError

__all__ = ["OPEN_CLIP_CONFIG", "build_clip", "check_open_clip", "check_preprocess"]

OPEN_CLIP_CONFIG = "open_clip_config.json"


def build_clip(model_cfg: dict[str, Any]) -> nn.Module:
    """Builds a CLIP of open_clip with random weights, which the caller must load or train.

    Args:
        model_cfg: `{"embed_dim", "vision_cfg", "text_cfg", "quick_gelu"?}` as in open_clip's configuration files.

    Raises:
        CheckpointError: not such a configuration, or its text tower would be downloaded.
    """
    from open_clip import CLIP, CLIPTextCfg, CLIPVisionCfg

    with foreign_errors("model_cfg"):
        _check_tower("vision_cfg", model_cfg.get("vision_cfg"), CLIPVisionCfg)
        _check_tower("text_cfg", model_cfg.get("text_cfg"), CLIPTextCfg)
        if model_cfg["text_cfg"].get("hf_model_name"):
            raise CheckpointError("model_cfg.text_cfg.hf_model_name names a network outside of the checkpoint")
        return CLIP(**model_cfg)


def _check_tower(name: str, settings: Any, kind: Any) -> None:
    """Refuses values of a wrong type; with some of them, open_clip fails only when it scores."""
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"model_cfg.{name} must be a table, got {settings!r:.100}")
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    for key, value in settings.items():
        expected: tuple[type, ...] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}.get(
            type(defaults.get(key)), (object,)
        )
        if key in ("layers", "image_size"):
            expected = (int, list, tuple)
        truth = isinstance(value, bool) and bool not in expected and object not in expected  # True is an int in Python
        if truth or not isinstance(value, expected):
            words = " or ".join(each.__name__ for each in expected)
            raise CheckpointError(f"model_cfg.{name}.{key} must be of type {words}, got {value!r:.100}")


def check_preprocess(settings: Any) -> None:
    """Refuses preprocessing settings with which open_clip would fail at the first image.

    Args:
        settings: a table like `{"mean", "std", "interpolation", "resize_mode", "fill_color"}`, or None.

    Raises:
        CheckpointError: the message names the setting.
    """
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"preprocess_cfg must be a table, got {settings!r}")
    for name in ("mean", "std"):
        value = settings.get(name, (1, 1, 1))
        numbers = isinstance(value, (list, tuple)) and all(
            isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
            for number in value
        )
        if not numbers or len(value) != 3 or (name == "std" and min(value) <= 0):
            kind = "three numbers above 0" if name == "std" else "three numbers"
            raise CheckpointError(f"preprocess_cfg.{name} must be {kind}, got {value!r}")
    for name, allowed in (
        ("interpolation", ("bicubic", "bilinear", "random")),
        ("resize_mode", ("shortest", "longest", "squash")),
        ("mode", ("RGB",)),
        ("fill_color", range(256)),
    ):
        value = settings.get(name, allowed[0])
        if type(value) is not type(allowed[0]) or value not in allowed:
            words = "0 to 255" if name == "fill_color" else ", ".join(map(str, allowed))
            raise CheckpointError(f"preprocess_cfg.{name} must be one of {words}; got {value!r}")


def check_open_clip(name: str, suffixes: tuple[str, ...], download: Callable[[str, str], Path]) -> dict[str, Any]:
    """Reads and checks the `model_cfg` of a folder or Hub repository; {} for built-in architectures.

    Args:
        name: `"local-dir:folder"`, `"hf-hub:org/name"`, or the name of an architecture of open_clip.
        suffixes: of files of weights.
        download: downloads a file, (repository, file name) -> path.

    Raises:
        CheckpointError: no such configuration, larger than the weights, or a network that needs to run code.
    """
    from transformers import AutoConfig, AutoModel

    scheme, _, place = name.rpartition(":")
    if not scheme:
        return {}
    path = Path(place) / OPEN_CLIP_CONFIG if scheme == "local-dir" else download(place, OPEN_CLIP_CONFIG)
    where = f"open_clip model {name!r}: its {OPEN_CLIP_CONFIG}"
    with foreign_errors(where):
        plain = json.loads(path.read_text(encoding="utf-8"))
        config: dict[str, Any] = plain["model_cfg"]
        check_preprocess(plain.get("preprocess_cfg"))
        text, vision = config["text_cfg"], config["vision_cfg"]
        check_layers(config, where=where)
        if text.get("hf_model_name"):
            # open_clip would ask on stdin whether to run code; here it is refused
            with on_meta():
                inner = AutoConfig.from_pretrained(text["hf_model_name"], trust_remote_code=False)
                AutoModel.from_config(inner, trust_remote_code=False)
        elif scheme == "local-dir" and not vision.get("timm_model_name") and "multimodal_cfg" not in config:
            files = [file for file in path.parent.iterdir() if file.suffix in suffixes]
            plain_cfg = {key: value for key, value in config.items() if key != "custom_text"}
            check_memory(lambda: build_clip(plain_cfg), files, where=where)
    return config
