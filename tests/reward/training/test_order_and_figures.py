"""The order of training rows, the loss, and the figure that training stops by."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.training.figures import pair_accuracy, rating_figures
from reward.training.sampling import EpochOrder, balanced_draw, length_grouped_order
from reward.training.trainer import mean_loss


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=300), st.integers(1, 9), st.text(max_size=3))
def test_order_is_a_permutation_that_depends_on_the_seed_alone(lengths, batch, seed):
    order = length_grouped_order(lengths, batch, seed)
    assert sorted(order) == list(range(len(lengths)))
    assert order == length_grouped_order(lengths, batch, seed)


def test_batches_hold_similar_lengths_in_no_order_of_length():
    lengths = list(np.random.default_rng(0).permutation(1000))
    batches = np.array([lengths[row] for row in length_grouped_order(lengths, 10, "s")]).reshape(100, 10)
    assert np.mean(np.ptp(batches, axis=1)) < 60  # 820 for a plain shuffle
    assert abs(np.corrcoef(np.arange(100), batches.mean(axis=1))[0, 1]) < 0.3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60), st.text(max_size=3))
def test_kinds_are_drawn_equally_often_whatever_the_data_hold(kinds, seed):
    drawn = balanced_draw(kinds, seed)
    assert len(drawn) == len(kinds)
    counts = Counter(kinds[place] for place in drawn)
    assert not kinds or max(counts.values()) - min(counts.values()) <= 1
    for kind in set(kinds):  # no pair a second time before all of its kind came once
        uses = [drawn.count(place) for place, other in enumerate(kinds) if other == kind]
        assert max(uses) - min(uses) <= 1


def test_epochs_differ_and_repeat_and_both_captions_of_a_pair_are_in_one_batch():
    order = EpochOrder(list(range(10)), 10, 2, seed=0, draw=lambda seed: balanced_draw([0] * 9 + [1], seed), step=2)
    first = list(order)
    assert len(first) == len(order) == 20
    assert first.count(18) == 5  # the pair of the rare kind
    assert all(right + 1 == wrong and right % 2 == 0 for right, wrong in zip(first[::2], first[1::2], strict=True))
    plain = EpochOrder(None, 50, 4, seed=1)  # of ratings: none is drawn, so the order alone tells epochs apart
    orders = [tuple(plain), tuple(EpochOrder(None, 50, 4, seed=2))]
    for plain.epoch in (1, 0):
        orders.append(tuple(plain))
    assert (len(set(orders)), orders[-1]) == (3, orders[0])


def test_agreement_is_the_mean_over_the_aspects_that_occur():
    scores, targets = np.array([0.1, 0.2, 0.3, 0.1]), np.array([0.0, 1.0, 0.0, 1.0])
    found = rating_figures(scores, targets, np.array([0, 0, 2, 2]), ["a", "b", "c"])
    mse = pytest.approx(np.mean((scores - targets) ** 2))
    assert found == {"tau_c": 0, "tau_c_a": 1, "tau_c_c": -1, "mse": mse}
    with pytest.raises(ValueError, match="1 of 2 scores are not finite"):
        rating_figures(np.array([np.nan, 1]), np.ones(2), np.zeros(2), ["a"])


def test_pair_accuracy_and_auc_match_their_definitions():
    rng = np.random.default_rng(0)
    right, wrong, kinds = rng.integers(0, 9, 40) / 8, rng.integers(0, 8, 40) / 8, rng.integers(0, 2, 40)
    scores = np.stack([right, wrong], axis=1).ravel()
    found = pair_accuracy(scores, np.tile([1, 0], 40), np.repeat(kinds, 2), ["count", "noun", "absent"])
    shares = [np.mean(right[kinds == kind] > wrong[kinds == kind]) for kind in (0, 1)]  # ties count as wrong
    against = right[:, None] - wrong
    auc = pytest.approx(np.mean((against > 0) + 0.5 * (against == 0)))
    assert (right == wrong).any()
    assert found == {"accuracy": np.mean(shares), "accuracy_count": shares[0], "accuracy_noun": shares[1], "auc": auc}


def test_the_loss_on_pairs_is_finite_where_a_score_is_exactly_1():
    expected = (np.log1p(np.exp(-3.0)) + np.log1p(np.exp(-0.5)) + 200) / 3
    logits, labels = torch.tensor([-3.0, 0.5, 200.0]), torch.tensor([0.0, 1.0, 0.0])
    assert mean_loss("bce", logits, labels).item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="shape"):
        mean_loss("mse", torch.zeros(2, 1), torch.zeros(2))
