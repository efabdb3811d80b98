"""A reward service for long: 32 clients of many kinds, a process killed each minute, memory, no wrong row.

CAPREWARD_SOAK_MINUTES (2) is how long, CAPREWARD_SOAK_RATE (8) how many requests a second.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.http_client import http_library
from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample
from tests.toys.loopback_service import LoopbackService, loopback_service
from tests.toys.pictures import png

MINUTES = float(os.environ.get("CAPREWARD_SOAK_MINUTES", "2"))
RATE = float(os.environ.get("CAPREWARD_SOAK_RATE", "8"))
SECONDS = 60 * MINUTES
GAP = min(60.0, SECONDS / 6)  # seconds between two kills
WARM = min(600.0, SECONDS / 3)  # then memory must be flat
MOST_GROWTH = 0.05 if MINUTES >= 10 else 0.25  # a short run sees little else than the first growth
METRICS = ("vela", "unigram", "length")
CLIENTS, COUNT = 32, 16  # COUNT drawings, and as many captions
TOKEN = "a-token-of-the-soak"
LIMITS = ("--max-body", "400000", "--max-pixels", "1000000", "--max-candidates", "64", "--body-timeout", "2")
PATIENCE = 120  # seconds for an answer: where both processes are killed, a busy machine takes a while to start others
ROUNDING = 1e-5  # most that a score may differ by where other captions stand in the batch


class Load:
    """Clients that send requests with pauses; what each metric says of each pair was computed before."""

    def __init__(self, folder: Path) -> None:
        rng = random.Random(0)
        drawn = [make_rated_sample(rng) for _ in range(COUNT)]
        self.files = [folder / f"{number:02}.png" for number in range(COUNT)]
        for file, sample in zip(self.files, drawn, strict=True):
            render(sample.scene).save(file)
        self.captions = [f"{sample.candidate.caption.text} {number}" for number, sample in enumerate(drawn)]
        self.references = [list(sample.references) for sample in drawn]
        shown = zip(self.files, self.references, strict=True)
        pairs = [CaptionSample(text, str(file), known) for file, known in shown for text in self.captions]
        self.scores = {name: load_scorer(name).score(pairs).scores.reshape(COUNT, COUNT, -1) for name in METRICS}
        self.rewards = np.array(MetricReward("vela").rewards(pairs)).reshape(COUNT, COUNT)
        rows = self.scores["vela"].reshape(COUNT**2, -1)
        apart = np.abs(rows[:, None] - rows).max(2)[~np.eye(len(rows), dtype=bool)].min()
        assert apart > 3 * ROUNDING, f"two pairs are {apart:g} apart: one could stand for the other"
        self.urls: list[str] = []
        self.seconds: list[float] = []
        self.rows, self.wrong = 0, list[str]()

    async def run(self) -> None:
        """Sends requests for as long as the test goes on, and waits for the last answers."""
        httpx = http_library()
        self.reward = RemoteReward(",".join(self.urls), "vela", concurrency=32, timeout=PATIENCE)
        ways: list[Callable[[random.Random], Awaitable[None]]] = [self._score, self._broken, self._trl]
        ways += [self._refused, self._half]
        limits = httpx.Limits(max_connections=None, keepalive_expiry=3.0)  # the service closes them after 5 s
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        end = time.perf_counter() + SECONDS

        async def client(number: int) -> None:
            rng = random.Random(number)
            while True:
                await asyncio.sleep(rng.expovariate(RATE / CLIENTS))
                if (start := time.perf_counter()) > end:
                    return
                (way,) = rng.choices(ways, [9, 2, 5, 4, 1])
                try:
                    await way(rng)
                except Exception as error:
                    self.wrong.append(f"{way.__name__}: {type(error).__name__}: {error}"[:300])
                self.seconds.append(time.perf_counter() - start)

        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=PATIENCE, trust_env=False) as self.http:
            await asyncio.gather(*(client(number) for number in range(CLIENTS)))

    async def post(self, path: str, body: Any, status: int = 200, **options: Any) -> Any:
        """The JSON of a reply; raises for another status than the expected one. A process that is gone is left out."""
        httpx = http_library()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        for url in itertools.cycle(random.sample(self.urls, len(self.urls))):
            with suppress(httpx.TransportError):
                reply = await self.http.post(url + path, content=content, **options)
                if reply.status_code != 503:
                    break
            await asyncio.sleep(0.1)
        if reply.status_code != status:
            raise ValueError(f"status {reply.status_code}, not {status}: {reply.text[:200]}")
        return reply.json()

    def compare(self, what: str, found: Any, expected: Any) -> None:
        """Compares rows (N,) or (N, A) with what was computed before."""
        found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
        self.rows += len(expected)
        if found.shape != expected.shape or not (np.abs(found - expected) <= ROUNDING).all():
            self.wrong.append(f"{what}: {found.tolist()}, not {expected.tolist()}"[:500])

    def pick(self, rng: random.Random) -> tuple[int, list[int], dict[str, Any]]:
        """A drawing, some captions, and the sample of a request for them."""
        photo, captions = rng.randrange(COUNT), rng.sample(range(COUNT), rng.randint(1, 8))
        file = self.files[photo]
        image = rng.choice([file.name, {"base64": base64.b64encode(file.read_bytes()).decode()}])
        texts = [self.captions[each] for each in captions]
        return photo, captions, {"candidates": texts, "references": self.references[photo], "image": image}

    async def _score(self, rng: random.Random) -> None:
        metric, asked = rng.choice(METRICS), [self.pick(rng) for _ in range(rng.randint(1, 3))]
        reply = await self.post("/score", {"metric": metric, "samples": [sample for *_, sample in asked]})
        for (photo, captions, _), found in zip(asked, reply["samples"], strict=True):
            self.compare(metric, found["scores"], self.scores[metric][photo, captions])

    async def _broken(self, rng: random.Random) -> None:
        (_, _, bad), (photo, captions, good) = self.pick(rng), self.pick(rng)
        bad["image"] = {"base64": base64.b64encode(self.files[0].read_bytes()[:-500]).decode()}
        refused, scored = (await self.post("/score", {"metric": "vela", "samples": [bad, good]}))["samples"]
        self.compare("beside a broken image", scored["scores"], self.scores["vela"][photo, captions])
        if any(value is not None for row in refused["scores"] for value in row) or None in refused["errors"]:
            self.wrong.append(f"a score for a broken image: {refused}")

    async def _trl(self, rng: random.Random) -> None:
        photo, captions, sample = self.pick(rng)
        columns = {"image": [str(self.files[photo])] * len(captions), "refs": [sample["references"]] * len(captions)}
        found = await asyncio.to_thread(self.reward, ["Describe."] * len(captions), sample["candidates"], **columns)
        self.compare("RemoteReward", found, self.rewards[photo, captions])

    async def _refused(self, rng: random.Random) -> None:
        sample = self.pick(rng)[2]
        body = {"metric": "vela", "samples": [sample]}
        huge = {"base64": base64.b64encode(png("red", (1100, 1000))).decode()}  # pixels over the limit
        path, sent, status, options = rng.choice(
            [
                ("/score", json.dumps(body).encode()[:-20], 422, {}),
                ("/score", {**body, "metric": "cider"}, 422, {}),
                ("/score", json.dumps(body).encode() + bytes(500_000), 413, {}),
                ("/score", {"metric": "length", "samples": [{"candidates": ["A star."] * 65}]}, 422, {}),
                ("/score", {**body, "samples": [{**sample, "image": "../../etc/hostname"}]}, 422, {}),
                ("/score", {**body, "samples": [{**sample, "image": huge}]}, 422, {}),
                ("/score", body, 401, {"headers": {"Authorization": "Bearer another-token"}}),
                ("/scores", body, 404, {}),
            ]
        )
        await self.post(path, sent, status, **options)

    async def _half(self, rng: random.Random) -> None:
        host, _, port = rng.choice(self.urls).rpartition("/")[2].partition(":")
        with suppress(ConnectionError):  # the process may be gone
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
            writer.write(head.encode() + b'{"samples": [')
            await writer.drain()
            if (line := await reader.readline()) and not {b"408", b"503"} & set(line.split()):
                raise ValueError(f"{line!r} to a body that stops")
            writer.close()


class Watch(threading.Thread):
    """Kills processes and looks at memory until it is stopped.

    The first kill ends both at once, the others the younger one, so that the older one grows old.
    """

    def __init__(self, service: LoopbackService) -> None:
        super().__init__()
        self.service, self.stopping, self.kills = service, threading.Event(), 0
        self.memory: list[float] = []  # MB of all processes after the warm-up, while both are up

    def run(self) -> None:
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
                    self.memory.append(sum(map(_megabytes, self.service.processes())))


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


@pytest.mark.timeout(SECONDS + 400)
def test_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPREWARD_TOKEN", TOKEN)
    load = Load(tmp_path)
    metrics = [part for name in METRICS for part in ("--metric", name)]
    options = (*metrics, "--devices", "cpu,cpu", *LIMITS, "--image-root", str(tmp_path), "--timeout", str(PATIENCE))
    with loopback_service(*options) as service:
        load.urls = [service.url, f"http://127.0.0.1:{service.port + 1}"]
        watch = Watch(service)
        watch.start()
        try:
            asyncio.run(load.run())
        finally:
            watch.stopping.set()
            watch.join()
        assert service.stop() == 0
    quarter = len(watch.memory) // 4
    first, last = (statistics.median(part) for part in (watch.memory[:quarter], watch.memory[-quarter:]))
    cuts = [1000 * value for value in statistics.quantiles(load.seconds, n=100)]
    print(f"{len(load.seconds)} requests, {watch.kills} kills, {load.rows} rows compared, {len(load.wrong)} wrong")
    print(f"ms: p50 {cuts[49]:.0f}, p99 {cuts[98]:.0f}; memory {first:.0f} to {last:.0f} MB")
    assert load.wrong == []
    assert watch.kills >= 3
    assert last / first - 1 < MOST_GROWTH
