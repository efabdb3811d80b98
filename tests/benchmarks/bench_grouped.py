"""Speed of scoring G candidates of one image: shared prefix, one padded batch, and one prompt at a time, in one run."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from transformers import Qwen2Config, Qwen2Model

from reward.backbones.language import pad_rows
from reward.backbones.states import CausalStates, pool_states
from tests.benchmarks.measuring import bench_parser, make_table, measure_seconds, record

WAYS = ("one by one", "padded batch", "shared prefix")


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="candidates per image (G)")
    parser.add_argument("--prefix", type=int, default=380, help="tokens of rubric and references")
    parser.add_argument("--candidate", type=int, default=140, help="tokens of a candidate, tail included")
    parser.add_argument("--aspects", type=int, default=3, help="prompts per candidate, one a rubric")
    parser.add_argument("--width", type=int, default=256, help="hidden size of the random Qwen2")
    parser.add_argument("--layers", type=int, default=6, help="layers of the random Qwen2")
    parser.add_argument("--cell", nargs=2, metavar=("WHAT", "G"), help=argparse.SUPPRESS)
    return parser.parse_args()


def make_model(options: argparse.Namespace) -> Qwen2Model:
    """A Qwen2 with random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=8192,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 64),
        num_key_value_heads=max(1, options.width // 128),
    )
    return Qwen2Model(config).to(device=options.device, dtype=getattr(torch, options.dtype)).eval()


def make_prompts(options: argparse.Namespace, count: int) -> list[tuple[list[int], list[int]]]:
    """(prefix, candidate and tail) of G candidates under each aspect, with candidates of slightly different lengths."""
    numbers = torch.Generator().manual_seed(1)

    def tokens(length: int) -> list[int]:
        return torch.randint(8192, (length,), generator=numbers).tolist()

    prefixes = [tokens(options.prefix) for _ in range(options.aspects)]
    candidates = [tokens(options.candidate - index % 4) for index in range(count)]
    return [(prefix, candidate) for candidate in candidates for prefix in prefixes]


def runner(way: str, model: Qwen2Model, prompts: list[tuple[list[int], list[int]]]) -> Callable[[], torch.Tensor]:
    """The function to time; all three give the same states."""

    def padded(batch: list[tuple[list[int], list[int]]]) -> torch.Tensor:
        ids, mask = pad_rows([prefix + rest for prefix, rest in batch], device=model.device)
        return pool_states(model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state, mask)

    if way == "one by one":
        return lambda: torch.cat([padded([prompt]) for prompt in prompts])
    if way == "padded batch":
        return lambda: padded(prompts)
    return lambda: CausalStates(model).encode(prompts, token_budget=1 << 20)


def measure(options: argparse.Namespace, what: str, count: int) -> Any:
    """Fastest seconds of each way at one G and the largest difference of the shared way from one by one ("times"), or
    megabytes that a run of the way `what` adds at its peak, over the model."""
    model, prompts = make_model(options), make_prompts(options, count)
    runs = {way: runner(way, model, prompts) for way in WAYS}
    with torch.inference_mode():
        if what != "times":
            runner("one by one", model, prompts[:1])()  # libraries take memory of their own at the first call
            return measure_memory(runs[what], options.device)
        states = {way: run() for way, run in runs.items()}  # which also warms up
        seconds = measure_seconds(runs, options.repeats, options.device)
    difference = float((states["shared prefix"] - states["one by one"]).abs().max())
    return {"difference": difference, **{way: min(times) for way, times in seconds.items()}}


def measure_memory(run: Callable[[], Any], device: str) -> float:
    """Megabytes that a run adds at its peak, which never goes down again: see `in_fresh_process`."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def in_fresh_process(what: str, count: int) -> Any:
    """What `measure` gives in another process, with the same options."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_grouped", *sys.argv[1:], "--cell", what, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints one row per G."""
    options = parse()
    if options.cell:  # a process of `in_fresh_process`
        print(json.dumps(measure(options, options.cell[0], int(options.cell[1]))))
        return
    sizes = f"{options.aspects} aspects, {options.prefix} prefix and {options.candidate} candidate tokens"
    model = f"Qwen2 {options.layers} x {options.width}, {options.dtype}, {options.device}"
    ways = [f"{way}\nms / MB added" for way in WAYS] + [f"faster than\n{way}" for way in WAYS[:2]]
    heads = ["G", *ways, "largest\ndifference"]
    table = make_table(f"{sizes}, {model}, {torch.get_num_threads()} threads", heads)
    for count in options.groups:
        times = in_fresh_process("times", count)
        both = [f"{1000 * times[way]:.0f} / {in_fresh_process(way, count):.0f}" for way in WAYS]
        ratios = {way: times[way] / times["shared prefix"] for way in WAYS[:2]}
        record({f"G {count}, {way} / shared prefix": ratio for way, ratio in ratios.items()})
        faster = (f"{ratio:.2f}x" for ratio in ratios.values())
        table.add_row(str(count), *both, *faster, f"{times['difference']:.1e}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
