"""How large the network of a metric is, and how much it computes for one caption, without fetching weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reward.data.samples import CaptionSample
from reward.errors import ConfigError
from reward.registry import is_address, load_scorer, metric_spec

_SIDE = 480  # pixels of the image, before the metric scales it
_TOKENS = 80  # of the caption, for most tokenizers


@dataclass(frozen=True)
class Size:
    """Numbers of a network; None where configuration and headers do not say.

    Args:
        parameters: how many weights it has.
        layers: multiplications in linear and convolution layers for one image and caption.
        attention: those in products of queries and keys, and of their weights and values.
    """

    parameters: int | None
    layers: int | None
    attention: int | None


def measure_size(metric: str) -> Size:
    """Counts the weights of a metric's network, and its multiplications for one caption of 80 tokens.

    With these, the base size of BEiTScore has 83.85 billion, which its paper calls GFLOPs. A CLIP is built from its
    configuration alone. Of other checkpoints on the Hub, and of judges, the headers are read, which hold the number of
    weights; what is here is loaded, and scores a caption.

    Args:
        metric: `"NAME"`, `"NAME=CHECKPOINT"`, or `"beitscore=base"` and `"beitscore=large"` for the sizes of its paper.

    Raises:
        ConfigError: the metric has no network of its own.
        UnknownMetricError, CheckpointError: it cannot be loaded.

    Example:
        >>> round(measure_size("beitscore=base").parameters / 1e6, 2)
        222.32
    """
    import torch
    from PIL import Image

    name, _, checkpoint = metric.partition("=")
    spec = metric_spec(name)
    if checkpoint in ("base", "large") and spec.name == "beitscore":
        from reward.metrics.beitscore.config import PRESETS
        from reward.metrics.beitscore.model import BeitScoreModel

        with torch.device("meta"):
            model = BeitScoreModel(PRESETS[checkpoint]).eval()
            inputs = torch.zeros(1, 3, _SIDE, _SIDE), torch.zeros(1, _TOKENS, dtype=torch.long)
        return _measured(model, lambda: model(*inputs))
    if checkpoint and spec.sources == "clip":
        clip = _clip_of_configuration(checkpoint)
        if clip is not None:
            return clip
    if checkpoint and not is_address(checkpoint) and (spec.sources == "judge" or not os.path.exists(checkpoint)):
        from reward.cli.checkpoint_check import inspect_checkpoint

        return Size(inspect_checkpoint(metric).weights, None, None)
    scorer: Any = load_scorer(name, checkpoint or "embedded", device="cpu")
    network = getattr(scorer, "model", None)
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(f"metric {name!r} has no network of its own to measure; a judge's size is on its model card")
    caption = " ".join("a" * (_TOKENS - 2))  # beside the start and the end
    sample = CaptionSample(caption, Image.new("RGB", (_SIDE, _SIDE)), [caption])
    return _measured(network, lambda: scorer.score([sample]))


def _clip_of_configuration(checkpoint: str) -> Size | None:
    """The size of a CLIP of open_clip or transformers; None of a file in the original layout.

    Raises:
        CheckpointError: a configuration that cannot be used.
    """
    import torch
    from open_clip import get_model_config
    from transformers import AutoConfig, AutoModel

    from reward.backbones.clip_config import build_clip
    from reward.backbones.fit import foreign_errors, on_meta
    from reward.checkpoints.folders import CONFIG_FILE, OPEN_CLIP_CONFIG, config_folder

    name = checkpoint.removeprefix("hf-hub:").removeprefix("local-dir:")
    if os.path.isfile(name):
        return None
    architecture, colon, _ = name.partition(":")
    with foreign_errors(f"CLIP {checkpoint!r}"), on_meta():
        settings = get_model_config(architecture) if colon else None
        folder = None if colon else config_folder(name)
        if folder is not None and (folder / OPEN_CLIP_CONFIG).is_file():
            settings = json.loads((folder / OPEN_CLIP_CONFIG).read_text(encoding="utf-8"))["model_cfg"]
        if settings is not None:
            model = build_clip(settings).eval()
            side = settings["vision_cfg"]["image_size"]
            length = settings["text_cfg"].get("context_length", 77)
        elif folder is not None and (folder / CONFIG_FILE).is_file():
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            model = AutoModel.from_config(config, trust_remote_code=False).eval()
            side = config.vision_config.image_size
            length = config.text_config.max_position_embeddings
        else:
            return None
        ids = torch.zeros(1, min(_TOKENS, length), dtype=torch.long)
        pixels = torch.zeros(1, 3, side, side)
        if settings is not None:
            return _measured(model, lambda: model(pixels, ids))
        return _measured(model, lambda: model(input_ids=ids, pixel_values=pixels))


def _measured(network: Any, score: Callable[[], Any]) -> Size:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # The fused kernels for attention on a CPU are not counted; those made of plain products are.
    was_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            score()
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
    work = counter.get_flop_counts()["Global"]
    products = sum(count for operation, count in work.items() if "bmm" in str(operation))
    parameters = sum(weight.numel() for weight in network.parameters())
    return Size(parameters, (counter.get_total_flops() - products) // 2, products // 2)
