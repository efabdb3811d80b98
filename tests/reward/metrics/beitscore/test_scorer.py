"""BeitScoreScorer: the network's scores, its pixels, and settings that do not fit."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from reward import CaptionSample
from reward.backbones.clip import normalized
from reward.metrics.beitscore.scorer import BeitScoreScorer
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model, make_scorer
from tests.reward.metrics.tiny_vela import WORDS, picture


def test_scores_are_those_of_the_network() -> None:
    scorer = make_scorer()
    ids, padding, _ = scorer.tokenizer(WORDS)
    pixels = scorer.model.preprocess(picture(0))[None].expand(len(WORDS), -1, -1, -1)
    with torch.no_grad():
        expected = scorer.model(pixels, ids, padding).scores.numpy()
    found = scorer.score([CaptionSample(text, picture(0)) for text in WORDS]).scores[:, 0]
    assert found == pytest.approx(expected, abs=TOLERANCE)


def test_images_are_squeezed_to_the_square_and_normalised() -> None:
    config = make_config(image_mean=(0.5, 0.25, 0.0), image_std=(0.5, 0.5, 1.0))
    image = Image.new("RGB", (60, 20), "white")
    image.paste("black", (30, 0, 60, 20))
    pixels = normalized(make_model(config).preprocess(image)[None], config.image_mean, config.image_std)[0]
    assert pixels.shape == (3, 32, 32)
    assert pixels[:, 16, 2].tolist() == [1.0, 1.5, 1.0]
    assert pixels[:, 16, -3].tolist() == [-1.0, -0.5, 0.0]
    assert torch.equal(pixels[:, 0], pixels[:, -1])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"text_positions": 20}, r"rows of up to 64, but the model has .* room for 18"),
        ({"vocab_size": 50}, "but the model has 50 tokens"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeitScoreScorer(make_model(make_config(**sizes)), make_scorer().tokenizer)
