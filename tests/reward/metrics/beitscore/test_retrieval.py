"""BEiT-3 as two towers, with the golden weights and heads of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from reward.errors import CheckpointError
from reward.metrics.beitscore.retrieval import load_beit3_towers
from reward.training.corruptions.retrieval import clip_embeddings
from tests.reward.metrics.beitscore.tiny_beitscore import train_spm

GOLDEN = Path(__file__).parents[3] / "golden" / "beit3_tiny_weights.safetensors"
CAPTIONS = ["a red star", "a red star on a long green beach", "a ring"]


@pytest.fixture
def spm(tmp_path: Path) -> Path:
    (tmp_path / "beit3.spm").write_bytes(train_spm())
    return tmp_path / "beit3.spm"


def test_a_caption_and_an_image_are_embedded_alone(spm: Path, tmp_path: Path) -> None:
    heads = {f"{name}_head.weight": torch.randn(32, 32) for name in ("vision", "language")}
    save_file({**load_file(GOLDEN), **heads}, tmp_path / "itc.safetensors", metadata={"heads": "4"})
    towers = load_beit3_towers(tmp_path / "itc.safetensors", spm, device="cpu")
    images = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    texts, pictures = clip_embeddings(towers, CAPTIONS, images)
    for row, caption in enumerate(CAPTIONS):  # padding changes nothing
        np.testing.assert_allclose(clip_embeddings(towers, [caption])[0][0], texts[row], atol=1e-5)
    ids, cut = towers.tokenize(["star " * 100])
    assert (ids.shape[1] <= 64, cut) == (True, [True])
    # the same states as in the encoder's own pass over an empty other stream
    pixels = torch.stack([towers.preprocess(image) for image in images])
    states = towers.beit3(pixels, torch.zeros(2, 0, dtype=torch.long))[0][:, 0]
    np.testing.assert_allclose((states @ heads["vision_head.weight"].T).detach().numpy(), pictures, atol=1e-5)


def test_a_checkpoint_without_heads_is_refused(spm: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no vision_head: give a checkpoint of BEiT-3 for retrieval"):
        load_beit3_towers(GOLDEN, spm)
