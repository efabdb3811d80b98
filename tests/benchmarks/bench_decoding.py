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
from transformers import GenerationMixin, StoppingCriteriaList

from integrations.demo.captioner import MAX_NEW_TOKENS, PROMPT, load_captioner
from integrations.hf_generate import STRATEGIES
from reward import VelaReward
from reward.decoding.captioners import prompt_inputs
from reward.scenes import make_dataset
from tests.benchmarks.measuring import record


class Clock:
    """CPU seconds by what was running, what runs within something else as itself only; and steps of the model."""

    def __init__(self) -> None:
        self.seconds, self.steps, self.running, self.since = Counter[str](), 0, "rest", time.process_time()

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
            self.steps += what == "model"
            result = call(*arguments, **named)
            self.turn_to(before)
            return result

        setattr(place, name, watched)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--n", type=int, default=8)
    options = parser.parse_args()
    (model, processor), reward, clock = load_captioner(), VelaReward(device="cpu"), Clock()
    inputs = [
        ([image], prompt_inputs(processor, [image], PROMPT)) for image in make_dataset(options.scenes, 977)["image"]
    ]
    clock.watch(reward, "rewards", "scoring")
    clock.watch(GenerationMixin, "_sample", "loop")
    clock.watch(StoppingCriteriaList, "__call__", "criteria")
    clock.watch(model, "forward", "model")
    clock.watch(model, "get_image_features", "images")

    def measure(name: str) -> Counter[str]:
        more: dict[str, Any] = {"num_return_sequences": options.n}
        if name in STRATEGIES:
            more = {"custom_generate": STRATEGIES[name](reward, n=options.n, processor=processor)}
        torch.manual_seed(0)
        clock.turn_to("rest")
        clock.seconds.clear()
        clock.steps = 0
        for images, given in inputs:
            more |= {"images": images} if name in STRATEGIES else {}
            model.generate(**given, **more, do_sample=True, top_k=0, max_new_tokens=MAX_NEW_TOKENS)
        clock.turn_to("rest")
        return Counter({**clock.seconds, "all": sum(clock.seconds.values()), "steps": clock.steps})

    names = ("plain generate", *STRATEGIES)
    _, *turns = [{name: measure(name) for name in names} for _ in range(4)]  # the first warms up
    print(f"{'shares of the CPU time':23}", *(f"{part:>7}" for part in ("model", "scoring", "loop", "ours")), "seconds")
    for name in names:
        shares = []
        for own, plain in ((turn[name], turn[names[0]]) for turn in turns):
            theirs = plain["rest"] + plain["criteria"] / plain["steps"] * own["steps"]
            parts = [own["model"] + own["images"], own["scoring"], own["loop"] + theirs]
            shares.append([part / own["all"] for part in (*parts, own["rest"] + own["criteria"] - theirs)])
        middle = [statistics.median(column) for column in zip(*shares, strict=True)]
        seconds = statistics.median(turn[name]["all"] for turn in turns)
        print(f"{name:23}", *(f"{share:7.1%}" for share in middle), f"{seconds:7.2f}")
        record({f"{name}, all / all but ours": 1 / (1 - middle[-1])})


if __name__ == "__main__":
    main()
