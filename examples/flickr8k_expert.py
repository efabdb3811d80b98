"""Flickr8k-Expert: agreement of published and of computed scores with experts, beside the values in the papers.

    python examples/flickr8k_expert.py --data flickr8k_expert_fleur.jsonl.gz

A line of the file holds {image, candidate, references, ratings: three numbers, fleur, fleur_raw}: the captions and
ratings of Flickr8k-Expert, with the scores that FLEUR's authors published for each. CIDEr, ROUGE-L and BLEU-4 are
computed here; they need Java and the extra `ngrams`. Exits with 1 if a value differs in the first decimal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from reward.metaeval.bench import Candidate, measure
from reward.metaeval.bench_tables import percent
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.score_cache import default_cache_folder

PAPER = "FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning, 2024"
# {metric or column: (Kendall's tau-c times 100, where in the paper)}
PUBLISHED = {
    Candidate("fleur", is_column=True): (53.0, "table 1"),
    Candidate("fleur_raw", is_column=True): (34.9, "table 3"),
    Candidate("cider"): (43.9, "table 1"),
    Candidate("rouge_l"): (32.3, "table 1"),
    Candidate("bleu4"): (30.8, "table 1"),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the .jsonl or .jsonl.gz file")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--cache", type=Path, help="folder that keeps the scores; default: that of `capreward bench`")
    options = parser.parse_args(argv)

    benchmark = load_benchmark("flickr8k-expert", options.data)
    [found] = measure(
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
    different = []
    for row in found.rows:
        published, place = PUBLISHED[row.candidate]
        estimate = None if row.evaluation is None else row.evaluation.estimates[found.headline]
        if estimate is None or f"{100 * estimate.value:.1f}" != f"{published:.1f}":
            different.append(row.candidate.label)
        table.add_row(row.candidate.label, percent(estimate), f"{published:.1f}", place)
    Console().print(table)
    print(f"differs from its paper: {', '.join(different)}" if different else "all as published, to the first decimal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
