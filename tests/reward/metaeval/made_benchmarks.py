"""Small benchmarks with given judgments."""

from __future__ import annotations

from typing import Any

from reward.metaeval.benchmarks import Benchmark, BenchmarkSpec, Item, PreferencePair, Quadruple, RatedCaption


def make_benchmark(items: list[Item], statistic: str, **facts: Any) -> Benchmark:
    """Of items of one form."""
    spec = BenchmarkSpec("made", "Made", type(items[0]), statistic=statistic, **facts)
    return Benchmark(spec, items)


def rated(ratings: list[Any], images: list[str] | None = None, statistic: str = "tau-c", **facts: Any) -> Benchmark:
    """Of ratings, one list of raters a caption, or one {aspect: list}."""
    items: list[Item] = [
        RatedCaption(
            candidate=f"caption {place}",
            ratings=given if isinstance(given, dict) else {"overall": tuple(given)},
            image_id=images[place] if images else "",
        )
        for place, given in enumerate(ratings)
    ]
    return make_benchmark(items, statistic, **facts)


def pairs(
    labels: list[int | None],
    categories: list[str] | None = None,
    images: list[str] | None = None,
    systems: list[tuple[str, str]] | None = None,
    statistic: str = "accuracy",
    **facts: Any,
) -> Benchmark:
    """Of labels, 0, 1 or None for a tie."""
    items: list[Item] = [
        PreferencePair(
            captions=("one", "other"),
            label=label,
            category=categories[place] if categories else "",
            image_id=images[place] if images else "",
            systems=systems[place] if systems else None,
        )
        for place, label in enumerate(labels)
    ]
    return make_benchmark(items, statistic, **facts)


def quadruples(count: int) -> Benchmark:
    """So many quadruples."""
    return make_benchmark([Quadruple((None, None), ("a b", "b a")) for _ in range(count)], "group")
