"""Agreement of VELA checkpoints with the simulated raters of held-out scenes, beside baselines and the ceiling.

    python -m examples.research.evaluate_vela --output runs/agreement
    python -m examples.research.evaluate_vela --checkpoint "VELA=embedded" --checkpoint "text only=runs/text" \\
        --checkpoint "image only=runs/image" --output runs/agreement

Writes agreement.md and agreement.json. Each checkpoint is scored with references and without; differences are those of
the first checkpoint from everything else, paired, and bold where the 95 % interval excludes 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from integrations.demo.agreement import difference_table, measure_agreement
from integrations.demo.quality import write_tables
from integrations.demo.results import SEED
from reward.metaeval import markdown_table
from reward.metaeval.bootstrap import MEAN
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint",
        action="append",
        metavar="NAME=SOURCE",
        help="repeat for several; SOURCE is embedded, a folder, or a Hub id; default: VELA=embedded",
    )
    parser.add_argument("--samples", type=int, default=400, help="held-out scenes; default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="of the scenes; default: %(default)s")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for agreement.md and agreement.json")
    options = parser.parse_args(argv)

    named = dict(part.split("=", 1) for part in options.checkpoint or ["VELA=embedded"])
    scorers = {name: VelaScorer.from_pretrained(source, device="cpu") for name, source in named.items()}
    part = measure_agreement(
        scorers,
        samples=options.samples,
        seed=options.seed,
        clip=next((scorer for scorer in scorers.values() if scorer.model.image is not None), None),
        resamples=options.resamples,
        progress=True,
    )
    columns = (*ASPECTS, MEAN)
    tables = [
        f"Kendall's tau-c with the mean of three simulated raters, {part.samples} held-out scenes (seed {part.seed}).",
        markdown_table(part.agreement, columns, title="metric"),
        "With the mean of two raters, averaged over the three pairs:",
        markdown_table(part.against_two, columns, title="metric"),
    ]
    first = next(iter(named))
    tables += [difference_table(part, name) for name in part.differences if name.startswith(f"{first}, with")]
    write_tables(options.output, "agreement", tables, part)


if __name__ == "__main__":
    main()
