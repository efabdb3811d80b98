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


class Load:
    """Clients that call a reward with pauses; what the metric says of each pair was computed before."""

    def __init__(self, folder):
        rng = random.Random(0)
        drawn = [make_rated_sample(rng) for _ in range(COUNT)]
        self.files = [folder / f"{number:02}.png" for number in range(COUNT)]
        for file, sample in zip(self.files, drawn, strict=True):
            render(sample.scene).save(file)
        self.broken = folder / "broken.png"
        self.broken.write_bytes(self.files[0].read_bytes()[:-500])
        self.captions = [f"{sample.candidate.caption.text} {number}" for number, sample in enumerate(drawn)]
        pairs = [CaptionSample(text, str(file)) for file in self.files for text in self.captions]
        self.expected = np.array(MetricReward("vela").rewards(pairs)).reshape(COUNT, COUNT)
        told = np.sort(self.expected.ravel())
        assert np.median(np.diff(told)) > 3 * ROUNDING, "one pair could stand for another"
        self.seconds = []
        self.rows, self.wrong = 0, []

    def run(self, urls):
        """Calls for as long as the test goes on, and waits for the last answers."""
        self.reward = RemoteReward(urls, "vela", concurrency=CLIENTS, timeout=PATIENCE)
        self.end = time.monotonic() + SECONDS
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._client, range(CLIENTS)))

    def _client(self, number):
        rng = random.Random(number)
        while time.monotonic() < self.end:
            time.sleep(rng.expovariate(RATE / CLIENTS))
            start = time.monotonic()
            try:
                self._call(rng)
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}"[:300])
            self.seconds.append(time.monotonic() - start)

    def _call(self, rng):
        """Some captions of a drawing, and one of an image that cannot be read."""
        photo, captions = rng.randrange(COUNT), rng.sample(range(COUNT), rng.randint(1, 8))
        texts = [*(self.captions[each] for each in captions), "A star."]
        images = [*[str(self.files[photo])] * len(captions), str(self.broken)]
        *found, broken = self.reward(["Describe."] * len(texts), texts, image=images)
        apart = np.abs(np.array(found, dtype=float) - self.expected[photo, captions])
        self.rows += len(captions)
        if broken is not None or not (apart <= ROUNDING).all():
            self.wrong.append(f"drawing {photo}, captions {captions}: {found}, {broken}")


class Watch(threading.Thread):
    """Kills processes and looks at memory until it is stopped.

    The first kill ends both at once, the others the younger one, so that the older one grows old.
    """

    def __init__(self, service):
        super().__init__()
        self.service, self.stopping, self.kills = service, threading.Event(), 0
        self.memory = []  # MB of the older one after the warm-up

    def run(self):
        start, kill_at, born = time.monotonic(), GAP, dict.fromkeys(self.service.children(), -60.0)
        while not self.stopping.wait(2.0):
            now = time.monotonic() - start
            children = sorted(self.service.children(), key=lambda pid: born.setdefault(pid, now))
            if len(children) < 2 or now - born[children[1]] < GAP / 2:
                continue
            if now >= kill_at:
                for pid in children[1:] if self.kills else children:
                    os.kill(pid, signal.SIGKILL)
                self.kills, kill_at = self.kills + 1, now + GAP
            elif now >= WARM:
                with suppress(OSError):  # one has just ended
                    self.memory.append(_megabytes(children[0]))


def _megabytes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


@pytest.mark.timeout(SECONDS + 400)
def test_soak(tmp_path):
    load = Load(tmp_path)
    options = ("--metric", "vela", "--devices", "cpu,cpu", "--timeout", str(PATIENCE))
    with loopback_service(*options) as service:
        watch = Watch(service)
        watch.start()
        try:
            load.run(f"{service.url},http://127.0.0.1:{service.port + 1}")
        finally:
            watch.stopping.set()
            watch.join()
        assert service.stop() == 0
    quarter = len(watch.memory) // 4
    first, last = (statistics.median(part) for part in (watch.memory[:quarter], watch.memory[-quarter:]))
    cuts = [1000 * value for value in statistics.quantiles(load.seconds, n=100)]
    print(f"{len(load.seconds)} calls, {watch.kills} kills, {load.rows} rows compared, {len(load.wrong)} wrong")
    print(f"ms: p50 {cuts[49]:.0f}, p99 {cuts[98]:.0f}; memory {first:.0f} to {last:.0f} MB")
    assert load.wrong == []
    assert watch.kills >= 3
    assert last / first - 1 < MOST_GROWTH
