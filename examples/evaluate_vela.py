"""Agreement of VELA checkpoints with the raters of held-out scenes, beside baselines, a single rater and the ceiling.

    python examples/evaluate_vela.py --output runs/agreement
    python examples/evaluate_vela.py --checkpoint "VELA=embedded" --checkpoint "text only=runs/text" \\
        --checkpoint "image only=runs/image" --output runs/agreement

Writes agreement.md and agreement.json. Each checkpoint is scored with references and without; differences are those of
the first checkpoint from everything else, paired, and bold where the 95 % interval excludes 0.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from integrations.demo.agreement import AgreementPart, measure_agreement
from integrations.demo.results import SEED
from reward.metaeval import markdown_table
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS


def markdown(part: AgreementPart, first: str) -> str:
    """The tables; differences are those of the checkpoint named `first`."""
    columns = (*ASPECTS, MEAN)
    tables = [
        f"Kendall's tau-c with the mean of three raters, {part.samples} held-out scenes (seed {part.seed}).",
        markdown_table(part.agreement, columns, title="metric"),
        "With the mean of two raters, averaged over the three pairs:",
        markdown_table(part.against_two, columns, title="metric"),
    ]
    for name, rows in part.differences.items():
        if name.startswith(f"{first}, with"):
            rows = {f"- {other}": row for other, row in rows.items()}
            rows[f"- {RATER} (both with two raters)"] = part.differences_from_rater[name]
            tables.append(markdown_table(rows, columns, title=name, signed=True))
    return "\n\n".join(tables) + "\n"


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
    text = markdown(part, next(iter(named)))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "agreement.md").write_text(text, encoding="utf-8")
    (options.output / "agreement.json").write_text(json.dumps(asdict(part), indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
