"""Which of two captions is true: VELA, its CLIP and BEiTScore on pairs with one error, each of a held-out scene.

    python -m examples.research.evaluate_beitscore --output runs/pairs
    python -m examples.research.evaluate_beitscore --n 200 --checkpoint runs/mine --output runs/pairs

Short captions are within 60 CLIP tokens; long ones are alike up to CLIP token 77. BEiTScore is also asked about another
scene's image: what it then still tells apart it does not tell by the picture. Writes pairs.md and pairs.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples.research.stored import write_csv
from integrations.demo.agreement import rate_by_clip
from integrations.demo.results import SEED
from reward import CaptionSample, load_scorer
from reward.metaeval import Benchmark, Interval, benchmark_spec, evaluate, markdown_table
from reward.metaeval.benchmarks import PreferencePair
from reward.metaeval.bootstrap import MEAN
from reward.metrics.base import Scorer
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import CATEGORIES, make_pair_dataset

if TYPE_CHECKING:
    from datasets import Dataset

Rate = Callable[[list[CaptionSample]], np.ndarray]  # (N,), larger is better

LENGTHS = ("short", "long")
OTHER_IMAGE = ", another scene's image"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="embedded", help="BEiTScore: embedded, a folder, or a Hub id")
    parser.add_argument("--vela", default="embedded", help="VELA to compare with; default: %(default)s")
    parser.add_argument("--n", type=int, default=100, help="pairs of each kind and length; default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="of the scenes; default: %(default)s")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for pairs.md and pairs.csv")
    options = parser.parse_args(argv)
    if options.n < 2:
        parser.error(f"--n must be at least 2, for there to be another scene's image, got {options.n}")

    vela = VelaScorer.from_pretrained(options.vela, device="cpu")
    metrics = {
        "VELA": _single_score(vela),
        "CLIP score": lambda samples: rate_by_clip(vela, samples),
        "BEiTScore": _single_score(load_scorer("beitscore", options.checkpoint, device="cpu")),
    }
    found = measure_pairs(metrics, pairs=options.n, seed=options.seed, control="BEiTScore", resamples=options.resamples)
    tables, rows = [], []
    for length, results in found.items():
        tables.append(markdown_table(results, [*CATEGORIES, MEAN], title=length))
        for name, kinds in results.items():
            for kind in (*CATEGORIES, MEAN):
                cell = kinds[kind]
                figures = {"accuracy": f"{cell.value:.3f}", "low": f"{cell.low:.3f}", "high": f"{cell.high:.3f}"}
                rows.append({"scorer": name, "length": length, "kind": kind} | figures)
    text = "\n\n".join(tables)
    print(text)
    write_csv(options.output / "pairs.csv", rows, f"--n {options.n} --seed {options.seed}")
    (options.output / "pairs.md").write_text(f"{text}\n", encoding="utf-8")


def measure_pairs(
    metrics: Mapping[str, Rate], *, pairs: int, seed: int, control: str, resamples: int = 1000
) -> dict[str, dict[str, dict[str, Interval]]]:
    """Share of pairs whose true caption scores higher; ties count half.

    Args:
        metrics: {name: gives scores}.
        pairs: of each kind and length, at least 2.
        seed: of the scenes.
        control: the metric that is also shown each pair with the image of another pair of its kind, as a further
            metric with `OTHER_IMAGE` behind its name.
        resamples: of the bootstrap.

    Returns:
        {length: {metric: accuracy of each kind and their mean}}.
    """
    found = {}
    for place, length in enumerate(LENGTHS):
        rows = make_pair_dataset(pairs, seed, long=length == "long", categories=CATEGORIES)
        scores = {name: _rate_pairs(rate, rows, shift=0) for name, rate in metrics.items()}
        scores[control + OTHER_IMAGE] = _rate_pairs(metrics[control], rows, shift=1)
        texts = zip(*(rows[name] for name in ("correct", "incorrect", "scene", "category")), strict=True)
        items = [PreferencePair((right, wrong), 0, image_id=of, category=kind) for right, wrong, of, kind in texts]
        benchmark = Benchmark(benchmark_spec("scenes-pairs"), items, length)
        found[length] = {
            name: evaluate(benchmark, both, resamples=resamples, seed=place).estimates for name, both in scores.items()
        }
    return found


def _single_score(scorer: Scorer) -> Rate:
    return lambda samples: scorer.score(samples).scores.mean(axis=1)


def _rate_pairs(rate: Rate, rows: Dataset, *, shift: int) -> np.ndarray:
    """Scores (N, 2) of the true and of the wrong captions, with the image `shift` rows on in the kind."""
    places: dict[str, list[int]] = {}
    for row, category in enumerate(rows["category"]):
        places.setdefault(category, []).append(row)
    of_image = {row: own[(k + shift) % len(own)] for own in places.values() for k, row in enumerate(own)}
    images = list(rows["image"])
    images = [images[of_image[row]] for row in range(len(rows))]
    # both captions of an image in one call, so that it is encoded once
    captions = zip([*rows["correct"], *rows["incorrect"]], [*images, *images], strict=True)
    scores = rate([CaptionSample(text, image=image) for text, image in captions])
    return scores.reshape(2, -1).T


if __name__ == "__main__":
    main()
