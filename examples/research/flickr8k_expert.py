"""Flickr8k-Expert: agreement of published and of computed scores with experts, beside the values in the papers.

    python -m examples.research.flickr8k_expert --data flickr8k_expert_fleur.jsonl.gz

A line of the file holds {image, candidate, references, ratings: three numbers, fleur, fleur_raw}: the captions and
ratings of Flickr8k-Expert, with the scores that FLEUR's authors published for each. CIDEr, METEOR, ROUGE-L and BLEU-4
are computed here; they need Java and the extra `ngrams`. Exits with 1 if a value differs in the first decimal.

FLEUR's authors smooth the second decimal only where the judge wrote two (`FleurScorer(second_decimal="written")`): the
published scores are of this reading. What `second_decimal="always"` would have given cannot be computed from them: the
probabilities of the digits were not published. It adds a number to each answer with one decimal, which is 0.06 at
most: the judge stopped there, so no digit was likelier than to stop. How much such numbers move the agreement is
printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.research.stored import write_csv
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.items import OVERALL, RatedCaption
from reward.metaeval.correlation import kendall_tau
from reward.metaeval.report import percent
from reward.metaeval.score_cache import default_cache_folder
from reward.metric_source import MetricSource

PAPER = "FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning, 2024"
# {metric or column: (Kendall's tau-c times 100, where in the paper)}
PUBLISHED = {
    MetricSource("fleur", is_column=True): (53.0, "table 1"),
    MetricSource("fleur_raw", is_column=True): (34.9, "table 3"),
    MetricSource("cider"): (43.9, "table 1"),
    MetricSource("meteor"): (41.8, "table 1"),
    MetricSource("rouge_l"): (32.3, "table 1"),
    MetricSource("bleu4"): (30.8, "table 1"),
}

LARGEST_SECOND = 0.06  # 0.01 x (9 + 8 + 7) / 4: with these digits as likely as to stop; all other ways give no more


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the .jsonl or .jsonl.gz file")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--cache", type=Path, help="folder that keeps the scores; default: that of `capreward bench`")
    parser.add_argument("--csv", type=Path, help="file for the figures")
    options = parser.parse_args(argv)

    benchmark = load_benchmark("flickr8k-expert", options.data)
    [measured] = run_bench(
        [(benchmark, str(options.data))],
        list(PUBLISHED),
        resamples=options.resamples,
        say=lambda line: print(line, file=sys.stderr),
        cache=options.cache or default_cache_folder(),
    )
    table = Table(
        "",
        "tau-c x 100 here",
        "published",
        "where",
        caption=PAPER,
        title=f"Flickr8k-Expert, {len(benchmark.items)} captions",
    )
    different, rows = [], []
    for row in measured.rows:
        published, place = PUBLISHED[row.metric]
        estimate = None if row.evaluation is None else row.evaluation.estimates[measured.headline]
        if estimate is None or f"{100 * estimate.value:.1f}" != f"{published:.1f}":
            different.append(row.metric.label)
        origin = "published scores" if row.metric.is_column else "computed here"
        here = "" if estimate is None else f"{100 * estimate.value:.1f}"
        names = {"metric": row.metric.name, "tau_c_here": here, "tau_c_published": f"{published:.1f}"}
        rows.append(names | {"source_of_scores": origin})
        table.add_row(row.metric.label, percent(estimate), f"{published:.1f}", place)
    Console().print(table)
    if options.csv:
        write_csv(options.csv, rows, PAPER)
    print(f"differs from its paper: {', '.join(different)}" if different else "all as published, to the first decimal")
    print_second_decimal(benchmark.items)
    return 1 if different else 0


def print_second_decimal(items: Sequence[RatedCaption]) -> None:
    """What is known of FLEUR's agreement under both readings of the second decimal."""
    scores, raw = (np.array([item.columns[name] for item in items]) for name in ("fleur", "fleur_raw"))
    ratings = np.array([item.ratings[OVERALL] for item in items])
    one_decimal = np.array([len(str(number)) <= len("0.8") for number in raw.tolist()])

    def agreement(added: np.ndarray | float) -> str:
        moved = np.repeat(scores + added * one_decimal, ratings.shape[1])
        return f"{100 * kendall_tau(moved, ratings.ravel()):.1f}"

    draws = np.random.default_rng(0).uniform(0, LARGEST_SECOND, (10, len(scores)))
    at_random = sorted(map(agreement, draws))
    print(
        f"Answers with one decimal: {one_decimal.sum()} of {len(items)}. FLEUR's tau-c x 100 with\n"
        f'  second_decimal="written", as published: {agreement(0.0)}\n'
        '  second_decimal="always": cannot be computed, the probabilities of the digits were not published;\n'
        f"    if each of these answers gained {LARGEST_SECOND}: {agreement(LARGEST_SECOND)}; "
        f"a number from 0 to {LARGEST_SECOND} at random: {at_random[0]} to {at_random[-1]}"
    )


if __name__ == "__main__":
    sys.exit(main())
