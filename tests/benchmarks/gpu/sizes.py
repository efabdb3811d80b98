"""Speed and memory of metrics at the sizes of their papers, beside what is counted without a card."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from reward import CaptionSample
from reward.judges import Question
from reward.judges.local import LocalJudge
from reward.metrics.clipscore.scorer import ClipScorer
from tests import paper_sizes
from tests.benchmarks import bench_sizes
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report
from tests.benchmarks.roofline import measured_peaks
from tests.fake_cuda import GIB, FakeDevice

__all__ = ["GROUPS", "METRICS", "SECONDS", "measure", "paper_rows"]

BF16 = torch.bfloat16
GROUPS, IMAGES, WORDS = (1, 8), 4, 140
SECONDS = 2.0  # for each number of captions an image
LAYERS = 40  # of LLaVA-1.5-13B

Score = Callable[[list[CaptionSample]], Any]


def _judge(device: Any, layers: int) -> Score:
    """FLEUR's judge reads a question for each caption; random weights would write no number to stop at."""
    judge = LocalJudge(*paper_sizes.judge_parts(device, BF16, layers=layers), batch_size=4)

    def ask(rows: list[CaptionSample]) -> Any:
        questions = [Question(f"Rate this caption from 0.0 to 1.0: {row.candidate}", row.image) for row in rows]
        return judge.answer_distribution(questions, list("0123456789"))

    return ask


METRICS: dict[str, Callable[[Any, int], Score]] = {
    "vela": lambda device, _: bench_sizes.SCORERS["vela"](device).score,
    "vela-one-prompt": lambda device, _: bench_sizes.SCORERS[bench_sizes.ONE_PROMPT](device).score,
    "beitscore": lambda device, _: bench_sizes.SCORERS["beitscore"](device).score,
    "clipscore": lambda device, _: ClipScorer(paper_sizes.clip_towers(device, BF16)).score,
    "longclipscore": lambda device, _: ClipScorer(paper_sizes.clip_towers(device, BF16, context_length=248)).score,
    "bertscore": lambda device, _: paper_sizes.bert(device, BF16).score,
    "fleur": _judge,
}


def paper_rows(count: int, images: int = IMAGES) -> list[CaptionSample]:
    """So many captions of each image, with five references."""
    colors = ("red", "green", "blue", "white", "black", "yellow", "cyan", "magenta")[:images]
    return [row for color in colors for row in paper_sizes.captions_of_one_image(count, words=WORDS, color=color)]


def measure(report: Report, place: Place, name: str, groups: Sequence[int] = GROUPS) -> None:
    """Adds a row for each number of captions an image."""
    layers, make = LAYERS, METRICS[name]
    if name == "fleur" and not place.simulated:
        free = torch.cuda.mem_get_info()[0] / GIB
        layers = min(LAYERS, max(1, int((0.85 * free - 9) / 0.59)))  # GiB of a layer, and of the rest at work
        if layers < LAYERS:
            report.note(f"{layers} of the judge's {LAYERS} layers, for {free:.0f} GiB")
    counted = _counted(make, layers, groups)
    found: dict[int, tuple[float, int]] = {}
    fastest = 0.0
    if not place.simulated:
        fastest = measured_peaks("cuda", side=8192, dtype=BF16)[0]
        report.note(f"the card reaches {fastest / 1e12:.0f} TFLOP/s in products of bfloat16")
        found = _measured(make, layers, groups)
    for count, (flops, peak) in counted.items():
        cells = {"metric": name, "captions an image": count, "TFLOP counted": f"{flops / 1e12:.2f}"}
        cells["GiB counted"] = f"{peak / GIB:.2f}"
        if count in found:
            seconds, used = found[count]
            cells["GiB"], cells["measured / counted"] = f"{used / GIB:.2f}", f"{used / peak:.2f}"
            cells["captions/s"] = f"{IMAGES * count / seconds:.1f}"
            cells["TFLOP/s"] = f"{flops / seconds / 1e12:.1f}"
            cells["of the card's, %"] = f"{100 * flops / seconds / fastest:.0f}"
        report.row(f"Paper sizes: a call for {IMAGES} images, {WORDS} words a caption, bfloat16", **cells)


def _counted(make: Callable[[Any, int], Score], layers: int, groups: Sequence[int]) -> dict[int, tuple[int, int]]:
    """{captions an image: FLOPs and most bytes of a call}."""
    gpu = FakeDevice()
    score, counted = make(gpu, layers), {}
    with gpu.run():
        score(paper_rows(1, 1))  # a judge compares ways of reading once
    for count in groups:
        gpu.peak = gpu.bytes
        with gpu.run() as flops:
            score(paper_rows(count))
        counted[count] = flops(), gpu.peak
    return counted


def _measured(make: Callable[[Any, int], Score], layers: int, groups: Sequence[int]) -> dict[int, tuple[float, int]]:
    """{captions an image: seconds and most bytes of a call}, the fastest of several."""
    card = Card()
    score, found = make(card, layers), {}
    for count in groups:
        rows, seconds, end = paper_rows(count), list[float](), time.monotonic() + SECONDS
        score(rows)
        with card.run():
            while not seconds or (time.monotonic() < end and len(seconds) < 20):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                score(rows)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - begin)
        found[count] = min(seconds), card.peak
    return found
