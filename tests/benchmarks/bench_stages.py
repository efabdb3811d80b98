"""Where the time of scoring Parquet with pictures goes, and what share of this machine's peak each metric reaches.

The embedded checkpoints score drawings. Stages are timed one after another; in a run, decoding overlaps with the rest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from examples.research.stored import Row, write_csv
from reward import ScoreTable, load_scorer
from reward.images import load_image
from reward.scoring import score_dataset
from tests.benchmarks.bench_offline import DRAWINGS, samples_of, write_rows
from tests.benchmarks.measuring import bench_parser, make_table, measure_seconds, record, synchronize
from tests.benchmarks.roofline import count_bytes, least_seconds, measured_peaks

STAGES = ("decode", "resize", "image tower", "prefix", "candidate", "head", "tokens and grouping", "read and write")


class NoWork:
    """A scorer that looks at nothing and gives zeros."""

    def __init__(self, spec: Any) -> None:
        self.spec = replace(spec, needs_image=False)

    def score(self, samples: Any, **options: Any) -> ScoreTable:
        return ScoreTable(np.zeros((len(samples), len(self.spec.aspects))), self.spec.aspects)


def watch(seconds: dict[str, float], device: str, place: Any, name: str, stage: Callable[..., str]) -> None:
    """Adds the time of every call of a method to `seconds`; `stage` names its stage, given the call's arguments."""
    call = getattr(place, name)

    @wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        which = stage(**kwargs)
        synchronize(device)
        start = time.perf_counter()
        result = call(*args, **kwargs)
        synchronize(device)
        seconds[which] += time.perf_counter() - start
        return result

    object.__setattr__(place, name, timed)


def measure(name: str, data: Path, rows: int, device: str) -> tuple[dict[str, float], list[float]]:
    """Seconds by stage; and FLOPs, bytes moved, and seconds of the scorer on decoded images."""
    scorer: Any = load_scorer(name, device=device)
    samples = samples_of(data, rows)
    encoded = {row["image"]["bytes"] for row in pq.read_table(data, columns=["image"]).to_pylist()}
    with FlopCounterMode(display=False) as flops, count_bytes() as moved:
        scorer.score(samples)
    work = [float(flops.get_total_flops()), float(moved())]
    work.append(min(measure_seconds({"": lambda: scorer.score(samples)}, 3, device)[""]))

    seconds = dict.fromkeys(STAGES, 0.0)
    parts: list[tuple[Any, str, Callable[..., str]]] = [
        (scorer, "preprocess", lambda **_: "resize"),
        (scorer, "encode_images", lambda **_: "image tower"),
    ]
    if name == "beitscore":
        parts.append((scorer.model, "encode_embedded", lambda **_: "candidate"))
        parts.append((scorer.model, "logits", lambda **_: "head"))
    elif name == "clipscore":
        parts.append((scorer.model, "encode_text", lambda **_: "candidate"))
    else:
        of_prefix = "past_key_values"
        parts.append((scorer.model.text.decoder, "forward", lambda **_: "candidate" if _.get(of_prefix) else "prefix"))
        parts.append((scorer.model.image, "encode_candidate", lambda **_: "candidate"))
        parts.append((scorer.model, "head", lambda **_: "head"))
    for place, method, stage in parts:
        watch(seconds, device, place, method, stage)
    total = measure_seconds({"": lambda: scorer.score(samples)}, 1, device)[""][0]
    seconds["tokens and grouping"] = total - sum(seconds.values())
    output = data.with_name("scores.parquet")
    others: dict[str, Callable[[], Any]] = {
        "decode": lambda: list(map(load_image, encoded)),
        "read and write": lambda: score_dataset(data, NoWork(scorer.spec), output, overwrite=True),
    }
    for stage, times in measure_seconds(others, 3, device).items():
        seconds[stage] += min(times)
    return seconds, work


def main() -> None:
    """Prints shares of the stages, and the roofline."""
    parser = bench_parser(__doc__)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--group", type=int, default=8, help="captions per image")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the shares of the stages")
    parser.add_argument("--metrics", nargs="+", default=["vela", "beitscore", "clipscore"])
    options = parser.parse_args()
    if options.images > DRAWINGS:
        parser.error(f"--images is at most {DRAWINGS}, got {options.images}")
    measured, found = {}, list[Row]()
    peaks = [measured_peaks(options.device)]
    stages = make_table("Share of the time, %", ["", *STAGES, "ms a caption"])
    roof = make_table(
        "",
        ["", "GFLOP", "GB moved", "FLOP/byte", "GFLOP/s", "share of the peak, %", "share of the roofline, %"],
    )
    with tempfile.TemporaryDirectory() as name:
        data, count = Path(name) / "data.parquet", options.images * options.group
        write_rows(data, rows=count, group=options.group)
        for metric in options.metrics:
            measured[metric] = measure(metric, data, count, options.device)
            peaks.append(measured_peaks(options.device))  # other work on the machine may have slowed the earlier ones
    peak, bandwidth = (max(values) for values in zip(*peaks, strict=True))
    roof.title = f"Peaks of this machine: {peak / 1e9:,.0f} GFLOP/s, {bandwidth / 1e9:,.1f} GB/s"
    for metric, (seconds, (flops, moved, bare)) in measured.items():
        total = sum(seconds.values())
        shares = {stage: value / total for stage, value in seconds.items()}
        of_peak, of_roof = flops / bare / peak, least_seconds(flops, moved, peak, bandwidth) / bare
        each = 1000 * total / count
        stages.add_row(metric, *(f"{100 * share:.1f}" for share in shares.values()), f"{each:.1f}")
        found.append({"metric": metric} | {stage: f"{100 * share:.1f}" for stage, share in shares.items()})
        figures = (flops / 1e9, moved / 1e9, flops / moved, flops / bare / 1e9, 100 * of_peak, 100 * of_roof)
        roof.add_row(metric, *(f"{figure:,.1f}" for figure in figures))
        record({f"{metric}, share of the peak": of_peak}, stages={metric: shares})
    for table in (stages, roof):
        Console(width=130).print(table)
    if options.csv:
        write_csv(options.csv, found, "bench_stages")


if __name__ == "__main__":
    main()
