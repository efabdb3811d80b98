"""A callback for TRL's trainers that watches, on held-out images, what the optimised reward was meant to stand for."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from integrations.trl.held_out import Start, messages_of, start_of, write_held_out
from integrations.trl.monitor_checks import (
    Measure,
    check_measures,
    check_policy,
    check_rows,
    check_trainer,
    measure_name,
)
from integrations.trl.monitor_files import MonitorFiles, fingerprint_rows
from integrations.trl.monitor_report import figures_of, matrix, show_table, warning_of
from reward.errors import ConfigError, TrainingError
from reward.metaeval.audit.parting import Parting, check_parting, check_rise, common_images
from reward.rewards.names import different_names

__all__ = ["RewardMonitor"]

logger = logging.getLogger(__name__)

_RISES = {"truncated": 0.2, "repetition": 0.15, "shared_sentence": 0.3}  # above the start; worth a warning


class RewardMonitor(TrainerCallback):
    """Warns when the optimised reward and a second measure part on held-out images, and keeps the best policy.

    Before the first step, every `every` steps, and after the last one, the policy captions the held-out images. Their
    optimised reward (the weighted sum, without those of weight 0) stands beside a second measure that is not
    optimised: another metric, an oracle or a judge. Logged under `monitor/`:

    - `reward`, `rewards/<name>` and `measures/<name>`: means over the images. Rewards of one name get `_2`, `_3`, ...
    - `fall`, `fall_z`, `best_step`, `images`, `parted`, `fallen`: what the rule of
      `reward.metaeval.audit.parting.check_parting` says, and on how many images the best
      check and the latest were compared.
    - `length` (tokens), `truncated` (share without an end token), `repetition`, `distinct_1`, `distinct_2` and
      `shared_sentence` (share of captions with one and the same sentence;
      `reward.metaeval.audit.diversity`), `entropy` of the policy's next token in nats.
    - `kl`: of the policy and where it started, nats a token, on the captions of the policy. It needs the trainer's
      reference model (`beta` above 0, without `sync_ref_model`) or an adapter that can be switched off; without either
      a warning says so, and `kl` is not logged.
    - `seconds`: what the check took.

    **The rule.** t* is the check at which the second measure's mean was highest, on the images that have a score at
    both it and the latest check. The two have parted if at the latest
    two checks the second measure is more than 3 standard errors below t*, paired over the images, while the reward
    has not fallen since t* by more than one; one check with more than 4.5 standard errors is enough. Of runs of 20
    checks in which nothing falls, fewer than 5 % are warned of.
    Power depends on the number of images: with 50 of them and the noise of F1, a fall of .1 is found nearly always, one
    of .05 in three of five runs, one of .02 in one of ten; with 200, a fall of .05 is found (docs/RESEARCH_LOG.md).

    The warning comes once, with the captions of the images that part most, at t* and now. Warnings without further
    consequences come when the second measure falls and takes the reward with it, and when the share of cut captions
    rises by .2, repetition by .15, or the share of captions with one and the same sentence by .3, above the start.

    The captions and figures of all checks are in `<output_dir>/monitor.jsonl`, with which a resumed training goes on.
    If the trainer reports to wandb or trackio, a table shows the images that changed most.

    Rewards are called as the trainer calls them, one caption an image. Rewards that compare captions of one image, such
    as `TournamentReward`, have nothing to compare there.

    Args:
        trainer: a `GRPOTrainer` or `RLOOTrainer`, of one or several processes. FSDP and DeepSpeed's stage 3, which
            split the policy, are refused.
        held_out: rows as from `make_prompt_dataset` that are not trained on. With fewer than 10 rows the monitor only
            logs and never calls the two parted; 50 or more are better.
        second: reward function, or any callable with the same arguments and result. Higher must be better.
        every: steps between two checks.
        also: further measures that are only logged.
        temperature: None decodes greedily; a number samples from the whole vocabulary, with the same random numbers at
            every check.
        seed: of the sampling.
        batch_size: images that a process captions side by side.
        on_parting: `"warn"`, or `"stop"` to end the training as well.
        keep_best: whether the policy with the highest mean of the second measure is kept in
            `<output_dir>/best-by-monitor`, with `monitor.json` (step and figures) beside it. The best of noisy checks
            looks better than it is: measure it again on other images.

    Attributes:
        history: {"step", "rows", "figures", "warned"} of each check; a row has "caption", "reward", "rewards",
            "measures", "tokens", "truncated", "entropy" and "kl".

    Raises:
        ConfigError: at construction, if an argument is out of range, the rows are none or lack images, or the second
            measure is the optimised one. When the training begins, if it cannot be watched, or if it goes on with
            other images or measures than those of the history.

    Example:
        >>> monitor = lambda trainer, rows: RewardMonitor(trainer, rows, BeitScoreReward(), every=20)
        >>> # trainer.add_callback(monitor(trainer, held_out))
    """

    def __init__(
        self,
        trainer: Any,
        held_out: Any,
        second: Measure,
        *,
        every: int = 10,
        also: Sequence[Measure] = (),
        temperature: float | None = None,
        seed: int = 0,
        batch_size: int = 16,
        on_parting: Literal["warn", "stop"] = "warn",
        keep_best: bool = True,
    ) -> None:
        for name, value in (("every", every), ("batch_size", batch_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        if temperature is not None and not temperature > 0:
            raise ConfigError(f"temperature must be above 0, or None for greedy captions, got {temperature!r}")
        if on_parting not in ("warn", "stop"):
            raise ConfigError(f'on_parting must be "warn" or "stop", got {on_parting!r}')
        check_trainer(trainer)
        check_rows(held_out, trainer)
        self.trainer, self.rows = trainer, held_out
        self._fingerprint = fingerprint_rows(held_out)
        functions = trainer.reward_funcs
        names = different_names([measure_name(each) for each in functions])  # of partials, several may have one
        weighed = zip(functions, trainer.reward_weights.tolist(), strict=True)
        self.rewards = {name: given for name, given in zip(names, weighed, strict=True) if given[1]}
        self.second = measure_name(second)
        self.measures = {measure_name(measure): measure for measure in (second, *also)}
        check_measures(second, also, self.rewards)
        self.every, self.on_parting, self.keep_best = every, on_parting, keep_best
        self.temperature, self.seed, self.batch_size = temperature, seed, batch_size
        self.history: list[dict[str, Any]] = []
        self._start: Start | None = None
        self._warned: set[str] = set()

    @property
    def _files(self) -> MonitorFiles:
        return MonitorFiles(Path(self.trainer.args.output_dir))

    def _header(self) -> dict[str, Any]:
        weights = {name: weight for name, (_, weight) in self.rewards.items()}
        decoding = {"temperature": self.temperature, "seed": self.seed if self.temperature else None}
        return {"held_out": self._fingerprint, "rewards": weights, "second": self.second, **decoding}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        check_policy(self.trainer)
        self._start = start_of(self.trainer)
        if self._start is None and self.trainer.is_world_process_zero():
            logger.warning(
                "monitor/kl is not logged, because the policy before training is not available. To log it, use a "
                "reference model (beta above 0, without sync_ref_model) or train an adapter (peft_config)"
            )
        self.history, self._warned = [], set()
        if state.global_step:
            self._resume(state.global_step)
        if not self.history or self.history[-1]["step"] != state.global_step:
            self._check(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.every == 0:
            self._check(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.history and self.history[-1]["step"] != state.global_step:
            self._check(state, control)

    def _resume(self, step: int) -> None:
        found: list[Any] = [None]
        if self.trainer.is_world_process_zero():
            found = [self._files.read_history()]
        header, checks = broadcast_object_list(found)[0] or (None, [])
        if header is not None and header != self._header():
            names = [name for name, value in self._header().items() if header.get(name) != value]
            raise ConfigError(
                f"{str(self._files.history)!r} was written with other {', '.join(names)} than this monitor has: give "
                "it the same held-out set, rewards and second measure, or move the file away to begin anew"
            )
        self.history = [check for check in checks if check["step"] <= step]
        self._warned = {kind for check in self.history for kind in check["warned"]}
        if not self.history and self.trainer.is_world_process_zero():
            logger.warning(
                "the training goes on at step %d, but %s has no earlier check: falls are counted from here",
                step,
                self._files.history,
            )

    def _check(self, state: Any, control: Any) -> None:
        began = time.perf_counter()
        rows = self._caption(state)
        self.history.append({"step": state.global_step, "rows": rows, "figures": {}, "warned": []})
        check = self.history[-1]
        rewards, seconds = matrix(self.history, "reward"), matrix(self.history, "measures", self.second)
        for name, values in ((", ".join(self.rewards), rewards), (self.second, seconds)):
            if np.isnan(values[-1]).all():
                message = f"{name} gave no value for any of the {len(rows)} held-out captions"
                if len(self.history) == 1:
                    raise ConfigError(message)
                logger.warning("step %d: %s; the training goes on", state.global_step, message)  # a judge may be down
        verdict = check_parting(rewards, seconds)
        check["figures"] = figures_of(rows, self.rewards, self._start) | {
            "best_step": self.history[verdict.best]["step"],
            "images": verdict.images,
            "fall": verdict.fall,
            "fall_z": float(np.clip(verdict.fall_z, -99, 99)),
            "parted": float(verdict.parted),
            "fallen": float(verdict.fallen),
        }
        kinds = self._alarms(verdict)
        if "parted" in self._warned:
            kinds.discard("fallen")
        for kind in sorted(kinds - self._warned):
            check["warned"].append(kind)
            if self.trainer.is_world_process_zero():
                logger.warning(warning_of(kind, self.history, verdict, list(self.rewards), self.second))
        self._warned |= kinds
        self._keep(check)
        self._log(check, control, time.perf_counter() - began)
        if verdict.parted and self.on_parting == "stop":
            control.should_training_stop = True

    def _alarms(self, verdict: Parting) -> set[str]:
        kinds = {"parted"} if verdict.parted else {"fallen"} if verdict.fallen else set()
        return kinds | {kind for kind, least in _RISES.items() if check_rise(matrix(self.history, kind), least=least)}

    def _caption(self, state: Any) -> list[dict[str, Any]]:
        """All rows, captioned and rated, each process its share; an error in one of them is raised in all."""
        accelerator = self.trainer.accelerator
        share = np.array_split(np.arange(len(self.rows)), accelerator.num_processes)[accelerator.process_index].tolist()
        rated: list[dict[str, Any]] = []
        failure: Exception | None = None
        gpus = [accelerator.device] if accelerator.device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):  # the training must draw the same numbers with and without us
            try:
                rated = self._rate(share, state) if share else []
            except Exception as error:
                failure = error
        outcomes = gather_object([(accelerator.process_index, None if failure is None else repr(failure), rated)])
        if failure is not None:
            raise failure
        for process, message, _ in outcomes:
            if message is not None:
                raise TrainingError(f"the monitor failed in process {process}: {message}")
        return [row for _, _, part in sorted(outcomes, key=lambda outcome: outcome[0]) for row in part]

    def _rate(self, share: Sequence[int], state: Any) -> list[dict[str, Any]]:
        written = write_held_out(
            self.trainer,
            self.rows,
            share,
            temperature=self.temperature,
            seed=self.seed,
            batch_size=self.batch_size,
            start=self._start,
        )
        rows = [self.rows[index] for index in share]
        call: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        call |= {"trainer_state": state, "log_extra": lambda *_: None, "log_metric": lambda *_: None}
        call["prompts"] = [messages_of(row) for row in rows]
        call["completions"] = [[{"role": "assistant", "content": one.text}] for one in written]
        call["completion_ids"] = [one.ids for one in written]
        rewards = {name: _values(name, function, call) for name, (function, _) in self.rewards.items()}
        measures = {name: _values(name, measure, call) for name, measure in self.measures.items()}
        weights = {name: weight for name, (_, weight) in self.rewards.items()}
        return [
            {
                "caption": one.text,
                "tokens": len(one.ids),
                "truncated": float(not one.ended),
                "entropy": one.entropy,
                "kl": one.kl,
                "rewards": {name: values[place] for name, values in rewards.items()},
                "reward": _weighted(weights, {name: values[place] for name, values in rewards.items()}),
                "measures": {name: values[place] for name, values in measures.items()},
            }
            for place, one in enumerate(written)
        ]

    def _keep(self, check: Mapping[str, Any]) -> None:
        accelerator, files = self.trainer.accelerator, self._files
        if accelerator.is_main_process:
            files.write_history(self._header(), self.history)
        if not self.keep_best:
            return
        mean = check["figures"][f"measures/{self.second}"]
        is_best = False
        if accelerator.is_main_process:
            # by the files: after a crash, the best may be of a step that the history of the checkpoint lacks
            kept = None if len(self.history) == 1 and not check["step"] else files.read_best()
            is_best = mean is not None and (kept is None or self._is_better(check, kept))
        if broadcast_object_list([is_best])[0]:
            if accelerator.is_main_process:
                files.clear_new()
            accelerator.wait_for_everyone()
            self.trainer.save_model(str(files.new), _internal_call=True)
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                files.finish_best({"step": check["step"], "second": self.second, "figures": check["figures"]})
            accelerator.wait_for_everyone()

    def _is_better(self, check: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
        """Whether the second measure is higher, on the images that have it at both checks."""
        before = next((each for each in self.history if each["step"] == kept["step"]), None)
        if before is None:
            mean = f"measures/{self.second}"
            return bool(check["figures"][mean] > kept["figures"][mean])
        old, new = matrix([before, check], "measures", self.second)
        common = common_images(old, new)
        if common is None:  # a mean of few images gives way to one of many
            return bool(np.isnan(new).sum() < np.isnan(old).sum())
        return bool(new[common].mean() > old[common].mean())

    def _log(self, check: Mapping[str, Any], control: Any, seconds: float) -> None:
        logs = {f"monitor/{name}": value for name, value in check["figures"].items() if value is not None}
        logs["monitor/seconds"] = seconds
        planned = control.should_log  # Trainer.log clears it, and the trainer's own entry of this step would be lost
        Trainer.log(self.trainer, logs)  # that of GRPO would also give out, and empty, what it has gathered so far
        control.should_log = self.trainer.control.should_log = planned
        if self.trainer.is_world_process_zero():
            show_table(self.trainer.args.report_to, self.rows, self.history, self.second)


def _values(name: str, measure: Measure, call: Mapping[str, Any]) -> list[float | None]:
    values: Any = measure(**call)
    if inspect.isawaitable(values):
        values = asyncio.run(_awaited(values))
    numbers = [None if value is None else float(value) for value in values]
    if len(numbers) != len(call["completions"]):
        raise ConfigError(f"{name} gave {len(numbers)} values for {len(call['completions'])} captions")
    return [None if value is None or not np.isfinite(value) else value for value in numbers]


async def _awaited(values: Any) -> Any:
    return await values


def _weighted(weights: Mapping[str, float], values: Mapping[str, float | None]) -> float | None:
    """As TRL adds them up: a reward that does not apply counts nothing."""
    known = [weights[name] * value for name, value in values.items() if value is not None]
    return sum(known) if known else None
