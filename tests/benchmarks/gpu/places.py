"""What the docs have tried on CPUs only: processes for devices, large files, states that are kept, leaving the card."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from reward import MetricReward, load_scorer
from reward.backbones.clip_config import build_clip
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.vela.scorer import VelaScorer
from reward.samples import CaptionSample
from reward.scoring.dataset import score_dataset
from tests import paper_sizes
from tests.benchmarks import bench_offline
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report
from tests.benchmarks.gpu.scores import BOUNDS, scene_rows
from tests.benchmarks.gpu.sizes import paper_rows
from tests.fake_cuda import GIB

__all__ = ["devices", "many", "offload", "prefixes"]

BF16 = torch.bfloat16


def devices(report: Report, place: Place) -> None:
    """`capreward score --devices auto` beside the CPU, file to file."""
    data, lines = place.folder / "rows.jsonl", []
    samples = scene_rows(8 if place.simulated else 100)
    for number, row in enumerate(samples):
        file = place.folder / f"{number // 2}.png"
        if not file.exists():
            row.image.save(file)
        lines.append(json.dumps({"image": file.name, "candidate": row.candidate, "references": list(row.references)}))
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    scores: dict[str, np.ndarray] = {}
    ways = {"cpu": "cpu", "auto": "cpu,cpu" if place.simulated else "auto"}
    for name, way in ways.items():
        output, begin = place.folder / f"{name}.parquet", time.perf_counter()
        summary = score_dataset(data, "vela", output, devices=way)
        seconds = time.perf_counter() - begin
        table = pq.read_table(output)
        columns = [column for column in table.column_names if column in ("descriptiveness", "relevance", "fluency")]
        scores[name] = np.array([table.column(column).to_numpy() for column in columns])
        difference = float(np.abs(scores[name] - scores["cpu"]).max())
        cells = {"devices": way, "processes": way.count(",") + 1 if way != "auto" else torch.cuda.device_count()}
        cells |= {"rows": summary.rows, "rows/s, start included": f"{summary.rows / seconds:.1f}"}
        cells["difference to the CPU"] = report.check(difference, BOUNDS["float32"], way)
        report.row("Scoring a file on all devices, the embedded VELA", **cells)


def many(report: Report, place: Place) -> None:
    """`capreward score` of Parquet with pictures inside, at the papers' sizes, beside the bare scorer."""
    metrics = ["beitscore", "clipscore"] if place.simulated else [*_checkpoints(place.folder)]
    for group, rows in ((8, 12_000), (1, 3_000)):
        rows = 64 if place.simulated else rows
        bench_offline.write_rows(place.folder / "data.parquet", rows=rows, group=group)
        options = Namespace(rows=rows, device=place.device, dtype=None if place.simulated else "bfloat16")
        options.bare, options.turn = min(rows, 1000), 5.0
        for metric in metrics:
            row = bench_offline.compare(metric, place.folder, options)
            kept = {"metric": row["metric"], "captions a picture": str(group)}
            kept |= {name: row[name] for name in ("rows", "rows/s", "share, %", "start, s")}
            report.row("`capreward score` of Parquet with pictures of 640 x 480, beside the bare scorer", **kept)


def _checkpoints(folder: Path) -> Iterator[str]:
    """Metrics with random weights of the published sizes."""
    scorer = BeitScoreScorer(*paper_sizes.beitscore(Card(), torch.float32))
    scorer.save_pretrained(folder / "beitscore")
    yield f"beitscore={folder / 'beitscore'}"
    clip = folder / "clipscore"
    clip.mkdir()
    config = {"model_cfg": open_clip.get_model_config("ViT-L-14"), "preprocess_cfg": {}}
    (clip / "open_clip_config.json").write_text(json.dumps(config))
    save_file(Card().build(lambda: build_clip(config["model_cfg"])).state_dict(), clip / "open_clip_model.safetensors")
    yield f"clipscore={clip}"


def prefixes(report: Report, place: Place) -> None:
    """VELA at the paper's size with the states of its prompts kept on disk, or computed anew."""
    if place.simulated:
        scorer: Any = load_scorer("vela", device="cpu")
        rows = scene_rows(2)
    else:
        scorer, rows = VelaScorer(paper_sizes.vela(Card(), BF16)), paper_rows(8)
    scorer.score(rows)
    plain, expected = _timed(scorer, rows, place)
    title = "States of VELA's prompts kept on disk"
    report.row(title, **{"kept": "nothing", "seconds": f"{plain:.3f}", "times as fast": "1.00"})
    for name, states in (("image embeddings", False), ("image embeddings and states", True)):
        scorer.use_cache(place.folder / name, prefixes=states)
        first, _ = _timed(scorer, rows, place)
        seconds, found = min((_timed(scorer, rows, place) for _ in range(3)), key=lambda pair: pair[0])
        cells = {"kept": name, "seconds": f"{seconds:.3f}", "times as fast": f"{plain / seconds:.2f}"}
        difference = float(np.abs(found - expected).max())
        cells["difference"] = report.check(difference, 1e-5 if place.simulated else 0.05, name)
        report.row(title, **cells, **{"first pass, seconds": f"{first:.3f}"})


def _timed(scorer: Any, rows: list[CaptionSample], place: Place) -> tuple[float, np.ndarray]:
    place.wait()
    begin = time.perf_counter()
    scores = scorer.score(rows).scores
    place.wait()
    return time.perf_counter() - begin, scores


def offload(report: Report, place: Place) -> None:
    """A call of a reward that stays on the card, and of one that waits in the CPU's memory between calls."""
    for leaves in (False, True):
        card = place.card()
        reward = MetricReward(
            VelaScorer(paper_sizes.vela(card, BF16, layers=2 if place.simulated else 36)), offload=leaves
        )
        rows, seconds = paper_rows(8, 1), list[float]()
        with card.run():
            for _ in range(3):
                place.wait()
                begin = time.perf_counter()
                reward.rewards(rows)
                place.wait()
                seconds.append(time.perf_counter() - begin)
            left = card.bytes / GIB
        cells = {"offload": leaves, "seconds a call": "-" if place.simulated else f"{min(seconds[1:]):.2f}"}
        cells |= {"GiB while it scores": f"{card.peak / GIB:.2f}", "GiB between calls": f"{left:.2f}"}
        report.row("VELA at the paper's size as a reward that leaves the card", **cells)
        if leaves and left > 0.05:
            report.faults.append(f"{left:.2f} GiB stay on the card")
        del reward
