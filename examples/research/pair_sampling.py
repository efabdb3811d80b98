"""BEiTScore's first stage on scenes: pairs drawn from the pool or in equal shares, with and without `foil`.

    python -m examples.research.pair_sampling --output runs/sampling

The data have the proportions of the paper's table 7: per 100 captions with one kind of error, 310 with a wrong noun
(`foil`) and 80 with a wrong text in the scene. Each caption also has captions of other images (`retrieved`), and can be
spoiled by `repeat` and `shuffle`. With `foil`, these three are three quarters of the pool, and three elevenths of equal
shares.
All runs start from the embedded BEiTScore with new last layers and a new head, which rank pairs at random.

Prints the share of held-out pairs ranked correctly by kind of error, Kendall's tau-c with raters, and paired
differences; each is the mean over the training seeds, with 95 % intervals over pairs or scenes. Writes them to
pair_sampling.csv. Started again, the same command keeps what is done.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets

from integrations.demo.quality import check_options
from reward import CaptionSample, load_scorer
from reward.metaeval import bootstrap_weights, load_benchmark, markdown_table, score_benchmark
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.benchmarks.items import RatedCaption
from reward.metaeval.bootstrap import percentile_interval
from reward.metaeval.correlation import resampled_tau
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.scenes import make_pair_dataset
from reward.training.config import TrainingConfig
from reward.training.loop import train

KINDS = ["spatial", "actant_swap", "action", "noun", "attribute", "count"]
ALL = ["foil", *KINDS, "scene_text", "repeat", "shuffle", "retrieved"]
VARIANTS = {
    "balanced, with foil": ("balanced", ALL),
    "pool, with foil": ("pool", ALL),
    "balanced, without foil": ("balanced", ALL[1:]),
    "pool, without foil": ("pool", ALL[1:]),
}
DIFFERENCES = [
    ("pool, with foil", "balanced, with foil"),
    ("pool, without foil", "balanced, without foil"),
    ("balanced, with foil", "balanced, without foil"),
    ("pool, with foil", "pool, without foil"),
]
NEW_LAYERS = 2
HELD_OUT_SEED = 43_000


def main(argv: Sequence[str] | None = None) -> None:
    """Trains all variants and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400, help="of each kind of error; default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="of a training; default: %(default)s")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate; default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings; default: 0 1 2")
    parser.add_argument("--beitscore", default="embedded", help="checkpoint to start from; default: %(default)s")
    parser.add_argument("--scenes", type=int, default=500, help="with ratings; default: %(default)s")
    parser.add_argument("--held-out", type=int, default=100, help="pairs of each kind; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder of data, checkpoints and scores")
    options = parser.parse_args(argv)
    check_options(options, parser, free=("output", "seeds", "held_out", "scenes"))
    base, data = options.output / "base", options.output / "pairs"
    if not base.exists():
        make_base(options.beitscore, base)
    if not data.exists():
        parts = {"train": make_part(options.pairs, 41_000), "val": make_part(max(1, options.pairs // 10), 42_000)}
        DatasetDict(parts).save_to_disk(f"{data}.partial")
        Path(f"{data}.partial").rename(data)

    held_out = concatenate_datasets(
        [make_pair_dataset(options.held_out, HELD_OUT_SEED + long, long=bool(long)) for long in (0, 1)]
    )
    scenes = load_benchmark("scenes", part="seed 2026", limit=options.scenes)
    right: dict[str, np.ndarray] = {}
    rated: dict[str, list[np.ndarray]] = {}
    for variant in VARIANTS:
        checkpoints = [trained(variant, seed, options) for seed in options.seeds]
        right[variant] = np.mean([ranked_right(checkpoint, held_out) for checkpoint in checkpoints], axis=0)
        rated[variant] = [score_benchmark(scenes, "beitscore", checkpoint).scores[:, 0] for checkpoint in checkpoints]

    categories = np.array(held_out["category"])
    groups = {kind: categories == kind for kind in (*KINDS, "scene_text")}
    groups["these seven"] = np.isin(categories, list(groups))
    groups["changed words"] = ~np.isin(categories, [*KINDS, "scene_text", "retrieved"])
    groups["retrieved"] = categories == "retrieved"
    replicates = {
        variant: {name: means(values[group]) for name, group in groups.items()} for variant, values in right.items()
    }
    rows = print_tables(replicates, f"ranked correctly, {len(options.seeds)} seeds")
    replicates = {variant: taus(scenes, rated[variant]) for variant in VARIANTS}
    rows += print_tables(replicates, f"tau-c, {len(scenes.items)} scenes, {len(options.seeds)} seeds")
    with (options.output / "pair_sampling.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["runs", "measure", "value", "low", "high"], *rows])


def make_base(source: str, folder: Path) -> None:
    """A checkpoint with its last layers, pooler and head as before any training."""
    scorer = BeitScoreScorer.from_pretrained(source)
    torch.manual_seed(0)
    model = scorer.model
    for part in [*model.beit3.encoder.layers[-NEW_LAYERS:], model.pooler, model.head]:
        for module in part.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
                torch.nn.init.zeros_(module.bias)
            elif isinstance(module, torch.nn.LayerNorm):
                module.reset_parameters()
    scorer.save_pretrained(folder)


def make_part(number: int, seed: int) -> Dataset:
    """Rows with one fixed error each, a quarter of them long, and with three captions of other images."""
    parts = []
    for long, share in ((False, 0.75), (True, 0.25)):
        rows = max(1, int(number * share))
        parts.append(make_pair_dataset(rows, seed + long, long=long, categories=KINDS))
        parts.append(make_pair_dataset(max(1, int(0.8 * rows)), seed + long + 2, long=long, categories=["scene_text"]))
    foil = make_pair_dataset(int(3.1 * number), seed + 4, long=False, categories=["noun"])
    foil = foil.remove_columns("category").add_column("category", ["foil"] * len(foil))
    rows = concatenate_datasets([*parts, foil.cast(parts[0].features)]).shuffle(seed=seed)
    captions, rng = list(rows["correct"]), random.Random(seed)
    return rows.add_column("incorrect_retrieved_easy", [rng.choices(captions, k=3) for _ in captions])


def trained(variant: str, seed: int, options: argparse.Namespace) -> Path:
    """The checkpoint of one training, as `capreward train beitscore --init` runs it."""
    output = options.output / f"{variant.replace(', ', '-').replace(' ', '-')}-{seed}"
    if (output / "config.json").is_file():
        return output
    sampling, kinds = VARIANTS[variant]
    config = TrainingConfig(
        loss="bce",
        sampling=sampling,
        categories=tuple(kinds),
        learning_rate=options.lr,
        schedule="cosine",
        warmup_ratio=0.05,
        batch_size=32,
        eval_batch_size=64,
        max_steps=options.steps,
        eval_steps=max(1, options.steps // 2),
        reference_free_rate=1.0,
        seed=seed,
    )
    train("beitscore", options.output / "pairs", output, config, init=options.output / "base", resume=output.exists())
    return output


def ranked_right(checkpoint: Path, rows: Dataset) -> np.ndarray:
    """1 for each pair whose correct caption scores higher, .5 for a tie, else 0 (N,)."""
    samples = [CaptionSample(row[name], row["image"]) for row in rows for name in ("correct", "incorrect")]
    scores = load_scorer("beitscore", checkpoint).score(samples).scores.reshape(-1, 2)
    return (np.sign(scores[:, 0] - scores[:, 1]) + 1) / 2


def means(values: np.ndarray) -> np.ndarray:
    """The mean and its bootstrap replicates (1 + R,), the same resamples for values of the same number."""
    weights = bootstrap_weights(len(values))
    return np.concatenate([[values.mean()], weights @ values / weights.sum(axis=1)])


def taus(scenes: Benchmark, of_seeds: list[np.ndarray]) -> dict[str, np.ndarray]:
    """{aspect: tau-c and its bootstrap replicates (1 + R,), mean over the seeds}, and the mean over the aspects."""
    count = len(scenes.items)
    weights = np.concatenate([np.ones((1, count), dtype=np.int64), bootstrap_weights(count)])
    table = {}
    for aspect in scenes.aspects:
        ratings = np.array([np.mean(item.ratings[aspect]) for item in scenes.items if isinstance(item, RatedCaption)])
        table[aspect] = np.mean([resampled_tau(scores, ratings, weights) for scores in of_seeds], axis=0)
    return table | {"mean": np.mean(list(table.values()), axis=0)}


def print_tables(replicates: dict[str, dict[str, np.ndarray]], title: str) -> list[list[object]]:
    """Prints the values of all variants and the paired differences; gives (name, column, value, low, high) of each."""
    columns = list(next(iter(replicates.values())))
    differences = {
        f"{one} - {two}": {column: replicates[one][column] - replicates[two][column] for column in columns}
        for one, two in DIFFERENCES
    }
    rows: list[list[object]] = []
    for head, signed, values in ((title, False, replicates), ("paired difference", True, differences)):
        table = {
            name: {column: percentile_interval(float(row[column][0]), row[column][1:]) for column in columns}
            for name, row in values.items()
        }
        print(markdown_table(table, columns, title=head, signed=signed), end="\n\n")
        for name, row in table.items():
            rows += [[name, column, *(f"{number:.3f}" for number in astuple(cell))] for column, cell in row.items()]
    return rows


if __name__ == "__main__":
    main()
