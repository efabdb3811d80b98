"""What tokens buy: greedy, best of 1 to 64 and every other strategy by VELA, on held-out scenes, judged by the oracle.

    python -m examples.research.decoding_curve --output runs/decoding

Every strategy is compared with plain best-of-n at as many generated tokens. Best-of-n for all n, its soft and Poisson
forms and minimum Bayes risk come from one pool of samples of each scene; their figures are expected values over it.
Writes decoding_curve.md and decoding_curve.json. What each strategy gave is kept beside them, and not made again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import poisson
from transformers import set_seed

from integrations.demo.captioner import MAX_NEW_TOKENS, decoded_batches, load_captioner
from integrations.demo.quality import Quality, check_options, judge_captions, write_tables
from integrations.demo.results import SEED
from integrations.hf_generate import STRATEGIES
from reward import VelaReward
from reward.decoding.curve import expected_best
from reward.decoding.mbr import expected_utilities
from reward.decoding.selection import rank
from reward.metaeval import bootstrap_weights, markdown_table, mean_difference, mean_interval
from reward.scenes import make_dataset

MEASURES = ("f1", "precision", "faults")
COLUMNS = ("tokens", "scored", *MEASURES)
# {"line: setting": (strategy, its options)}; these write captions of their own
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("best-of-n", {"n": 1, "sources": [{"do_sample": False}]}),
    **{f"beams: {n}": ("best-of-n", {"n": n, "sources": [{"num_beams": n}]}) for n in (2, 4, 8)},
    "blockwise: 2 a sentence": ("blockwise", {"n": 2}),
    "blockwise: 4 a sentence": ("blockwise", {"n": 4}),
    "blockwise: 4 a sentence, keep 2": ("blockwise", {"n": 4, "keep": 2}),
    **{f"speculative rejection: {n}": ("speculative-rejection", {"n": n, "segment": 16}) for n in (8, 16, 32)},
    **{f"adaptive: gain {least}": ("adaptive", {"n": 64, "threshold": least}) for least in (0.03, 0.01, 0.003)},
}
SOFT, MBR, MBR_VELA, HYBRID = "soft, temperature .05", "MBR, unigram F1", "MBR, VELA", "best 4, then MBR"
# numbers of samples of the pool among which each chooses
CHOSEN = {SOFT: (4, 16, 64), MBR: (4, 16, 64), MBR_VELA: (4, 8), HYBRID: (8, 16, 64)}
Piece = dict[str, list[Any]]  # {column: one entry a scene}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument("--pool", type=int, default=64, help="samples of each; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for the tables and what they are made of")
    options = parser.parse_args(argv)
    check_options(options, parser, free=("output",))

    rows = make_dataset(options.scenes, SEED)
    images, scenes = list(rows["image"]), list(rows["scene"])
    reward, captioner = VelaReward(options.vela, device="cpu"), load_captioner(options.captioner)
    write = partial(_write, captioner, images, reward, max_new_tokens=options.max_new_tokens)
    pool = _kept(options.output, "pool", partial(write, "best-of-n", {"n": options.pool}))
    verdicts = [
        judge_captions(group, [scene] * len(group)) for group, scene in zip(pool["captions"], scenes, strict=True)
    ]
    best = _best_of_n(pool, verdicts)
    sizes = np.arange(1, options.pool + 1)
    powers = [2**power for power in range(options.pool.bit_length())]
    of_n = {f"best of n: {n}": {column: best[column][:, n - 1] for column in COLUMNS} for n in powers}

    table: dict[str, Quality] = {}
    for name, settings in WRITTEN.items():
        piece = _kept(options.output, name, partial(write, *settings))
        captions = [group[place] for group, place in zip(piece["captions"], piece["chosen"], strict=True)]
        cost = {"tokens": np.array(piece["tokens"]), "scored": np.array(piece["scored"])}
        table[name] = {**cost, **judge_captions(captions, scenes)}
    table["greedy"]["scored"] = np.zeros(options.scenes)  # a single caption needs no choice
    for mean in (2, 4, 16):
        chances = poisson.pmf(sizes - 1, mean - 1)
        table[f"Poisson: {mean}"] = {column: best[column] @ (chances / chances.sum()) for column in COLUMNS}
    for way, n in ((way, n) for way, counts in CHOSEN.items() for n in counts if n <= options.pool):
        name = f"{way}: {n}"
        piece = _kept(options.output, name, partial(_chosen, pool, images, reward, way, n))
        rows_of = list(zip(piece["chances"], verdicts, strict=True))
        means = {measure: np.array([chance @ own[measure] for chance, own in rows_of]) for measure in MEASURES}
        table[name] = {"tokens": best["tokens"][:, n - 1], "scored": np.array(piece["scored"]), **means}

    weights, differences = bootstrap_weights(options.scenes), {}
    for name, own in table.items():
        n = np.clip(own["tokens"].sum() / best["tokens"][:, 0].sum(), 1, options.pool)
        same = {m: np.array([np.interp(np.log(n), np.log(sizes), curve) for curve in best[m]]) for m in MEASURES}
        differences[f"{name} - best of {n:.1f}"] = {m: mean_difference(own[m], same[m], weights) for m in MEASURES}
    means = {name: {c: mean_interval(own[c], weights) for c in COLUMNS} for name, own in (of_n | table).items()}
    tables = [
        f"Captions of {options.scenes} held-out scenes (seed {SEED}), chosen by VELA and judged by the oracle: "
        "generated tokens and scored captions of an image, F1, precision and language faults.",
        markdown_table(means, COLUMNS, title="strategy"),
        "Paired differences to best-of-n with as many tokens in all, between whole n by their logarithm.",
        markdown_table(differences, MEASURES, title="paired difference", signed=True),
    ]
    write_tables(options.output, "decoding_curve", tables, {"means": means, "differences": differences})


def _kept(folder: Path, name: str, make: Callable[[], Piece]) -> Piece:
    """A piece, read if it was made before."""
    file = folder / f"{name.replace(' ', '_').replace(':', '')}.json"
    if not file.is_file():
        print(name, flush=True)
        unfinished = file.with_suffix(".partial")
        unfinished.write_text(json.dumps(make()), encoding="utf-8")
        unfinished.replace(file)
    piece: Piece = json.loads(file.read_text(encoding="utf-8"))
    return piece


def _write(
    captioner: tuple[Any, Any], images: list[Any], reward: Any, kind: str, settings: dict[str, Any], max_new_tokens: int
) -> Piece:
    """All candidates that a strategy writes, which it chooses, and what they cost."""
    set_seed(0)
    strategy = STRATEGIES[kind](reward, processor=captioner[1], **settings)
    piece: Piece = {name: [] for name in ("captions", "rewards", "chosen", "tokens", "scored")}
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": max_new_tokens}

    def given(part: slice) -> dict[str, Any]:
        return {"custom_generate": strategy, "images": images[part], **sampling}

    for _ in decoded_batches(*captioner, images, 8 if kind == "adaptive" else settings["n"], given):
        assert strategy.last is not None  # it has just been called
        piece["chosen"] += [places[0] for places in strategy.last.chosen]
        for name in ("captions", "rewards", "tokens", "scored"):
            piece[name] += getattr(strategy.last, name)
    return piece


def _best_of_n(pool: Piece, verdicts: Sequence[Quality]) -> Quality:
    """{column: what is expected of the best of n from the pool of each scene (I, N)}."""
    # captions without a word have no reward, and lose
    rewards = [[-1e9 if value is None else value for value in own] for own in pool["rewards"]]
    pairs = list(zip(rewards, verdicts, strict=True))
    best = {measure: np.array([expected_best(own, verdict[measure]) for own, verdict in pairs]) for measure in MEASURES}
    total = len(rewards[0])
    sizes = np.arange(1, total + 1)
    # a caption that is there twice is scored once
    times = [list(Counter(captions).values()) for captions in pool["captions"]]
    seen = np.array([[1 - math.comb(total - m, n) / math.comb(total, n) for n in sizes] for m in sizes])
    scored = np.array([sum(seen[m - 1] for m in own) for own in times])
    return {**best, "tokens": np.outer(pool["tokens"], sizes / total), "scored": scored}


def _chosen(pool: Piece, images: Sequence[Any], reward: Any, way: str, n: int) -> Piece:
    """How likely each sample of the pool is chosen from groups of n samples, and how many captions are scored."""
    piece: Piece = {"chances": [], "scored": []}
    for captions, rewards, image in zip(pool["captions"], pool["rewards"], images, strict=True):
        chances, scored = np.zeros(len(captions)), 0
        starts = range(0, n if way == MBR_VELA else len(captions) - n + 1, n)  # slow: one group of n is enough
        for group in (slice(start, start + n) for start in starts):
            scored += len(set(captions[group])) if way in (SOFT, HYBRID) else 0
            if way == SOFT:
                powers = np.exp([-math.inf if value is None else value / 0.05 for value in rewards[group]])
                chances[group] = powers / powers.sum() / len(starts)
                continue
            may_win = rank(rewards[group])[:4] if way == HYBRID else None
            utility = {"utility": reward, "aggregate": True} if way == MBR_VELA else {}
            values, more = expected_utilities(captions[group], may_win, image=image, **utility)
            chances[group.start + rank(values)[0]] = 1 / len(starts)
            scored += more
        piece["chances"].append(chances.tolist())
        piece["scored"].append(scored / len(starts))
    return piece


if __name__ == "__main__":
    main()
