"""Children of a process whose rewards are at work: they score, or say why not; none waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# In a process of its own: a fork of one that has torch's threads, and pytest's state, is no business of this suite.
SCRIPT = """
import os, signal, sys, threading
from dataclasses import replace
import torch
from PIL import Image
from reward import MetricReward, registry
from reward.checkpoints import unsharded_loading
from tests.toy_scorer import SPEC, ToyScorer

inside, go_on = threading.Event(), threading.Event()

class Slow(ToyScorer):
    def score(self, samples, **options):
        torch.rand(200, 200) @ torch.rand(200, 200)  # on two threads, if this process has them
        if samples[0].candidate == "slow":
            inside.set()
            go_on.wait()
        return super().score(samples, **options)

def call(reward, caption="red"):
    return reward(prompts=["p"], completions=[caption], image=[Image.new("RGB", (4, 4))])

def child(reward):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # ends a child that waits
        try:
            print(call(reward), flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    print("child", os.waitpid(pid, 0)[1], flush=True)

def busy(reward):
    inside.clear(); go_on.clear()
    thread = threading.Thread(target=call, args=[reward, "slow"])
    thread.start()
    inside.wait()
    child(reward)
    go_on.set()
    thread.join()
    print(call(reward), flush=True)  # the parent goes on

torch.set_num_threads(2)
sys.modules["slow_scorer"] = sys.modules["__main__"]
registry.installed_specs = lambda: {"toy": replace(SPEC, scorer="slow_scorer:Slow")}
def load():
    with unsharded_loading():
        inside.set()
        go_on.wait()

loader = threading.Thread(target=load)
loader.start()
inside.wait()
child(MetricReward("toy"))
go_on.set()
loader.join()
named, given = MetricReward("toy"), MetricReward(Slow())
for reward in (named, given):
    if reward is given:
        print("given")
    call(reward)
    child(reward)
    busy(reward)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_scores_or_raises() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200)
    by_name, given = done.stdout.split("given\n")
    assert by_name.split("\n")[:-1] == ["[1.0]", "child 0"] * 3 + ["[1.0]"], done.stdout + done.stderr
    child, first, refusal, second, parent = given.split("\n")[:-1]
    assert (child, first, second, parent) == ("[1.0]", "child 0", "child 0", "[1.0]")
    assert "forked while another thread used the scorer" in refusal


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_scores_with_the_network_that_the_parent_has_used() -> None:
    script = """
import os, signal, torch
from PIL import Image
from reward import CaptionSample, load_scorer
torch.set_num_threads(2)
scorer = load_scorer("vela", device="cpu")
samples = [CaptionSample(f"A red star and {count} circles.", Image.new("RGB", (96, 96))) for count in range(16)]
scorer.score(samples)
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # ends a child that waits
    scorer.score(samples)
    os._exit(0)
print("child", os.waitpid(pid, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.stdout == "child 0\n", done.stderr
