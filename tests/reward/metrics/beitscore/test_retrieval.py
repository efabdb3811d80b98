"""BEiT-3 as two towers, with the golden weights and heads of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from reward.errors import CheckpointError
from reward.metrics.beitscore.retrieval import Beit3Towers, load_beit3_towers
from reward.training.corruptions.retrieval import clip_embeddings
from tests.reward.metrics.beitscore.tiny_beitscore import train_spm

GOLDEN = Path(__file__).parents[3] / "golden" / "beit3_tiny_weights.safetensors"
CAPTIONS = ["a red star", "a red star on a long green beach", "a ring"]


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Beit3Towers:
    folder = tmp_path_factory.mktemp("itc")
    torch.manual_seed(0)
    tensors = load_file(GOLDEN)
    width = tensors["beit3.text_embed.weight"].shape[1]
    heads = {f"{name}_head.weight": torch.randn(width, width) for name in ("vision", "language")}
    with safe_open(GOLDEN, "pt") as file:
        save_file({**tensors, **heads}, folder / "itc.safetensors", metadata=file.metadata())
    (folder / "beit3.spm").write_bytes(train_spm())
    return load_beit3_towers(folder / "itc.safetensors", folder / "beit3.spm", device="cpu")


def test_a_caption_and_an_image_are_embedded_alone(towers: Beit3Towers) -> None:
    images = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    texts, pictures = clip_embeddings(towers, CAPTIONS, images)
    assert pictures is not None
    assert (texts.shape[0], pictures.shape[0]) == (3, 2)
    for row, caption in enumerate(CAPTIONS):  # padding changes nothing
        np.testing.assert_allclose(clip_embeddings(towers, [caption])[0][0], texts[row], atol=1e-5)
    ids, cut = towers.tokenize(["star " * 100])
    assert (ids.shape[1] <= 64, cut) == (True, [True])
    # the same states as in the encoder's own pass over an empty other stream
    pixels = torch.stack([towers.preprocess(image) for image in images])
    none = torch.zeros(2, 0, dtype=torch.long)
    states = towers.beit3(pixels, none)[0][:, 0]
    np.testing.assert_allclose((states @ towers.vision_head.T).detach().numpy(), pictures, atol=1e-5)


def test_a_checkpoint_without_heads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "beit3.spm").write_bytes(train_spm())
    with pytest.raises(CheckpointError, match=r"has no vision_head: give a checkpoint of BEiT-3 for retrieval"):
        load_beit3_towers(GOLDEN, tmp_path / "beit3.spm")
