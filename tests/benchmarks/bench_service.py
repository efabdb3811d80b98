"""A reward service under load: captions a second and latencies of 1, 8, 32 and 128 clients, one caption a request.

The same captions are asked for in three ways, in turns: `alone` (the service joins no requests), `joined` (requests
are scored together, but each holds another file of its image, so that none is shared), and `shared` (requests for one
image hold the same file, as those of a trainer do). Ratios are what counts; absolute figures depend on the machine.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import statistics
import time
from contextlib import ExitStack
from io import BytesIO
from typing import Any

from PIL.PngImagePlugin import PngInfo
from rich.console import Console

from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample
from tests.benchmarks.measuring import make_table, record
from tests.loopback_service import loopback_service, send_all

WAYS = {"alone": False, "joined": False, "shared": True}  # whether the requests of an image hold the same file


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--captions", type=int, default=8, help="captions of an image, which come one after another")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each way; the fastest counts")
    parser.add_argument("--metric", default="vela", help="NAME or NAME=CHECKPOINT")
    return parser.parse_args()


def make_bodies(images: int, captions: int, *, shared: bool) -> list[bytes]:
    """One request a caption; those of an image follow each other."""
    rng = random.Random(0)
    bodies = []
    for _ in range(images):
        sample = make_rated_sample(rng)
        picture = render(sample.scene)
        for number in range(captions):
            note = PngInfo()
            note.add_text("n", "0" if shared else str(number))
            file = BytesIO()
            picture.save(file, "PNG", pnginfo=note)
            image = {"base64": base64.b64encode(file.getvalue()).decode()}
            candidates = [f"{sample.candidate.caption.text} {number}"]
            asked = {"candidates": candidates, "image": image, "references": list(sample.references)}
            bodies.append(json.dumps({"samples": [asked]}).encode())
    return bodies


def measure(port: int, bodies: list[bytes], clients: int) -> dict[str, float]:
    start = time.perf_counter()
    replies, seconds = send_all(port, bodies, clients=clients)
    total = time.perf_counter() - start
    assert all(status == 200 for status, _ in replies), replies[0]
    cuts = statistics.quantiles(seconds, n=100)
    return {"rate": len(bodies) / total, "p50": cuts[49] * 1e3, "p95": cuts[94] * 1e3, "p99": cuts[98] * 1e3}


def main() -> None:
    options = parse()
    bodies = {way: make_bodies(options.images, options.captions, shared=shared) for way, shared in WAYS.items()}
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        serve = ("--metric", options.metric, "--devices", "cpu")
        joined = stack.enter_context(loopback_service(*serve)).port
        alone = stack.enter_context(loopback_service(*serve, "--batch-requests", "1")).port
        ports = {"alone": alone, "joined": joined, "shared": joined}
        for way, port in ports.items():
            measure(port, bodies[way], 8)  # warms up
        for clients in options.clients:
            runs: dict[str, list[dict[str, float]]] = {way: [] for way in ports}
            for _ in range(options.repeats):
                for way, port in ports.items():
                    runs[way].append(measure(port, bodies[way], clients))
            best = {way: max(done, key=lambda run: run["rate"]) for way, done in runs.items()}
            slowest = min(run["rate"] for run in best.values())
            rows += [
                {"clients": clients, "way": way, **run, "ratio": run["rate"] / slowest} for way, run in best.items()
            ]
    record({f"{row['clients']} clients, {row['way']} / slowest": row["ratio"] for row in rows})
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    columns = ["clients", "", "captions/s", "p50 ms", "p95 ms", "p99 ms", "ratio"]
    table = make_table(f"a service of {options.metric}, one caption a request", columns)
    for row in cells:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
