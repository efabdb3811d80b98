"""The simulated cluster against the closed form, and against what slow and failing cards must cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.research.cluster_simulation import IN_FLIGHT, STAGES, Cluster, Trouble, flops_of, main, simulate

# a card scores a shard in 10 s, and nothing else takes time worth mentioning
PLAIN = Cluster(
    flops=1e12,
    shard=100,
    card_flops=1e13,
    decode_seconds=1e-9,
    image_bytes=1e-6,
    pixel_bytes=1e-6,
    driver_seconds=1e-9,
)
SLOWEST = {
    "driver": {"driver_seconds": 2.0},
    "store": {"image_bytes": 1.0, "store": 5.0, "captions_per_image": 10.0},
    "network": {"image_bytes": 1.0, "network": 1.0, "captions_per_image": 10.0, "store": 1e9},
    "decode": {"decode_seconds": 20.0, "cores": 8, "captions_per_image": 5.0},
    "PCIe": {"pixel_bytes": 5.0, "pcie": 1.0, "captions_per_image": 10.0},
    "card": {},
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("cards", [1, 16])
def test_without_trouble_it_is_the_closed_form(stage: str, cards: int) -> None:
    cluster = replace(PLAIN, **SLOWEST[stage])  # type: ignore[arg-type]
    shards = 60 * cards
    rate, limit = cluster.rate(cards)
    if (stage, cards) != ("driver", 1) and (stage, cards) != ("store", 1) and (stage, cards) != ("network", 1):
        assert limit == stage  # one card alone is slower than what 16 share
    outcome = simulate(cluster, cards, shards)
    assert (outcome.scored, outcome.lost, outcome.copies) == (shards, 0, 0)
    busy = shards * cluster.shard / rate
    filling = sum(cluster.service().values())  # the first shard on its way to the slowest stage, the last one after it
    assert busy <= outcome.seconds * (1 + 1e-9) <= busy + filling


def test_cost_is_price_by_time() -> None:
    assert PLAIN.cost(PLAIN.rate(4)[0], 4) == pytest.approx(3.0 / 3600 * 1e6 / 10)
    assert flops_of("vela", 8) == pytest.approx(28.04e12 / 8)
    assert flops_of("vela", 5) == flops_of("vela", 4)


def test_a_straggler_costs_what_it_must_and_copies_save_it() -> None:
    cards = 10
    slow = Trouble(stragglers=1, slowdown=6.0)
    assert simulate(PLAIN, cards, cards * IN_FLIGHT).seconds == pytest.approx(10 * IN_FLIGHT)
    # each card holds its four shards from the start, so the slow one ends after 4 x 6 x 10 seconds
    alone = simulate(PLAIN, cards, cards * IN_FLIGHT, slow)
    assert alone.seconds == pytest.approx(6 * 10 * IN_FLIGHT)
    helped = simulate(PLAIN, cards, cards * IN_FLIGHT, replace(slow, copies=True))
    # the nine others end after 40 s; each of the slow card's shards is then out with one of them, for 10 s
    assert helped.seconds == pytest.approx(10 * IN_FLIGHT + 10)
    assert helped.scored == alone.scored == cards * IN_FLIGHT
    assert (IN_FLIGHT <= helped.copies < cards, alone.copies) == (True, 0)  # a few, of shards that end at that moment


def test_failures_lose_shards_unless_they_are_retried() -> None:
    trouble = Trouble(hours_between_failures=0.25, restart=30.0)
    lossy, retried = (simulate(PLAIN, 8, 800, replace(trouble, retry=retry), seed=3) for retry in (False, True))
    assert (retried.scored, retried.lost) == (800, 0)
    assert lossy.scored + lossy.lost == 800
    assert 0 < lossy.lost <= IN_FLIGHT * 8 * lossy.seconds / 900 * 3
    assert retried.seconds > simulate(PLAIN, 8, 800).seconds * 1.02
    again = simulate(PLAIN, 8, 800, trouble, seed=3)
    assert again == retried  # a seed gives one history


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--cards", "1", "16", "--shards-a-card", "8"])
    text = capsys.readouterr().out
    assert "1,806" in text  # 16 cards at 112.9 captions a second
    assert "not retried" in text
    with pytest.raises(SystemExit):
        main(["--cards", "0"])
