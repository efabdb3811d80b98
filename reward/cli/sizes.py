"""How large the network of a metric is, and how much it computes for one caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reward.data.samples import CaptionSample
from reward.errors import ConfigError
from reward.registry import load_scorer, metric_spec

_SIDE = 480  # pixels of the image, before the metric scales it
_TOKENS = 80  # of the caption, for most tokenizers


@dataclass(frozen=True)
class Size:
    """Numbers of a network.

    Args:
        parameters: how many weights it has.
        layers: multiplications in linear and convolution layers for one image and caption.
        attention: those in products of queries and keys, and of their weights and values.
    """

    parameters: int
    layers: int
    attention: int


def measure_size(metric: str) -> Size:
    """Counts the weights of a metric's network, and its multiplications for one caption of 80 tokens.

    With these, the base size of BEiTScore has 83.85 billion, which its paper calls GFLOPs.

    Args:
        metric: `"NAME"`, `"NAME=SOURCE"`, or `"beitscore=base"` and `"beitscore=large"` for the sizes of its paper,
            which need no weights and little memory.

    Raises:
        ConfigError: the metric has no network of its own.
        UnknownMetricError, CheckpointError: it cannot be loaded.

    Example:
        >>> round(measure_size("beitscore=base").parameters / 1e6, 2)
        222.32
    """
    import torch
    from PIL import Image

    name, _, source = metric.partition("=")
    if source in ("base", "large") and metric_spec(name).name == "beitscore":
        from reward.metrics.beitscore.config import PRESETS
        from reward.metrics.beitscore.model import BeitScoreModel

        with torch.device("meta"):
            model = BeitScoreModel(PRESETS[source]).eval()
            inputs = torch.zeros(1, 3, _SIDE, _SIDE), torch.zeros(1, _TOKENS, dtype=torch.long)
        return _measured(model, lambda: model(*inputs))
    scorer: Any = load_scorer(name, source or "embedded", device="cpu")
    network = getattr(scorer, "model", None)
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(f"metric {name!r} has no network of its own to measure; a judge's size is on its model card")
    caption = " ".join("a" * (_TOKENS - 2))  # beside the start and the end
    sample = CaptionSample(caption, Image.new("RGB", (_SIDE, _SIDE)), [caption])
    return _measured(network, lambda: scorer.score([sample]))


def _measured(network: Any, score: Callable[[], Any]) -> Size:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # The kernels for attention on a CPU are not counted; those made of plain products are.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        score()
    work = counter.get_flop_counts()["Global"]
    products = sum(count for operation, count in work.items() if "bmm" in str(operation))
    parameters = sum(weight.numel() for weight in network.parameters())
    return Size(parameters, (counter.get_total_flops() - products) // 2, products // 2)
