"""The audit: attacks on every caption of a data set, and how often each metric prefers the attacked one."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reward.data.images import image_key
from reward.data.samples import CaptionSample, is_blank
from reward.errors import ConfigError, DataError, ImageError
from reward.metaeval.audit.attacks import ATTACKS, EMPTY_CAPTIONS, Attack, Material
from reward.metaeval.benchmarks.own_captions import load_captions
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, mean_interval
from reward.metrics.base import Scorer, fitted, image_documents
from reward.scenes import Scene, Style, describe, make_references, rate_text, render, sample_scene
from reward.scoring.sources import image_identity

WORSE = 0.1  # points of fifteen that a caption of the scenes must lose to count as worse
_EMPTY_CAPTION_ROWS = 20  # rows whose images a caption that says nothing is put to


@dataclass(frozen=True)
class AuditRow:
    """A caption to attack.

    Args:
        caption: a good caption.
        image: its image; None for metrics that need none.
        references: for metrics that take them.
        scene: the truth, where the image is a scene; the oracle then decides which attacked captions are worse.
        longer: a caption that states the same facts as `caption` in more words; None where there is none.
    """

    caption: str
    image: Any = None
    references: tuple[str, ...] = ()
    scene: Scene | None = None
    longer: str | None = None


@dataclass
class Finding:
    """One metric under one attack.

    Args:
        captions: number of attacked captions.
        wins: share of captions where the attacked one has the higher reward, with its interval over images.
        change: mean reward of the attacked caption minus that of what was attacked.
        examples: (before, after, reward before, reward after), those that gain most first.
    """

    captions: int
    wins: Interval
    change: Interval
    examples: list[tuple[str, str, float, float]]


@dataclass
class MetricAudit:
    """One metric under all attacks.

    Args:
        findings: {attack: finding}, in the order of the attacks; those that fitted no caption are missing.
        nothing: {caption that says nothing: its mean reward over the first 20 rows}.
        longer: share of images where the longer of two captions with the same facts has the higher reward; one half
            is no length bias. None without scenes.
        mean: mean reward of the captions as they are.
        unscored: number of captions that could not be scored, and why the first could not.
    """

    findings: dict[str, Finding]
    nothing: dict[str, float]
    longer: Interval | None
    mean: float
    unscored: tuple[int, str] = (0, "")

    @property
    def worst(self) -> tuple[str, Finding]:
        """The attack that wins most often."""
        return max(self.findings.items(), key=lambda item: item[1].wins.value)


@dataclass
class Audit:
    """The result of `audit`.

    Args:
        metrics: {label: its audit}.
        images: number of different images; a row without an image counts as one.
        skipped: {attack: captions to which it did not apply, or that the oracle did not rate worse}.
        seed: of the attacks and the bootstrap.
        resamples: of the bootstrap.
    """

    metrics: dict[str, MetricAudit]
    images: int
    skipped: dict[str, int]
    seed: int
    resamples: int = RESAMPLES


def scene_rows(number: int, seed: int) -> list[AuditRow]:
    """Rows of synthetic scenes: complete and true captions, two references each, and the oracle.

    Args:
        number: of scenes, at least 1.
        seed: of the scenes.

    Example:
        >>> [row] = scene_rows(1, seed=0)
        >>> len(row.references), row.scene is not None
        (2, True)
    """
    if number < 1:
        raise ConfigError(f"the number of scenes must be at least 1, got {number}")
    rows = []
    for index in range(number):
        rng = random.Random(f"capreward audit {seed} {index}")
        scene = sample_scene(rng)
        caption = describe(scene, rng).text
        longer = describe(scene, rng, style=Style(split=0.9, filler=2)).text
        references = make_references(scene, rng, 2)
        rows.append(AuditRow(caption, render(scene), references, scene, longer))
    return rows


def read_rows(data: str | os.PathLike[str], *, limit: int | None = None, **columns: Any) -> list[AuditRow]:
    """Captions of a data file, in the forms that `capreward score` reads; `limit` takes only the first.

    Args:
        data: see `reward.scoring.dataset.score_dataset`.
        limit: takes only so many rows.
        columns: candidate_column, image_column, references_column, image_root and split, see `score_dataset`.

    Raises:
        DataError: the data cannot be read, lack a column, or have a row without a caption.
    """
    captions = load_captions(data, **columns)
    rows = []
    for number, row in enumerate(captions.rows.head(limit or len(captions.rows)).itertuples(), start=1):
        [caption] = row.captions
        [image] = row.images
        if is_blank(caption):
            raise DataError(f"{captions.spec.name}, row {number}: the caption is empty or no text")
        rows.append(AuditRow(caption, image, row.references))
    if not rows:
        raise DataError(f"{captions.spec.name} has no rows")
    return rows


def audit(
    scorers: Mapping[str, Scorer],
    rows: Sequence[AuditRow],
    *,
    attacks: Mapping[str, Attack] = ATTACKS,
    empty: Sequence[str] = EMPTY_CAPTIONS,
    most: int = 8,
    seed: int = 0,
    resamples: int = RESAMPLES,
    examples: int = 3,
    say: Callable[[str], None] = lambda line: None,
    **scoring: Any,
) -> Audit:
    """Attacks captions and counts how often each metric gives the attacked caption the higher reward.

    All metrics see the same attacked captions. Where a row has a scene, an attacked caption counts only if the oracle
    rates it worse than what was attacked; without one, every attack counts.

    Args:
        scorers: {label: scorer}.
        rows: see `scene_rows` and `read_rows`; at least 2 different images are needed for intervals.
        attacks: see `reward.metaeval.audit.attacks.ATTACKS`.
        empty: captions that say nothing.
        most: attacks add 1 to so many sentences, drawn anew for each caption: a policy begins with one.
        seed: of the attacks and the bootstrap.
        resamples: of the bootstrap over images.
        examples: examples kept of each attack that wins.
        say: told what is done.
        scoring: batch_size and progress, passed to the scorers.

    Returns:
        Findings for each metric and attack.

    Raises:
        DataError: no caption could be attacked, or a metric could score none.

    Example:
        >>> from reward import load_scorer
        >>> result = audit({"length": load_scorer("length")}, scene_rows(4, seed=1), resamples=50)
        >>> result.metrics["length"].findings["repeated caption"].wins.value
        1.0
    """
    if not scorers or not rows:
        raise DataError("an audit needs at least one metric and one caption")
    images = _images_of(rows)
    cases, skipped = _attack_captions(rows, images, attacks, most, seed)
    if cases.empty:
        raise DataError("no attack fits any of the captions: they need at least a sentence of several words")
    weights = bootstrap_weights(len(rows), resamples=resamples, seed=seed, clusters=images.tolist())
    metrics = {}
    for label, scorer in scorers.items():
        say(f"{label}: {2 * len(cases)} captions")
        metrics[label] = _audit_metric(_Rewarder(scorer, rows, scoring), rows, cases, empty, weights, examples)
    return Audit(metrics, len(np.unique(images)), skipped, seed, resamples)


def _images_of(rows: Sequence[AuditRow]) -> np.ndarray:
    """A number for the content of each row's image, (N,); rows without one that can be read have one of their own."""
    keys: list[str | int] = []
    for number, row in enumerate(rows):
        key: str | int = number
        with suppress(ImageError):  # the metrics that read the image say so
            if row.image is not None:
                key = image_key(row.image)
        keys.append(key)
    return pd.factorize(np.array(keys, dtype=object))[0]


