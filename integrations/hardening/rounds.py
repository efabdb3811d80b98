"""Rounds of hardening: captions are written, chosen and rated, and the metric is trained on, each step resumable."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from integrations.hardening.choosing import Written, choose_captions
from integrations.hardening.rating import (
    rate_by_metric,
    rate_on_scenes,
    rated_rows,
    read_rows,
    write_ratings,
    write_rows,
)
from integrations.hardening.report import write_report
from reward.audit.run import AuditRow, audit, scene_rows
from reward.checkpoints import read_config, resolve_checkpoint
from reward.errors import ConfigError, DataError
from reward.images import image_key, load_image
from reward.metaeval.correlation import kendall_tau
from reward.metric_source import MetricSource
from reward.metrics.base import MetricSpec
from reward.registry import load_scorer, metric_spec
from reward.scenes import make_dataset
from reward.scoring.dataset import score_dataset
from reward.scoring.runs import write_json
from reward.training.config import TrainingConfig, make_config
from reward.training.data import image_of, load_parts
from reward.training.loop import metric_training, train
from reward.training.record import check_output, is_complete, read_record, write_record
from reward.training.rows import load_rows
from reward.training.shares import make_shares

__all__ = ["PEOPLE", "SCENES", "Hardening", "WriteCaptions", "harden", "training_settings"]

PEOPLE, SCENES = "people", "scenes"
_SCENES_SEED = 31_000  # of images; the parts of a training and the audit draw others
# (checkpoint of the metric, folder of the round, image files with references, seed) -> captions of each image
WriteCaptions: TypeAlias = Callable[[str, Path, Sequence[Mapping[str, Any]], int], list[list[str]]]


def training_settings(metric: str, *layers: Mapping[str, Any]) -> TrainingConfig:
    """Settings for going on from a checkpoint: those of the preset `tiny`, or its last stage, with small steps.

    Args:
        metric: name of the metric.
        layers: tables of settings that override these.
    """
    preset = dict(metric_training(metric_spec(metric)).PRESETS["tiny"])
    del preset["model"]
    *_, last = preset.pop("stages", {"": {}}).values()
    return make_config({**preset, **last, "learning_rate": 1e-4, "epochs": 1, "scenes_test": 0}, *layers)


@dataclass(frozen=True, kw_only=True)
class Hardening:
    """What is hardened, and how; a resumed run must have the same.

    Args:
        metric, source: name and first checkpoint of the metric.
        policy: what writes the captions, for the record.
        images: what is captioned: `"scenes"`, or a data set as for `reward.training.data.load_parts`.
        count: images a round; each round takes others, as long as there are.
        rate: captions a round that are rated.
        rule, per_image: see `choose_captions`.
        second: NAME or NAME=SOURCE of the second metric of the rule `"disagreement"`.
        rater: `"people"`, `"scenes"` (the oracle), or NAME or NAME=SOURCE of a metric, such as a judge.
        data: {data set: share or None} of the ratings that the metric is also trained on.
        share: of the new ratings, all rounds together, in the training.
        training: settings; see `training_settings`.
        audited: captions that are attacked for the report.
        seed: of all choices.

    Raises:
        ConfigError: settings that contradict each other, or a metric that would rate or doubt itself.
    """

    metric: str
    source: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    images: str = SCENES
    count: int = 64
    rate: int = 64
    rule: str = "disagreement"
    per_image: int = 2
    second: str | None = None
    rater: str = PEOPLE
    data: Mapping[str, float | None] = field(default_factory=lambda: {SCENES: None})
    share: float = 0.3
    training: Mapping[str, Any] = field(default_factory=dict)
    audited: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"the share of new ratings must be above 0 and below 1, got {self.share:g}")
        if min(self.count, self.rate) < 1:
            raise ConfigError(f"images and captions a round must be at least 1, got {self.count} and {self.rate}")
        if (self.rule == "disagreement") != (self.second is not None):
            raise ConfigError(
                "the rule disagreement needs a second metric: name one, or choose by novelty"
                if self.second is None
                else f"the rule {self.rule} compares with no second metric: leave {self.second!r} out"
            )
        if self.rater == SCENES and self.images != SCENES:
            raise ConfigError(f"the oracle rates captions of scenes only, and the images are {self.images!r}")
        for use, named in (("rater", self.rater), ("second metric", self.second)):
            if named is not None and named not in (PEOPLE, SCENES):
                name, options = _named(named)
                if (name, options["source"]) == (self.metric, self.source):
                    raise ConfigError(f"the {use} is the metric itself, which would teach it nothing: take another")
        make_shares(self.data)
        make_config(self.training)


def harden(
    settings: Hardening,
    output: Path,
    write: WriteCaptions,
    *,
    rounds: int = 1,
    command: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path | None:
    """Hardens a metric; after a kill, the same call goes on at the last saved state.

    A round leaves in `<output>/round_<k>`: `captions.jsonl` and `images`, what the policy wrote; `to_rate.jsonl`, what
    was chosen, and why; `rated.jsonl`; `ratings`, a data set of all rounds; `metric`, the checkpoint; and
    `report.json`. `<output>/harden.md` and `harden.json` have the rounds side by side.

    Args:
        settings: what is hardened, and how.
        output: folder, made if absent.
        write: writes captions.
        rounds: total number of rounds, including those of earlier calls.
        command: the command line, for the report.
        say: called with one line of progress at a time.

    Returns:
        None if all rounds are done; with people as raters, the path of the captions that wait for ratings. Fill in a
        copy of that file, save it as `rated.jsonl` in the same folder, and call again.

    Raises:
        OutputError: the folder holds a run with other settings.
        DataError: no caption can be chosen, or none is rated.
    """
    plain = json.loads(json.dumps({**asdict(settings), "data": list(make_shares(settings.data).items())}))
    folder = resolve_checkpoint(settings.source, metric=settings.metric)
    aspects = read_config(folder, metric=settings.metric).get("aspects")
    spec = metric_spec(settings.metric)
    spec = spec.with_aspects(aspects) if aspects else spec
    begun = read_record(output) is not None
    if not begun:  # faulty data are reported now, not hours later
        load_rows(spec, make_shares(settings.data), make_config(settings.training))
        _draw_images(settings, 1)
    check_output(output, {"settings": plain}, resume=begun)
    if not begun:
        write_record(output, {"settings": plain})

    reports = []
    for number in range(rounds + 1):
        report = output / f"round_{number}" / "report.json"
        if not report.is_file():
            facts = _Round(settings, spec, output, number, say).run(write) if number else {}
            if facts is None:
                return report.with_name("to_rate.jsonl")
            say(f"round {number}: audit")
            facts["attacks"] = _attacks_won(settings, spec, _checkpoint(settings, output, number))
            report.parent.mkdir(exist_ok=True)
            write_json(report, facts)
        reports.append(json.loads(report.read_text(encoding="utf-8")))
        write_report(output, plain, reports, command)
    return None


def _named(text: str) -> tuple[str, dict[str, Any]]:
    """Name and loading options of NAME, NAME=SOURCE or NAME=HUB_ID@REVISION."""
    found = MetricSource.parse(text)
    return found.name, {"source": found.source} | ({"revision": found.revision} if found.revision else {})


def _checkpoint(settings: Hardening, output: Path, number: int) -> str:
    """The metric after a round; after round 0, the one that it starts from."""
    return str(output / f"round_{number}" / "metric") if number else settings.source


def _attacks_won(settings: Hardening, spec: MetricSpec, checkpoint: str) -> dict[str, float]:
    """{attack: share of captions where the attacked one wins}; empty where there are no good captions to attack."""
    if settings.images == SCENES:
        rows = scene_rows(settings.audited, settings.seed)
    else:
        drawn = _draw_images(settings, 0)[: settings.audited]
        good = [(row["image"], *row["references"]) for row in drawn if row["references"]]
        rows = [AuditRow(caption, image, tuple(others)) for image, caption, *others in good]
    if len(rows) < 2:
        return {}
    result = audit({"metric": load_scorer(spec.name, checkpoint)}, rows, seed=settings.seed, resamples=50, examples=0)
    return {name: finding.wins.value for name, finding in result.metrics["metric"].findings.items()}


def _draw_images(settings: Hardening, number: int) -> list[dict[str, Any]]:
    """The images of a round: {image, references, scene (JSON or None)}."""
    if settings.images == SCENES:
        scenes = make_dataset(settings.count, _SCENES_SEED + 1000 * settings.seed + number)
        return [{"image": row["image"], "references": row["refs"], "scene": row["scene"]} for row in scenes]
    splits, root = load_parts(settings.images, TrainingConfig())
    split = next((splits[name] for name in splits if name.partition(".")[0] == "train"), None)
    if split is None:
        raise DataError(f"{settings.images!r} has no part 'train' to take images from; it has {', '.join(splits)}")
    places: dict[Any, int] = {}
    for place, row in enumerate(split):
        image = image_of(row, root)
        places.setdefault(image if isinstance(image, (str, Path)) else image_key(image), place)
    order = list(places.values())
    random.Random(settings.seed).shuffle(order)
    first = max(0, number - 1) * settings.count
    chosen = [order[(first + step) % len(order)] for step in range(min(settings.count, len(order)))]
    return [
        {"image": image_of(split[place], root), "references": split[place].get("refs") or [], "scene": None}
        for place in chosen
    ]


class _Round:
    """One round; every step leaves a file, and is skipped if it is there."""

    def __init__(
        self, settings: Hardening, spec: MetricSpec, output: Path, number: int, say: Callable[[str], None]
    ) -> None:
        self.settings, self.spec, self.output, self.number = settings, spec, output, number
        self.folder = output / f"round_{number}"
        self.checkpoint = _checkpoint(settings, output, number - 1)
        self.say = lambda line: say(f"round {number}: {line}")

    def run(self, write: WriteCaptions) -> dict[str, Any] | None:
        """The report; None if captions wait for the ratings of people."""
        (self.folder / "images").mkdir(parents=True, exist_ok=True)
        if not (self.folder / "captions.jsonl").is_file():
            self._write_captions(write)
        written = self._score()
        if not (self.folder / "to_rate.jsonl").is_file():
            self._choose(written)
        asked = read_rows(self.folder / "to_rate.jsonl")
        if not (self.folder / "rated.jsonl").is_file():
            if self.settings.rater == PEOPLE:
                return None
            self.say(f"{len(asked)} captions are rated by {self.settings.rater}")
            write_rows(self.folder / "rated.jsonl", self._rate(asked))
        rated, unrated = self._rated(self.number, asked)
        rewards = np.array([row["reward"] for row in rated])
        ratings = np.array([np.mean([row[aspect] for aspect in self.spec.aspects]) for row in rated])
        trained = self._train()
        choice = json.loads((self.folder / "choice.json").read_text(encoding="utf-8"))
        return {
            "checkpoint": str(self.folder / "metric"),
            "captions": len(written),
            "chosen": len(asked),
            "left_out": choice,
            "unrated": unrated,
            "mean_reward": float(rewards.mean()),
            "mean_rating": float((ratings.mean() - 1) / 4),
            "tau_c_of_chosen": kendall_tau(rewards, ratings) if len(rated) > 1 else 0.0,
            **trained,
            "examples": [
                {**row, "rating": float((rating - 1) / 4)} for row, rating in zip(rated[:3], ratings, strict=False)
            ],
        }

    def _write_captions(self, write: WriteCaptions) -> None:
        drawn = _draw_images(self.settings, self.number)
        rows = []
        for row in drawn:
            name = f"images/{image_key(row['image'])[:16]}.png"
            load_image(row["image"]).save(self.folder / name)
            rows.append({**row, "image": name})
        self.say(f"the policy writes captions of {len(rows)} images")
        located = [{**row, "image": str(self.folder / row["image"])} for row in rows]
        texts = write(self.checkpoint, self.folder, located, self.settings.seed + self.number)
        captions = [{**row, "caption": text} for row, own in zip(rows, texts, strict=True) for text in own]
        write_rows(self.folder / "captions.jsonl", captions)

    def _score(self) -> list[dict[str, Any]]:
        self.say("the captions are scored")
        scored = self.folder / "scored.jsonl"
        score_dataset(self.folder / "captions.jsonl", self.spec.name, scored, source=self.checkpoint)
        if self.settings.second is None:
            return read_rows(scored)
        name, options = _named(self.settings.second)
        both = self.folder / "scored_twice.jsonl"
        score_dataset(scored, name, both, prefix="second_", **options)
        return read_rows(both)

    def _choose(self, written: list[dict[str, Any]]) -> None:
        before = [row for number in range(1, self.number) for row in self._rated(number)[0]]
        rated: dict[str, list[str]] = {}
        for row in before:
            rated.setdefault(row["image"], []).append(row["caption"])
        chosen, left_out = choose_captions(
            [Written(row["image"], row["caption"], row["reward"], row.get("second_reward")) for row in written],
            self.settings.rate,
            rule=self.settings.rule,
            known=self._known() + [row["caption"] for row in before] if self.settings.rule == "novelty" else (),
            rated=rated,
            per_image=self.settings.per_image,
            seed=self.settings.seed + self.number,
        )
        kept = ("image", "caption", "references", "scene", "reward", "second_reward")
        rows = [
            {name: written[each.place][name] for name in kept if name in written[each.place]}
            | {"reason": each.reason}
            | dict.fromkeys(self.spec.aspects)
            for each in chosen
        ]
        write_json(self.folder / "choice.json", dict(left_out))
        write_rows(self.folder / "to_rate.jsonl", rows)

    def _known(self) -> list[str]:
        """Captions that are rated already, of all old data sets, at most 500 of each."""
        known: list[str] = []
        for source in self.settings.data:
            splits, _ = load_parts(source, make_config(self.settings.training, {"scenes_train": 500}))
            for name in splits:
                if name.partition(".")[0] == "train":
                    known += splits[name]["cand"][:500]
        return known

    def _rate(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.settings.rater == SCENES:
            return rate_on_scenes(asked, self.spec)
        name, options = _named(self.settings.rater)
        return rate_by_metric(self.folder / "to_rate.jsonl", self.spec, name, **options)

    def _rated(self, number: int, asked: list[dict[str, Any]] | None = None) -> tuple[list[dict[str, Any]], int]:
        folder = self.output / f"round_{number}"
        asked = read_rows(folder / "to_rate.jsonl") if asked is None else asked
        return rated_rows(read_rows(folder / "rated.jsonl"), asked, self.spec, str(folder / "rated.jsonl"))

    def _train(self) -> dict[str, Any]:
        """Trains the metric on old ratings and all new ones; {"rows", "before", "after"}."""
        ratings, folder = self.folder / "ratings", self.folder / "metric"
        if not is_complete(folder):
            rounds = {self.output / f"round_{number}": self._rated(number)[0] for number in range(1, self.number + 1)}
            write_ratings(ratings, rounds, self.spec)
            shares = {name: part * (1 - self.settings.share) for name, part in make_shares(self.settings.data).items()}
            self.say("the metric is trained")
            train(
                self.spec.name,
                {**shares, str(ratings): self.settings.share},
                folder,
                make_config(self.settings.training),
                init=self.checkpoint,
                resume=read_record(folder) is not None,
            )
        facts = read_record(folder) or {}
        part = facts["config"]["validation_part"]
        return {"rows": facts["rows"], "before": facts["before"], "after": facts["figures"][part]}
