"""Where a caption ends, and whether sampling can write several; for all places that decode captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

# a sampler with less freedom than this writes the likeliest caption nearly every time
_LEAST_TEMPERATURE, _LEAST_TOP_P, _MOST_MIN_P = 0.1, 0.1, 0.9


def end_tokens(processor: Any, *configs: Any) -> set[int]:
    """The tokens that end a caption: of the tokenizer, and of generation configs.

    Args:
        processor: a tokenizer, or a processor that has one.
        configs: have `eos_token_id`: a number, several, or None.
    """
    ends: set[int] = set()
    for config in (getattr(processor, "tokenizer", processor), *configs):
        ids = getattr(config, "eos_token_id", None)
        if isinstance(ids, (list, tuple, set)):
            ends.update(ids)
        elif ids is not None:
            ends.add(ids)
    return ends


def up_to_end(rows: Iterable[Sequence[int]], ends: set[int]) -> list[tuple[list[int], bool]]:
    """Each row of tokens up to its first end token, that included, and whether it has one. What follows is filling.

    Example:
        >>> up_to_end([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], {2})
        [([5, 6, 2], True), ([5, 6, 7, 8, 9], False)]
    """
    cut = []
    for row in rows:
        tokens: list[int] = []
        has_ended = False
        for token in row:
            tokens.append(token)
            if token in ends:
                has_ended = True
                break
        cut.append((tokens, has_ended))
    return cut


def nearly_greedy(
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> list[tuple[str, float, float]]:
    """Settings of sampling that leave next to nothing but the likeliest token: (name, value, value to give instead).

    Checkpoints come with such: Qwen2-VL's generation_config.json has top_k 1, top_p 0.001 and temperature 0.01.

    Example:
        >>> nearly_greedy(temperature=0.7, top_k=1, top_p=0.9)
        [('top_k', 1, 0)]
    """
    greedy: list[tuple[str, float, float]] = []
    if temperature is not None and temperature < _LEAST_TEMPERATURE:
        greedy.append(("temperature", temperature, 1.0))
    if top_k == 1:
        greedy.append(("top_k", top_k, 0))
    if top_p is not None and top_p < _LEAST_TOP_P:
        greedy.append(("top_p", top_p, 1.0))
    if min_p is not None and min_p > _MOST_MIN_P:
        greedy.append(("min_p", min_p, 0.0))
    return greedy
