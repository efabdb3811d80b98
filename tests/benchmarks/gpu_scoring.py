"""Metrics at their papers' sizes with random weights: data files, captions a second. See `gpu`."""

import time
from contextlib import contextmanager

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from reward import CaptionSample, load_scorer
from reward.data.images import load_image
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scenes import make_dataset
from reward.scoring import score_dataset
from tests.benchmarks import bench_offline, bench_sizes
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB
from tests.toys.json_lines import write_lines

BF16 = torch.bfloat16
GROUPS, IMAGES, WORDS = (1, 4, 8), 4, 140


class Card:
    """A card with the interface of `tests.toys.fake_cuda.FakeDevice`, for `tests.toys.paper_sizes`."""

    name = "cuda"

    def build(self, make, dtype=torch.float32):
        """A network with random weights, made on the card."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(self.name):
                return make()
        finally:
            torch.set_default_dtype(default)


@contextmanager
def measured():
    """Context that fills in its `seconds`, and on a card the `GiB` at most."""
    found = {}
    card = torch.cuda.is_available()
    if card:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    yield found
    if card:
        torch.cuda.synchronize()
        found["GiB"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
    found["seconds"] = time.perf_counter() - begin


def fastest(work, times=3):
    """The fastest of some calls, after one that warms up."""
    work()
    calls = []
    for _ in range(times):
        with measured() as found:
            work()
        calls.append(found)
    return min(calls, key=lambda call: call["seconds"])


def scorers(small):
    """What makes each metric's scorer, at its paper's size in bfloat16, or small."""
    if small:
        return {name: lambda name=name: load_scorer(name, device="cpu") for name in ("beitscore", "clipscore", "vela")}
    made = {name: lambda make=make: make(Card()) for name, make in bench_sizes.SCORERS.items()}
    for name, length in (("clipscore", 77), ("longclipscore", 248)):
        made[name] = lambda length=length: ClipScorer(paper_sizes.clip_towers(Card(), BF16, context_length=length))
    return made | {"bertscore": lambda: paper_sizes.bert(Card(), BF16)}


def paper_rows(count, images=IMAGES):
    """So many captions of each image, with five references of its own."""
    colors = [(40 * number % 256, 30 * number % 256, 90) for number in range(images)]
    rows = []
    for number, color in enumerate(colors):
        for row in paper_sizes.captions_of_one_image(count, words=WORDS, color=color):
            rows.append(CaptionSample(row.candidate, row.image, [text[7 * number :] for text in row.references]))
    return rows


def files(small, folder):
    """The engine of `capreward score` over Parquet with pictures inside, beside the bare scorer on decoded pictures."""
    made, data = scorers(small), folder / "data.parquet"
    for name in ("beitscore", "clipscore", "longclipscore", "vela")[: 2 if small else None]:
        scorer, count = made[name](), 64 if small else 256 if name == "vela" else 1000
        bench_offline.write_rows(data, rows=count, group=8)
        few = bench_offline.samples_of(data, count)
        rows = 128 if small else max(2048, min(12_288, round(8 * _rate(scorer, few) / 1024) * 1024))
        bench_offline.write_rows(data, rows=rows, group=8)
        yield {"metric": name} | _share(scorer, few, data, rows)


def large_files(small, folder):
    """The same with pictures of a camera, in files of their own."""
    size, count = ((400, 300), 16) if small else ((4000, 3000), 128)
    drawn = [{**row, "image": row["image"].convert("RGB").resize(size)} for row in make_dataset(8, seed=1)]
    for number in range(count):
        file = folder / f"{number}.jpg"
        drawn[number % 8]["image"].save(file, quality=90)
        with file.open("ab") as end:
            end.write(number.to_bytes(4, "big"))  # bytes of its own, which no decoder reads
    rows = [{"image": f"{row // 8}.jpg", "candidate": f"{drawn[row % 8]['cand']} {row}"} for row in range(8 * count)]
    write_lines(folder / "data.jsonl", rows)
    few = [CaptionSample(row["candidate"], load_image(folder / row["image"])) for row in rows[: 64 if small else 128]]
    for name in ("beitscore", "clipscore"):
        yield {"metric": name} | _share(scorers(small)[name](), few, folder / "data.jsonl", len(rows))


def _rate(scorer, rows):
    return len(rows) / fastest(lambda: scorer.score(rows), 1)["seconds"]


def _share(scorer, few, data, rows):
    before = _rate(scorer, few)
    found = score_dataset(data, scorer, data.with_name("out.parquet"), overwrite=True)
    rate, bare = rows / found.seconds, (before + _rate(scorer, few)) / 2
    cells = {"rows": rows, "rows/s": f"{rate:.1f}"}
    return cells | {"bare rows/s": f"{bare:.1f}", "share, %": f"{100 * rate / bare:.1f}"}


def captions(small, folder):
    """Captions a second and memory, and of one call for four images the kernels' part."""
    for name, make in scorers(small).items():
        scorer = make()
        for count in GROUPS[: 1 if small else None]:
            yield {"metric": name, "captions an image": count} | _call(scorer, paper_rows(count))


def _call(scorer, rows):
    best = fastest(lambda: scorer.score(rows))
    kind = ProfilerActivity.CUDA if torch.cuda.is_available() else ProfilerActivity.CPU
    with profile(activities=[kind]) as profiled:
        scorer.score(rows)
    kernels = sum(event.self_device_time_total for event in profiled.key_averages()) / 1000
    seconds = best["seconds"]
    cells = {"captions/s": f"{len(rows) / seconds:.1f}", "ms": f"{1000 * seconds:.0f}"}
    return cells | {"ms of kernels": f"{kernels:.0f}", "GiB": best.get("GiB", "")}


def scores(small, folder):
    """Scores beside those of the CPU in float32; with --small bfloat16 alone, on the CPU."""
    rows = [CaptionSample(row["cand"], row["image"], row["refs"]) for row in make_dataset(16, 977)]
    for name in ("vela", "beitscore", "clipscore"):
        expected = load_scorer(name, device="cpu", dtype="float32").score(rows).scores
        cells = {"metric": name}
        for dtype in ("bfloat16",) if small else ("float32", "bfloat16"):
            found = load_scorer(name, device="cpu" if small else Card.name, dtype=dtype).score(rows).scores
            cells[f"{dtype}, largest difference"] = f"{np.nanmax(np.abs(found - expected)):.1e}"
        yield cells
