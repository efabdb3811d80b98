"""BeitScoreScorer: sharing by image, batches of like length, pixels, and checkpoints that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from reward import CaptionSample
from reward.errors import CheckpointError
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.scorer import BeitScoreScorer
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_fast, make_model, make_scorer
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
    pixels = make_model(config).preprocess(image)
    assert pixels.shape == (3, 32, 32)
    assert pixels[:, 16, 2].tolist() == [1.0, 1.5, 1.0]
    assert pixels[:, 16, -3].tolist() == [-1.0, -0.5, 0.0]
    assert torch.equal(pixels[:, 0], pixels[:, -1])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes of the token ids of the encoder's passes."""
    shapes: list[tuple[int, int]] = []
    encode = BeitScoreModel.encode_embedded

    def watch(model: Any, image: torch.Tensor, ids: torch.Tensor, padding: torch.Tensor) -> Any:
        shapes.append(tuple(ids.shape))
        return encode(model, image, ids, padding)

    monkeypatch.setattr(BeitScoreModel, "encode_embedded", watch)
    return shapes


def test_batches_are_of_like_length(passes: list[tuple[int, int]]) -> None:
    texts = [word * times for word in WORDS for times in (1, 8)]
    samples = [CaptionSample(text, picture(seed)) for seed in range(3) for text in texts]
    scorer = make_scorer(token_budget=250)
    lengths = [len(tokens) for tokens in scorer.tokenizer.encode([sample.candidate for sample in samples])[0]]
    scorer.score(samples)
    assert sum(lengths) <= sum(rows * width for rows, width in passes) < 1.3 * sum(lengths)


def test_few_images_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = make_scorer(token_budget=20)  # an image has 17 tokens, so a window holds 9
    held: list[int] = []
    score_groups = scorer.score_groups

    def watch(groups: Any, batch_size: Any) -> Any:
        held.append(len(groups))
        return score_groups(groups, batch_size)

    monkeypatch.setattr(scorer, "score_groups", watch)
    scorer.score([CaptionSample("x", picture(seed)) for seed in range(20)])
    assert held == [9, 9, 2]


def test_words_after_77_tokens_are_read() -> None:
    scorer = make_scorer(make_config(text_positions=402))
    start = "The red star is on the green grass. " * 9
    samples = [CaptionSample(start + end, picture(0)) for end in ("The red star.", "The green grass.")]
    assert len(scorer.tokenizer.encode([start])[0][0]) > 77
    table = scorer.score(samples)
    assert not table.truncated.any()
    assert abs(table.scores[0] - table.scores[1]) > 1e-5


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="token_budget"):
        make_scorer(token_budget=0)
    short = make_config(text_positions=20)
    with pytest.raises(ValueError, match=r"rows of up to 64, but the model has .* room for 18"):
        BeitScoreScorer(make_model(short), _scorer.tokenizer)
    with pytest.raises(ValueError, match="but the model has 50 tokens"):
        BeitScoreScorer(make_model(make_config(vocab_size=50)), _scorer.tokenizer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _scorer.save_pretrained(tmp_path / "beitscore")
    return tmp_path / "beitscore"


def settings(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | changes
        kept = {name: value for name, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return change


def larger_tokenizer(folder: Path) -> None:
    fast = make_fast()
    fast.add_tokens(["<more>"])
    fast.save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (settings(heads=None), "heads not stated"),
        (settings(colour="red"), "colour"),
        (settings(heads="4"), "whole number"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors' does not exist"),
        (larger_tokenizer, r"tokenizer has .* tokens and its table only"),
    ],
)
def test_checkpoints_that_lack_something_or_do_not_fit_are_refused(folder: Path, change: Any, message: str) -> None:
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        BeitScoreScorer.from_pretrained(folder)


def test_published_beit3_weights_are_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "beit3.pth").write_bytes(b"")
    for path in (GOLDEN / "beit3_tiny_weights.safetensors", tmp_path / "beit3.pth"):
        with pytest.raises(CheckpointError, match=r"no trained score head: start from them with .*load_beit3"):
            BeitScoreScorer.from_pretrained(path)


def test_loading_draws_no_random_numbers(folder: Path) -> None:
    before = torch.get_rng_state()
    BeitScoreScorer.from_pretrained(folder, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
