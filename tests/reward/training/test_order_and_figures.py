"""The order of training rows, the loss, and the figure that training stops by."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.training.evaluation import agreement, pair_accuracy
from reward.training.sampling import length_grouped_order
from reward.training.trainer import mean_loss


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=300), st.integers(1, 9), st.text(max_size=3))
def test_order_is_a_permutation_that_depends_on_the_seed_alone(lengths: list[int], batch: int, seed: str) -> None:
    order = length_grouped_order(lengths, batch, seed)
    assert sorted(order) == list(range(len(lengths)))
    assert order == length_grouped_order(lengths, batch, seed)


def test_batches_hold_similar_lengths_in_no_order_of_length() -> None:
    lengths = list(np.random.default_rng(0).permutation(1000))
    batches = np.array([lengths[row] for row in length_grouped_order(lengths, 10, "s")]).reshape(100, 10)
    assert np.mean(np.ptp(batches, axis=1)) < 60  # 820 for a plain shuffle
    means = batches.mean(axis=1)
    assert abs(np.corrcoef(np.arange(100), means)[0, 1]) < 0.3


def test_agreement_is_the_mean_over_the_aspects_that_occur() -> None:
    scores, targets = np.array([0.1, 0.2, 0.3, 0.1]), np.array([0.0, 1.0, 0.0, 1.0])
    found = agreement(scores, targets, np.array([0, 0, 2, 2]), ["a", "b", "c"])
    assert (found["tau_c"], found["tau_c_a"], found["tau_c_c"]) == (0, 1, -1)
    assert "tau_c_b" not in found
    assert found["mse"] == pytest.approx(np.mean((scores - targets) ** 2))
    with pytest.raises(ValueError, match="1 of 2 scores are not finite"):
        agreement(np.array([np.nan, 1]), np.ones(2), np.zeros(2), ["a"])


def test_pair_accuracy_and_auc_match_their_definitions() -> None:
    rng = np.random.default_rng(0)
    count = 40
    right, wrong, kinds = rng.integers(0, 9, count) / 8, rng.integers(0, 8, count) / 8, rng.integers(0, 2, count)
    scores = np.stack([right, wrong], axis=1).ravel()
    found = pair_accuracy(scores, np.tile([1, 0], count), np.repeat(kinds, 2), ["count", "noun", "absent"])
    shares = [np.mean(right[kinds == kind] > wrong[kinds == kind]) for kind in (0, 1)]  # ties count as wrong
    assert (right == wrong).any()
    assert [found["accuracy_count"], found["accuracy_noun"], found["accuracy"]] == [*shares, np.mean(shares)]
    against = right[:, None] - wrong
    assert found["auc"] == pytest.approx(np.mean((against > 0) + 0.5 * (against == 0)))
    assert set(found) == {"accuracy", "accuracy_count", "accuracy_noun", "auc"}
    with pytest.raises(ValueError, match="1 of 2 scores are not finite"):
        pair_accuracy(np.array([np.nan, 1]), np.array([1, 0]), np.zeros(2), ["a"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("loss", "expected"), [("mse", 0.0625), ("l1", 0.25), ("bce", 0.7750082)])
def test_losses_are_in_float32_and_refuse_to_broadcast(loss: str, expected: float, dtype: torch.dtype) -> None:
    found = mean_loss(loss, torch.tensor([0.5, 0.25], dtype=dtype), torch.tensor([0.25, 0.5]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="shape"):
        mean_loss(loss, torch.zeros(2, 1), torch.zeros(2))


def test_the_loss_on_pairs_is_finite_where_a_score_is_exactly_1() -> None:
    expected = (np.log1p(np.exp(-3.0)) + np.log1p(np.exp(-0.5)) + 200) / 3
    logits, labels = torch.tensor([-3.0, 0.5, 200.0]), torch.tensor([0.0, 1.0, 0.0])
    assert mean_loss("bce", logits, labels).item() == pytest.approx(expected, rel=1e-6)
