"""A callback that watches, in the evaluations of TRL's trainers, what the optimised reward was meant to stand for."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback

from integrations.trl.parting import Parting, judge
from reward.data.chats import completion_text
from reward.data.images import image_key
from reward.errors import ConfigError
from reward.rewards.logs import different_names

logger = logging.getLogger(__name__)

_EXAMPLES = 3  # captions of a warning


class RewardMonitor(TrainerCallback):
    """Warns when the optimised reward and a second measure part on held-out images.

    The second measure is not optimised: another metric, an oracle or a judge. In each of the trainer's evaluations it
    rates the captions of the `eval_dataset` beside the rewards. It becomes the last of the trainer's reward functions,
    with weight 0, and answers None while the policy trains, so that it changes nothing and costs nothing there. What
    each image got is compared from check to check, by the rule of `integrations.trl.parting.judge`.

    The trainer logs the means of an evaluation by itself, the second measure's as `eval_rewards/<name>/mean`, which
    `metric_for_best_model` can name. The monitor logs, under `monitor/`, how far the second measure is below its best
    check, with a 95 % interval over images (`fall`, `fall_low`, `fall_high`), on how many images both were compared
    (`images`), that check's step (`best_step`), and 1 if the two have parted, else 0 (`parted`).

    A warning comes once, with the captions that part most, then and now. A second measure that takes the reward with it
    has not parted: the training is unstable, and the reward shows it.

    With 50 images and the noise of F1, a fall of .1 is found nearly always, one of .05 in two of five runs; with 200,
    a fall of .05 is found (docs/RESULTS.md). Captions and rewards of all checks are in
    `<output_dir>/monitor.jsonl`, with which a resumed training goes on.

    Args:
        trainer: a `GRPOTrainer` or `RLOOTrainer`, of one or several processes, whose arguments have `eval_strategy` and
            `eval_on_start=True`. `num_generations_eval=1` is enough; several captions of an image count by their mean.
            With fewer than 10 images nothing is called parted; 50 or more are better.
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
        self.trainer, self._measure, self.on_parting = trainer, second, on_parting
        self.names, self.second = different_names(trainer.reward_func_names), _inner_name(second)
        self.weights: list[float] = trainer.reward_weights.tolist()
        self.optimised = ", ".join(name for name, weight in zip(self.names, self.weights, strict=True) if weight)
        self.history: list[dict[str, Any]] = []
        self._captions: list[tuple[str, str]] = []  # (image, caption) of this process in this evaluation
        self._values: list[list[float | None]] = [[] for _ in (*self.names, self.second)]
        trainer.reward_funcs[:] = [*map(self._kept, range(len(self.names)), trainer.reward_funcs), self._second]
        trainer.reward_func_names[:] = [*self.names, self.second]
        trainer.reward_processing_classes.append(None)
        trainer.reward_weights = torch.tensor([*self.weights, 0.0])

    def _kept(self, place: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reward function whose values in an evaluation are kept."""

        def keep(values: Sequence[float | None]) -> Sequence[float | None]:
            if not self.trainer.model.training:
                self._values[place] += [None if v is None or not math.isfinite(v) else float(v) for v in values]
            return values

        async def later(**call: Any) -> Sequence[float | None]:
            return keep(await function(**call))

        return later if _is_async(function) else lambda **call: keep(function(**call))

    def _second(self, completions: Sequence[Any], **call: Any) -> Sequence[float | None]:
        if self.trainer.model.training:
            return [None] * len(completions)
        if not {"image", "images"} & call.keys():
            raise ConfigError("the eval_dataset has no column 'image' or 'images': use make_prompt_dataset")
        images = call.get("images") or [[image] for image in call["image"]]
        keys = [" ".join(image_key(image) for image in of_row) for of_row in images]
        self._captions += zip(keys, map(completion_text, completions), strict=True)
        measure = self._kept(-1, self._measure)
        if _is_async(self._measure):
            return asyncio.run(measure(completions=completions, **call))
        return measure(completions=completions, **call)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        goes_on = state.global_step and self._file.is_file()
        lines = self._file.read_text(encoding="utf-8").splitlines() if goes_on else []
        self.history = [check for check in map(json.loads, lines) if check["step"] < state.global_step]

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        share = list(zip(self._captions, *self._values, strict=True))
        self._captions, self._values = [], [[] for _ in self._values]
        rows = self._rows(gather_object(share))
        before = [check for check in self.history if check["step"] < state.global_step]
        if self.history and self.history[-1]["step"] == state.global_step:  # another part of several data sets
            rows = self.history[-1]["rows"] | rows
        check: dict[str, Any] = {"step": state.global_step, "rows": rows, "figures": {}}
        self.history = [*before, check]
        for what, name in (("reward", self.optimised), ("second", self.second)):
            if not self._column(-1, what):
                message = f"{name} gave no value for any of the {len(rows)} held-out images"
                if not before:
                    raise ConfigError(message)
                logger.warning("step %d: %s; the training goes on", state.global_step, message)  # a judge may be down
        verdict = judge(*([self._column(at, what) for at in range(len(self.history))] for what in ("reward", "second")))
        check["figures"] = self._figures(verdict)
        if verdict.parted and not any(each["figures"]["parted"] for each in before):
            self._warn(verdict)
        Trainer.log(self.trainer, {f"monitor/{name}": value for name, value in check["figures"].items()})
        if self.trainer.is_world_process_zero():
            self._write()
        if verdict.parted and self.on_parting == "stop":
            control.should_training_stop = True

    def _rows(self, share: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
        """{image: its row}; of several captions of an image, the first, and the means of their rewards."""
        of_image: dict[str, list[tuple[Any, ...]]] = {}
        for (image, caption), *values in share:
            of_image.setdefault(image, []).append((caption, *values))
        rows = {}
        for image, given in of_image.items():
            captions, *columns = zip(*given, strict=True)
            *rewards, second = map(_mean, columns)
            weights = zip(self.weights, rewards, strict=True)
            known = [weight * value for weight, value in weights if weight and value is not None]
            rows[image] = {
                "caption": captions[0],
                "rewards": dict(zip(self.names, rewards, strict=True)),
                "reward": sum(known) if known else None,
                "second": second,
            }
        return rows

    def _column(self, check: int, name: str) -> dict[str, float]:
        rows = self.history[check]["rows"].items()
        return {image: row[name] for image, row in rows if row[name] is not None}

    def _figures(self, verdict: Parting) -> dict[str, float]:
        figures: dict[str, float] = {"best_step": self.history[verdict.best]["step"], "parted": float(verdict.parted)}
        if verdict.second is None:
            return figures
        fall = verdict.second.value
        figures |= {"fall": -fall.value, "fall_low": -fall.high, "fall_high": -fall.low}
        return figures | {"images": verdict.second.images}

    def _warn(self, verdict: Parting) -> None:
        """Says what has parted, with the captions whose second measure changed most."""
        if not self.trainer.is_world_process_zero() or verdict.second is None:
            return
        best, latest = self.history[verdict.best], self.history[-1]
        old, new = self._column(verdict.best, "second"), self._column(-1, "second")
        changed = sorted(old.keys() & new.keys(), key=lambda image: (-abs(new[image] - old[image]), image))
        lines = []
        for number, image in enumerate(changed[:_EXAMPLES], start=1):
            lines.append(f"  image {number}")
            for check in (best, latest):
                row = check["rows"][image]
                numbers = ", ".join(f"{what} {row[what]:.3f}" for what in ("reward", "second") if row[what] is not None)
                lines.append(f"    step {check['step']} ({numbers}): {row['caption'].strip()}")
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
        draft = self._file.with_suffix(".new")
        draft.write_text("".join(json.dumps(check, ensure_ascii=False) + "\n" for check in self.history), "utf-8")
        os.replace(draft, self._file)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _check(trainer: Any, second: Callable[..., Any]) -> None:
    """Refuses what cannot be watched, and a second measure that is optimised, by itself or as a part of a reward."""
    if not hasattr(trainer, "reward_funcs") or not hasattr(trainer, "reward_weights"):
        raise ConfigError(f"the monitor needs a GRPOTrainer or an RLOOTrainer, got {type(trainer).__name__}")
    if trainer.args.eval_strategy == "no" or not trainer.args.eval_on_start:
        raise ConfigError(
            "the monitor watches evaluations: give the trainer an eval_dataset, and its arguments "
            'eval_strategy="steps", eval_steps, eval_on_start=True and num_generations_eval=1'
        )
    rows, name = trainer.eval_dataset, _inner_name(second)
    if rows is trainer.train_dataset:
        raise ConfigError("eval_dataset is the train_dataset: pass images that are not trained on")
    for reward, own_name in zip(trainer.reward_funcs, trainer.reward_func_names, strict=True):
        if isinstance(reward, torch.nn.Module):
            raise ConfigError(f"the reward {own_name} is a model that TRL calls by itself: the monitor takes functions")
        if name == own_name or any(_same(part, second) for part in _parts_of(reward)):
            raise ConfigError(
                f"the second measure {name!r} is the optimised reward {own_name!r}, or a part of it: give another "
                "metric, an oracle or a judge"
            )


def _parts_of(reward: Any) -> list[Any]:
    """A reward and what it is made of, such as the parts of a `CombinedReward`."""
    inner = [*getattr(reward, "parts", ()), *([reward.reward] if hasattr(reward, "reward") else [])]
    return [reward, *(part for each in inner for part in _parts_of(each))]


def _same(reward: Any, measure: Any) -> bool:
    facts = [(getattr(each, "spec", each), str(getattr(each, "source", ""))) for each in (reward, measure)]
    return facts[0] == facts[1] and list(getattr(reward, "weights", ())) == list(getattr(measure, "weights", ()))


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _inner_name(function: Any) -> str:
    """As TRL names it."""
    return str(getattr(_inner(function), "__name__", type(_inner(function)).__name__))


def _is_async(function: Any) -> bool:
    return any(map(inspect.iscoroutinefunction, (_inner(function), _inner(function).__call__)))
