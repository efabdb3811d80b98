"""Benchmarks of human judgments, each read from its published files into one of three forms."""

from reward.metaeval.benchmarks.catalogue import benchmark_spec, benchmark_table, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.forms import (
    OVERALL,
    Benchmark,
    BenchmarkSpec,
    CaptionPair,
    Item,
    Quadruple,
    RatedCaption,
)

__all__ = [
    "OVERALL",
    "Benchmark",
    "BenchmarkSpec",
    "CaptionPair",
    "Item",
    "Quadruple",
    "RatedCaption",
    "benchmark_spec",
    "benchmark_table",
    "list_benchmarks",
    "load_benchmark",
]
