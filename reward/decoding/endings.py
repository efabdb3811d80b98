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
    for named in (getattr(processor, "tokenizer", processor), *configs):
        ids = getattr(named, "eos_token_id", None)
        ends.update(ids if isinstance(ids, (list, tuple, set)) else [] if ids is None else [ids])
    return ends


def up_to_end(rows: Iterable[Sequence[int]], ends: set[int]) -> list[tuple[list[int], bool]]:
    """Each row of tokens up to its first end token, that included, and whether it has one. What follows is filling.

    Example:
        >>> up_to_end([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], {2})
        [([5, 6, 2], True), ([5, 6, 7, 8, 9], False)]
    """
    cut = []
    for row in rows:
        ids = list(row)
        end = next((place for place, token in enumerate(ids) if token in ends), None)
        cut.append((ids, False) if end is None else (ids[: end + 1], True))
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
    limits = {  # name: (value, whether it leaves too little, value to give instead)
        "temperature": (temperature, temperature is not None and temperature < _LEAST_TEMPERATURE, 1.0),
        "top_k": (top_k, top_k == 1, 0),
        "top_p": (top_p, top_p is not None and top_p < _LEAST_TOP_P, 1.0),
        "min_p": (min_p, min_p is not None and min_p > _MOST_MIN_P, 0.0),
    }
    return [(name, value, better) for name, (value, is_less, better) in limits.items() if is_less and value is not None]
