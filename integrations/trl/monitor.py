"""A callback that watches, in the evaluations of TRL's trainers, what the optimised reward was meant to stand for."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback

from integrations.trl.parting import Parting, Values, is_scarce, judge
from integrations.trl.pictures import keep_picture
from reward.data.chats import completion_text
from reward.data.images import image_key
from reward.errors import ConfigError
from reward.rewards.logs import different_names
from reward.rewards.rating import function_name, is_asynchronous

logger = logging.getLogger(__name__)

_EXAMPLES = 3  # captions of a warning
CheckRows: TypeAlias = "dict[str, dict[str, Any]]"  # {image: its row}, see `RewardMonitor.history`


class RewardMonitor(TrainerCallback):
    """Warns when the optimised reward and a second measure part on held-out images.

    The second measure is not optimised: another metric, an oracle or a judge. It becomes the last of the trainer's
    reward functions, with weight 0. In evaluations it rates the captions of the `eval_dataset` beside the rewards, and
    while the policy trains it answers None, so that it changes and costs nothing there. What each image got is compared
    from check to check, by the rule of `integrations.trl.parting.judge`.

    The trainer logs the means of an evaluation by itself, the second measure's as `eval_rewards/<name>/mean`, which
    `metric_for_best_model` can name; a check at which few images had a value is not taken for the best. The monitor
    logs, under `monitor/`, how far the second measure is below its best check, with a 95 % interval over images
    (`fall`, `fall_low`, `fall_high`), on how many images both were compared (`images`), that check's step
    (`best_step`), and 1 if the two have parted, else 0 (`parted`).

    A warning comes once, with the captions that part most, then and now. A second measure that takes the reward with it
    has not parted: the training is unstable, and the reward shows it. One that fails after it has worked, such as a
    judge whose key expires, does not end the training: the first failure is a warning, and `monitor/failed_calls`
    counts all.

    A fall of .05 is found with 200 images (docs/RESULTS.md). Captions and rewards of all checks are in
    `<output_dir>/monitor.jsonl`, with which a resumed training goes on, and small copies of the images in
    `<output_dir>/pictures`, for `capreward report <output_dir>`.

    Args:
        trainer: a `GRPOTrainer` or `RLOOTrainer`, of one or several processes, whose arguments have `eval_strategy` and
            `eval_on_start=True`. Several captions of an image count by their mean. With fewer than 10 images nothing is
            called parted.
        second: reward function, or any callable with the same arguments and result. Higher must be better.
        on_parting: `"warn"`, or `"stop"` to end the training as well.

    Attributes:
        history: {"step", "rows", "figures"} of each check; a row has "caption", "reward" (the weighted sum),
            "rewards" ({name: reward}; those of one name get `_2`, `_3`, ...) and "second".

    Raises:
        ConfigError: at construction, if the trainer or its arguments do not fit, or the second measure is optimised; at
            the first evaluation, if the rewards or the second measure have no value for any caption.

    Example:
        >>> monitor = lambda trainer: trainer.add_callback(RewardMonitor(trainer, second=BeitScoreReward()))
    """

    def __init__(
        self, trainer: Any, second: Callable[..., Any], *, on_parting: Literal["warn", "stop"] = "warn"
    ) -> None:
        if on_parting not in ("warn", "stop"):
            raise ConfigError(f'on_parting must be "warn" or "stop", got {on_parting!r}')
        _check(trainer, second)
        self.trainer = trainer
        self.second = function_name(second)
        self.on_parting = on_parting
        self.names = different_names(trainer.reward_func_names)
        self.weights: list[float] = trainer.reward_weights.tolist()
        self.optimised = ", ".join(name for name, weight in zip(self.names, self.weights, strict=True) if weight)
        self.history: list[dict[str, Any]] = []
        self.failed_calls = 0
        self._measure = second
        self._measure_has_worked = False
        self._scarce: set[str] = set()  # columns of which it has been said that few images have a value
        self._begin_evaluation()

        # The trainer has read its arguments by now, so that its own lists are changed.
        recorded = [self._recorded(column, function) for column, function in enumerate(trainer.reward_funcs)]
        trainer.reward_funcs[:] = [*recorded, self._second]
        trainer.reward_func_names[:] = [*self.names, self.second]
        trainer.reward_processing_classes.append(None)
        trainer.reward_weights = torch.tensor([*self.weights, 0.0])

    def _begin_evaluation(self) -> None:
        """Empties what this process has gathered: (image, caption) of each row, and the values of each measure."""
        self._captions: list[tuple[str, str]] = []
        self._values: list[list[float | None]] = [[] for _ in (*self.names, self.second)]

    def _record(self, column: int, values: Sequence[float | None]) -> None:
        if self.trainer.model.training:
            return
        for value in values:
            if value is None or not math.isfinite(value):
                self._values[column].append(None)
            else:
                self._values[column].append(float(value))

    def _recorded(self, column: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reward function whose values in an evaluation are recorded."""

        def call(**columns: Any) -> Sequence[float | None]:
            values: Sequence[float | None] = function(**columns)
            self._record(column, values)
            return values

        async def call_later(**columns: Any) -> Sequence[float | None]:
            values: Sequence[float | None] = await function(**columns)
            self._record(column, values)
            return values

        recorded: Any = call_later if is_asynchronous(function) else call
        recorded.reward = function  # by which rewards find each other
        return recorded

    def _second(self, completions: Sequence[Any], **columns: Any) -> Sequence[float | None]:
        """The second measure as a reward function of the trainer: it answers in evaluations only."""
        if self.trainer.model.training:
            return [None] * len(completions)
        if "images" in columns:
            images = columns["images"]
        elif "image" in columns:
            images = [[image] for image in columns["image"]]
        else:
            raise ConfigError("the eval_dataset has no column 'image' or 'images': use make_prompt_dataset")
        for row_images, completion in zip(images, completions, strict=True):
            keys = [image_key(image) for image in row_images]
            self._captions.append((" ".join(keys), completion_text(completion)))
            if keys:
                keep_picture(self.trainer.args.output_dir, row_images[0], keys[0])

        # Its scores are in `monitor.jsonl`. In TRL's table of completions they would be a column with values for
        # evaluations only, and TRL refuses columns of different lengths.
        if "log_extra" in columns:
            columns["log_extra"] = _log_nothing
        values: Any
        try:
            values = self._measure(completions=completions, **columns)
            # The trainer calls this function outside its event loop.
            if is_asynchronous(self._measure):
                values = asyncio.run(values)
            self._measure_has_worked = True
        # Of whatever kind: it comes from a server, a key or a user's function. One that has never worked ends the
        # training at its start. Later on, an hour of training is worth more than a check.
        except Exception as error:
            if not self._measure_has_worked:
                raise
            if not self.failed_calls:
                logger.warning("the second measure %s fails; the training goes on: %s", self.second, error)
            self.failed_calls += 1
            values = [None] * len(completions)
        self._record(-1, values)
        return list(values)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.history = []
        if state.global_step and self._file.is_file():
            # Not by `splitlines`, which also ends a line at characters that a caption may have.
            for line in self._file.read_text(encoding="utf-8").rstrip("\n").split("\n"):
                check = json.loads(line)
                # That of the checkpoint's step is made again, as trainers evaluate when they start.
                if check["step"] < state.global_step:
                    self.history.append(check)

    def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: dict[str, Any], **_: Any) -> None:
        rows = self._rows(gather_object(list(zip(self._captions, *self._values, strict=True))))
        failed_calls = sum(gather_object([self.failed_calls]))
        self._begin_evaluation()
        self._protect_best_model(args, metrics, rows)
        check: dict[str, Any] = {"step": state.global_step, "rows": rows, "figures": {}}
        self.history.append(check)
        rewards = self._values_of_checks("reward")
        seconds = self._values_of_checks("second")
        self._check_values(self.optimised, rewards)
        self._check_values(self.second, seconds)
        verdict = judge(rewards, seconds)
        check["figures"] = self._figures(verdict, failed_calls)
        has_parted_before = any(earlier["figures"].get("parted") for earlier in self.history[:-1])
        if verdict.parted and not has_parted_before:
            self._warn(verdict, seconds)
        # Not by the trainer's own `log`, which adds the means of the evaluation, and has done so already.
        Trainer.log(self.trainer, {f"monitor/{name}": value for name, value in check["figures"].items()})
        if self.trainer.is_world_process_zero():
            self._write()
        if verdict.parted and self.on_parting == "stop":
            control.should_training_stop = True

    def _check_values(self, name: str, values: Sequence[Values]) -> None:
        """Raises if a measure has no value at the first check, and says once if few images have one at another."""
        count = len(values[-1])
        images = len(self.history[-1]["rows"])
        if not count and len(values) == 1:
            raise ConfigError(f"{name} gave no value for any of the {images} held-out images")
        if is_scarce(values[-1], values) and name not in self._scarce:
            self._scarce.add(name)
            logger.warning(
                f"step {self.history[-1]['step']}: {name} gave a value for {count} of the {images} held-out images, "
                "too few to compare with other checks; the training goes on"
            )

    def _protect_best_model(self, args: Any, metrics: dict[str, Any], rows: CheckRows) -> None:
        """Gives the figure by which the trainer chooses its best policy the worst value if it is of too few images.

        It is a mean over the images that have a value, and over the one that is easiest it may be the highest of all.
        """
        metric = str(args.metric_for_best_model)
        if not metric.startswith("eval_"):
            metric = f"eval_{metric}"
        if metric not in metrics:  # nothing was asked for
            return

        # Of a figure that is no reward's mean, such as the loss, those images count that have a reward.
        name = metric.partition("rewards/")[2].removesuffix("/mean")
        images_of_checks = []
        for rows_of_check in [*(check["rows"] for check in self.history), rows]:
            images = []
            for image, row in rows_of_check.items():
                values = {**row["rewards"], self.second: row["second"]}
                if values.get(name, row["reward"]) is not None:
                    images.append(image)
            images_of_checks.append(images)
        if is_scarce(images_of_checks[-1], images_of_checks):
            metrics[metric] = -math.inf if args.greater_is_better else math.inf

    def _rows(self, gathered: Sequence[tuple[Any, ...]]) -> CheckRows:
        """{image: its row}; of several captions of an image, the first, and the means of their rewards."""
        captions: dict[str, str] = {}
        values_of_image: dict[str, list[list[float | None]]] = {}
        for (image, caption), *values in gathered:
            captions.setdefault(image, caption)
            values_of_image.setdefault(image, []).append(values)
        # Several processes rate some images twice, where their number does not divide the images.
        rows = {}
        for image, values_of_captions in values_of_image.items():
            *rewards, second = [_mean(column) for column in zip(*values_of_captions, strict=True)]
            weighted = []
            for weight, reward in zip(self.weights, rewards, strict=True):
                if weight and reward is not None:
                    weighted.append(weight * reward)
            rows[image] = {
                "caption": captions[image],
                "rewards": dict(zip(self.names, rewards, strict=True)),
                "reward": sum(weighted) if weighted else None,
                "second": second,
            }
        return rows

    def _values_of_checks(self, column: str) -> list[dict[str, float]]:
        """{image: value} of each check, of the column "reward" or "second"."""
        checks = []
        for check in self.history:
            rows = check["rows"].items()
            checks.append({image: row[column] for image, row in rows if row[column] is not None})
        return checks

    def _figures(self, verdict: Parting, failed_calls: int) -> dict[str, float]:
        figures: dict[str, float] = {"best_step": self.history[verdict.best]["step"], "parted": float(verdict.parted)}
        if verdict.second is not None:
            change = verdict.second.value
            figures |= {"fall": -change.value, "fall_low": -change.high, "fall_high": -change.low}
            figures["images"] = verdict.second.images
        if failed_calls:
            figures["failed_calls"] = failed_calls
        return figures

    def _warn(self, verdict: Parting, seconds: Sequence[Values]) -> None:
        """Says what has parted, with the captions whose second measure changed most."""
        if not self.trainer.is_world_process_zero() or verdict.second is None:
            return
        best, latest = self.history[verdict.best], self.history[-1]
        old, new = seconds[verdict.best], seconds[-1]
        images = sorted(old.keys() & new.keys(), key=lambda image: (-abs(new[image] - old[image]), image))
        lines = []
        for number, image in enumerate(images[:_EXAMPLES], start=1):
            lines.append(f"  image {number}")
            for check in (best, latest):
                row = check["rows"][image]
                numbers = [f"{column} {row[column]:.3f}" for column in ("reward", "second") if row[column] is not None]
                lines.append(f"    step {check['step']} ({', '.join(numbers)}): {row['caption'].strip()}")
        reward = verdict.reward.value if verdict.reward else "nothing known"
        logger.warning(
            f"step {latest['step']}: the optimised reward ({self.optimised}) and {self.second} have parted. Since step "
            f"{best['step']}, where {self.second} was best, it changed by {verdict.second.value} on "
            f"{verdict.second.images} images, the reward by {reward}. Captions that changed most:\n" + "\n".join(lines)
        )

    @property
    def _file(self) -> Path:
        return Path(self.trainer.args.output_dir) / "monitor.jsonl"

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # Renamed once it is whole, so that a kill leaves no cut history.
        draft = self._file.with_suffix(".new")
        draft.write_text("".join(json.dumps(check, ensure_ascii=False) + "\n" for check in self.history), "utf-8")
        os.replace(draft, self._file)


