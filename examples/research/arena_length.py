"""What the length of captions decides in an arena, and what becomes of it when captions lengthen.

    python -m examples.research.arena_length
    python -m examples.research.arena_length --lengthen 0,40,80,160 --json runs/arena_length.json

An arena of the 14 models of CapArena is made: their strengths are the logits of their published CapArena-Auto scores,
their captions have the published mean lengths, and near models meet more often, as there. Three numbers the paper does
not give: how much the lengths of a model's captions spread, how often equal captions tie, and by how much people prefer
the longer of two captions that a model might have written. The last was chosen so that the agreement over all levels
comes near the paper's; how it falls from level to level, and the ranking, follow. Then the longer caption decides every
battle, and its agreement with the people stands beside what the paper measured for "Output Length" in its own arena.

After that the captions of one model get more and more words that are worth nothing. The people's verdicts stay, so
whatever changes is the metric's doing: its bias for that model grows, and its ranking leaves that of the people.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.arena import Arena, by_metric, by_people, measure_agreement
from reward.arena.agreement import ArenaAgreement
from reward.battles import Battle
from reward.metric_source import MetricSource

__all__: list[str] = []

# {model: (CapArena-Auto score, mean words of its captions)}: table 8 of the paper.
MODELS = {
    "Gemini-1.5-pro-002": (56.17, 168.6),
    "GPT-4o-0806": (44.00, 115.8),
    "Gemini-2.0-flash-exp": (30.83, 417.0),
    "Claude-3.5-Sonnet-0620": (21.50, 147.9),
    "InternVL2-26B": (13.00, 236.3),
    "GPT-4o-mini-0718": (9.33, 139.8),
    "CogVLM2-llama3-chat-19B": (-8.50, 115.9),
    "Qwen2-VL-72B-Instruct": (-9.00, 114.5),
    "LLaMA-3.2-vision-90B-Instruct": (-25.67, 160.3),
    "MiniCPM-V2.6-8B": (-38.00, 106.7),
    "Qwen2-VL-2B-Instruct": (-48.67, 116.8),
    "Qwen2-VL-7B-Instruct": (-49.00, 97.8),
    "LLaVA-1.6-34B": (-67.50, 124.8),
    "LLaVA-1.5-7B": (-94.00, 74.4),
}
# Table 2 of the paper, the row "Output Length".
PAPER = {"overall": 0.585, "level 1": 0.672, "level 2": 0.593, "level 3": 0.552, "level 4": 0.521}
PAPER_RANKING = {"spearman": 0.710, "kendall": 0.582}
BATTLES, IMAGES = 6522, 2000
SPREAD = 0.25  # of the logarithm of the lengths of a model's captions
PREFERENCE = 2.0  # worth of a caption that is longer by a factor of e than its model's others
TIES = 0.15
LENGTHENED = "LLaVA-1.6-34B"  # whose captions get words


@dataclass(frozen=True)
class Made:
    """Battles without captions: who met whom where, what people said, and how long each caption is."""

    arena: Arena
    people: np.ndarray
    words: np.ndarray  # (images, models)
    levels: list[str]


def make_arena(battles: int, seed: int) -> Made:
    from reward.arena import draw_arena
    from reward.arena.strengths import win_probabilities

    scores, means = np.array(list(MODELS.values())).T
    strengths = np.log((100 + scores) / (100 - scores))
    deviates = SPREAD * np.random.default_rng((seed, 1)).normal(size=(IMAGES, len(MODELS)))
    words = np.maximum(1, np.round(means * np.exp(deviates - SPREAD**2 / 2)))
    chance = win_probabilities(strengths)
    arena, people = draw_arena(
        strengths,
        battles,
        images=IMAGES,
        ties=TIES,
        worth=PREFERENCE * deviates,
        frequencies=np.sqrt(chance * (1 - chance)),
        names=list(MODELS),
        seed=seed,
    )
    return Made(arena, people, words, levels_of(arena))


def levels_of(arena: Arena) -> list[str]:
    """Level 1 to 4: quarters of the battles by how far apart the two models are in the ranking, the furthest first."""
    rank = {name: number for number, name in enumerate(MODELS)}
    ranks = np.array([rank[name] for name in arena.systems])[arena.pairs]
    gaps = np.abs(ranks[:, 0] - ranks[:, 1])
    return [f"level {level}" for level in 4 - np.searchsorted(np.quantile(gaps, [0.25, 0.5, 0.75]), gaps)]


def captioned(made: Made, more_words: int) -> list[Battle]:
    """The battles in CapArena's fields; each caption has as many words as it should, those of one model more."""
    battles = []
    places = {name: number for number, name in enumerate(MODELS)}
    rows = zip(made.arena.pairs, made.people, made.arena.images, made.levels, strict=True)
    for pair, points, image, level in rows:
        entry: dict[str, Any] = {"img": image, "cluster": level}
        for place, system in ((1, made.arena.systems[pair[0]]), (2, made.arena.systems[pair[1]])):
            words = int(made.words[int(image.split(".")[0]), places[system]])
            words += more_words if system == LENGTHENED else 0
            entry |= {f"source{place}": system, f"caption{place}": "word " * words}
        entry["winner"] = "equal" if points == 0.5 else entry["source1" if points == 1 else "source2"]
        battles.append(Battle.from_json(entry))
    return battles


