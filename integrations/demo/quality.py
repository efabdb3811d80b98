"""What the oracle says of captions of scenes: of single captions, of systems with intervals, and of example scenes."""

from __future__ import annotations

import shlex
import sys
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
from reward.report.report import Report
from reward.report.tables import Table, frame_of_rows
from reward.scenes import Oracle, Scene
from reward.scenes.graph import Fact
from reward.scenes.language import POSITION_PHRASES

MEASURES = ("f1", "recall", "precision", "faults", "words")
CLAIMS = ("false_actions", "missed_actions", "false_signs", "missed_signs")
_SIGN = ("position", "sign")  # how the fact of where a sign is starts
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
    quality: dict[str, list[float]] = {name: [] for name in (*MEASURES, *CLAIMS)}
    for caption, scene in zip(captions, scenes, strict=True):
        verdict = oracle.score(caption, scene)
        for name in ("f1", "recall", "precision", "faults"):
            quality[name].append(getattr(verdict, name))
        quality["words"].append(count_words(caption))
        for kind, facts in (("false", verdict.wrong), ("missed", verdict.missing)):
            quality[f"{kind}_actions"].append(sum(fact[0] == "action" for fact in facts))
            quality[f"{kind}_signs"].append(
                sum(fact[0] == "text" or fact[:2] == ("position", "sign") for fact in facts)
            )
    return {name: np.array(values, dtype=float) for name, values in quality.items()}


def mean_quality(captions: Sequence[Sequence[str]], scenes: Sequence[Scene | str]) -> Quality:
    """The same for several captions per scene, averaged within the scene."""
    # All captions are judged in one list, which is cut into the scenes again.
    all_captions: list[str] = []
    scene_of_caption: list[Scene | str] = []
    for captions_of_scene, scene in zip(captions, scenes, strict=True):
        all_captions += captions_of_scene
        scene_of_caption += [scene] * len(captions_of_scene)
    ends = np.cumsum([len(captions_of_scene) for captions_of_scene in captions])[:-1]
    means = {}
    for name, values in judge_captions(all_captions, scene_of_caption).items():
        means[name] = np.array([part.mean() for part in np.split(values, ends)])
    return means


def compare_systems(
    systems: Mapping[str, Quality], pairs: Sequence[tuple[str, str]], *, resamples: int = 1000
) -> tuple[Intervals, Intervals]:
    """{system: {measure: mean}} of systems on the same scenes, and {"first - second": {measure: paired difference}}."""
    qualities = dict(systems)
    for first, second in pairs:
        differences = {name: values - systems[second][name] for name, values in systems[first].items()}
        qualities[f"{first} - {second}"] = differences
    weights = bootstrap_weights(len(next(iter(systems.values()))["f1"]), resamples=resamples)
    intervals: Intervals = {}
    for name, quality in qualities.items():
        intervals[name] = {measure: mean_interval(values, weights) for measure, values in quality.items()}
    means = {name: intervals.pop(name) for name in systems}
    return means, intervals


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
    # `best_of` rates by the first reward as it writes; the others rate the same candidates afterwards.
    (first, reward), *_ = rewards.items()
    rated = best_of(model, processor, images, references, reward, n=n, max_new_tokens=max_new_tokens)
    candidates = rated.captions
    rewards_by = {first: rated.rewards}
    for name, reward in rewards.items():
        if name != first:
            rewards_by[name] = rate_candidates(candidates, images, references or [()] * len(images), reward)

    # Who chooses, and by which numbers; the oracle last.
    numbers_by = {f"best of {n} by {name}": rewards_of_words(candidates, rewards_by[name]) for name in rewards}
    choices, oracle = list(numbers_by), f"best of {n} by the oracle"
    numbers_by[oracle] = []
    for group, scene in zip(candidates, scenes, strict=True):
        numbers_by[oracle].append(judge_captions(group, [scene] * n)["f1"].tolist())
    captions = {"greedy": [group[0] for group in greedy]}
    for name, numbers in numbers_by.items():
        captions[name] = [group[rank(values)[0]] for group, values in zip(candidates, numbers, strict=True)]

    quality = {"greedy": judge_captions(captions["greedy"], scenes), "one sample": mean_quality(candidates, scenes)}
    for name in numbers_by:
        quality[name] = judge_captions(captions[name], scenes)
    pairs = [(choice, other) for choice in choices for other in ("greedy", "one sample")]
    pairs += [(oracle, choice) for choice in choices] + [(choices[0], choice) for choice in choices[1:]]
    means, differences = compare_systems(quality, pairs, resamples=resamples)
    start, end = means["greedy"]["f1"].value, means[oracle]["f1"].value
    gap_closed = {}
    if end > start:
        for name, choice in zip(rewards, choices, strict=True):
            gap_closed[name] = (means[choice]["f1"].value - start) / (end - start)
    return {
        "scenes": len(scenes),
        "n": n,
        "means": means,
        "differences": differences,
        "gap_closed": gap_closed,
        "captions": captions,
        "candidates": candidates,
        "rewards": rewards_by,
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
            for aspect in table.aspects:
                columns[aspect if len(table.aspects) > 1 else name] = table.column(aspect)
        captions_of_scene = []
        for position, (system, text) in enumerate(zip(systems, texts, strict=True)):
            verdict = oracle.score(text, scenes[row])
            caption = {
                "system": system,
                "text": text,
                "scores": {name: float(column[position]) for name, column in columns.items()},
                "f1": verdict.f1,
                "recall": verdict.recall,
                "precision": verdict.precision,
                "wrong": sorted(map(fact_words, verdict.wrong)),
                "missing": len(verdict.missing),
            }
            captions_of_scene.append(caption)
        examples.append({"image": images[row], "captions": captions_of_scene})
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


def write_systems(
    folder: Path, name: str, figures: Mapping[str, Any], notes: Sequence[str], measures: Sequence[str] = MEASURES
) -> None:
    """Prints the "means" and "differences" of `figures` as tables, and writes a report of all figures into a folder."""
    tables = []
    for title, form in (("means", ".3f"), ("differences", "+.3f")):
        rows = {system: {measure: row[measure] for measure in measures} for system, row in figures[title].items()}
        tables.append(Table(title.capitalize(), frame_of_rows(rows, head="captions"), form=form))
    report = Report(name, "The oracle's verdict", shlex.join(sys.argv), figures, tables, notes)
    report.write(folder)
    print(report.markdown())
