"""Benchmarks of human judgments, each read into rated captions, pairs or quadruples."""

from reward.metaeval.benchmarks.items import (
    OVERALL,
    Benchmark,
    BenchmarkSpec,
    Item,
    PreferencePair,
    Quadruple,
    RatedCaption,
)
from reward.metaeval.benchmarks.registry import benchmark_spec, list_benchmarks, load_benchmark

__all__ = [
    "OVERALL",
    "Benchmark",
    "BenchmarkSpec",
    "Item",
    "PreferencePair",
    "Quadruple",
    "RatedCaption",
    "benchmark_spec",
    "list_benchmarks",
    "load_benchmark",
]
