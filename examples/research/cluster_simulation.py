"""Scoring on clusters that are not there: captions per second and their cost on paper, and a simulation beside it.

    python -m examples.research.cluster_simulation
    python -m examples.research.cluster_simulation --metric beitscore --cards 1 8 64 512 --captions-per-image 1

Each shard goes through the driver, the object store, its node's network, its card's decoding cores, PCIe and the card.
On paper, the slowest of these decides. The simulation queues shards at each of them, and loses cards or slows them.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.research.stored import read_csv

SIZES = Path(__file__).resolve().parents[2] / "docs" / "results" / "sizes_scoring.csv"
STAGES = ("driver", "store", "network", "decode", "PCIe", "card")
SHARED, OF_NODE = STAGES[:2], STAGES[2]  # one of each; one for each node; the others belong to a card
IN_FLIGHT = 4  # shards that a card has asked for and not finished, so that no stage waits for the next


@dataclass(frozen=True)
class Cluster:
    """Measured or counted: flops, decode_seconds and bytes. 989e12 is of a data sheet, the rest is assumed."""

    flops: float  # of a caption, from docs/results/sizes_scoring.csv
    captions_per_image: float = 8  # in one shard; each image is fetched and decoded once a shard
    decode_seconds: float = 0.007  # of one core, an image
    image_bytes: float = 100e3
    pixel_bytes: float = 3 * 224 * 224 * 4
    card_flops: float = 0.4 * 989e12
    pcie: float = 25e9  # bytes/s of a card
    cores: int = 12  # for decoding, of a card
    network: float = 25e9 / 8  # bytes/s of a node
    cards_a_node: int = 8
    store: float = 100e9 / 8  # bytes/s of the object store, for all nodes
    driver_seconds: float = 0.02  # a shard: one task, one line of the manifest
    shard: int = 4096  # captions
    price: float = 3.0  # of a card with its share of the node, an hour

    def service(self) -> dict[str, float]:
        """Seconds that a shard takes at each stage, alone there."""
        images = self.shard / self.captions_per_image
        return {
            "driver": self.driver_seconds,
            "store": images * self.image_bytes / self.store,
            "network": images * self.image_bytes / self.network,
            "decode": images * self.decode_seconds / self.cores,
            "PCIe": images * self.pixel_bytes / self.pcie,
            "card": self.shard * self.flops / self.card_flops,
        }

    def servers(self, stage: str, cards: int) -> int:
        """How many of a stage there are."""
        return 1 if stage in SHARED else -(-cards // self.cards_a_node) if stage == OF_NODE else cards

    def rate(self, cards: int) -> tuple[float, str]:
        """Captions a second on paper, and the stage that limits them."""
        rates = {stage: self.servers(stage, cards) * self.shard / took for stage, took in self.service().items()}
        slowest = min(rates, key=lambda stage: rates[stage])
        return rates[slowest], slowest

    def cost(self, rate: float, cards: int) -> float:
        """Price of a million captions."""
        return self.price * cards / 3600 * 1e6 / rate


@dataclass(frozen=True)
class Trouble:
    """What goes wrong: hours between failures of a card, seconds until it is back, slow cards, and what helps."""

    hours_between_failures: float = 0.0
    restart: float = 120.0
    stragglers: int = 0
    slowdown: float = 4.0
    retry: bool = True
    copies: bool = False  # a card without work repeats a shard that another has not finished


@dataclass
class Outcome:
    """Seconds until the last shard was scored or lost; shards scored and lost; copies of shards that were begun."""

    seconds: float = 0.0
    scored: int = 0
    lost: int = 0
    copies: int = 0


def simulate(cluster: Cluster, cards: int, shards: int, trouble: Trouble | None = None, seed: int = 0) -> Outcome:
    """Events in the order of their time. Each server takes shards in the order in which they arrive."""
    trouble = trouble or Trouble()
    draw, service = random.Random(seed), cluster.service()
    events: list[tuple[float, int, str, int, int, int, int]] = []  # time, number, kind, shard, card, stage, life
    free: dict[tuple[str, int], float] = {}  # when a server is done with what it has
    life = [0] * cards  # failures so far; shards of an earlier life are gone
    waiting = deque(range(shards))
    running: dict[int, dict[int, float]] = {}  # shard: {card: when it asked}
    done: set[int] = set()
    outcome, number, now = Outcome(), 0, 0.0

    def push(time: float, kind: str, shard: int, card: int, stage: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (time, number, kind, shard, card, stage, life[card]))

    def server(stage: str, card: int) -> tuple[str, int]:
        return stage, 0 if stage in SHARED else card // cluster.cards_a_node if stage == OF_NODE else card

    def ask(card: int) -> None:
        """The card asks for a shard; without any work, for a copy of the one that has been out longest."""
        if waiting:
            shard = waiting.popleft()
        elif trouble.copies and not any(card in cards_of for cards_of in running.values()):
            alone = [(time, s) for s, cards_of in running.items() if len(cards_of) == 1 for time in cards_of.values()]
            shard = min(alone, default=(0.0, -1))[1]
            outcome.copies += shard >= 0
        else:
            shard = -1
        if shard >= 0:
            running.setdefault(shard, {})[card] = now
            push(now, "stage", shard, card, 0)

    def fail_later(card: int) -> None:
        if trouble.hours_between_failures:
            push(now + draw.expovariate(1 / (3600 * trouble.hours_between_failures)), "fail", -1, card, 0)

    for card in range(cards):
        fail_later(card)
    for _ in range(IN_FLIGHT):
        for card in range(cards):
            ask(card)
    while events and outcome.scored + outcome.lost < shards:
        now, _, kind, shard, card, stage, started = heapq.heappop(events)
        if started != life[card]:
            continue
        if kind == "fail":
            life[card] += 1
            gone = [s for s, cards_of in running.items() if cards_of.pop(card, None) is not None and not cards_of]
            for s in gone:
                del running[s]
            waiting.extend(gone if trouble.retry else [])
            outcome.lost += 0 if trouble.retry else len(gone)
            for name in STAGES:
                if name not in SHARED and name != OF_NODE:
                    free[server(name, card)] = now + trouble.restart
            push(now + trouble.restart, "back", -1, card, 0)
            fail_later(card)
        elif kind == "back":
            for _ in range(IN_FLIGHT):
                ask(card)
        elif stage == len(STAGES):
            running.get(shard, {}).pop(card, None)
            if shard not in done:
                done.add(shard)
                running.pop(shard, None)
                outcome.scored += 1
            ask(card)
        elif shard in done:  # another card was faster
            ask(card)
        else:
            name = STAGES[stage]
            slow = trouble.slowdown if card < trouble.stragglers and name in ("decode", "card") else 1.0
            place = server(name, card)
            free[place] = max(now, free.get(place, 0.0)) + slow * service[name]
            push(free[place], "stage", shard, card, stage + 1)
    outcome.seconds = now
    return outcome


def flops_of(metric: str, group: int) -> float:
    """FLOPs of a caption, in groups of so many captions of an image; groups between two sizes count as the smaller."""
    rows = {int(row["G"]): row for row in read_csv(SIZES) if row["metric"] == metric}
    size = max(known for known in rows if known <= group)
    return 1e12 * float(rows[size]["TFLOP shared"]) / size


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metric", choices=["vela", "beitscore"], default="vela", help="default: %(default)s")
    parser.add_argument("--cards", type=int, nargs="+", default=[1, 8, 64, 512], help="default: 1 8 64 512")
    parser.add_argument("--captions-per-image", type=int, default=8, help="in one shard; default: %(default)s")
    parser.add_argument("--shards-a-card", type=int, default=40, help="default: %(default)s")
    options = parser.parse_args(argv)
    if min([*options.cards, options.captions_per_image, options.shards_a_card]) < 1:
        parser.error("--cards, --captions-per-image and --shards-a-card must be at least 1")
    side = 480 if options.metric == "beitscore" else 224
    group = options.captions_per_image
    cluster = Cluster(flops_of(options.metric, group), group, pixel_bytes=3 * side * side * 4)
    out = Console(width=110)
    grid = Table("cards", "captions/s on paper", "limited by", "simulated", "per card", "a million captions cost")
    for cards in options.cards:
        rate, limit = cluster.rate(cards)
        shards = options.shards_a_card * cards
        found = shards * cluster.shard / simulate(cluster, cards, shards).seconds
        row = (f"{rate:,.0f}", limit, f"{found:,.0f}", f"{found / cards:,.1f}", f"{cluster.cost(found, cards):.2f}")
        grid.add_row(str(cards), *row)
    out.print(grid)
    cards = min(64, max(options.cards))
    shards = options.shards_a_card * cards
    base = simulate(cluster, cards, shards)
    hours = 20 * base.seconds / 3600  # a card in twenty fails during the run
    slow = max(1, cards // 32)
    cases = {
        "nothing": Trouble(),
        f"a card fails every {hours:.1f} h, retried": Trouble(hours),
        f"a card fails every {hours:.1f} h, not retried": Trouble(hours, retry=False),
        f"{slow} cards four times slower": Trouble(stragglers=slow),
        f"{slow} cards four times slower, copies": Trouble(stragglers=slow, copies=True),
    }
    grid = Table(f"trouble on {cards} cards", "times as long", "rows lost, %", "copies")
    for name, trouble in cases.items():
        got = simulate(cluster, cards, shards, trouble)
        grid.add_row(name, f"{got.seconds / base.seconds:.3f}", f"{100 * got.lost / shards:.2f}", str(got.copies))
    out.print(grid)
    scattered = replace(cluster, flops=flops_of(options.metric, 1), captions_per_image=1)
    both = [each.rate(max(options.cards)) for each in (cluster, scattered)]
    out.print(
        f"{max(options.cards)} cards, captions of an image in one shard: {both[0][0]:,.0f} a second ({both[0][1]}); "
        f"scattered over shards: {both[1][0]:,.0f} ({both[1][1]})"
    )


if __name__ == "__main__":
    main()
