"""BEiTScore on held-out scenes: correct against incorrect captions, simulated raters, captions spoiled in words.

    python -m examples.research.evaluate_beitscore
    python -m examples.research.evaluate_beitscore --n 200 --without-stage-1 runs/without --json runs/beitscore.json

Beside it: the CLIP inside a VELA, and that VELA. Differences are paired and bold where the 95 % interval excludes 0.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from integrations.demo.agreement import AgreementPart, difference_table, measure_agreement, rate_by_clip
from integrations.demo.results import SEED
from reward import CaptionSample, load_scorer
from reward.corruptions.words import corrupt_words
from reward.metaeval import (
    Interval,
    PairwiseResult,
    bootstrap_weights,
    markdown_table,
    mean_difference,
    pairwise_accuracy,
)
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.metaeval.report import plain
from reward.metrics.base import Scorer
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, CATEGORIES, make_dataset, make_pair_dataset
from reward.scenes.benchmark import WORD_LEVEL

if TYPE_CHECKING:
    from datasets import Dataset

OURS, WITHOUT, CLIP, VELA = "BEiTScore", "BEiTScore without stage 1", "CLIP score", "VELA"

Table = dict[str, dict[str, Interval]]
Rate = Callable[[list[CaptionSample]], np.ndarray]  # (N,), larger is better

LENGTHS = ("short", "long")
OTHER_IMAGE = ", another scene's image"
# Kinds of word-level spoiling, by whose score a policy could be rewarded for nothing.
SPOILED = ("shuffle_words", "shuffle_sentences", "repeat_noun", "repeat_verb", "repeat_adjective")


@dataclass
class PairsPart:
    """Pairwise accuracy of metrics.

    Args:
        pairs: of each category and length.
        seed: of the scenes.
        errors: {length: {metric: result}} for the errors that only the picture shows.
        words: the same for errors in the words alone, and for captions of other scenes.
        changes: {length: {metric: {kind: mean score of spoiled minus mean score of correct captions}}}.
    """

    pairs: int
    seed: int
    errors: dict[str, dict[str, PairwiseResult]]
    words: dict[str, dict[str, PairwiseResult]]
    changes: dict[str, dict[str, dict[str, Interval]]]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="embedded", help="BEiTScore: embedded, a folder, or a Hub id")
    parser.add_argument("--without-stage-1", metavar="FOLDER", help="BEiTScore trained on ratings alone; default: none")
    parser.add_argument("--vela", default="embedded", help="VELA to compare with; default: %(default)s")
    parser.add_argument("--n", type=int, default=100, help="pairs of each category and length; default: %(default)s")
    parser.add_argument("--samples", type=int, default=400, help="rated captions, one per scene; default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="of the scenes; default: %(default)s")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures into this file")
    options = parser.parse_args(argv)
    if options.n < 2:
        parser.error(f"--n must be at least 2, for there to be another scene's image, got {options.n}")

    ours: dict[str, Scorer] = {OURS: load_scorer("beitscore", options.checkpoint, device="cpu")}
    if options.without_stage_1 is not None:
        ours[WITHOUT] = load_scorer("beitscore", options.without_stage_1, device="cpu")
    vela = VelaScorer.from_pretrained(options.vela, device="cpu")
    metrics: dict[str, Rate] = {name: _single_score(scorer) for name, scorer in ours.items()}
    if vela.model.image is not None:
        metrics[CLIP] = lambda samples: rate_by_clip(vela, samples)
    metrics[VELA] = _single_score(vela)

    pairs = measure_pairs(metrics, pairs=options.n, seed=options.seed, controls=list(ours), resamples=options.resamples)
    agreement = measure_agreement(
        {VELA: vela},
        ours,
        samples=options.samples,
        seed=options.seed,
        clip=vela if CLIP in metrics else None,
        resamples=options.resamples,
    )
    spoiling = measure_spoiling(
        {name: metrics[name] for name in ours}, make_dataset(options.samples, options.seed), resamples=options.resamples
    )
    tables = [*_pair_tables(pairs), *_agreement_tables(agreement), *_word_tables(pairs, spoiling)]
    if WITHOUT not in ours:
        tables.append(f"No row for {WITHOUT}: --without-stage-1 names no checkpoint.")
    print("\n\n".join(tables))
    if options.json is not None:
        figures = plain({"pairs": _figures(pairs), "agreement": asdict(agreement), "spoiling": spoiling})
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _single_score(scorer: Scorer) -> Rate:
    return lambda samples: scorer.score(samples).scores.mean(axis=1)


def _pair_tables(part: PairsPart) -> list[str]:
    """Accuracy, with another scene's image, differences from the others, short minus long, AUC, and weak places."""
    metrics = [name for name in part.errors["short"] if not name.endswith(OTHER_IMAGE)]
    controls = [name.removesuffix(OTHER_IMAGE) for name in part.errors["short"] if name.endswith(OTHER_IMAGE)]
    tables = [
        "1. Pairwise accuracy: share of pairs whose correct caption scores higher (ties count half), "
        f"{part.pairs} pairs of each category, each of a held-out scene of its own (seed {part.seed}). "
        "Short: within 60 CLIP tokens; long: the captions are alike up to CLIP token 77."
    ]
    for length in LENGTHS:
        results = part.errors[length]
        tables.append(_by_category({name: results[name].accuracy for name in metrics}, length))
    shown = {
        f"{name}, {length}": part.errors[length][name + OTHER_IMAGE].accuracy for name in controls for length in LENGTHS
    }
    tables.append(_by_category(shown, "with another scene's image"))
    for length in LENGTHS:
        results = part.errors[length]
        others = {f"- {name}": results[OURS].minus(results[name]) for name in metrics if name != OURS}
        tables.append(_by_category(others, f"{OURS}, {length}", signed=True))
    short, long = (part.errors[length] for length in LENGTHS)
    tables.append(
        _by_category({name: short[name].minus(long[name]) for name in metrics}, "short minus long", signed=True)
    )
    auc = {length: {name: part.errors[length][name].pooled_auc for name in metrics} for length in LENGTHS}
    tables.append(markdown_table(auc, metrics, title="ROC AUC over all pairs"))
    chance = {False: "is not surely above chance in", True: "with another scene's image is not at chance in"}
    for other, text in chance.items():
        weak = [
            f"{name} ({length}) {interval}"
            for length in LENGTHS
            for name, interval in part.errors[length][OURS + OTHER_IMAGE * other].accuracy.items()
            if (interval.low > 0.5 or interval.high < 0.5 if other else interval.low <= 0.5)
        ]
        tables.append(f"{OURS} {text}: {'; '.join(weak) or 'no category'}.")
    return tables


