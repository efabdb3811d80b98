"""What `torch.compile` and CUDA graphs gain for the forward passes of VELA and BEiTScore."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from reward import load_scorer
from tests import paper_sizes
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report

__all__ = ["measure"]

BOUND = 0.05  # of the largest difference, as a share of the largest value: bfloat16, fused in another order
TITLE = "torch.compile and CUDA graphs: a forward pass in bfloat16"
Pass = Callable[..., torch.Tensor]


def measure(report: Report, place: Place) -> None:
    """Each way beside PyTorch's own; one that fails says so, and the others go on."""
    for metric, make in (("beitscore", _beitscore), ("vela", _vela)):
        model, forward, shapes = make(place)
        ways = dict(_ways(model, place))
        for shape, inputs in shapes:
            expected, plain = None, 0.0
            for way, (network, prepare) in ways.items():
                cells = {"forward pass": metric, "captions x tokens": shape, "way": way}
                begin = time.perf_counter()
                try:
                    with torch.inference_mode():
                        run = prepare(partial(forward, network, *inputs))
                        found = run().float().cpu()
                        cells["seconds before"] = f"{time.perf_counter() - begin:.1f}"
                        seconds = _seconds(run, place)
                except Exception as error:
                    cells["ms"] = f"fails: {type(error).__name__}: {str(error).partition(chr(10))[0]:.80}"
                    report.row(TITLE, **cells)
                    continue
                plain = plain or seconds
                expected = found if expected is None else expected
                difference = float((found - expected).abs().max() / expected.abs().max())
                cells |= {"ms": f"{1e3 * seconds:.2f}", "times as fast": f"{plain / seconds:.2f}"}
                cells["difference"] = report.check(difference, BOUND, f"{metric}, {way}")
                report.row(TITLE, **cells)
        torch.compiler.reset()


def _ways(model: nn.Module, place: Place) -> Iterator[tuple[str, tuple[nn.Module, Callable[[Any], Any]]]]:
    """Names, the network, and what is made of its forward pass."""
    yield "as it is", (model, lambda run: run)
    if place.simulated:  # it only finds out whether the code can be traced
        yield "torch.compile, traced only", (_compiled(model, backend="eager"), lambda run: run)
        return
    yield "torch.compile of the layers", (_compiled(model, dynamic=False), lambda run: run)
    yield "CUDA graph", (model, _graph)


def _compiled(model: nn.Module, **options: Any) -> nn.Module:
    """A copy whose layers are compiled one by one: they are alike, so that it takes seconds and not minutes."""
    model = copy.deepcopy(model)
    for layer in max((part for part in model.modules() if isinstance(part, nn.ModuleList)), key=len):
        layer.compile(**options)
    return model


def _graph(run: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # as PyTorch asks, before the capture
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


def _seconds(run: Callable[[], torch.Tensor], place: Place) -> float:
    """The fastest of some runs."""
    best, end = float("inf"), time.monotonic() + (0.2 if place.simulated else 1.0)
    while best == float("inf") or time.monotonic() < end:
        place.wait()
        begin = time.perf_counter()
        run()
        place.wait()
        best = min(best, time.perf_counter() - begin)
    return best


def _beitscore(place: Place) -> tuple[nn.Module, Pass, list[tuple[str, tuple[torch.Tensor, ...]]]]:
    if place.simulated:
        model: Any = load_scorer("beitscore", device="cpu").model
    else:
        model = paper_sizes.beitscore(Card(), torch.bfloat16)[0]
    size, shapes = model.config.image_size, []
    for rows in (2,) if place.simulated else (1, 8, 32):
        with torch.inference_mode():
            image = model.beit3.embed_image(torch.rand(1, 3, size, size, device=place.device))
            images = torch.cat([image] * rows)
        ids = torch.randint(5, model.config.vocab_size, (rows, 48), device=place.device)
        shapes.append((f"{rows} x {images.shape[1] + 48}", (images, ids)))
    return model, lambda network, images, ids: network.encode_embedded(images, ids, None)[1], shapes


def _vela(place: Place) -> tuple[nn.Module, Pass, list[tuple[str, tuple[torch.Tensor, ...]]]]:
    if place.simulated:
        model: Any = load_scorer("vela", device="cpu").model
    else:
        model = paper_sizes.vela(Card(), torch.bfloat16)
    sizes = [(2, 32)] if place.simulated else [(1, 200), (8, 200), (3, 1000)]
    shapes = [
        (f"{rows} x {tokens}", (torch.randint(5, 100, (rows, tokens), device=place.device),)) for rows, tokens in sizes
    ]
    return model.text.decoder, lambda decoder, ids: decoder(input_ids=ids, use_cache=False).last_hidden_state, shapes
