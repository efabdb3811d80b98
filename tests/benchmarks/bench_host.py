"""What a host keeps up with: `score_dataset` with a scorer that sleeps as long as its network takes on an H200.

Beside it stand what bounds it: the captions a second of the sleep, and the pictures a second that threads decode and
scale.

    python -m tests.benchmarks.bench_host --seconds 45 --csv docs/results/host.csv
"""

import argparse
import csv
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torchvision import transforms

from reward import load_scorer
from reward.data.images import THREADS
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.scorer import CandidateScores, CaptionScorer
from reward.metrics.vela.scorer import VelaScorer
from reward.scoring import score_dataset
from reward.scoring.job import PictureReader
from reward.scoring.several import Metrics
from tests.benchmarks.bench_offline import drawings, write_rows
from tests.benchmarks.measuring import make_table, write_csv

RATES = Path(__file__).resolve().parents[2] / "docs" / "results" / "gpu_captions.csv"
COLUMNS = ("metric", "pictures", "captions an image", "network rows/s", "host rows/s", "rows/s", "share, %")


def network_rates():
    """Captions a second of an H200, by metric and captions an image."""
    lines = [line for line in RATES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(row["metric"], int(row["captions an image"])): float(row["captions/s"]) for row in csv.DictReader(lines)}


class Sleeping(CaptionScorer):
    """Does what the host does for a metric, and sleeps in place of its network."""

    def __init__(self, metric, rate):
        own = load_scorer(metric, device="cpu")
        self.spec, self.rate, self.own, self.tokenize = own.spec, rate, own, _tokenizer(own)
        bicubic = transforms.InterpolationMode.BICUBIC
        self.scaling = transforms.Resize((480, 480), bicubic)
        if metric != "beitscore":
            self.scaling = transforms.Compose([transforms.Resize(224, bicubic), transforms.CenterCrop(224)])

    def preprocess(self, image):
        return np.array(self.scaling(image)).transpose(2, 0, 1)

    def read_ahead(self, texts):
        self.own.read_ahead(texts)

    def encode_images(self, images):
        return [len(torch.as_tensor(image)) for image in images]

    def score_groups(self, groups, batch_size):
        captions = [(caption, group.references) for group in groups for caption in group.rows]
        self.tokenize(captions)
        time.sleep(len(captions) / self.rate)
        return CandidateScores([[0.5] * len(self.spec.aspects)] * len(captions))


def _tokenizer(scorer):
    if isinstance(scorer, BeitScoreScorer):
        return lambda pairs: scorer.tokenizer.encode([caption for caption, _ in pairs])
    if isinstance(scorer, VelaScorer):
        return lambda pairs: scorer.model.text.prompts.tokenize(pairs, scorer.spec.aspects)
    return lambda pairs: scorer.model.tokenize([scorer.prefix + caption for caption, _ in pairs])


def prepared_a_second(jpegs, scorer, seconds):
    """Pictures a second that threads decode and scale, with nothing else to do."""
    read, prepared, began = PictureReader(Metrics.of(scorer), ""), 0, time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        while time.perf_counter() - began < seconds:
            prepared += sum(1 for _ in threads.map(read, jpegs))
    return prepared / (time.perf_counter() - began)


def main():
    """Prints a row for each metric and size of pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metrics", nargs="+", default=["beitscore", "clipscore", "vela"])
    parser.add_argument("--groups", type=int, nargs="+", default=[8])
    parser.add_argument("--sizes", nargs="+", default=["640x480", "4000x3000"])
    parser.add_argument("--seconds", type=float, default=10, help="for each row of the table")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table")
    options = parser.parse_args()
    table, rates = make_table(f"{THREADS} threads", COLUMNS), network_rates()
    for size in options.sizes:
        width, height = map(int, size.split("x"))
        for metric in options.metrics:
            for group in options.groups:
                rate = rates[metric, group]
                scorer = Sleeping(metric, rate)
                with tempfile.TemporaryDirectory() as folder:
                    data = Path(folder) / "data.parquet"
                    jpegs = [row["image"]["bytes"] for row in drawings((width, height))]
                    before = prepared_a_second(jpegs, scorer, options.seconds / 6)
                    rows = round(options.seconds * min(rate, group * before) / group) * group
                    write_rows(data, rows=rows, group=group, size=(width, height))
                    began = time.perf_counter()
                    score_dataset(data, scorer, Path(folder) / "out.parquet", overwrite=True, drop_images=True)
                    found = rows / (time.perf_counter() - began)
                    host = group * (before + prepared_a_second(jpegs, scorer, options.seconds / 6)) / 2
                    share = 100 * found / min(rate, host)
                    cells = [size, group, *(f"{value:.1f}" for value in (rate, host, found, share))]
                    print(metric, *cells, sep=" | ", flush=True)
                    table.add_row(metric, *map(str, cells))
    Console(width=130).print(table)
    if options.csv:
        write_csv(options.csv, table)


if __name__ == "__main__":
    main()