def _log_nothing(column: str, values: Sequence[Any]) -> None:
    """In place of a trainer's `log_extra`."""


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _check(trainer: Any, second: Callable[..., Any]) -> None:
    """Refuses what cannot be watched, and a second measure that is optimised, by itself or as a part of a reward."""
    if not hasattr(trainer, "reward_funcs") or not hasattr(trainer, "reward_weights"):
        raise ConfigError(f"the monitor needs a GRPOTrainer or an RLOOTrainer, got {type(trainer).__name__}")
    if trainer.args.eval_strategy == "no" or not trainer.args.eval_on_start:
        raise ConfigError(
            "the monitor watches evaluations: give the trainer an eval_dataset, and its arguments "
            'eval_strategy="steps", eval_steps, eval_on_start=True and num_generations_eval=1'
        )
    if trainer.eval_dataset is trainer.train_dataset:
        raise ConfigError("eval_dataset is the train_dataset: pass images that are not trained on")
    if isinstance(trainer.eval_dataset, dict):
        raise ConfigError("the monitor watches one set of images: give datasets.concatenate_datasets([...])")
    second_name = function_name(second)
    for reward, name in zip(trainer.reward_funcs, trainer.reward_func_names, strict=True):
        if isinstance(reward, torch.nn.Module):
            raise ConfigError(f"the reward {name} is a model that TRL calls by itself: the monitor takes functions")
        if second_name == name or any(_is_same(part, second) for part in _parts_of(reward)):
            raise ConfigError(
                f"the second measure {second_name!r} is the optimised reward {name!r}, or a part of it: give another "
                "metric, an oracle or a judge"
            )


def _parts_of(reward: Any) -> list[Any]:
    """A reward and what it is made of, such as the parts of a `CombinedReward`."""
    parts = [reward]
    for part in getattr(reward, "parts", ()):
        parts += _parts_of(part)
    if hasattr(reward, "reward"):
        parts += _parts_of(reward.reward)
    return parts


def _is_same(reward: Any, second: Any) -> bool:
    """Whether two measures are one function, or one metric with the same checkpoint and weights."""
    if getattr(reward, "spec", reward) != getattr(second, "spec", second):
        return False
    if str(getattr(reward, "source", "")) != str(getattr(second, "source", "")):
        return False
    return list(getattr(reward, "weights", ())) == list(getattr(second, "weights", ()))
