"""A reward service for long: 32 clients, a process killed each minute; memory stays, and no row is wrong or lost.

For an hour: `python -m tests.engines.soak --minutes 60`.
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reward import CaptionSample, MetricReward, RemoteReward
from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample
from tests.toys.loopback_service import loopback_service

CLIENTS, COUNT = 32, 16  # COUNT drawings, and as many captions
PATIENCE = 120  # seconds for an answer: where both processes are killed, a busy machine takes a while to start others
ROUNDING = 1e-5  # most that a reward may differ by where other captions stand in the batch


@dataclass
class Soak:
    """What a run has seen so far.

    Args:
        seconds: how long the clients ask.
        rate: calls a second, of all clients.
    """

    seconds: float
    rate: float
    rows: int = 0  # compared
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds of each call
    kills: int = 0
    memory: list[float] = field(default_factory=list)  # MB of the older process, once it is warm

    def memory_of_quarters(self):
        """Medians of the four quarters of the time: whether memory still grows at the end."""
        return [statistics.median(part) for part in np.array_split(self.memory, 4)]


def make_drawings(folder):
    """Files of drawings, captions, what the metric says of each pair, and a file that is cut."""
    draw = random.Random(0)
    samples = [make_rated_sample(draw) for _ in range(COUNT)]
    files = [folder / f"{number:02}.png" for number in range(COUNT)]
    for file, sample in zip(files, samples, strict=True):
        render(sample.scene).save(file)
    cut = folder / "cut.png"
    cut.write_bytes(files[0].read_bytes()[:-500])
    captions = [f"{sample.candidate.caption.text} {number}" for number, sample in enumerate(samples)]
    pairs = [CaptionSample(caption, str(file)) for file in files for caption in captions]
    expected = np.array(MetricReward("vela").rewards(pairs)).reshape(COUNT, COUNT)
    assert np.median(np.diff(np.sort(expected.ravel()))) > 3 * ROUNDING, "one pair could stand for another"
    return files, captions, expected, cut


def ask_for_long(number, reward, drawings, soak):
    """A client: some captions of a drawing and one of the cut file a call, with pauses."""
    files, captions, expected, cut = drawings
    draw, end = random.Random(number), time.monotonic() + soak.seconds
    while time.monotonic() < end:
        time.sleep(draw.expovariate(soak.rate / CLIENTS))
        drawing, chosen = draw.randrange(COUNT), draw.sample(range(COUNT), draw.randint(1, 8))
        texts = [*(captions[index] for index in chosen), "A star."]
        images = [*[str(files[drawing])] * len(chosen), str(cut)]
        start = time.monotonic()
        try:
            *rewards, of_the_cut_one = reward(["Describe."] * len(texts), texts, image=images)
            differences = np.abs(np.array(rewards, dtype=float) - expected[drawing, chosen])
            if of_the_cut_one is not None or not (differences <= ROUNDING).all():
                soak.wrong.append(f"drawing {drawing}, captions {chosen}: {rewards}, {of_the_cut_one}")
            soak.rows += len(texts)
        except Exception as error:
            soak.lost += [f"{type(error).__name__}: {error}"[:300]] * len(texts)
        soak.waits.append(time.monotonic() - start)


def kill_and_watch(service, stopping, soak):
    """Kills both processes at first, and then the younger one; notes the memory of the older one, which grows old."""
    gap = min(60.0, soak.seconds / 6)  # seconds between two kills
    warm = min(600.0, soak.seconds / 3)  # then memory must be flat
    start, kill_at, born = time.monotonic(), gap, dict.fromkeys(service.children(), -60.0)
    while not stopping.wait(2.0):
        now = time.monotonic() - start
        children = sorted(service.children(), key=lambda pid: born.setdefault(pid, now))
        if len(children) < 2 or now - born[children[1]] < gap / 2:
            continue
        if now >= kill_at:
            for pid in children[1:] if soak.kills else children:
                os.kill(pid, signal.SIGKILL)
            soak.kills += 1
            kill_at = now + gap
        elif now >= warm:
            with suppress(OSError):  # it has just ended
                # What the process has taken itself. Pages of libraries count for all who have loaded them: the share of
                # this one grows whenever the other is killed.
                lines = Path(f"/proc/{children[0]}/smaps_rollup").read_text().splitlines()
                soak.memory += [int(line.split()[1]) / 1024 for line in lines if line.startswith("Anonymous:")]


def run(minutes, rate, folder):
    """Runs a service of two processes and its clients; prints and gives what was seen."""
    soak, stopping = Soak(60 * minutes, rate), threading.Event()
    drawings = make_drawings(folder)
    with loopback_service("--metric", "vela", "--devices", "cpu,cpu", "--timeout", str(PATIENCE)) as service:
        watch = threading.Thread(target=kill_and_watch, args=(service, stopping, soak))
        watch.start()
        urls = f"{service.url},http://127.0.0.1:{service.port + 1}"
        reward = RemoteReward(urls, "vela", concurrency=CLIENTS, timeout=PATIENCE)
        with ThreadPoolExecutor(CLIENTS) as pool:
            for number in range(CLIENTS):
                pool.submit(ask_for_long, number, reward, drawings, soak)
        stopping.set()
        watch.join()
        assert service.stop() == 0
    cuts = [1000 * wait for wait in statistics.quantiles(soak.waits, n=100)]
    print(f"{soak.rows} rows compared, {len(soak.wrong)} wrong, {len(soak.lost)} lost; {soak.kills} kills")
    print(f"{len(soak.waits)} calls; p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms")
    if len(soak.memory) >= 4:
        quarters = soak.memory_of_quarters()
        sizes = ", ".join(f"{size:.0f}" for size in quarters)
        print(f"memory {sizes} MB in the quarters of the time ({100 * (quarters[-1] / quarters[0] - 1):+.1f} %)")
    for line in (soak.wrong + soak.lost)[:5]:
        print(line)
    return soak


def main():
    """Runs until the minutes are over; the exit code is 1 if a row was wrong or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=8, help="calls a second, of all clients")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = run(options.minutes, options.rate, Path(folder))
    raise SystemExit(bool(soak.wrong or soak.lost))


if __name__ == "__main__":
    main()
