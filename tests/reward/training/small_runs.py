"""Training runs of a second or two: networks of one or two thin layers, a handful of scenes or drawn pictures."""

import json

import pytest
import torch
from datasets import Dataset, DatasetDict
from PIL import Image
from safetensors.torch import load_file

from reward.metrics.beitscore import training as beitscore_training
from reward.metrics.vela import training as vela_training
from reward.training.config import make_config
from reward.training.loop import train
from reward.training.trainer import mean_loss

_SMALL_VELA = {
    **{"scenes_train": 12, "scenes_val": 8, "scenes_test": 0, "batch_size": 6, "epochs": 2, "patience": 5},
    "model": {
        "tokenizer": {"vocab_size": 400},
        "text": {
            "architecture": {
                **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1},
                **{"num_attention_heads": 2, "num_key_value_heads": 1},
            }
        },
        "image": {
            "architecture": {
                "model_cfg": {
                    "embed_dim": 16,
                    "vision_cfg": {"width": 32, "layers": 1, "head_width": 16},
                    "text_cfg": {"width": 32, "layers": 1, "heads": 2, "context_length": 64},
                }
            }
        },
    },
}
_SMALL_BEITSCORE = {
    **{"scenes_train": 8, "scenes_val": 6, "scenes_test": 0, "batch_size": 4, "epochs": 1, "eval_batch_size": 8},
    "model": {
        "tokenizer": {"vocab_size": 320},
        "config": {
            **{"hidden_size": 16, "layers": 2, "heads": 2, "ffn_size": 32},
            **{"image_size": 32, "patch_size": 16, "head_size": 8},
        },
    },
}
NO_STAGES = dict.fromkeys(("1a", "1b", "1c", "2"))
# Two stages instead of four.
TWO = {"1a": {"loss": "bce", "categories": ["noun", "shuffle"]}, "2": {"loss": "l1"}, "1b": None, "1c": None}


def small_config(**settings):
    """VELA's preset `tiny` with everything small; `settings` win."""
    return make_config(vela_training.PRESETS["tiny"], _SMALL_VELA, settings)


def small_beitscore(**settings):
    """BEiTScore's preset `tiny` with everything small; `settings` win."""
    return make_config(beitscore_training.PRESETS["tiny"], _SMALL_BEITSCORE, settings)


def pair_rows(n=4, **columns):
    """A split of pairs: pictures of one colour each, with a caption, a wrong one and its category."""
    data = {
        "image": [Image.new("RGB", (8, 8), (40 * i, 0, 90)) for i in range(n)],
        "caption": [f"There are {i} red stars. A cat looks at them." for i in range(n)],
        "incorrect": [f"There are {i + 1} red stars. A cat looks at them." for i in range(n)],
        "category": ["count"] * n,
        **columns,
    }
    return Dataset.from_dict({name: values for name, values in data.items() if values is not None})


def small_data():
    """Pairs and ratings in one data set."""
    rated = {"image": [Image.new("RGB", (8, 8), (0, 30 * i, 0)) for i in range(6)]}
    rated |= {"cand": [f"A green picture, number {i}." for i in range(6)], "score": [i / 5 for i in range(6)]}
    splits = {f"{part}.pairs": pair_rows() for part in ("train", "val")}
    return DatasetDict(splits | {part: Dataset.from_dict(rated) for part in ("train", "val")})


def weights(folder):
    return load_file(folder / "model.safetensors")


def same_weights(one, two):
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def record(folder):
    return json.loads((folder / "training.json").read_text())


class Killed(BaseException):
    """Like a kill: no handler of exceptions catches it."""


def train_until_killed(metric, folder, config, monkeypatch, *, batches, **options):
    """Trains on scenes until the loss of so many batches was computed, those of evaluations included."""
    computed = 0

    def loss(*args):
        nonlocal computed
        computed += 1
        if computed > batches:
            raise Killed
        return mean_loss(*args)

    with monkeypatch.context() as patch:
        patch.setattr("reward.training.trainer.mean_loss", loss)
        with pytest.raises(Killed):
            train(metric, "scenes", folder, config, **options)
