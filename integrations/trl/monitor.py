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

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback

from integrations.trl.parting import Parting, change, judge, share_a_sentence
from reward.errors import ConfigError
from reward.images import image_key
from reward.rewards.completions import completion_text
from reward.rewards.logs import different_names

logger = logging.getLogger(__name__)

_SHARED = 0.3  # more captions with one sentence than at the first check are worth a warning
_EXAMPLES = 3  # captions of a warning


class RewardMonitor(TrainerCallback):
    """Warns when the optimised reward and a second measure part on held-out images.

    The second measure is not optimised: another metric, an oracle or a judge. In each of the trainer's evaluations it
    rates the captions of the `eval_dataset` beside the rewards. It becomes the last of the trainer's reward functions,
    with weight 0, and answers None while the policy trains, so that it changes nothing and costs nothing there. What
    each image got is compared from check to check, by the rule of `integrations.trl.parting.judge`.

    The trainer logs the means of an evaluation by itself, the second measure's as `eval_rewards/<name>/mean`, which
    `metric_for_best_model` can name. The monitor logs, under `monitor/`:

    - `fall`, `fall_low`, `fall_high`: how far the second measure is below its best check, with a 95 % interval over
      images; `images`: on how many both were compared; `best_step`: that check's step; `parted` and `fallen`: 0 or 1.
    - `shared_sentence`: share of captions with one and the same sentence.

    A warning comes once, with the captions that part most, then and now. Others come when the second measure falls and
    takes the reward with it, and when `shared_sentence` rises by .3 above the start.

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
        history: {"step", "rows", "figures", "warned"} of each check; a row has "caption", "reward" (the weighted sum),
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
        check: dict[str, Any] = {"step": state.global_step, "rows": rows, "figures": {}, "warned": []}
        self.history = [*before, check]
        for what, name in (("reward", self.optimised), ("second", self.second)):
            if not self._column(-1, what):
                message = f"{name} gave no value for any of the {len(rows)} held-out images"
                if not before:
                    raise ConfigError(message)
                logger.warning("step %d: %s; the training goes on", state.global_step, message)  # a judge may be down
        verdict = self._verdict()
        check["figures"] = self._figures(verdict)
        check["warned"] = self._warn(verdict)
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
        shared = share_a_sentence([caption for (caption, *_), *_ in of_image.values()])
        rows = {}
        for (image, given), one_sentence in zip(of_image.items(), shared, strict=True):
            captions, *columns = zip(*given, strict=True)
            *rewards, second = map(_mean, columns)
            weights = zip(self.weights, rewards, strict=True)
            known = [weight * value for weight, value in weights if weight and value is not None]
            rows[image] = {
                "caption": captions[0],
                "rewards": dict(zip(self.names, rewards, strict=True)),
                "reward": sum(known) if known else None,
                "second": second,
                "shared_sentence": float(one_sentence),
            }
        return rows

    def _column(self, check: int, name: str) -> dict[str, float]:
        rows = self.history[check]["rows"].items()
        return {image: row[name] for image, row in rows if row[name] is not None}

    def _verdict(self) -> Parting:
        checks = range(len(self.history))
        return judge(*([self._column(check, name) for check in checks] for name in ("reward", "second")))

    def _figures(self, verdict: Parting) -> dict[str, float]:
        figures: dict[str, float] = {"shared_sentence": float(np.mean([*self._column(-1, "shared_sentence").values()]))}
        figures["best_step"] = self.history[verdict.best]["step"]
        if verdict.second is not None:
            fall = verdict.second.value
            figures |= {"fall": -fall.value, "fall_low": -fall.high, "fall_high": -fall.low}
            figures["images"] = verdict.second.images
        return figures | {"parted": float(verdict.parted), "fallen": float(verdict.fallen)}

    def _warn(self, verdict: Parting) -> list[str]:
        """Logs what is worth a warning and was not told before, and gives its kinds."""
        told = {kind for check in self.history for kind in check["warned"]}
        found: dict[str, tuple[str, int, str]] = {}  # {kind: (text, check to compare with, column)}
        if (verdict.parted or verdict.fallen) and verdict.second is not None and "parted" not in told:
            unstable = "have fallen: the training is unstable (lower the learning rate)"
            what = "have parted" if verdict.parted else unstable
            text = (
                f"the optimised reward ({self.optimised}) and {self.second} {what}. Since step "
                f"{self.history[verdict.best]['step']}, where {self.second} was best, it changed by "
                f"{verdict.second.value} on {verdict.second.images} images, the reward by "
                f"{verdict.reward.value if verdict.reward else 'nothing known'}"
            )
            found["parted" if verdict.parted else "fallen"] = text, verdict.best, "second"
        shared = change(self._column(0, "shared_sentence"), self._column(-1, "shared_sentence"))
        if shared is not None and shared.sure > 0 and shared.value.value >= _SHARED:
            text = f"the share of captions with one and the same sentence rose by {shared.value}"
            found["shared_sentence"] = text, 0, "shared_sentence"
        new = [kind for kind in found if kind not in told]
        if self.trainer.is_world_process_zero():
            for text, before, column in (found[kind] for kind in new):
                examples = "\n".join(self._examples(before, column))
                logger.warning("step %d: %s. Captions that changed most:\n%s", self.history[-1]["step"], text, examples)
        return new

    def _examples(self, before: int, name: str) -> list[str]:
        old, new = self._column(before, name), self._column(-1, name)
        changed = sorted(old.keys() & new.keys(), key=lambda image: (-abs(new[image] - old[image]), image))
        lines = []
        for number, image in enumerate(changed[:_EXAMPLES], start=1):
            lines.append(f"  image {number}")
            for check in (self.history[before], self.history[-1]):
                row = check["rows"][image]
                numbers = ", ".join(f"{what} {row[what]:.3f}" for what in ("reward", "second") if row[what] is not None)
                lines.append(f"    step {check['step']} ({numbers}): {row['caption'].strip()}")
        return lines

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
