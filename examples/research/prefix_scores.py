"""What a metric's score of an unfinished caption says, on the scenes: about the beginning, and about the whole.

    python -m examples.research.prefix_scores --output runs/prefixes

A captioner samples captions of held-out scenes. Each is cut after every sentence, and in the middle of the next one.
The tables give the mean rank correlation, over the captions of one scene cut in the same place, of what could guide
decoding there with the oracle's F1 of the beginning, and with the F1 that the same caption has in the end.
Writes prefixes.md and prefixes.json.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from integrations.demo.captioner import MAX_NEW_TOKENS, load_captioner, write_captions
from integrations.demo.quality import judge_captions, write_tables
from integrations.demo.results import SEED
from reward import BeitScoreReward, CaptionSample, VelaReward
from reward.metaeval import Interval, bootstrap_weights, markdown_table, mean_interval
from reward.scenes import make_dataset
from reward.sentences import split_sentences

CUTS = ("after a sentence", "within a sentence")
TARGETS = ("F1 so far", "F1 in the end")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--beitscore", default="embedded", help="checkpoint of BEiTScore")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--scenes", type=int, default=60, help="held-out scenes; default: %(default)s")
    parser.add_argument("--samples", type=int, default=8, help="captions of each; default: %(default)s")
    parser.add_argument("--sentences", type=int, default=5, help="the last cut; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for prefixes.md and prefixes.json")
    options = parser.parse_args(argv)
    rows = make_dataset(options.scenes, SEED + 3)
    images, scenes = list(rows["image"]), list(rows["scene"])
    written = write_captions(
        *load_captioner(options.captioner),
        images,
        samples=options.samples,
        temperature=1.0,
        max_new_tokens=options.max_new_tokens,
    )
    beginnings = [cut for place, group in enumerate(written) for cut in _beginnings(place, group, options.sentences)]
    samples = [CaptionSample(text, images[place]) for place, _, text, _, _ in beginnings]
    guides = _guides(samples, VelaReward(options.vela, device="cpu"), BeitScoreReward(options.beitscore, device="cpu"))
    of = [scenes[place] for place, *_ in beginnings]
    truths = {
        TARGETS[0]: judge_captions([cut[2] for cut in beginnings], of)["f1"],
        TARGETS[1]: judge_captions([cut[3] for cut in beginnings], of)["f1"],
    }
    weights = bootstrap_weights(options.scenes)
    tables = [
        f"Captions of {options.scenes} scenes (seed {SEED + 3}), {options.samples} of each; intervals over scenes."
    ]
    figures: dict[str, dict[str, dict[str, Interval]]] = {}
    for cut in CUTS:
        figures[cut] = {
            name: {target: _agreement(beginnings, cut, guide, truth, weights) for target, truth in truths.items()}
            for name, guide in guides.items()
        }
        tables.append(markdown_table(figures[cut], TARGETS, title=f"cut {cut}"))
    write_tables(options.output, "prefixes", tables, figures)


Beginning = tuple[int, int, str, str, str]  # scene, sentences, text, whole caption, kind of cut


def _beginnings(place: int, captions: Sequence[str], most: int) -> list[Beginning]:
    cuts: list[Beginning] = []
    for caption in captions:
        parts = [part + space for part, space in split_sentences(caption)]
        for count in range(1, min(most, len(parts) - 1) + 1):
            text = "".join(parts[:count]).strip()
            words = parts[count].split()
            cuts.append((place, count, text, caption, CUTS[0]))
            cuts.append((place, count, f"{text} {' '.join(words[: len(words) // 2])}".strip(), caption, CUTS[1]))
    return cuts


def _guides(samples: Sequence[CaptionSample], vela: VelaReward, beitscore: BeitScoreReward) -> dict[str, np.ndarray]:
    """{name: what would guide decoding (N,)}."""
    table = vela.score(samples)
    scores = {aspect: np.asarray(table.scores)[:, column] for column, aspect in enumerate(table.aspects)}
    parts = [[part for part, _ in split_sentences(sample.candidate)] for sample in samples]
    alone = vela.rewards(
        [CaptionSample(part, sample.image) for sample, own in zip(samples, parts, strict=True) for part in own]
    )
    numbers = iter(np.array(alone, dtype=float))
    return {
        "VELA": np.array(vela.rewards(samples), dtype=float),
        **{f"VELA, {aspect}": values for aspect, values in scores.items()},
        "VELA, mean of the sentences alone": np.array([np.mean([next(numbers) for _ in own]) for own in parts]),
        "BEiTScore": np.array(beitscore.rewards(samples), dtype=float),
        "number of words": np.array([len(sample.candidate.split()) for sample in samples], dtype=float),
    }


def _agreement(
    beginnings: Sequence[Beginning], cut: str, guide: np.ndarray, truth: np.ndarray, weights: np.ndarray
) -> Interval:
    """Mean over scenes of the rank correlation among the beginnings of as many sentences."""
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (place, count, _, _, kind) in enumerate(beginnings):
        if kind == cut:
            together[place, count].append(index)
    by_scene: dict[int, list[float]] = defaultdict(list)
    for (place, _), members in together.items():
        if len(members) > 2 and np.ptp(guide[members]) and np.ptp(truth[members]):
            by_scene[place].append(float(spearmanr(guide[members], truth[members]).statistic))
    places = sorted(by_scene)
    return mean_interval(np.array([np.mean(by_scene[place]) for place in places]), weights[:, places])


if __name__ == "__main__":
    main()
