"""Token-budget batches: nothing lost, nothing doubled, nothing over the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward.backbones.language import token_budget_batches


@given(
    lengths=st.lists(st.integers(0, 50), max_size=30),
    budget=st.integers(1, 200),
    max_items=st.none() | st.integers(1, 5),
)
def test_every_item_once_within_the_budget(lengths: list[int], budget: int, max_items: int | None) -> None:
    batches = token_budget_batches(lengths, budget, max_items)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[index] for index in batch) * len(batch)
        assert padded <= budget or len(batch) == 1
        assert max_items is None or len(batch) <= max_items
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(ordered, reverse=True)


def test_equal_lengths_fill_a_batch() -> None:
    assert token_budget_batches([4] * 5, 12) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(("budget", "max_items"), [(0, None), (5, 0)])
def test_no_room_is_refused(budget: int, max_items: int | None) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        token_budget_batches([1], budget, max_items)
