"""The audit: attacks on every caption of a data set, and how often each metric prefers the attacked one."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reward.errors import ConfigError, DataError, ImageError
from reward.images import image_key
from reward.metaeval.audit.attacks import ATTACKS, EMPTY_CAPTIONS, Attack, Material, attack
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, mean_interval
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.samples import CaptionSample, is_blank
from reward.scenes import Scene, Style, describe, make_references, rate_text, render, sample_scene
from reward.scoring.columns import find_columns
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source

__all__ = ["Audit", "AuditRow", "Finding", "MetricAudit", "audit", "read_rows", "scene_rows"]

WORSE = 0.1  # points of fifteen that a caption of the scenes must lose to count as worse


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
    examples: list[tuple[str, str, float, float]] = field(default_factory=list)


@dataclass
class MetricAudit:
    """One metric under all attacks.

    Args:
        findings: {attack: finding}, in the order of `ATTACKS`; attacks that fitted no caption are missing.
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


def read_rows(
    data: str | os.PathLike[str],
    specs: Sequence[MetricSpec],
    *,
    limit: int | None = None,
    split: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    candidate_column: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
) -> list[AuditRow]:
    """Rows of a data file, in the forms that `capreward score` reads. Rows that cannot be read are an error.

    Args:
        data: see `reward.scoring.dataset.score_dataset`.
        specs: of the metrics: images and references are read if one of them needs them.
        limit: take only the first rows.
        split: of a data set with several.
        image_root: where relative image paths start; None is the folder of the file.
        candidate_column, image_column, references_column: see `score_dataset`.

    Raises:
        DataError: the data cannot be read, lack a column, or have a row without caption or image.
    """
    source = open_source(data, split=split, fields=[candidate_column, image_column, references_column])
    needing = [spec.name for spec in specs if spec.needs_image or spec.needs_references]
    wanted = MetricSpec(
        needing[0] if needing else "audit",
        "",
        ("reward",),
        needs_image=any(spec.needs_image for spec in specs),
        needs_references=any(spec.needs_references for spec in specs),
    )
    plan = find_columns(
        source.columns,
        wanted,
        candidate=candidate_column,
        image=image_column,
        references=references_column,
        is_csv=source.is_csv,
    )
    root = find_root(source, plan.image, image_root)
    rows: list[AuditRow] = []
    for number, row in enumerate(source.rows(plan.names)):
        if limit is not None and number >= limit:
            break
        task = plan.task(row, number)
        problem = task.problem[1] if task.problem is not None else task.image_problem
        if problem is not None:
            raise DataError(f"{source.name}, row {number + 1}: {problem}")
        image = root / task.image if isinstance(task.image, str) else task.image
        rows.append(AuditRow(CaptionSample(task.candidates[0]).candidate, image, task.references))
    if not rows:
        raise DataError(f"{source.name} has no rows")
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
    batch_size: int | None = None,
    progress: bool = False,
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
        batch_size, progress: passed to the scorers.

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
    cases, skipped = _attacked(rows, images, attacks, most, seed)
    if not cases:
        raise DataError("no attack fits any of the captions: they need at least a sentence of several words")
    draw = bootstrap_weights(len(rows), resamples=resamples, seed=seed, clusters=images)
    metrics = {}
    for label, scorer in scorers.items():
        say(f"{label}: {2 * len(cases)} captions")
        rewards = _Rewards(scorer, rows, batch_size, progress)
        metrics[label] = rewards.audit(cases, attacks, empty, draw, examples)
    return Audit(metrics, len(set(images)), skipped, seed, resamples)


_Case = tuple[str, int, str, str]  # attack, row, before, after


def _images_of(rows: Sequence[AuditRow]) -> list[str | int]:
    """What tells the images of the rows apart: their content, or the row's number where there is none to read."""
    images: list[str | int] = []
    for number, row in enumerate(rows):
        try:
            images.append(number if row.image is None else image_key(row.image))
        except ImageError:  # the metrics that read it say so
            images.append(number)
    return images