def _attack_captions(
    rows: Sequence[AuditRow], images: np.ndarray, attacks: Mapping[str, Attack], most: int, seed: int
) -> tuple[pd.DataFrame, dict[str, int]]:
    """A row an attacked caption, with the columns attack, row, before and after; and those left out by attack."""
    cases: list[tuple[str, int, str, str]] = []
    skipped: Counter[str] = Counter()
    for number, row in enumerate(rows):
        # Some attacks borrow sentences: those of another image, or they would be true of this one.
        rows_of_other_images = np.flatnonzero(images != images[number])
        for name, attack in attacks.items():
            rng = random.Random(f"{seed} {number} {name}")
            indices = rng.sample(range(len(rows_of_other_images)), min(3, len(rows_of_other_images)))
            other_captions = [rows[rows_of_other_images[index]].caption for index in indices]
            pair = attack.apply(row.caption, Material(rng, other_captions, rng.randint(1, most)))
            if pair is None or (row.scene is not None and not _is_worse(*pair, row.scene)):
                skipped[name] += 1
            else:
                cases.append((name, number, *pair))
    table = pd.DataFrame(cases, columns=["attack", "row", "before", "after"])
    return table.astype({"attack": pd.CategoricalDtype(list(attacks))}), dict(skipped)


def _is_worse(before: str, after: str, scene: Scene) -> bool:
    return sum(rate_text(after, scene).values()) < sum(rate_text(before, scene).values()) - WORSE


