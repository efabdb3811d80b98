"""CPU seconds of a second pass over new captions of the same images, with and without a cache; without loading.

OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_caches vela --images 40
OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_caches clipscore --images 16  # a random ViT-B/32
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reward import load_scorer
from reward.scoring import score_dataset
from tests.benchmarks.measuring import record
from tests.json_lines import write_lines

WORDS = [
    "a",
    "red",
    "star",
    "stands",
    "on",
    "the",
    "wide",
    "green",
    "grass",
    "next",
    "to",
    "two",
    "small",
    "blue",
    "circles",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("metric", nargs="?", choices=["vela", "clipscore"], default="vela")
    parser.add_argument("--images", type=int, default=40, help="of 640 x 480 pixels, with 4 captions each in a pass")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = "embedded" if options.metric == "vela" else str(random_clip(folder / "clip"))
        kinds: dict[str, dict[str, Any]] = {"no cache": {}, "cache": {"cache": folder / "cache"}}
        if options.metric == "vela":
            kinds["image embeddings only"] = {"cache": folder / "cache", "cache_prefixes": False}
        scorers = {kind: load_scorer(options.metric, source, device="cpu", **more) for kind, more in kinds.items()}
        data = make_data(folder, options.images)

        def seconds(kind: str, number: int) -> float:
            start = time.process_time()
            score_dataset(data[number], scorers[kind], folder / "out.jsonl", overwrite=True)
            return time.process_time() - start

        seconds("no cache", 0)  # warms up
        print(f"first pass, which fills the cache: {seconds('cache', 0):.2f}", flush=True)
        times = [{kind: seconds(kind, 1) for kind in kinds} for _ in range(options.turns)]
        for kind in kinds:
            ratio = statistics.median(turn["no cache"] / turn[kind] for turn in times)
            print(f"{kind}: {[round(turn[kind], 2) for turn in times]}, {ratio:.2f} times as fast")
            record({f"{options.metric}, no cache / {kind}": ratio})


def make_data(folder: Path, images: int) -> list[Path]:
    """Two files of captions of the same images."""
    random = np.random.default_rng(0)
    for number in range(images):
        pixels = random.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)
    references = [[sentence(random), sentence(random)] for _ in range(images)]
    return [
        write_lines(
            folder / f"{name}.jsonl",
            [
                {"image": f"{number}.jpg", "candidate": sentence(random), "references": references[number]}
                for number in range(images)
                for _ in range(4)
            ],
        )
        for name in ("first", "second")
    ]


def sentence(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, 25)) + "."


def random_clip(folder: Path) -> Path:
    """A CLIP of the size of ViT-B/32 with random weights, as a folder."""
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir()
    model = open_clip.get_model_config("ViT-B-32")
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "shortest"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": preprocess}))
    save_file(open_clip.CLIP(**model).state_dict(), folder / "open_clip_model.safetensors")
    return folder


if __name__ == "__main__":
    main()
