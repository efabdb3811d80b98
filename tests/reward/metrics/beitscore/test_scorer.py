"""BeitScoreScorer: the scorers' contract, sharing by image, cut captions, checkpoints, publishing."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from reward.metrics.beitscore import preprocess as preprocess_module
from reward.metrics.beitscore import scorer as scorer_module
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.contract import ScorerContract
from tests.loopback_hub import LoopbackHub
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_fast, make_model, make_scorer, train_spm
from tests.reward.metrics.tiny_vela import picture

TOLERANCE = 1e-5
WORDS = ["The red star.", "A star on the green grass.", "Grass.", "The red star is on the green grass, twice.", "x"]


def spm_scorer(folder: Path, **options: Any) -> BeitScoreScorer:
    (folder / "beit3.spm").write_bytes(train_spm())
    model = make_model()
    tokenizer = BeitScoreTokenizer.from_spm(folder / "beit3.spm", max_tokens=model.config.max_text_tokens)
    return BeitScoreScorer(model, tokenizer, **options)


class TestBeitScore(ScorerContract):
    """The contract, on a small model with random weights."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls) -> BeitScoreScorer:
        return make_scorer()


class TestBeitScoreWithSentencepiece(ScorerContract):
    """The contract again, with the other kind of tokenizer."""

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, tmp_path_factory: pytest.TempPathFactory) -> BeitScoreScorer:
        return spm_scorer(tmp_path_factory.mktemp("spm"))


_scorer = make_scorer()
_samples = st.builds(
    lambda word, image, references: CaptionSample(WORDS[word], picture(image), WORDS[:references]),
    st.integers(0, 4),
    st.integers(0, 2),
    st.integers(0, 2),
)


@settings(max_examples=10, deadline=None)
@given(
    samples=st.lists(_samples, min_size=1, max_size=6),
    batch_size=st.sampled_from([None, 1, 2, 5]),
    budget=st.sampled_from([1, 60, 8192]),
    window=st.sampled_from([1, 2, 1024]),
    order=st.randoms(use_true_random=False),
)
def test_scores_do_not_depend_on_batches_order_grouping_or_duplicates(
    samples: list[CaptionSample], batch_size: int | None, budget: int, window: int, order: Any
) -> None:
    alone = np.concatenate([_scorer.score([sample]).scores for sample in samples])
    rows = [*range(len(samples)), 0]
    order.shuffle(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer_module, "_WINDOW", window)
        scorer = BeitScoreScorer(_scorer.model, _scorer.tokenizer, token_budget=budget)
        table = scorer.score([samples[row] for row in rows], batch_size=batch_size)
    assert np.abs(table.scores - alone[rows]).max() < TOLERANCE


def test_scores_are_those_of_the_network() -> None:
    sample = CaptionSample(WORDS[0], picture(0))
    pixels = preprocess_module.preprocess(picture(0), _scorer.model.config)
    ids, padding, _ = _scorer.tokenizer([WORDS[0]])
    with torch.no_grad():
        expected = _scorer.model(pixels[None], ids, padding).scores
    assert _scorer.score([sample]).scores[0, 0] == pytest.approx(float(expected[0]), abs=TOLERANCE)


def test_images_are_squeezed_to_the_square_and_normalised() -> None:
    config = make_config(image_mean=(0.5, 0.25, 0.0), image_std=(0.5, 0.5, 1.0))
    image = Image.new("RGB", (60, 20), "white")
    image.paste("black", (30, 0, 60, 20))
    pixels = preprocess_module.preprocess(image, config)
    assert pixels.shape == (3, 32, 32)
    assert pixels[:, 16, 2].tolist() == [1.0, 1.5, 1.0]
    assert pixels[:, 16, -3].tolist() == [-1.0, -0.5, 0.0]
    assert torch.equal(pixels[:, 0], pixels[:, -1])