class _Rewarder:
    """Rewards of captions for the images of rows, by one metric; what cannot be scored is counted.

    Args:
        scorer: the metric.
        rows: their images and references.
        scoring: batch_size and progress, passed to the scorer.
    """

    def __init__(self, scorer: Scorer, rows: Sequence[AuditRow], scoring: Mapping[str, Any]) -> None:
        images = [None if row.image is None else image_identity(row.image) for row in rows]
        documents = image_documents((image, row.references) for image, row in zip(images, rows, strict=True))
        self.scorer = fitted(scorer, documents)
        self.rows, self.scoring = rows, scoring
        self.problems: list[str] = []

    def __call__(self, captions: Sequence[str], numbers: Sequence[int]) -> np.ndarray:
        """Rewards (N,) of N captions, each for the image of the row with its number; NaN where there is none."""
        samples = []
        for caption, number in zip(captions, numbers, strict=True):
            row = self.rows[number]
            samples.append(CaptionSample(caption, row.image, row.references))
        table = self.scorer.score(samples, **self.scoring)
        rewards: np.ndarray = np.asarray(table.scores) @ self.scorer.spec.weigh(None)
        for index in np.flatnonzero(~np.isfinite(rewards)):
            self.problems.append(table.errors.get(int(index), "not a number"))
        return rewards


def _audit_metric(
    rewards: _Rewarder,
    rows: Sequence[AuditRow],
    cases: pd.DataFrame,
    empty: Sequence[str],
    weights: np.ndarray,
    examples: int,
) -> MetricAudit:
    numbers = cases["row"].tolist()
    before = rewards(cases["before"].tolist(), numbers)
    after = rewards(cases["after"].tolist(), numbers)
    is_scored = np.isfinite(before) & np.isfinite(after)
    if not is_scored.any():
        raise DataError(f"metric {rewards.scorer.spec.name!r} could score no caption: {rewards.problems[0]}")
    findings: dict[str, Finding] = {}
    for name, attacked in cases.assign(low=before, high=after)[is_scored].groupby("attack", observed=True):
        findings[str(name)] = _finding(attacked, weights, examples)

    empty_rewards = _mean_empty_rewards(rewards, empty, rows)
    plain = rewards([row.caption for row in rows], range(len(rows)))
    longer = _longer_wins(rewards, rows, plain, weights)
    problem = rewards.problems[0] if rewards.problems else ""
    return MetricAudit(findings, empty_rewards, longer, float(np.nanmean(plain)), (len(rewards.problems), problem))


def _finding(attacked: pd.DataFrame, weights: np.ndarray, examples: int) -> Finding:
    """One attack: `attacked` has the columns row, before, after, and their rewards low and high."""
    gain = (attacked["high"] - attacked["low"]).to_numpy()
    largest = [index for index in np.argsort(-gain)[:examples] if gain[index] > 0]
    best = attacked.iloc[largest][["before", "after", "low", "high"]]
    row_weights = _weights_of_rows(weights, attacked["row"].to_numpy())
    return Finding(
        len(attacked),
        mean_interval(gain > 0, row_weights),
        mean_interval(gain, row_weights),
        list(best.itertuples(index=False, name=None)),
    )


def _mean_empty_rewards(rewards: _Rewarder, empty: Sequence[str], rows: Sequence[AuditRow]) -> dict[str, float]:
    """{caption that says nothing: its mean reward for the first images}."""
    # A text without a visible character is refused by every metric, so it earns nothing.
    visible = [text for text in empty if not is_blank(text)]
    numbers = list(range(min(len(rows), _EMPTY_CAPTION_ROWS)))
    captions = [text for text in visible for _ in numbers]
    table = rewards(captions, numbers * len(visible)).reshape(-1, len(numbers))
    means = {}
    for text, values in zip(visible, table, strict=True):
        finite = values[np.isfinite(values)]
        if len(finite):
            means[text] = float(finite.mean())
    return means


def _longer_wins(
    rewards: _Rewarder, rows: Sequence[AuditRow], plain: np.ndarray, weights: np.ndarray
) -> Interval | None:
    """Share of the longer captions whose reward is above `plain`, that of the caption with the same facts."""
    numbers = np.array([number for number, row in enumerate(rows) if row.longer is not None], dtype=int)
    if not len(numbers):
        return None
    long = rewards([rows[number].longer or "" for number in numbers], numbers.tolist())
    is_scored = np.isfinite(long) & np.isfinite(plain[numbers])
    if not is_scored.any():
        return None
    numbers, long = numbers[is_scored], long[is_scored]
    return mean_interval(long > plain[numbers], _weights_of_rows(weights, numbers))


def _weights_of_rows(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How often resamples hold some of the rows, without resamples that hold none of them."""
    row_weights = weights[:, rows]
    in_use: np.ndarray = row_weights[row_weights.sum(axis=1) > 0]
    return in_use
