"""A reward service for long: 32 clients, a process killed each minute; memory stays, and no row is wrong or lost.

CAPREWARD_SOAK_MINUTES (2) is how long, CAPREWARD_SOAK_RATE (8) how many calls a second. The machine must be idle
besides: where a process takes a minute to load its metric, a short run sees its memory grow.
"""

import os
import random
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from reward import CaptionSample, MetricReward, RemoteReward
from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample
from tests.toys.loopback_service import loopback_service

MINUTES = float(os.environ.get("CAPREWARD_SOAK_MINUTES", "2"))
RATE = float(os.environ.get("CAPREWARD_SOAK_RATE", "8"))
SECONDS = 60 * MINUTES
GAP = min(60.0, SECONDS / 6)  # seconds between two kills
WARM = min(600.0, SECONDS / 3)  # then memory must be flat
MOST_GROWTH = 0.05 if MINUTES >= 10 else 0.25  # a short run sees little else than the first growth
CLIENTS, COUNT = 32, 16  # COUNT drawings, and as many captions
PATIENCE = 120  # seconds for an answer: where both processes are killed, a busy machine takes a while to start others
ROUNDING = 1e-5  # most that a reward may differ by where other captions stand in the batch


@pytest.fixture
def drawings(tmp_path):
    """Files of drawings, captions, what the metric says of each pair, and a file that is cut."""
    draw = random.Random(0)
    samples = [make_rated_sample(draw) for _ in range(COUNT)]
    files = [tmp_path / f"{number:02}.png" for number in range(COUNT)]
    for file, sample in zip(files, samples, strict=True):
        render(sample.scene).save(file)
    cut = tmp_path / "cut.png"
    cut.write_bytes(files[0].read_bytes()[:-500])
    captions = [f"{sample.candidate.caption.text} {number}" for number, sample in enumerate(samples)]
    pairs = [CaptionSample(caption, str(file)) for file in files for caption in captions]
    expected = np.array(MetricReward("vela").rewards(pairs)).reshape(COUNT, COUNT)
    assert np.median(np.diff(np.sort(expected.ravel()))) > 3 * ROUNDING, "one pair could stand for another"
    return files, captions, expected, cut


def call_for_long(number, reward, drawings, seconds, wrong):
    """A client: some captions of a drawing and one of the cut file a call, with pauses; notes what is wrong."""
    files, captions, expected, cut = drawings
    draw, end = random.Random(number), time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(draw.expovariate(RATE / CLIENTS))
        drawing, chosen = draw.randrange(COUNT), draw.sample(range(COUNT), draw.randint(1, 8))
        texts = [*(captions[index] for index in chosen), "A star."]
        images = [*[str(files[drawing])] * len(chosen), str(cut)]
        start = time.monotonic()
        try:
            *rewards, of_the_cut_one = reward(["Describe."] * len(texts), texts, image=images)
            apart = np.abs(np.array(rewards, dtype=float) - expected[drawing, chosen])
            if of_the_cut_one is not None or not (apart <= ROUNDING).all():
                wrong.append(f"drawing {drawing}, captions {chosen}: {rewards}, {of_the_cut_one}")
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}"[:300])
        seconds.append(time.monotonic() - start)


def kill_and_watch(service, stopping, kills, memory):
    """Kills both processes at first, and then the younger one; notes the memory of the older one, which grows old."""
    start, kill_at, born = time.monotonic(), GAP, dict.fromkeys(service.children(), -60.0)
    while not stopping.wait(2.0):
        now = time.monotonic() - start
        children = sorted(service.children(), key=lambda pid: born.setdefault(pid, now))
        if len(children) < 2 or now - born[children[1]] < GAP / 2:
            continue
        if now >= kill_at:
            for pid in children[1:] if kills else children:
                os.kill(pid, signal.SIGKILL)
            kills.append(now)
            kill_at = now + GAP
        elif now >= WARM:
            with suppress(OSError):  # it has just ended
                lines = Path(f"/proc/{children[0]}/smaps_rollup").read_text().splitlines()
                memory.append(sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")))


@pytest.mark.timeout(SECONDS + 400)
def test_soak(drawings):
    seconds, wrong, kills, memory, stopping = [], [], [], [], threading.Event()
    with loopback_service("--metric", "vela", "--devices", "cpu,cpu", "--timeout", str(PATIENCE)) as service:
        watch = threading.Thread(target=kill_and_watch, args=(service, stopping, kills, memory))
        watch.start()
        urls = f"{service.url},http://127.0.0.1:{service.port + 1}"
        reward = RemoteReward(urls, "vela", concurrency=CLIENTS, timeout=PATIENCE)
        with ThreadPoolExecutor(CLIENTS) as pool:
            for number in range(CLIENTS):
                pool.submit(call_for_long, number, reward, drawings, seconds, wrong)
        stopping.set()
        watch.join()
        assert service.stop() == 0
    quarter = len(memory) // 4
    first, last = (statistics.median(part) for part in (memory[:quarter], memory[-quarter:]))
    cuts = [1000 * value for value in statistics.quantiles(seconds, n=100)]
    print(f"{len(seconds)} calls, {len(kills)} kills, {len(wrong)} wrong; p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms")
    print(f"memory {first:.0f} to {last:.0f} MB")
    assert wrong == []
    assert len(kills) >= 3
    assert last / first - 1 < MOST_GROWTH
