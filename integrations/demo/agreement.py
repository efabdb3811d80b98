"""Metrics and baselines against the simulated raters of held-out scenes: Kendall's tau-c per aspect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from reward import load_scorer
from reward.metaeval import bootstrap_weights, compare_metrics, compare_with_raters
from reward.metaeval.raters import RATER
from reward.scenes import ASPECTS, make_dataset

CEILING = "ceiling (truth)"
_METRICS = {  # {row of the table: metric}
    "VELA, with references": "vela",
    "VELA, without references": "vela",
    "BEiTScore": "beitscore",
    "length": "length",
    "unigram F1": "unigram",
    "CLIP score": "clipscore",
}
LEARNED = ("VELA, with references", "VELA, without references", "BEiTScore")
BASELINES = ("length", "unigram F1", "CLIP score")
_WITHOUT_REFERENCES = ("VELA, without references", "BEiTScore")  # BEiTScore would not read them


def measure_agreement(
    samples: int, seed: int, *, scorers: Mapping[str, Any] | None = None, resamples: int = 1000
) -> dict[str, Any]:
    """Scores rated captions of held-out scenes, and compares the scores with the mean rating and with single raters.

    Args:
        samples: number of scenes, each with one to three references and one rated caption.
        seed: of the scenes.
        scorers: {name of a metric: loaded scorer}; others are loaded, with the weights that ship.
        resamples: of the bootstrap.

    Returns:
        "samples"; "agreement", {metric: {aspect, or "mean": tau-c}}; "differences", {learned metric: {other metric:
        paired differences}}; "against_two", the agreement of learned metrics and of a single rater with the mean of two
        raters, and "differences_from_rater", the paired differences there.
    """
    loaded = dict(scorers or {})
    rows = make_dataset(samples, seed)
    images, captions, references = (list(rows[column]) for column in ("image", "cand", "refs"))
    scores: dict[str, dict[str, np.ndarray]] = {}
    for name, metric in _METRICS.items():
        if metric not in loaded:
            loaded[metric] = load_scorer(metric)
        metric_references = [()] * samples if name in _WITHOUT_REFERENCES else references
        table = loaded[metric].score(images, captions, metric_references)
        columns = table.aspects
        if len(columns) != len(ASPECTS):  # one score stands for every aspect
            columns = columns[:1] * len(ASPECTS)
        scores[name] = {aspect: table.column(column) for aspect, column in zip(ASPECTS, columns, strict=True)}
    truth = [json.loads(row) for row in rows["truth"]]
    scores[CEILING] = {aspect: np.array([row[aspect] for row in truth]) for aspect in ASPECTS}
    # The same resamples for all, so that differences are paired.
    weights = bootstrap_weights(samples, resamples=resamples)
    means = {aspect: np.array(rows[aspect]) for aspect in ASPECTS}
    compared = compare_metrics(scores, means, weights, subjects=LEARNED)
    ratings = [json.loads(row) for row in rows["ratings"]]
    raters = {aspect: np.array([row[aspect] for row in ratings]) for aspect in ASPECTS}
    people = compare_with_raters(raters, {name: scores[name] for name in LEARNED}, weights)
    return {
        "samples": samples,
        "agreement": compared.agreement,
        "differences": compared.differences,
        "against_two": people.agreement,
        "differences_from_rater": {name: row[RATER] for name, row in people.differences.items()},
    }