def _agreement_tables(part: AgreementPart) -> list[str]:
    columns = (*ASPECTS, MEAN)
    tables = [
        f"2. Kendall's tau-c with the mean of three simulated raters, {part.samples} held-out scenes "
        f"(seed {part.seed}); a single rater is held against the mean of the other two.",
        markdown_table({**part.agreement, RATER: part.against_two[RATER]}, columns, title="metric"),
    ]
    return [*tables, difference_table(part, OURS)]


def _word_tables(part: PairsPart, spoiling: Mapping[str, Mapping[str, Interval]]) -> list[str]:
    """How often word-level errors and captions of other scenes score lower, and what spoiling does to the mean."""
    tables = ["3. Errors in the words alone, and captions of other scenes (retrieved): pairwise accuracy."]
    for length in LENGTHS:
        results = part.words[length]
        accuracy = {name: results[name].accuracy for name in results if not name.endswith(OTHER_IMAGE)}
        tables.append(_by_category(accuracy, length, categories=WORD_LEVEL))
    tables.append("Change of the mean score; above 0, spoiling would pay.")
    for name, row in spoiling.items():
        columns = {f"correct, {length}": part.changes[length][name] for length in LENGTHS} | {"of any quality": row}
        tables.append(markdown_table(_transposed(columns, list(row)), list(columns), title=name, signed=True))
        raised = [
            f"{kind} ({where}) {interval}"
            for where, changes in columns.items()
            for kind, interval in changes.items()
            if interval.value > 0
        ]
        tables.append(f"{name}: the mean score rises with {'; '.join(raised) or 'none of them'}.")
    return tables


def _by_category(
    columns: Mapping[str, Mapping[str, Interval]],
    title: str,
    *,
    signed: bool = False,
    categories: Sequence[str] = CATEGORIES,
) -> str:
    return markdown_table(_transposed(columns, [*categories, MEAN]), list(columns), title=title, signed=signed)


def _transposed(columns: Mapping[str, Mapping[str, Interval]], rows: Sequence[str]) -> Table:
    return {row: {name: column[row] for name, column in columns.items()} for row in rows}


