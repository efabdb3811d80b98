"""BeitScoreScorer: sharing by image, batches of like length, pixels, and checkpoints that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from reward import CaptionSample
from reward.backbones.clip import normalized
from reward.errors import CheckpointError
from reward.metrics.beitscore.scorer import BeitScoreScorer
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model, make_scorer
from tests.reward.metrics.tiny_vela import WORDS, picture

GOLDEN = Path(__file__).parents[3] / "golden"
_scorer = make_scorer()


def test_scores_are_those_of_the_network() -> None:
    sample = CaptionSample(WORDS[0], picture(0))
    pixels = _scorer.model.preprocess(picture(0))
    ids, padding, _ = _scorer.tokenizer([WORDS[0]])
    with torch.no_grad():
        expected = _scorer.model(pixels[None], ids, padding).scores
    assert _scorer.score([sample]).scores[0, 0] == pytest.approx(float(expected[0]), abs=TOLERANCE)


def test_images_are_squeezed_to_the_square_and_normalised() -> None:
    config = make_config(image_mean=(0.5, 0.25, 0.0), image_std=(0.5, 0.5, 1.0))
    image = Image.new("RGB", (60, 20), "white")
    image.paste("black", (30, 0, 60, 20))
    pixels = normalized(make_model(config).preprocess(image)[None], config.image_mean, config.image_std)[0]
    assert pixels.shape == (3, 32, 32)
    assert pixels[:, 16, 2].tolist() == [1.0, 1.5, 1.0]
    assert pixels[:, 16, -3].tolist() == [-1.0, -0.5, 0.0]
    assert torch.equal(pixels[:, 0], pixels[:, -1])


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="token_budget"):
        make_scorer(token_budget=0)
    short = make_config(text_positions=20)
    with pytest.raises(ValueError, match=r"rows of up to 64, but the model has .* room for 18"):
        BeitScoreScorer(make_model(short), _scorer.tokenizer)
    with pytest.raises(ValueError, match="but the model has 50 tokens"):
        BeitScoreScorer(make_model(make_config(vocab_size=50)), _scorer.tokenizer)


def test_published_beit3_weights_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "beit3.pth").write_bytes(b"")
    for path in (GOLDEN / "beit3_tiny_weights.safetensors", tmp_path / "beit3.pth"):
        with pytest.raises(CheckpointError, match=r"no trained score head: start from them with .*load_beit3"):
            BeitScoreScorer.from_pretrained(path)
