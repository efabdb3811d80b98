"""Metrics and baselines against the simulated raters of held-out scenes: Kendall's tau-c per aspect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reward import CaptionSample, load_scorer
from reward.metaeval import Interval, bootstrap_weights, compare_metrics, compare_with_raters
from reward.metaeval.agreement import RATER
from reward.metrics.base import Scorer
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, make_dataset

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["BASELINES", "CEILING", "AgreementPart", "measure_agreement", "rate_by_clip"]

BASELINES = ("length", "unigram F1", "CLIP score")
CEILING = "ceiling (truth)"

Rows = dict[str, dict[str, Interval]]


@dataclass
class AgreementPart:
    """Agreement of metrics with the mean rating, and with the mean of two raters.

    Args:
        samples: number of captions, one per scene.
        seed: of the scenes.
        agreement: {metric: {aspect: tau-c}}.
        differences: {learned metric: {other metric: {aspect: paired difference}}}.
        against_two: the same for a single rater and the learned metrics, each compared with the mean of the other two
            raters.
        differences_from_rater: {learned metric: {aspect: paired difference from a single rater}}.
    """

    samples: int
    seed: int
    agreement: Rows
    differences: dict[str, Rows]
    against_two: Rows
    differences_from_rater: Rows


def measure_agreement(
    scorers: Mapping[str, VelaScorer],
    reference_free: Mapping[str, Scorer] | None = None,
    *,
    samples: int,
    seed: int,
    clip: VelaScorer | None = None,
    resamples: int = 1000,
    progress: bool = False,
) -> AgreementPart:
    """Scores rated captions of held-out scenes with and without references, and with the baselines.

    Args:
        scorers: {name: VELA}; each gives two rows, "<name>, with references" and "<name>, without references".
        reference_free: {name: metric with a single score that reads no references}; each gives one row of its name,
            whose score stands for every aspect.
        samples: number of scenes, each with one to three references and one rated caption.
        seed: of the scenes.
        clip: VELA whose image branch gives the baseline "CLIP score"; None leaves that baseline out.
        resamples: of the bootstrap.
        progress: show progress bars.
    """
    rows = make_dataset(samples, seed)
    with_references, without = caption_samples(rows), caption_samples(rows, references=False)
    scores: dict[str, dict[str, np.ndarray]] = {}
    for name, scorer in scorers.items():
        for mode, captions in (("with references", with_references), ("without references", without)):
            table = scorer.score(captions, progress=progress)
            scores[f"{name}, {mode}"] = {
                short: table.column(scorer.spec.aliases.get(short, short)) for short in ASPECTS
            }
    for name, metric in (reference_free or {}).items():
        scores[name] = dict.fromkeys(ASPECTS, metric.score(without, progress=progress).scores[:, 0])
    subjects = list(scores)
    baselines = {
        "length": load_scorer("length").score(with_references).column("length"),
        "unigram F1": load_scorer("unigram").score(with_references).column("f1"),
    }
    if clip is not None:
        baselines["CLIP score"] = rate_by_clip(clip, with_references)
    for name, values in baselines.items():
        scores[name] = dict.fromkeys(ASPECTS, values)
    truth = [json.loads(row) for row in rows["truth"]]
    scores[CEILING] = {aspect: np.array([row[aspect] for row in truth]) for aspect in ASPECTS}

    weights = bootstrap_weights(samples, resamples=resamples)
    compared = compare_metrics(
        scores, {aspect: np.array(rows[aspect]) for aspect in ASPECTS}, weights, subjects=subjects
    )
    ratings = [json.loads(row) for row in rows["ratings"]]
    people = compare_with_raters(
        {aspect: np.array([row[aspect] for row in ratings]) for aspect in ASPECTS},
        {name: scores[name] for name in subjects},
        weights,
    )
    return AgreementPart(
        samples,
        seed,
        compared.agreement,
        compared.differences,
        people.agreement,
        {name: row[RATER] for name, row in people.differences.items()},
    )


def caption_samples(rows: Dataset, *, references: bool = True) -> list[CaptionSample]:
    """The rated captions of a data set of scenes as samples."""
    images, known = rows["image"], rows["refs"]
    return [
        CaptionSample(caption, image=image, references=own if references else ())
        for caption, image, own in zip(rows["cand"], images, known, strict=True)
    ]


def rate_by_clip(scorer: VelaScorer, samples: list[CaptionSample]) -> np.ndarray:
    """Cosine (N,) of image and candidate in the CLIP of a VELA's image branch.

    CLIPScore is 2.5 * max(cosine, 0); the cosine itself orders captions alike, and does not tie those below 0.

    Raises:
        ValueError: the VELA has no image branch.
    """
    model: Any = scorer.model
    if model.image is None:
        raise ValueError("this VELA has no image branch, so no CLIP score")
    towers = model.image.towers
    cosines: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(samples), 32):
            part = samples[start : start + 32]
            pixels = torch.stack([towers.preprocess(sample.image) for sample in part]).to(model.device)
            ids, _ = towers.tokenize([sample.candidate for sample in part])
            image, text = model.image.encode_image(pixels), model.image.encode_candidate(ids.to(model.device))
            cosines += torch.nn.functional.cosine_similarity(image, text).tolist()
    return np.array(cosines)
