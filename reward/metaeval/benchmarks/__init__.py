"""Benchmarks of human judgments: rated captions, pairs and quadruples, each a table."""

from reward.metaeval.benchmarks.catalogue import benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.items import OVERALL, Benchmark, BenchmarkSpec

__all__ = [
    "OVERALL",
    "Benchmark",
    "BenchmarkSpec",
    "benchmark_spec",
    "list_benchmarks",
    "load_benchmark",
]