def measure(battles: list[Battle], resamples: int) -> ArenaAgreement:
    people = by_people(battles)
    assert people is not None
    length = by_metric(battles, MetricSource("length"), people.points, images=Path())
    arena = Arena.of_battles(battles)
    return measure_agreement(arena, people.points, {"length": length.points}, resamples=resamples)["length"]


def print_paper(agreement: ArenaAgreement, battles: int) -> None:
    print(f"{battles} battles of {len(MODELS)} models; the longer caption wins\n")
    print("| agreement of the length | with made verdicts | with people, in CapArena |\n|---|---|---|")
    for name, value in PAPER.items():
        print(f"| {name} | {agreement.levels[name]} | {value:.3f} |")
    for name, value in PAPER_RANKING.items():
        print(f"| {name}, by Elo | {agreement.ranking['elo'][name].value:.3f} | {value:.3f} |")


def print_lengthened(rows: dict[int, ArenaAgreement]) -> None:
    print(f"\nThe captions of {LENGTHENED} get more words, which are worth nothing:\n")
    print("| words more | its bias, % | mean bias of all, % | agreement | Spearman |\n|---|---|---|---|---|")
    for words, agreement in rows.items():
        bias = agreement.bias[LENGTHENED]
        own = f"{100 * bias.value:+.1f} [{100 * bias.low:+.1f}, {100 * bias.high:+.1f}]"
        rank = agreement.ranking["elo"]["spearman"].value
        print(f"| {words} | {own} | {100 * agreement.mean_bias:.1f} | {agreement.levels['overall']} | {rank:.3f} |")


def main(argv: Sequence[str] | None = None) -> dict[int, ArenaAgreement]:
    """Prints both tables; gives {words more: agreement of the length with people}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengthen", default="0,25,50,100,200", help="words that the captions of one model get")
    parser.add_argument("--battles", type=int, default=BATTLES)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    made = make_arena(options.battles, options.seed)
    steps = sorted({0, *map(int, options.lengthen.split(","))})
    rows = {words: measure(captioned(made, words), options.resamples) for words in steps}
    print_paper(rows[0], options.battles)
    print_lengthened(rows)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({words: to_json(row) for words, row in rows.items()}, indent=2) + "\n")
    return rows


def to_json(agreement: ArenaAgreement) -> dict[str, Any]:
    return {
        "levels": {name: [each.value, each.low, each.high] for name, each in agreement.levels.items()},
        "ranking": {name: each.value for name, each in agreement.ranking["elo"].items()},
        "bias": {name: [each.value, each.low, each.high] for name, each in agreement.bias.items()},
    }


if __name__ == "__main__":
    main()