def _figures(part: PairsPart) -> dict[str, Any]:
    def of_lengths(results: Mapping[str, Mapping[str, PairwiseResult]]) -> dict[str, Any]:
        names = ("accuracy", "auc", "pooled_auc", "ties")
        return {
            length: {metric: {name: getattr(result, name) for name in names} for metric, result in row.items()}
            for length, row in results.items()
        }

    facts = {"pairs": part.pairs, "seed": part.seed, "changes": part.changes}
    return {**facts, "errors": of_lengths(part.errors), "words": of_lengths(part.words)}


def measure_pairs(
    metrics: Mapping[str, Rate], *, pairs: int, seed: int, controls: Sequence[str] = (), resamples: int = 1000
) -> PairsPart:
    """Rates correct and incorrect captions of held-out scenes.

    Results on short pairs and on long pairs come from different seeds of the bootstrap, so that `minus` takes them as
    what they are: independent.

    Args:
        metrics: {name: gives scores}.
        pairs: of each category and length, at least 2.
        seed: of the scenes.
        controls: metrics that are also shown each pair with the image of another pair of its category, under their
            name and `OTHER_IMAGE`: what they then still tell apart they do not tell by the picture.
        resamples: of the bootstrap.
    """
    part = PairsPart(pairs, seed, {}, {}, {})
    for place, length in enumerate(LENGTHS):
        rows = make_pair_dataset(pairs, seed, long=length == "long")
        scores = {}
        for name, rate in metrics.items():
            scores[name] = _rate_pairs(rate, rows, shift=0)
            if name in controls:
                scores[name + OTHER_IMAGE] = _rate_pairs(rate, rows, shift=1)
        for categories, results in ((CATEGORIES, part.errors), (WORD_LEVEL, part.words)):
            own = np.array([category in categories for category in rows["category"]])
            names = [category for category in rows["category"] if category in categories]
            scenes = [scene for scene, wanted in zip(rows["scene"], own, strict=True) if wanted]
            results[length] = {
                name: pairwise_accuracy(
                    correct[own], incorrect[own], names, clusters=scenes, resamples=resamples, seed=place
                )
                for name, (correct, incorrect) in scores.items()
            }
        weights = bootstrap_weights(pairs, resamples=resamples)
        kinds = np.array(rows["category"])
        part.changes[length] = {
            name: {kind: mean_difference(after[kinds == kind], before[kinds == kind], weights) for kind in SPOILED}
            for name, (before, after) in scores.items()
            if name in metrics
        }
    return part


def measure_spoiling(
    metrics: Mapping[str, Rate], rows: Dataset, *, seed: int = 0, resamples: int = 1000
) -> dict[str, dict[str, Interval]]:
    """How word-level spoiling changes the mean score of captions of any quality.

    Args:
        metrics: {name: gives scores}.
        rows: from `reward.scenes.make_dataset`; a caption that a kind does not apply to is left out of that kind.
        seed: of the spoiling.
        resamples: of the bootstrap.

    Returns:
        {metric: {kind: mean score of the spoiled minus mean score of the same captions as they were}}.
    """
    captions, images = list(rows["cand"]), list(rows["image"])
    before = {name: rate(_samples(captions, images)) for name, rate in metrics.items()}
    changes: dict[str, dict[str, Interval]] = {name: {} for name in metrics}
    for kind in SPOILED:
        made = [corrupt_words(text, random.Random(f"{seed} {kind} {row}"), kind) for row, text in enumerate(captions)]
        kept = [row for row, text in enumerate(made) if text is not None]
        spoiled = _samples([text for text in made if text is not None], [images[row] for row in kept])
        weights = bootstrap_weights(len(kept), resamples=resamples)
        for name, rate in metrics.items():
            changes[name][kind] = mean_difference(rate(spoiled), before[name][kept], weights)
    return changes


def _rate_pairs(rate: Rate, rows: Dataset, *, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N,) of the correct and of the incorrect captions, with the image `shift` rows on in the category."""
    places: dict[str, list[int]] = {}
    for row, category in enumerate(rows["category"]):
        places.setdefault(category, []).append(row)
    of_image = {row: own[(k + shift) % len(own)] for own in places.values() for k, row in enumerate(own)}
    images = list(rows["image"])
    images = [images[of_image[row]] for row in range(len(rows))]
    # both captions of an image in one call, so that it is encoded once
    scores = rate(_samples([*rows["correct"], *rows["incorrect"]], [*images, *images]))
    return scores[: len(rows)], scores[len(rows) :]


def _samples(captions: Sequence[str], images: Sequence[object]) -> list[CaptionSample]:
    return [CaptionSample(text, image=image) for text, image in zip(captions, images, strict=True)]  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
