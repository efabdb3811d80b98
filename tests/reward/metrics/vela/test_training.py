"""VELA's part in training: batches of judgments and tokenizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.metrics.vela.training import VelaCollator, make_model, make_tokenizer
from reward.samples import CaptionSample
from reward.scenes import make_dataset
from tests.reward.training.small_runs import small_config


@pytest.fixture(scope="module")
def model() -> VelaModel:
    torch.manual_seed(0)
    built = make_model(small_config().model, texts=lambda: ["the red star is above a blue ring"] * 3)
    torch.nn.init.normal_(built.weight)  # the head starts at zero, where every score is the same
    return built.eval()


@pytest.fixture(scope="module")
def samples() -> list[CaptionSample]:
    return [CaptionSample(row["cand"], row["image"], row["refs"]) for row in make_dataset(4, 7)]


def rows(samples: list[CaptionSample], order: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"sample": samples[item], "aspect": aspect, "target": aspect / 2} for item, aspect in order]


def test_a_batch_gives_the_scores_of_the_scorer(model: VelaModel, samples: list[CaptionSample]) -> None:
    order = [(0, 1), (2, 0), (0, 2), (3, 1), (1, 0)]
    batch = VelaCollator(model)(rows(samples, order))
    assert next(iter(batch)) == "labels"
    assert batch.pop("labels").tolist() == [0.5, 0.0, 1.0, 0.5, 0.0]
    assert batch["sample"].tolist() == [0, 1, 0, 2, 3]  # rows about one caption share its image
    assert len(batch["pixels"]) == len(batch["clip_ids"]) == 4
    with torch.no_grad():
        scores = model(**batch).scores
    table = VelaScorer(model).score(samples).scores
    expected = torch.tensor([table[item, aspect] for item, aspect in order], dtype=torch.float32)
    assert torch.allclose(scores, expected, atol=1e-5)
    assert len(scores.unique()) == 5


def test_one_image_with_two_captions_is_two_pairs_and_an_absent_one_is_named(
    model: VelaModel, samples: list[CaptionSample]
) -> None:
    image = samples[0].image
    pair = [CaptionSample("A star.", image), CaptionSample("A ring.", image)]
    batch = VelaCollator(model)(rows(pair, [(0, 0), (1, 0), (0, 1)]))
    assert batch["sample"].tolist() == [0, 1, 0]
    assert not torch.equal(batch["clip_ids"][0], batch["clip_ids"][1])
    with pytest.raises(InvalidSampleError, match=r"absent\.png"):
        VelaCollator(model)(rows([CaptionSample("A star.", "absent.png")], [(0, 0)]))


def test_an_ablated_model_gets_only_what_it_reads(samples: list[CaptionSample]) -> None:
    for absent, present in (("image", {"input_ids", "attention_mask"}), ("text", {"pixels", "clip_ids", "sample"})):
        half = make_model({**small_config().model, absent: None}, texts=lambda: ["a star"])
        assert set(VelaCollator(half)(rows(samples, [(0, 0)]))) == {"labels", "aspect", *present}


def test_gradient_checkpointing_recomputes_states_and_gives_the_same_gradients(
    samples: list[CaptionSample],
) -> None:
    passes, gradients = [], []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        settings = {**small_config().model, "gradient_checkpointing": checkpointing}
        model = make_model(settings, texts=lambda: ["the red star is above a blue ring"] * 3).train()
        torch.nn.init.normal_(model.weight)
        calls: list[int] = []
        model.text.decoder.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        batch = VelaCollator(model)(rows(samples, [(0, 0), (1, 1)]))
        torch.nn.functional.mse_loss(batch.pop("labels"), model(**batch).scores).backward()
        passes.append(len(calls))
        gradients.append([value.grad for value in model.parameters() if value.grad is not None])
    assert passes == [1, 2]
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)
    with pytest.raises(ConfigError, match="gradient_checkpointing must be true or false, got 'yes'"):
        make_model({**small_config().model, "gradient_checkpointing": "yes"}, texts=lambda: [])


def test_tokenizer_writes_any_text_and_parses_no_control_tokens_in_captions(model: VelaModel) -> None:
    tokenizer = make_tokenizer(["a red star"], 300)
    for text in ("Ein Bär 🐻 – naïve\n", "\u202e\x00", "a red star"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    batch = VelaCollator(model)(rows([CaptionSample("<end> <start> <pad>", make_dataset(1, 0)[0]["image"])], [(0, 0)]))
    end = len(model.text.prompts.tokenizer) - 1  # type: ignore[union-attr]
    assert (batch["clip_ids"] == end).sum() == 1  # the one that closes the caption
