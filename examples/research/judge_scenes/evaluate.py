"""How well a judge of the scenes agrees with the raters of held-out scenes, by FLEUR and by HarmonicEval.

    python -m examples.research.judge_scenes.evaluate
    python -m examples.research.judge_scenes.evaluate --judge runs/judge --samples 200 --json runs/judges.json

Kendall's tau-c with 95 % bootstrap intervals; differences are paired, and bold where the interval excludes 0. Beside
the judge: VELA without references, BEiTScore if there is one, VELA's CLIP, the number of words, and the truth that the
raters saw.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.research.judge_scenes.ratings import ASPECT_OF, rate_style
from integrations.demo.agreement import CEILING, caption_samples, rate_by_clip
from reward import CaptionSample, load_scorer
from reward.errors import CheckpointError
from reward.metaeval import Interval, bootstrap_weights, compare_metrics, markdown_table, mean_interval
from reward.metaeval.report import plain
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.aggregate import harmonic_weights
from reward.metrics.harmoniceval.prompt import CRITERIA
from reward.metrics.harmoniceval.scorer import HarmonicScorer, HarmonicTable
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, make_dataset

__all__: list[str] = []

SMOOTHED, RAW = "FLEUR", "FLEUR, raw score"
GAMMAS = (0.5, 0.75, 1.0)
MEAN = "all three"  # the mean rating over the aspects

Scores = dict[str, np.ndarray]
Rows = dict[str, dict[str, Interval]]


@dataclass(frozen=True)
class Held:
    """Captions of held-out scenes and the mean rating of three raters: {aspect or criterion: (N,)}."""

    samples: list[CaptionSample]
    ratings: Scores
    truth: Scores


def held_out(number: int, seeds: Sequence[int]) -> Held:
    """`number` rated captions of each seed of `make_dataset`."""
    samples: list[CaptionSample] = []
    ratings: dict[str, list[float]] = defaultdict(list)
    truth: dict[str, list[float]] = defaultdict(list)
    for seed in seeds:
        rows = make_dataset(number, seed)
        samples += caption_samples(rows, references=False)
        for index, row in enumerate(rows):
            style = rate_style(row["cand"], random.Random(f"style {seed} {index}"))
            for name in (*ASPECTS, *CRITERIA):
                aspect = ASPECT_OF.get(name, name)
                ratings[name].append(row[aspect] if aspect in ASPECTS else style.score(aspect))
            for name, value in json.loads(row["truth"]).items():
                truth[name].append(value)
    return Held(samples, *(_with_mean(each) for each in (ratings, truth)))


def _with_mean(columns: Mapping[str, Sequence[float]]) -> Scores:
    arrays = {name: np.array(values) for name, values in columns.items()}
    return arrays | {MEAN: np.mean([arrays[aspect] for aspect in ASPECTS], axis=0)}


def harmonic_name(gamma: float) -> str:
    return f"HarmonicEval, gamma {gamma:g}"


def judge_scores(folder: Path, samples: list[CaptionSample]) -> tuple[Scores, HarmonicTable]:
    """One score for each way to FLEUR and to HarmonicEval, and the table of criteria; NaN where the judge gave none."""
    fleur = FleurScorer.from_pretrained(folder / "fleur", device="cpu").score(samples, progress=True)
    harmonic = HarmonicScorer.from_pretrained(folder / "harmoniceval", device="cpu").score(samples, progress=True)
    criteria = harmonic.scores[:, 1:]
    overall = {
        harmonic_name(gamma): (harmonic_weights(harmonic.variances, gamma) * criteria).sum(axis=1) for gamma in GAMMAS
    }
    return {SMOOTHED: fleur.column("smoothed"), RAW: fleur.column("raw"), **overall}, harmonic


def other_scores(held: Held, vela: str, beitscore: str) -> tuple[dict[str, Scores], str]:
    """{metric: {aspect: scores}} of what the judge is compared with, and a remark on what is left out."""
    scores: dict[str, Scores] = {}
    scorer = VelaScorer.from_pretrained(vela, device="cpu")
    table = scorer.score(held.samples)
    own = {aspect: table.column(scorer.spec.aliases.get(aspect, aspect)) for aspect in ASPECTS}
    scores["VELA, without references"] = own | {MEAN: table.scores.mean(axis=1)}
    remark = ""
    try:
        scores["BEiTScore"] = same(load_scorer("beitscore", beitscore, device="cpu").score(held.samples).scores[:, 0])
    except CheckpointError as error:
        remark = f"No row for BEiTScore: {error}"
    if scorer.model.image is not None:
        scores["CLIP score"] = same(rate_by_clip(scorer, held.samples))
    scores["length"] = same(load_scorer("length").score(held.samples).column("length"))
    scores[CEILING] = held.truth
    return scores, remark


def same(scores: np.ndarray) -> Scores:
    """One score for every column."""
    return dict.fromkeys((MEAN, *ASPECTS), scores)


def report(held: Held, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The tables as Markdown, and the figures in them.

    Raises:
        SystemExit: the judge answered hardly anything.
    """
    judged, harmonic = judge_scores(options.judge, held.samples)
    others, remark = other_scores(held, options.vela, options.beitscore)
    told = np.isfinite(np.stack(list(judged.values()))).all(axis=0)
    if told.sum() < 10:
        raise SystemExit(
            f"the judge in {options.judge} gave {told.sum()} of {len(told)} captions a score: train it longer"
        )
    weights = bootstrap_weights(int(told.sum()), resamples=options.resamples)
    scores = {name: same(values) for name, values in judged.items()} | others
    compared = compare_metrics(
        {name: {column: values[told] for column, values in row.items()} for name, row in scores.items()},
        {column: held.ratings[column][told] for column in (MEAN, *ASPECTS)},
        weights,
        subjects=list(judged),
    )
    criteria = compare_metrics(
        {"HarmonicEval": {name: harmonic.column(name)[told] for name in CRITERIA}},
        {name: held.ratings[name][told] for name in CRITERIA},
        weights,
    )
    columns = (MEAN, *ASPECTS)
    first, middle = harmonic_name(1.0), harmonic_name(0.75)
    differences: Rows = {f"{SMOOTHED} - {RAW}": compared.differences[SMOOTHED][RAW]}
    for gamma in (0.5, 0.75):
        name = harmonic_name(gamma)
        differences[f"{name} - {first} (plain mean)"] = compared.differences[name][first]
    differences[f"{middle} - {harmonic_name(0.5)}"] = compared.differences[middle][harmonic_name(0.5)]
    for name in (SMOOTHED, middle):
        differences |= {f"{name} - {other}": compared.differences[name][other] for other in others}
    seeds = ", ".join(map(str, options.seeds))
    tables = [
        f"1. Kendall's tau-c with the mean of three raters, {told.sum()} held-out scenes (seeds {seeds}); "
        f"{(~told).sum()} left out for want of an answer. FLEUR's number took {distinct(judged[SMOOTHED])} values, the "
        f"raw one {distinct(judged[RAW])}.",
        markdown_table(compared.agreement, columns, title="metric"),
        "2. Paired differences.",
        markdown_table(differences, columns, title="first - second", signed=True),
        "3. HarmonicEval's criteria with what the raters say of each; clarity and conciseness as the oracle reads them "
        "off the text, with the same noise.",
        markdown_table(criteria.agreement, CRITERIA, title="metric"),
        markdown_table(mean_weights(harmonic, told, weights), CRITERIA, title="mean variance and weights"),
    ]
    figures = {"samples": int(told.sum()), "left_out": int((~told).sum()), "agreement": compared.agreement}
    figures = plain(figures | {"differences": differences, "criteria": criteria.agreement})
    return "\n\n".join(filter(None, [*tables, remark])), figures


