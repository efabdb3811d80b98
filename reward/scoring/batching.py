"""Batches by a budget of padded tokens, sorted by length; order is the caller's to restore by index."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["token_budget_batches"]


def token_budget_batches(lengths: Sequence[int], budget: int, max_items: int | None = None) -> list[list[int]]:
    """Packs items into batches whose padded size stays within a budget.

    Args:
        lengths: tokens of each item.
        budget: most tokens a batch may have, counting padding; an item longer than that gets a batch of its own.
        max_items: most items of a batch.

    Returns:
        Lists of indices into `lengths`, longest items first, so that memory runs out at once or never.

    Raises:
        ValueError: a budget or a maximum below 1.

    Example:
        >>> token_budget_batches([3, 9, 4, 2], budget=9)
        [[1], [2, 0], [3]]
    """
    if budget < 1 or (max_items is not None and max_items < 1):
        raise ValueError(f"budget and max_items must be at least 1, got {budget} and {max_items}")
    batches: list[list[int]] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda item: -lengths[item]):
        room = bool(batches) and (len(batches[-1]) + 1) * widest <= budget
        if not room or (max_items is not None and len(batches[-1]) >= max_items):
            batches.append([])
            widest = lengths[index]
        batches[-1].append(index)
    return batches
