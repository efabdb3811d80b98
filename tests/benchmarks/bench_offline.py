"""Rate of `score_dataset` from file to file, beside the bare scorer on the same samples, in one run."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from reward.images import load_image
from reward.metrics.vela.scorer import VelaScorer
from reward.metrics.vela.training import PRESETS, make_model
from reward.samples import CaptionSample, ScoreTable
from reward.scoring import score_dataset
from tests.benchmarks.measuring import bench_parser, make_table, measure_seconds, record

TEXT = "a the red blue small large star ring box man dog holds above on with"
WORDS = TEXT.split()


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--group", type=int, default=4, help="candidates per image")
    parser.add_argument("--size", type=int, nargs=2, default=[640, 480], help="width and height of the JPEG files")
    parser.add_argument("--words", type=int, default=60, help="words of a candidate and of each of two references")
    return parser.parse_args()


def make_scorer(device: str) -> VelaScorer:
    """A VELA of the size of the preset "tiny" with random weights."""
    torch.manual_seed(0)
    model = make_model(PRESETS["tiny"]["model"], texts=lambda: [TEXT] * 20)
    torch.nn.init.normal_(model.weight, std=0.05)
    return VelaScorer(model.to(device).eval())


def make_rows(options: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    """Writes noisy JPEG files and gives rows of random captions."""
    draw, noise = random.Random(0), np.random.default_rng(0)
    width, height = options.size

    def caption() -> str:
        return " ".join(draw.choices(WORDS, k=options.words - draw.randrange(10)))

    rows: list[dict[str, object]] = []
    for number in range(options.images):
        coarse = Image.fromarray(noise.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8))
        coarse.resize((width, height)).save(folder / f"{number}.jpg", quality=90)
        references = [caption(), caption()]
        for _ in range(options.group):
            rows.append({"image": f"{number}.jpg", "candidate": caption(), "references": references})
    return rows


def main() -> None:
    """Prints rows/s of the ways and their shares of the bare rate."""
    options = parse()
    scorer = make_scorer(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = make_rows(options, folder)
        data, output = folder / "data.jsonl", folder / "scores.parquet"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))

        def samples(read: Callable[[Path], object]) -> list[CaptionSample]:
            images = {row["image"]: read(folder / str(row["image"])) for row in rows}
            return [CaptionSample(row["candidate"], images[row["image"]], row["references"]) for row in rows]

        decoded, paths = samples(load_image), samples(lambda path: path)
        tables: dict[str, ScoreTable] = {}
        ways: dict[str, Callable[[], object]] = {
            "scorer, decoded images": lambda: tables.update(decoded=scorer.score(decoded)),
            "scorer, image paths": lambda: scorer.score(paths),
            "score_dataset, file to file": lambda: score_dataset(data, scorer, output, overwrite=True),
        }
        scorer.score(decoded[:8])
        seconds = measure_seconds(ways, options.repeats, options.device)
        import pyarrow.parquet as pq

        written = np.array([pq.read_table(output).column(aspect) for aspect in scorer.spec.aspects]).T
        difference = np.abs(written - tables["decoded"].scores).max()
    bare, opening = min(seconds["scorer, decoded images"]), min(seconds["scorer, image paths"])
    table = make_table(
        f"{len(rows)} rows, {options.group} an image, {options.size[0]}x{options.size[1]} JPEG, "
        f"{options.device}, {torch.get_num_threads()} threads",
        ["", "rows/s", "of the scorer given\ndecoded images", "of the scorer given\nimage paths"],
    )
    for way, times in seconds.items():
        best = min(times)
        record({f"{way} / scorer, decoded images": bare / best})
        shares = [f"{rate / best:.0%}" for rate in (bare, opening)]
        table.add_row(way, f"{len(rows) / best:.1f}", *shares)
    console = Console(width=120)
    console.print(table)
    console.print(f"largest difference of a score: {difference:.1e}")


if __name__ == "__main__":
    main()
