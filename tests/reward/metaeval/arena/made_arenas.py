"""Arenas of models of known strength, and what CapArena has published."""

from itertools import combinations

import numpy as np
import pandas as pd

WORDS = {1.0: "Caption 1 is better.", 0.0: "Caption 2 is better.", 0.5: "Tie."}  # of a judge
BASELINES = ["GPT-4o-0806", "CogVLM2-llama3-chat-19B", "MiniCPM-V2.6-8B"]  # of CapArena-Auto
# {model: CapArena-Auto score}: table 8 of the paper, the models that people ranked.
TABLE_8 = {"Gemini-1.5-pro-002": 56.17, "GPT-4o-0806": 44.0, "Gemini-2.0-flash-exp": 30.83, "InternVL2-26B": 13.0}
TABLE_8 |= {"Claude-3.5-Sonnet-0620": 21.5, "GPT-4o-mini-0718": 9.33, "CogVLM2-llama3-chat-19B": -8.5}
TABLE_8 |= {"Qwen2-VL-72B-Instruct": -9.0, "LLama-3.2-90B": -25.67, "MiniCPM-V2.6-8B": -38.0, "LLaVA-1.6-34B": -67.5}
TABLE_8 |= {"Qwen2-VL-2B-Instruct": -48.67, "Qwen2-VL-7B-Instruct": -49.0, "LLaVA-1.5-7B": -94.0}


def draw_arena(strengths, battles, *, images, ties=0.0, seed=0):
    """Battles of "model 1", "model 2", ... that follow the Bradley-Terry model, and points (N,) of the first models.

    Every model has one caption an image, of its strength plus a Gumbel deviate: the difference of two is logistic. Ties
    take as many wins as losses of a pair.
    """
    truth = np.asarray(strengths, dtype=np.float64)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(len(truth)), 2)))
    image, pair = np.divmod(rng.choice(images * len(pairs), size=battles, replace=False), len(pairs))
    sides = pairs[pair]
    turned = rng.random(battles) < 0.5
    sides[turned] = sides[turned, ::-1]
    quality = truth + rng.gumbel(size=(images, len(truth)))
    won = quality[image, sides[:, 0]] > quality[image, sides[:, 1]]
    chance = 1 / (1 + np.exp(truth[sides[:, 1]] - truth[sides[:, 0]]))
    own = np.where(won, chance, 1 - chance)  # of the result that came
    tied = rng.random(battles) < ties * np.minimum(1, (1 - own) / own)
    points = np.where(tied, 0.5, won.astype(np.float64))
    rows = [(f"{i}.jpg", f"model {a + 1}", f"model {b + 1}") for i, (a, b) in zip(image, sides, strict=True)]
    return [dict(zip(("img", "source1", "source2"), row, strict=True)) for row in rows], points


def table_of(pairs, **votes):
    """Battles such as "xy zx" with points of voters, on images of their own."""
    rows = [(str(number), one, two, "") for number, (one, two) in enumerate(pairs.split())]
    return pd.DataFrame(rows, columns=["img", "source1", "source2", "cluster"]).assign(**votes)
