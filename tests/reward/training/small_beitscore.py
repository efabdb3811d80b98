"""Training runs of BEiTScore of a second or two: thin layers, a handful of scenes, data sets of drawn pictures."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, DatasetDict
from PIL import Image

from reward.metrics.beitscore.training import PRESETS
from reward.training.config import TrainingConfig, make_config

__all__ = ["SMALL_MODEL", "pair_rows", "small_beitscore", "small_data"]

SMALL_MODEL: dict[str, Any] = {
    "tokenizer": {"vocab_size": 320},
    "config": {
        "hidden_size": 16,
        "layers": 2,
        "heads": 2,
        "ffn_size": 32,
        "image_size": 32,
        "patch_size": 16,
        "head_size": 8,
    },
}
_SMALL: dict[str, Any] = {
    "scenes_train": 8,
    "scenes_val": 6,
    "scenes_test": 0,
    "batch_size": 4,
    "epochs": 1,
    "eval_batch_size": 8,
    "model": SMALL_MODEL,
}


def small_beitscore(**settings: Any) -> TrainingConfig:
    """The preset `tiny` with everything small; `settings` win."""
    return make_config(PRESETS["tiny"], _SMALL, settings)


def pair_rows(n: int = 4, **columns: Any) -> Dataset:
    """A split of pairs: pictures of one colour each, with a caption, a wrong one and its category."""
    data: dict[str, Any] = {
        "image": [Image.new("RGB", (8, 8), (40 * i, 0, 90)) for i in range(n)],
        "caption": [f"There are {i} red stars. A cat looks at them." for i in range(n)],
        "incorrect": [f"There are {i + 1} red stars. A cat looks at them." for i in range(n)],
        "category": ["count"] * n,
        **columns,
    }
    return Dataset.from_dict({name: values for name, values in data.items() if values is not None})


def small_data() -> DatasetDict:
    """Pairs and ratings in one data set."""
    rated = {"image": [Image.new("RGB", (8, 8), (0, 30 * i, 0)) for i in range(6)]}
    rated |= {"cand": [f"A green picture, number {i}." for i in range(6)], "score": [i / 5 for i in range(6)]}
    splits = {f"{part}.pairs": pair_rows() for part in ("train", "val")}
    return DatasetDict(splits | {part: Dataset.from_dict(rated) for part in ("train", "val")})
