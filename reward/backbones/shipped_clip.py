"""The CLIP towers that the embedded VELA holds, for other metrics that look at pictures."""

from __future__ import annotations

import torch

from reward.backbones.clip import ClipTowers, towers_of_architecture
from reward.backbones.pretrained import read_tokenizer
from reward.checkpoints import WEIGHTS_FILE, load_strict, load_tensors, read_config, resolve_checkpoint

__all__ = ["load_shipped_clip"]

_PREFIX = "image.towers.clip."  # of the names of their weights


def load_shipped_clip(*, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ClipTowers:
    """Loads the small CLIP of the scenes, in eval mode: for trials and tests, not for photos.

    Args:
        device, dtype: as in `load_clip`.

    Example:
        >>> load_shipped_clip().embed_dim
        256
    """
    folder = resolve_checkpoint("embedded", metric="vela")
    architecture = read_config(folder, metric="vela")["image"]["architecture"]
    towers = towers_of_architecture(architecture, read_tokenizer(folder))
    tensors = load_tensors(folder / WEIGHTS_FILE)
    weights = {key.removeprefix(_PREFIX): value for key, value in tensors.items() if key.startswith(_PREFIX)}
    load_strict(towers.clip, weights, where=f"the CLIP in {folder}")
    return towers.to(device=device, dtype=dtype or torch.float32).eval()
