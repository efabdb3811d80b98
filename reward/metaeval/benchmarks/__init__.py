"""Benchmarks of human judgments: rated captions, pairs and quadruples, each a table."""

from reward.metaeval.benchmarks.items import OVERALL, Benchmark, BenchmarkSpec
from reward.metaeval.benchmarks.registry import benchmark_spec, list_benchmarks, load_benchmark

__all__ = [
    "OVERALL",
    "Benchmark",
    "BenchmarkSpec",
    "benchmark_spec",
    "list_benchmarks",
    "load_benchmark",
]
