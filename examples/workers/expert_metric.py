"""EXPERT (Kim et al. 2025) for `worker_for.py`, in the environment of capevalkit; see docs/SERVICE.md."""

# Nobody has run this yet.

import functools
import json
import tempfile
from pathlib import Path

from capevalkit.metrics import expert_metric

llava = expert_metric._load_llava()
llava.load_pretrained_model = functools.lru_cache(None)(llava.load_pretrained_model)  # `compute` asks each time
expert_metric._load_llava = lambda: llava
SETTINGS = {
    "model_path": expert_metric.DEFAULT_MODEL_PATH,
    "model_base": expert_metric.DEFAULT_MODEL_BASE,
    "conv_mode": "llava_v1",
    "max_new_tokens": 512,
    "load_4bit": False,
    "load_8bit": True,
    "image_aspect_ratio": "pad",
}


def expert(samples):
    """One number for each sample."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, each in enumerate(samples):
            image = Path(folder) / f"{number:06}"
            image.write_bytes(each.image_bytes)
            lines.append(json.dumps({"id": image.name, "caption": each.caption, "image": str(image)}))
        predictions = Path(folder) / "predictions.jsonl"
        predictions.write_text("\n".join(lines))
        scores = expert_metric.compute(str(predictions), **SETTINGS)["EXPERT"]["per_item"]
    return [scores[f"{number:06}"] for number in range(len(samples))]
