"""Clients of a reward service: requests of many kinds, right and wrong, whose answers were computed before."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from integrations.verl import compute_score
from reward import CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.http_client import http_library
from reward.scenes.render import render
from reward.scenes.samples import make_rated_sample
from tests.pictures import png

__all__ = ["LIMITS", "METRICS", "PATIENCE", "TOKEN", "Load", "Photos"]

METRICS = ("vela", "unigram", "length")
TOKEN = "a-token-of-the-soak"
LIMITS = ("--max-body", "400000", "--max-pixels", "1000000", "--max-candidates", "64", "--body-timeout", "2")
PATIENCE = 120  # seconds for an answer: where both processes are killed, a busy machine takes a while to start others
ROUNDING = 1e-5  # most that a score may differ by where other captions stand in the batch


class Photos:
    """Drawings in a folder, captions, and what each metric says of each pair.

    Args:
        folder: takes the drawings.
        count: of drawings, and of captions.
    """

    def __init__(self, folder: Path, count: int = 16) -> None:
        rng = random.Random(0)
        samples = [make_rated_sample(rng) for _ in range(count)]
        self.files = [folder / f"{number:02}.png" for number in range(count)]
        for file, sample in zip(self.files, samples, strict=True):
            render(sample.scene).save(file)
        self.captions = [f"{sample.candidate.caption.text} {number}" for number, sample in enumerate(samples)]
        self.references = [list(sample.references) for sample in samples]
        pairs = [
            CaptionSample(caption, str(file), references)
            for file, references in zip(self.files, self.references, strict=True)
            for caption in self.captions
        ]
        shape = count, count, -1
        self.scores = {name: load_scorer(name).score(pairs).scores.reshape(shape) for name in METRICS}
        self.rewards = {name: np.array(MetricReward(name).rewards(pairs)).reshape(count, count) for name in METRICS}
        rows = self.scores["vela"].reshape(count * count, -1)
        apart = np.abs(rows[:, None] - rows).max(2)[~np.eye(len(rows), dtype=bool)].min()
        assert apart > 3 * ROUNDING, f"two pairs are {apart:g} apart: one could stand for the other"


@dataclass
class Load:
    """Clients that send requests with pauses, and what came of them.

    Args:
        photos: what is asked for.
        url: of the processes of the service, separated by commas; it has the images below its root, the limits `LIMITS`
            and the token `TOKEN`.
        clients: that send beside each other.
        rate: requests a second of all of them.
    """

    photos: Photos
    url: str
    clients: int = 32
    rate: float = 20.0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    rows: int = 0  # that were compared
    wrong_rows: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Sends requests for some seconds, and waits for the last answers."""
        httpx = http_library()
        self.reward = RemoteReward(self.url, "vela", concurrency=32, timeout=PATIENCE)
        ways: dict[str, Callable[[random.Random], Awaitable[None]]] = {
            "/score, a path": lambda rng: self._score(rng, lambda file: rng.choice([file.name, {"path": file.name}])),
            "/score, bytes": lambda rng: self._score(rng, lambda file: {"base64": _base64(file)}),
            "/score, a data URL": lambda rng: self._score(rng, _url),
            "/score, one of three images broken": self._broken,
            "RemoteReward, TRL's call": self._trl,
            "compute_score, verl's call": self._verl,
            "wrong": self._wrong,
            "wrong: the body stops": self._half,
        }
        weights = [3, 3, 3, 2, 3, 2, 4, 1]
        limits = httpx.Limits(max_connections=None, keepalive_expiry=3.0)  # the service closes them after 5 s
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        began = perf_counter()

        async def client(number: int) -> None:
            rng = random.Random(number)
            while True:
                await asyncio.sleep(rng.expovariate(self.rate / self.clients))
                start = perf_counter()
                if start > began + seconds:
                    return
                (way,) = rng.choices(list(ways), weights)
                try:
                    await ways[way](rng)
                except Exception as error:
                    self.unexpected.append(f"{start - began:.0f} s, {way}: {type(error).__name__}: {error}"[:300])
                self.seconds.setdefault(way, []).append(perf_counter() - start)

        options = {"headers": headers, "limits": limits, "timeout": PATIENCE + 30, "trust_env": False}
        async with httpx.AsyncClient(**options) as self.http:
            await asyncio.gather(*(client(number) for number in range(self.clients)))

    async def post(self, path: str, body: Any, status: int = 200, **options: Any) -> Any:
        """The JSON of a reply; raises for another status than the expected one. A process that is gone is left out."""
        httpx = http_library()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        for url in itertools.cycle(random.sample(self.url.split(","), self.url.count(",") + 1)):
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
            self.wrong_rows.append(f"{what}: {found.tolist()}, not {expected.tolist()}"[:500])

    # The service's own form

    async def _score(self, rng: random.Random, image: Callable[[Path], Any]) -> None:
        metric = rng.choice(METRICS)
        asked = [self._pick(rng) for _ in range(rng.randint(1, 3))]
        samples = [self._sample(photo, captions, image(self.photos.files[photo])) for photo, captions in asked]
        reply = await self.post("/score", {"metric": metric, "samples": samples})
        for (photo, captions), sample in zip(asked, reply["samples"], strict=True):
            self.compare(f"/score {metric}", sample["scores"], self.photos.scores[metric][photo, captions])

    async def _broken(self, rng: random.Random) -> None:
        (first, some), (second, others) = self._pick(rng), self._pick(rng)
        encoded = self.photos.files[second].read_bytes()
        broken = rng.choice([b"no image", encoded[:40], encoded[:-500]])
        bad = {"base64": base64.b64encode(broken).decode()}
        samples = [self._sample(second, others, bad), self._sample(first, some, self.photos.files[first].name)]
        refused, scored = (await self.post("/score", {"metric": "vela", "samples": samples}))["samples"]
        self.compare("/score beside a broken image", scored["scores"], self.photos.scores["vela"][first, some])
        if any(value is not None for row in refused["scores"] for value in row) or None in refused["errors"]:
            self.wrong_rows.append(f"a score for a broken image: {refused}")

    # Our clients

    async def _trl(self, rng: random.Random) -> None:
        photo, captions = self._pick(rng)
        file = self.photos.files[photo]
        count = len(captions)
        found = await asyncio.to_thread(
            self.reward,
            prompts=[[{"role": "user", "content": "Describe."}]] * count,
            completions=[[{"role": "assistant", "content": self.photos.captions[each]}] for each in captions],
            image=[rng.choice([str(file), file.read_bytes()])] * count,
            references=[self.photos.references[photo]] * count,
        )
        self.compare("RemoteReward", found, self.photos.rewards["vela"][photo, captions])

    async def _verl(self, rng: random.Random) -> None:
        photo, captions = self._pick(rng)
        info = {"image": str(self.photos.files[photo]), "references": self.photos.references[photo]}
        settings = {"metric": "remote", "source": f"{self.url}#vela", "timeout": PATIENCE}
        asked = [compute_score("soak", self.photos.captions[each], None, info, **settings) for each in captions]
        found = [row["score"] for row in await asyncio.gather(*asked)]
        self.compare("compute_score", found, self.photos.rewards["vela"][photo, captions])

    # Wrong requests

    async def _wrong(self, rng: random.Random) -> None:
        photo, captions = self._pick(rng)
        sample = self._sample(photo, captions, {"base64": _base64(self.photos.files[photo])})
        body = {"metric": "vela", "samples": [sample]}
        huge = png("red", (1100, 1000))  # pixels over the limit
        path, sent, status, options = rng.choice(
            [
                ("/score", json.dumps(body).encode()[:-20], 422, {}),
                ("/score", {"metric": "vela"}, 422, {}),
                ("/score", {**body, "sample": []}, 422, {}),
                ("/score", {**body, "metric": "cider"}, 422, {}),
                ("/score", json.dumps(body).encode() + bytes(500_000), 413, {}),
                ("/score", {"metric": "length", "samples": [{"candidates": ["A star."] * 65}]}, 422, {}),
                (
                    "/score",
                    {"metric": "vela", "samples": [self._sample(photo, captions, "../../etc/hostname")]},
                    422,
                    {},
                ),
                ("/score", {"metric": "vela", "samples": [self._sample(0, [0], {"base64": _encoded(huge)})]}, 422, {}),
                ("/score", body, 401, {"headers": {"Authorization": "Bearer another-token"}}),
                ("/scores", body, 404, {}),
            ]
        )
        await self.post(path, sent, status, **options)

    async def _half(self, rng: random.Random) -> None:
        host, _, port = random.choice(self.url.split(",")).rpartition("/")[2].partition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            return  # the process is gone
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
        writer.write(head.encode() + b'{"samples": [')
        await writer.drain()
        if rng.random() < 0.5:  # else: gone without a word
            with suppress(ConnectionError):
                if (line := await reader.readline()) and not {b"408", b"503"} & set(line.split()):
                    raise ValueError(f"{line!r} to a body that stops")
        writer.close()

    def _pick(self, rng: random.Random) -> tuple[int, list[int]]:
        return rng.randrange(len(self.photos.files)), rng.sample(range(len(self.photos.captions)), rng.randint(1, 8))

    def _sample(self, photo: int, captions: Sequence[int], image: Any) -> dict[str, Any]:
        candidates = [self.photos.captions[each] for each in captions]
        return {"candidates": candidates, "references": self.photos.references[photo], "image": image}


def _base64(file: Path) -> str:
    return _encoded(file.read_bytes())


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _url(file: Path) -> str:
    return f"data:image/png;base64,{_base64(file)}"
