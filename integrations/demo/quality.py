"""What the oracle says of captions of scenes: of single captions, of systems with intervals, and of example scenes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from integrations.demo.captioner import MAX_NEW_TOKENS, best_of, write_captions
from reward.data.samples import is_blank
from reward.data.words import count_words
from reward.decoding.selection import rank, rate_candidates, rewards_of_words
from reward.metaeval import Interval, bootstrap_weights, mean_interval
from reward.report.report import plain
from reward.scenes import Oracle, Scene
from reward.scenes.graph import Fact
from reward.scenes.language import POSITION_PHRASES

MEASURES = ("f1", "recall", "precision", "faults", "words")
CLAIMS = ("false_actions", "missed_actions", "false_signs", "missed_signs")
LESS_IS_BETTER = ("faults", *CLAIMS)
Quality = dict[str, np.ndarray]  # {measure: (N,)}, one number per scene
Intervals = dict[str, dict[str, Interval]]


def judge_captions(captions: Sequence[str], scenes: Sequence[Scene | str]) -> Quality:
    """What the oracle says of one caption per scene: `MEASURES`, and counts of false and missing facts, `CLAIMS`.

    Example:
        >>> from reward.scenes import Entity
        >>> scene = Scene((Entity("star", "red", "big", "plain", 1, 0),), None, None, "beach")
        >>> judge_captions(["There is a small red star in the top left."], [scene])["precision"]
        array([0.8])
    """
    oracle = Oracle()
    verdicts = [oracle.score(caption, scene) for caption, scene in zip(captions, scenes, strict=True)]
    quality = {name: np.array([getattr(verdict, name) for verdict in verdicts], dtype=float) for name in MEASURES[:-1]}
    kinds = {"actions": lambda fact: fact[0] == "action"}
    kinds["signs"] = lambda fact: fact[0] == "text" or fact[:2] == ("position", "sign")
    for name, is_meant in kinds.items():
        for what, facts in (("false", "wrong"), ("missed", "missing")):
            counts = [sum(map(is_meant, getattr(verdict, facts))) for verdict in verdicts]
            quality[f"{what}_{name}"] = np.array(counts, dtype=float)
    return quality | {"words": np.array([count_words(caption) for caption in captions], dtype=float)}


def mean_quality(captions: Sequence[Sequence[str]], scenes: Sequence[Scene | str]) -> Quality:
    """The same for several captions per scene, averaged within the scene."""
    flat = [caption for group in captions for caption in group]
    owners = [scene for group, scene in zip(captions, scenes, strict=True) for _ in group]
    ends = np.cumsum([len(group) for group in captions])[:-1]
    return {
        name: np.array([part.mean() for part in np.split(values, ends)])
        for name, values in judge_captions(flat, owners).items()
    }


def compare_systems(
    systems: Mapping[str, Quality], pairs: Sequence[tuple[str, str]], *, resamples: int = 1000
) -> tuple[Intervals, Intervals]:
    """{system: {measure: mean}} of systems on the same scenes, and {"first - second": {measure: paired difference}}."""
    weights = bootstrap_weights(len(next(iter(systems.values()))["f1"]), resamples=resamples)
    means = {
        name: {measure: mean_interval(values, weights) for measure, values in quality.items()}
        for name, quality in systems.items()
    }
    differences = {
        f"{first} - {second}": {
            measure: mean_interval(values - systems[second][measure], weights)
            for measure, values in systems[first].items()
        }
        for first, second in pairs
    }
    return means, differences


def measure_choice(
    model: Any,
    processor: Any,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]] | None,
    scenes: Sequence[Scene | str],
    rewards: Mapping[str, Any],
    *,
    n: int,
    max_new_tokens: int = MAX_NEW_TOKENS,
    resamples: int = 1000,
) -> dict[str, Any]:
    """Compares greedy captions, single samples, each reward's choice of n, and the oracle's choice of the same n.

    Args:
        model, processor: the captioner.
        images, references, scenes: N scenes; references None for none.
        rewards: {name: chooses}, such as {"VELA": VelaReward()}; all choose among the same candidates.
        n: candidates per scene.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.

    Returns:
        "scenes" and "n"; "means" and "differences" as `compare_systems` gives them; "gap_closed", {reward: share of the
        way from greedy to the oracle's choice, in F1, that its choice goes}, empty if there is no way; "captions",
        {system: one a scene}; "candidates"; and "rewards", {reward: those of the candidates}.
    """
    greedy = write_captions(model, processor, images, greedy=True, max_new_tokens=max_new_tokens)
    (first, reward), *_ = rewards.items()
    found = best_of(model, processor, images, references, reward, n=n, max_new_tokens=max_new_tokens)
    known, candidates = [()] * len(images) if references is None else references, found.captions
    rated = {first: found.rewards}
    rated |= {k: rate_candidates(candidates, images, known, each) for k, each in rewards.items() if k != first}
    oracle = f"best of {n} by the oracle"
    f1 = [judge_captions(group, [scene] * n)["f1"].tolist() for group, scene in zip(candidates, scenes, strict=True)]
    by = {f"best of {n} by {name}": rewards_of_words(candidates, numbers) for name, numbers in rated.items()}
    by[oracle] = f1
    captions = {"greedy": [group[0] for group in greedy]} | {
        name: [group[rank(own)[0]] for group, own in zip(candidates, numbers, strict=True)]
        for name, numbers in by.items()
    }
    quality = {"greedy": judge_captions(captions["greedy"], scenes), "one sample": mean_quality(candidates, scenes)}
    quality |= {name: judge_captions(captions[name], scenes) for name in by}
    choices = [name for name in by if name != oracle]
    pairs = [(choice, other) for choice in choices for other in ("greedy", "one sample")]
    pairs += [(oracle, choice) for choice in choices] + [(choices[0], choice) for choice in choices[1:]]
    means, differences = compare_systems(quality, pairs, resamples=resamples)
    start, end = (means[name]["f1"].value for name in ("greedy", oracle))
    gone = {name: means[choice]["f1"].value - start for name, choice in zip(rewards, choices, strict=True)}
    return {
        "scenes": len(scenes),
        "n": n,
        "means": means,
        "differences": differences,
        "gap_closed": {name: distance / (end - start) for name, distance in gone.items()} if end > start else {},
        "captions": captions,
        "candidates": candidates,
        "rewards": rated,
    }


def make_examples(
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]],
    scenes: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    scorers: Mapping[str, Any],
    *,
    count: int = 6,
) -> list[dict[str, Any]]:
    """The captions of the first `count` scenes, judged; not chosen, so that they show the bad along with the good.

    Returns:
        {"image", "captions"} of each scene; a caption has "system", "text", "scores" ({aspect, or name of a metric with
        a single one: score}), the oracle's "f1", "recall" and "precision", "wrong" (false claims, in words) and
        "missing" (how many facts were left out).
    """
    oracle, examples = Oracle(), []
    for row in range(min(count, len(images))):
        texts = ["(empty)" if is_blank(captions[row]) else captions[row] for captions in systems.values()]
        columns: dict[str, np.ndarray] = {}
        for name, scorer in scorers.items():
            table = scorer.score([images[row]] * len(texts), texts, [references[row]] * len(texts))
            columns |= {own if len(table.aspects) > 1 else name: table.column(own) for own in table.aspects}
        judged = []
        for place, (system, text) in enumerate(zip(systems, texts, strict=True)):
            verdict = oracle.score(text, scenes[row])
            own = {name: float(column[place]) for name, column in columns.items()}
            caption = {name: getattr(verdict, name) for name in ("f1", "recall", "precision")}
            caption |= {"wrong": sorted(map(fact_words, verdict.wrong)), "missing": len(verdict.missing)}
            judged.append({"system": system, "text": text, "scores": own, **caption})
        examples.append({"image": images[row], "captions": judged})
    return examples


def fact_words(fact: Fact) -> str:
    """A fact of a scene for people.

    Example:
        >>> fact_words(("position", "star", 0)), fact_words(("count", "ring", 2))
        ('star in the top left', '2 x ring')
    """
    kind, *parts = fact
    if kind == "position":
        return f"{parts[0]} in the {POSITION_PHRASES[int(parts[1])][0]}"
    if kind == "count":
        return f"{parts[1]} x {parts[0]}"
    if kind in ("text", "background"):
        return f"{'sign' if kind == 'text' else kind} {parts[0]}"
    if kind in ("size", "pattern", "colour"):
        return f"{parts[1]} {parts[0]}"
    return " ".join(str(part) for part in parts)


def write_tables(folder: Path, name: str, tables: Sequence[str], figures: Any) -> None:
    """Prints tables of Markdown, and writes them as `<name>.md` and all figures as `<name>.json` into a folder."""
    text = "\n\n".join(tables) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(plain(figures), indent=1), encoding="utf-8")
    print(text)
