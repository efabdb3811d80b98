"""AUC, average precision, tie thresholds and Winoground's scores against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import average_precision, roc_auc, tie_threshold, verdicts, winoground_scores
from reward.metaeval.classification import resampled_auc, resampled_precision

# few different scores, so that there are ties; at least one caption of each kind
ROWS = st.lists(st.tuples(st.integers(-2, 3), st.booleans()), min_size=1, max_size=15).map(
    lambda rows: [(0, True), (1, False), *rows]
)


def auc_by_definition(scores, labels):
    crossed = [(c, i) for c, right in zip(scores, labels, strict=True) if right
               for i, other in zip(scores, labels, strict=True) if not other]  # fmt: skip
    return sum(1.0 if c > i else 0.5 if c == i else 0.0 for c, i in crossed) / len(crossed)


def precision_by_definition(scores, labels):
    """Sum over thresholds of precision times the recall that is added."""
    found, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        kept = [label for score, label in zip(scores, labels, strict=True) if score >= threshold]
        recall = sum(kept) / sum(labels)
        found += sum(kept) / len(kept) * (recall - before)
        before = recall
    return found


@pytest.mark.parametrize(
    ("value", "resampled", "by_definition", "kinds"),
    [
        (roc_auc, resampled_auc, auc_by_definition, 2),
        (average_precision, resampled_precision, precision_by_definition, 1),
    ],
)
@settings(max_examples=80, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 1000))
def test_each_resample_has_the_value_of_the_captions_it_holds(value, resampled, by_definition, kinds, rows, seed):
    scores, labels = (np.array(column) for column in zip(*rows, strict=True))
    assert value(scores, labels) == pytest.approx(by_definition(scores.tolist(), labels.tolist()))
    rng = np.random.default_rng(seed)
    clusters, weights = rng.integers(0, 4, len(scores)), rng.multinomial(4, [0.25] * 4, size=5)
    for found, counts in zip(resampled(scores, labels, weights, clusters=clusters), weights, strict=True):
        drawn = np.repeat(np.arange(len(scores)), counts[clusters])
        some = scores[drawn].tolist(), labels[drawn].tolist()
        defined = any(some[1]) and (kinds == 1 or not all(some[1]))  # AUC needs captions of both kinds
        assert found == pytest.approx(by_definition(*some) if defined else np.nan, nan_ok=True)


@settings(max_examples=80, deadline=None)
@given(differences=st.lists(st.integers(-4, 4), min_size=1, max_size=12), share=st.floats(0, 1))
def test_no_threshold_comes_nearer_to_the_number(differences, share):
    ties = round(share * len(differences))
    threshold = tie_threshold(np.array(differences), ties)
    said = verdicts(np.array(differences), threshold)
    assert said.tolist() == [0 if abs(d) <= threshold else 1 if d > 0 else -1 for d in differences]
    missed = abs((said == 0).sum() - ties)
    others = [abs(sum(abs(d) <= other for d in differences) - ties) for other in (0, 1, 2, 3, 4)]
    assert missed == min(others)
    assert threshold == min(o for o, m in zip((0, 1, 2, 3, 4), others, strict=True) if m == missed)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=6))
def test_winogrounds_scores_are_those_of_their_definition(rows):
    found = winoground_scores(np.array(rows))
    for number, (c0_i0, c1_i0, c0_i1, c1_i1) in enumerate(rows):
        text = c0_i0 > c1_i0 and c1_i1 > c0_i1
        image = c0_i0 > c0_i1 and c1_i1 > c1_i0
        assert [bool(found[name][number]) for name in ("text", "image", "group")] == [text, image, text and image]


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, float("nan")], [0, 1], "1 of 2 pairs are not finite"),
        ([0.1, 0.2, 0.3], [0, 1], r"got \(3,\) and \(2,\)"),
        ([0.1, 0.2], [1, 1], r"some of each, got \[1.0\]"),
        ([0.1, 0.2], [1, 2], r"labels must be 1 \(correct\) or 0"),
    ],
)
def test_unfit_captions_are_refused(scores, labels, message):
    for value in (roc_auc, average_precision):
        with pytest.raises(ValueError, match=message):
            value(np.array(scores), np.array(labels))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tie_threshold(np.ones(3), 4), "between 0 and the 3 battles, got 4"),
        (lambda: tie_threshold(np.ones(3), -1), "got -1"),
        (lambda: tie_threshold(np.array([1.0, np.nan]), 1), "1 of 2 differences are not finite"),
        (lambda: tie_threshold(np.ones((2, 2)), 1), r"shape \(N,\)"),
        (lambda: verdicts(np.ones(3), -0.1), "at least 0, got -0.1"),
        (lambda: verdicts(np.ones(3), np.nan), "at least 0, got nan"),
        (lambda: verdicts(np.array([]), 0.1), "N >= 1"),
        (lambda: winoground_scores(np.ones((2, 3))), r"shape \(N, 4\) with N >= 1, got \(2, 3\)"),
        (lambda: winoground_scores(np.full((2, 4), np.nan)), "2 of 2 quadruples are not finite"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
