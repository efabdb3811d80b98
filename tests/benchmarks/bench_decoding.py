"""What decoding by VELA costs beyond generation and scoring, as shares of the CPU time of `generate`, without loading.

OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_decoding --scenes 20 --n 8

"loop" is the time of transformers outside the model: in its decoding loop without stopping criteria, and for these and
before and after the loop as much as plain `generate` of n sequences or n beams takes. "ours" is the rest. With the same
n, all but those that stop early write about as many tokens.
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
from integrations.hf_generate import STRATEGIES, BestOfN
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
    parser.add_argument("--turns", type=int, default=3, help="all ways take turns, and the median share counts")
    options = parser.parse_args()
    (model, processor), reward, clock = load_captioner(), VelaReward(device="cpu"), Clock()
    inputs = [
        ([image], prompt_inputs(processor, [image], PROMPT)) for image in make_dataset(options.scenes, 977)["image"]
    ]
    clock.watch(reward, "rewards", "scoring")
    clock.watch(GenerationMixin, "_sample", "loop")
    clock.watch(GenerationMixin, "_beam_search", "loop")
    clock.watch(StoppingCriteriaList, "__call__", "criteria")
    clock.watch(model, "forward", "model")
    clock.watch(model, "get_image_features", "images")

    plain = {"generate": {"do_sample": True, "top_k": 0}, "beam search": {"num_beams": options.n}}
    ours: dict[str, Any] = {name: functools.partial(kind, n=options.n) for name, kind in STRATEGIES.items()}
    ours["best-of-n of beams"] = functools.partial(BestOfN, n=options.n, sources=[{"num_beams": options.n}])

    def measure(name: str) -> Counter[str]:
        strategy = ours[name](reward, processor=processor) if name in ours else None
        more: dict[str, Any] = dict(plain.get(name, plain["generate"]))
        more |= {"custom_generate": strategy} if strategy else {"num_return_sequences": options.n}
        torch.manual_seed(0)
        clock.turn_to("rest")
        clock.seconds.clear()
        clock.steps = tokens = 0
        for images, given in inputs:
            own = {"images": images} if strategy else {}
            out = model.generate(**given, **more, **own, max_new_tokens=MAX_NEW_TOKENS)
            written = out[:, given["input_ids"].shape[1] :] != model.generation_config.pad_token_id
            tokens += sum(strategy.last.tokens) if strategy else int(written.sum())
        clock.turn_to("rest")
        return Counter({**clock.seconds, "all": sum(clock.seconds.values()), "steps": clock.steps, "tokens": tokens})

    names = (*plain, *ours)
    _, *turns = [{name: measure(name) for name in names} for _ in range(options.turns + 1)]  # the first warms up
    table = [["decoding", "model", "scoring", "loop", "ours", "tokens an image", "ms a token"]]
    for name in names:
        shares = []
        for turn in turns:
            own, base = turn[name], turn["beam search" if "beam" in name else "generate"]
            theirs = base["rest"] + base["criteria"] / base["steps"] * own["steps"]
            parts = [own["model"] + own["images"], own["scoring"], own["loop"] + theirs]
            shares.append([part / own["all"] for part in (*parts, own["rest"] + own["criteria"] - theirs)])
        middle = [statistics.median(column) for column in zip(*shares, strict=True)]
        tokens, seconds = turns[0][name]["tokens"], min(turn[name]["all"] for turn in turns)
        cells = (*(f"{share:.1%}" for share in middle), f"{tokens / len(inputs):.0f}", f"{1e3 * seconds / tokens:.2f}")
        table.append([name, *cells])
        record({f"{name}, all / all but ours": 1 / (1 - middle[-1])})
    for line in table:
        print(
            f"{line[0]:23}",
            *(f"{cell:>{max(len(head), 7)}}" for head, cell in zip(table[0][1:], line[1:], strict=True)),
        )


if __name__ == "__main__":
    main()