def _attacked(
    rows: Sequence[AuditRow],
    images: Sequence[str | int],
    attacks: Mapping[str, Attack],
    most: int,
    seed: int,
) -> tuple[list[_Case], dict[str, int]]:
    cases: list[_Case] = []
    skipped: dict[str, int] = {}
    of_image: dict[str | int, list[int]] = {}
    for number, image in enumerate(images):
        of_image.setdefault(image, []).append(number)
    for number, row in enumerate(rows):
        own = of_image[images[number]]
        others = range(len(rows) - len(own))  # places among the rows of other images, which are not listed each time
        for name in attacks:
            rng = random.Random(f"{seed} {number} {name}")
            drawn = [rows[_without(own, place)].caption for place in rng.sample(others, min(3, len(others)))]
            material = Material(rng, drawn, rng.randint(1, most))
            made = attack(name, row.caption, material, attacks=attacks)
            if made is None or (row.scene is not None and not _is_worse(*made, row.scene)):
                skipped[name] = skipped.get(name, 0) + 1
            else:
                cases.append((name, number, *made))
    return cases, skipped


def _without(left_out: Sequence[int], place: int) -> int:
    """The number at a place of 0, 1, 2, ... without those that are left out, which are in order.

    Example:
        >>> [_without([1, 2], place) for place in range(3)]
        [0, 3, 4]
    """
    return place + bisect_right(range(len(left_out)), place, key=lambda count: left_out[count] - count)


def _is_worse(before: str, after: str, scene: Scene) -> bool:
    first, second = (sum(rate_text(text, scene).values()) for text in (before, after))
    return second < first - WORSE


class _Rewards:
    """Rewards of one metric for captions of the rows."""

    def __init__(
        self,
        scorer: Scorer,
        rows: Sequence[AuditRow],
        batch_size: int | None,
        progress: bool,
    ) -> None:
        self.scorer = fitted(scorer, [row.references for row in rows])
        self.rows, self.weights = rows, scorer.spec.weigh(None)
        self.options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
        self.unscored, self.reason = 0, ""

    def of(self, captions: Sequence[tuple[int, str]]) -> np.ndarray:
        """Rewards (N,) of (row, caption); NaN where there is none."""
        samples = [CaptionSample(text, self.rows[row].image, self.rows[row].references) for row, text in captions]
        table = self.scorer.score(samples, **self.options)
        rewards = np.asarray(table.scores) @ self.weights
        lost = np.flatnonzero(~np.isfinite(rewards))
        if len(lost) and not self.unscored:
            self.reason = table.errors.get(int(lost[0]), "not a number")
        self.unscored += len(lost)
        return rewards

    def audit(
        self,
        cases: Sequence[_Case],
        attacks: Mapping[str, Attack],
        empty: Sequence[str],
        draw: np.ndarray,
        examples: int,
    ) -> MetricAudit:
        before = self.of([(row, text) for _, row, text, _ in cases])
        after = self.of([(row, text) for _, row, _, text in cases])
        known = np.isfinite(before) & np.isfinite(after)
        if not known.any():
            raise DataError(f"metric {self.scorer.spec.name!r} could score no caption: {self.reason}")
        findings = {}
        for name in attacks:
            mine = [place for place, case in enumerate(cases) if case[0] == name and known[place]]
            if not mine:
                continue
            gain = after[mine] - before[mine]
            counted = draw[:, [cases[place][1] for place in mine]]
            counted = counted[counted.sum(axis=1) > 0]
            best = [mine[place] for place in np.argsort(-gain)[:examples] if gain[place] > 0]
            findings[name] = Finding(
                len(mine),
                mean_interval(gain > 0, counted),
                mean_interval(gain, counted),
                [(cases[place][2], cases[place][3], float(before[place]), float(after[place])) for place in best],
            )
        shown = range(min(len(self.rows), 20))
        # A text without a visible character is refused by every metric, so it earns nothing.
        visible = [text for text in empty if not is_blank(text)]
        levels = self.of([(row, text) for text in visible for row in shown]).reshape(len(visible), len(shown))
        means = dict(zip(visible, np.nanmean(levels, axis=1), strict=True)) if visible else {}
        nothing = {text: float(mean) for text, mean in means.items() if np.isfinite(mean)}
        plain = self.of([(row, self.rows[row].caption) for row in range(len(self.rows))])
        pairs = [row for row in range(len(self.rows)) if self.rows[row].longer is not None]
        longer = None
        if pairs:
            long = self.of([(row, self.rows[row].longer or "") for row in pairs])
            both = np.isfinite(long) & np.isfinite(plain[pairs])
            if both.any():
                kept = np.array(pairs)[both]
                longer = mean_interval(long[both] > plain[kept], draw[:, kept][draw[:, kept].sum(axis=1) > 0])
        lost = (self.unscored, self.reason)
        return MetricAudit(findings, nothing, longer, float(np.nanmean(plain)), lost)