def mean_weights(harmonic: HarmonicTable, told: np.ndarray, weights: np.ndarray) -> Rows:
    """Mean variance of each criterion, and mean weight under each gamma."""
    rows = {"variance": harmonic.variances[told]}
    rows |= {f"weight, gamma {gamma:g}": harmonic_weights(harmonic.variances[told], gamma) for gamma in GAMMAS}
    return {
        name: {criterion: mean_interval(values[:, k], weights) for k, criterion in enumerate(CRITERIA)}
        for name, values in rows.items()
    }


def distinct(scores: np.ndarray) -> int:
    """How many different numbers there are."""
    return len(np.unique(scores[np.isfinite(scores)]))


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--judge", type=Path, default=Path("runs/judge"), help="folder that train wrote; default: %(default)s"
    )
    parser.add_argument("--vela", default="embedded", help="VELA to compare with; default: %(default)s")
    parser.add_argument("--beitscore", default="embedded", help="BEiTScore to compare with; default: %(default)s")
    parser.add_argument("--samples", type=int, default=500, help="scenes of each seed; default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2026], help="of the scenes; default: %(default)s")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures into this file")
    options = parser.parse_args(argv)
    if len(set(options.seeds)) < len(options.seeds):
        parser.error("--seeds must differ: the same scenes twice would make every interval too narrow")
    text, figures = report(held_out(options.samples, options.seeds), options)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
