"""What decoding by VELA costs beyond generation and scoring, as shares of the CPU time of `generate`, without loading.

OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_decoding --scenes 20 --n 8

"loop" is the time of transformers outside the model: in its decoding loop without stopping criteria, and for these and
before and after the loop as much as plain `generate` of n sequences takes. "ours" is the rest.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import Counter
from typing import Any

import torch
from rich.console import Console
from transformers import GenerationMixin, StoppingCriteriaList

from integrations.demo.captioner import MAX_NEW_TOKENS, load_captioner, prompt_inputs
from integrations.hf_generate import STRATEGIES
from reward import VelaReward
from reward.scenes import make_dataset
from tests.benchmarks.measuring import make_table, record

PLAIN = "plain generate"


class Clock:
    """CPU seconds and calls by what was running; what runs within something else counts as itself only."""

    def __init__(self) -> None:
        self.seconds, self.calls = Counter[str](), Counter[str]()
        self.running, self.since = "rest", time.process_time()

    def turn_to(self, what: str) -> str:
        """What was running until now."""
        before, now = self.running, time.process_time()
        self.seconds[before] += now - self.since
        self.running, self.since = what, now
        return before

    def watch(self, place: Any, name: str, what: str) -> None:
        """Takes the time of a function of a class or an object."""
        call = getattr(place, name)

        @functools.wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            before = self.turn_to(what)
            self.calls[what] += 1
            result = call(*arguments, **named)
            self.turn_to(before)
            return result

        setattr(place, name, watched)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--batch", type=int, default=1, help="scenes of a call")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    (model, processor), reward, clock = load_captioner(), VelaReward(device="cpu"), Clock()
    images = list(make_dataset(options.scenes, 977)["image"])
    batches = [images[start : start + options.batch] for start in range(0, len(images), options.batch)]
    inputs = [prompt_inputs(processor, batch) for batch in batches]
    clock.watch(reward, "rewards", "scoring")
    clock.watch(GenerationMixin, "_sample", "loop")
    clock.watch(StoppingCriteriaList, "__call__", "criteria")
    clock.watch(model, "forward", "model")
    clock.watch(model, "get_image_features", "images")

    def measure(name: str) -> Counter[str]:
        strategy = None if name == PLAIN else STRATEGIES[name](reward, n=options.n, processor=processor)
        torch.manual_seed(0)
        clock.__init__()  # type: ignore[misc]
        for batch, given in zip(batches, inputs, strict=True):
            own = {"custom_generate": strategy, "images": batch} if strategy else {"num_return_sequences": options.n}
            model.generate(**given, **own, do_sample=True, top_k=0, max_new_tokens=MAX_NEW_TOKENS)
        clock.turn_to("rest")
        return Counter({**clock.seconds, "all": sum(clock.seconds.values()), "steps": clock.calls["model"]})

    measure("best-of-n")  # warms up
    turns = [{name: measure(name) for name in (PLAIN, *STRATEGIES)} for _ in range(options.turns)]
    table = make_table("shares of the CPU time", ["", "seconds", "steps", "model", "scoring", "loop", "ours"])
    for name in (PLAIN, *STRATEGIES):
        found = [_shares(turn[name], turn[PLAIN]) for turn in turns]
        shares = [statistics.median(column) for column in zip(*found, strict=True)]
        seconds = statistics.median(turn[name]["all"] for turn in turns)
        table.add_row(name, f"{seconds:.2f}", f"{turns[0][name]['steps']:.0f}", *(f"{share:.1%}" for share in shares))
        record({f"{name}, all / all but ours": 1 / (1 - shares[-1])})
    Console().print(table)


def _shares(own: Counter[str], plain: Counter[str]) -> list[float]:
    theirs = plain["rest"] + plain["criteria"] / plain["steps"] * own["steps"]
    parts = [own["model"] + own["images"], own["scoring"], own["loop"] + theirs]
    return [part / own["all"] for part in (*parts, own["rest"] + own["criteria"] - theirs)]


if __name__ == "__main__":
    main()