class Counted:
    """Counts images decoded, images embedded, and the rows and tokens of encoder passes."""

    def __init__(self, scorer: BeitScoreScorer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded = self.embedded = self.rows = self.tokens = 0
        load, embed, encode = scorer_module.load_image, scorer.model.beit3.embed_image, scorer.model.encode_embedded

        def count_decoded(image: Any) -> Any:
            self.decoded += 1
            return load(image)

        def count_embedded(pixels: torch.Tensor) -> torch.Tensor:
            self.embedded += len(pixels)
            return embed(pixels)

        def count_rows(image: torch.Tensor, ids: torch.Tensor, padding: torch.Tensor) -> Any:
            self.rows += len(ids)
            self.tokens += ids.numel()
            return encode(image, ids, padding)

        monkeypatch.setattr(scorer_module, "load_image", count_decoded)
        monkeypatch.setattr(scorer.model.beit3, "embed_image", count_embedded)
        monkeypatch.setattr(scorer.model, "encode_embedded", count_rows)


def test_what_samples_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = make_scorer()
    counted = Counted(scorer, monkeypatch)
    words = [*WORDS, WORDS[0]]
    samples = [CaptionSample(word, picture(0), WORDS[:row]) for row, word in enumerate(words)]
    table = scorer.score(samples)  # other references, and other image objects of the same pixels
    assert (counted.decoded, counted.embedded, counted.rows) == (1, 1, 5)
    assert np.array_equal(table.scores[0], table.scores[5])


def test_batches_are_of_like_length(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [word * times for word in WORDS for times in (1, 8)]
    samples = [CaptionSample(text, picture(seed)) for seed in range(3) for text in texts]
    scorer = make_scorer(token_budget=250)
    lengths = [len(tokens) for tokens in scorer.tokenizer.encode([sample.candidate for sample in samples])[0]]
    counted = Counted(scorer, monkeypatch)
    scorer.score(samples)
    assert counted.embedded == 3
    assert sum(lengths) <= counted.tokens < 1.3 * sum(lengths)


def test_few_images_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = make_scorer(token_budget=20)  # an image has 17 tokens, so a window holds 9
    held: list[int] = []
    score_items = scorer_module._Run._score_items

    def watch(run: Any, items: Any, images: torch.Tensor) -> None:
        held.append(len(images))
        score_items(run, items, images)

    monkeypatch.setattr(scorer_module._Run, "_score_items", watch)
    scorer.score([CaptionSample("x", picture(seed)) for seed in range(20)])
    assert held == [9, 9, 2]


def test_references_are_not_looked_at() -> None:
    samples = [CaptionSample("The red star.", picture(0), WORDS[:count]) for count in range(3)]
    assert len(np.unique(_scorer.score(samples).scores)) == 1


def test_a_caption_longer_than_the_position_table_is_scored_flagged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = "The red star is on the green grass. " * 100
    samples = [CaptionSample(text, picture(0)) for text in ("x", long, long + "No, it is blue.", "Grass.")]
    with caplog.at_level(logging.WARNING, logger="reward"):
        table = _scorer.score(samples)
    assert table.truncated.tolist() == [False, True, True, False]
    assert [record.getMessage() for record in caplog.records] == ["2 of 4 samples were cut to fit the model"]
    assert table.errors == {}
    assert table.scores[1] == pytest.approx(table.scores[2])


def test_words_after_77_tokens_are_read() -> None:
    scorer = make_scorer(make_config(text_positions=402))
    start = "The red star is on the green grass. " * 9
    samples = [CaptionSample(start + end, picture(0)) for end in ("The red star.", "The green grass.")]
    assert len(scorer.tokenizer.encode([start])[0][0]) > 77
    table = scorer.score(samples)
    assert not table.truncated.any()
    assert abs(table.scores[0] - table.scores[1]) > 1e-5


def test_scores_that_are_not_finite_are_errors() -> None:
    model = make_model()
    with torch.no_grad():
        model.head[2].bias.fill_(float("nan"))
    table = BeitScoreScorer(model, _scorer.tokenizer).score([CaptionSample("x", picture(0))])
    assert table.errors == {0: "the model gave a score that is not finite"}


def test_training_mode_is_put_back_and_dropout_is_off() -> None:
    scorer = make_scorer(make_config(drop_path=0.9))
    sample = CaptionSample("x", picture(0))
    expected = scorer.score([sample]).scores
    scorer.model.train()
    scorer.model.pooler.eval()
    assert np.array_equal(scorer.score([sample]).scores, expected)
    assert scorer.model.training
    assert not scorer.model.pooler.training


def test_scores_do_not_follow_the_callers_autocast() -> None:
    sample = CaptionSample("A red star.", picture(0))
    plain = _scorer.score([sample]).scores
    with torch.autocast("cpu", torch.bfloat16):
        assert abs(_scorer.score([sample]).scores - plain).max() < 1e-6


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    _scorer.score([CaptionSample("x", picture(0))], progress=True)
    assert "beitscore" in capsys.readouterr().out


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        _scorer.score([], batch_size=0)
    with pytest.raises(ValueError, match="token_budget"):
        make_scorer(token_budget=0)
    short = make_config(text_positions=20)
    with pytest.raises(ValueError, match=r"rows of up to 64, but the model has .* room for 18"):
        BeitScoreScorer(make_model(short), _scorer.tokenizer)
    with pytest.raises(ValueError, match="but the model has 50 tokens"):
        BeitScoreScorer(make_model(make_config(vocab_size=50)), _scorer.tokenizer)


class TestCheckpoints:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        _scorer.save_pretrained(tmp_path / "beitscore")
        return tmp_path / "beitscore"

    def test_a_missing_or_extra_key_is_refused(self, folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        for changed, message in (
            ({key: value for key, value in tensors.items() if key != "head.0.bias"}, r"lacks 1 key \(head.0.bias\)"),
            ({**tensors, "head.9.bias": torch.zeros(1)}, r"unknown 1 key \(head.9.bias\)"),
            ({**tensors, "head.2.bias": torch.zeros(2)}, r"mis-shaped 1 key \(head.2.bias is \(2,\), not \(1,\)\)"),
        ):
            save_file(changed, folder / "model.safetensors")
            with pytest.raises(CheckpointError, match=message):
                BeitScoreScorer.from_pretrained(folder)

    def test_a_missing_setting_or_an_unknown_one_is_refused(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        assert config["metric"] == "beitscore"
        for changed, message in (
            ({key: value for key, value in config.items() if key != "heads"}, "heads not stated"),
            ({**config, "colour": "red"}, "colour"),
            ({**config, "heads": 5}, "must divide"),
            ({**config, "heads": "4"}, "whole number"),
        ):
            (folder / "config.json").write_text(json.dumps(changed))
            with pytest.raises(CheckpointError, match=message):
                BeitScoreScorer.from_pretrained(folder)

    def test_a_missing_file_is_named(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        with pytest.raises(CheckpointError, match=r"beit3.spm and tokenizer.json, found neither"):
            BeitScoreScorer.from_pretrained(folder)
        make_fast().save_pretrained(folder)
        (folder / "model.safetensors").unlink()
        with pytest.raises(CheckpointError, match=r"model.safetensors' does not exist"):
            BeitScoreScorer.from_pretrained(folder)

    def test_a_tokenizer_larger_than_the_table_is_refused(self, folder: Path) -> None:
        fast = make_fast()
        fast.add_tokens(["<more>"])
        fast.save_pretrained(folder)
        with pytest.raises(CheckpointError, match=r"tokenizer has .* tokens and its table only"):
            BeitScoreScorer.from_pretrained(folder)

    def test_published_beit3_weights_are_no_checkpoint(self, tmp_path: Path) -> None:
        golden = Path(__file__).parents[3] / "golden" / "beit3_tiny_weights.safetensors"
        (tmp_path / "beit3.pth").write_bytes(b"")
        for path in (golden, tmp_path / "beit3.pth"):
            with pytest.raises(CheckpointError, match=r"no trained score head: start from them with .*load_beit3"):
                BeitScoreScorer.from_pretrained(path)

    def test_half_precision_files_and_networks(self, folder: Path) -> None:
        samples = [CaptionSample(word, picture(seed)) for word in WORDS for seed in range(2)]
        expected = _scorer.score(samples).scores
        size = (folder / "model.safetensors").stat().st_size
        _scorer.save_pretrained(folder, dtype=torch.float16, card="# Mine\n")
        assert (folder / "model.safetensors").stat().st_size < 0.6 * size
        assert (folder / "README.md").read_text() == "# Mine\n"
        scorer = BeitScoreScorer.from_pretrained(folder, device="cpu")
        assert {parameter.dtype for parameter in scorer.model.parameters()} == {torch.float32}
        assert np.abs(scorer.score(samples).scores - expected).max() < 5e-3
        half = BeitScoreScorer.from_pretrained(folder, device="cpu", dtype="bfloat16")
        assert half.model.beit3.text_embed.weight.dtype == torch.bfloat16
        assert half.model.head[0].weight.dtype == torch.float32
        assert np.abs(half.score(samples).scores - expected).max() < 0.1

    def test_loading_draws_no_random_numbers(self, folder: Path) -> None:
        before = torch.get_rng_state()
        BeitScoreScorer.from_pretrained(folder, device="cpu")
        assert torch.equal(torch.get_rng_state(), before)

    def test_a_saved_sentencepiece_file_comes_back(self, tmp_path: Path) -> None:
        scorer = spm_scorer(tmp_path)
        scorer.save_pretrained(tmp_path / "out")
        assert (tmp_path / "out" / "beit3.spm").read_bytes() == train_spm()
        samples = [CaptionSample(word, picture(0)) for word in WORDS]
        loaded = BeitScoreScorer.from_pretrained(tmp_path / "out", device="cpu")
        assert np.array_equal(loaded.score(samples).scores, scorer.score(samples).scores)
        assert np.array_equal(pickle.loads(pickle.dumps(loaded)).score(samples).scores, scorer.score(samples).scores)


@pytest.mark.parametrize("kind", ["tokenizer.json", "beit3.spm"])
def test_push_and_pull(kind: str, hub: LoopbackHub, tmp_path: Path) -> None:
    scorer = make_scorer() if kind == "tokenizer.json" else spm_scorer(tmp_path)
    scorer.push_to_hub("owner/beitscore", private=True)
    assert set(hub.files("owner/beitscore")) >= {"config.json", "model.safetensors", kind, "README.md"}
    samples = [CaptionSample(word, picture(0)) for word in WORDS]
    pulled = load_scorer("beitscore", "owner/beitscore", device="cpu")
    assert np.array_equal(pulled.score(samples).scores, scorer.score(samples).scores)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_scores_and_bfloat16_close_ones(tmp_path: Path) -> None:
    samples = [CaptionSample(word, picture(seed)) for word in WORDS for seed in range(3)]
    expected = _scorer.score(samples).scores
    _scorer.save_pretrained(tmp_path)
    full = BeitScoreScorer.from_pretrained(tmp_path, device="cuda").score(samples).scores
    assert np.abs(full - expected).max() < 1e-4
    half = BeitScoreScorer.from_pretrained(tmp_path, device="cuda", dtype="bfloat16").score(samples).scores
    assert np.abs(half - expected).max() < 0.1
