"""MetricReward: a caption metric as the reward function that TRL's trainers call."""

from __future__ import annotations

import logging
import math
import operator
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reward.aspect_weights import list_names
from reward.data.held_data import as_samples
from reward.data.samples import CaptionSample, check_batch_size
from reward.data.score_table import ScoreTable, weighted_mean, weighted_range
from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.base import Scorer
from reward.registry import load_scorer
from reward.rewards.completions import (
    Reason,
    Row,
    check_one_name,
    fault_of_all,
    read_rows,
    report_reasons,
    sample_row,
)
from reward.rewards.loading import away_between_calls, given_metric, load_beside_a_trainer
from reward.rewards.logs import default_name, log_rows

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class _Pass:
    """What a call found, with the lists that it was given: a trainer gives the same ones to all rewards of a step."""

    def __init__(self, call: tuple[Any, ...], rows: list[Row], table: ScoreTable, aspect: str) -> None:
        self.call, self.rows, self.table, self.taken = call, rows, table, {aspect}

    def serves(self, call: tuple[Any, ...], aspect: str) -> bool:
        """Whether an aspect may take it: once, since lists that it is given again may hold other rows by then."""
        is_same = len(call) == len(self.call) and all(map(operator.is_, call, self.call))
        serves = is_same and aspect not in self.taken
        self.taken.add(aspect)
        return serves


class _Shared:
    """What a reward and those of its aspects have in common in one process; a pickle keeps only that it is one."""

    def __init__(self, has_aspects: bool = False) -> None:
        self.has_aspects = has_aspects
        self.lock = threading.RLock()
        self.scorer: Scorer | None = None
        self.kept: _Pass | None = None
        self.is_first_call = True

    def __reduce__(self) -> Any:
        return _Shared, (self.has_aspects,)


class MetricReward:
    """A caption metric as a reward function for GRPO, RLOO and every trainer with TRL's call.

    The model loads at the first call, or at `load()`, on the process's own device, and is left out when the reward is
    pickled; a process that unpickles it loads it again. Start processes by spawn: a fork has neither the threads of its
    parent nor the locks that they hold. Calls from several threads take turns.

    Each row gets one of three rewards:

    - the weighted mean of the metric's aspects, a finite float;
    - None, which trainers leave out of the loss, if the data are at fault: no image, an unreadable image, several
      images, or no completion;
    - the lowest value of the metric, if the policy wrote no word (no letter and no number). With None instead, a policy
      could avoid a low reward by writing nothing. Where the metric has no lowest value, it is the lowest of the call.

    Rows without a score are counted in `failures` by kind, and the first, tenth, hundredth, ... of each kind is logged.
    If the data are at fault in every row of the first call, that call raises.

    Args:
        metric: a registry name, such as `"vela"`; a checkpoint that says which metric it is for, such as `"my-vela"`;
            a scorer that is loaded already (which is then pickled along); or a function, or its place, such as
            `"my_metric.py:length"`, see `reward.metrics.function.FunctionScorer`.
        source: `"embedded"`, a checkpoint folder or a Hub id; used only if `metric` is a name. Of a metric that asks a
            judge also a judge of `reward.judges`, the address of a server (`"http://localhost:8000/v1#model"`), or, of
            `judge`, `rubric` and `questions`, a list of these for their mean.
        weights: {aspect or alias: weight}, normalised to sum to 1; None takes the metric's own, which are mostly equal.
        name: the name in the trainer's logs (`__name__`), used unchanged. The default is the metric's name, followed by
            the last part of a source other than `"embedded"` and by weights other than the metric's own, such as
            `vela_photos_rel`. Two rewards of one trainer must not share a name, so rewards that differ only in other
            arguments (columns, device) need `name`.
        image_column: column that holds the image. Default: `images` or `image`, else the image in the prompt, else
            `file_name`, `image_path` or `img`. One image a row, or a list of one.
        references_column: column that holds a list of reference captions, or one. Default: `references` or `refs`.
        strip_thinking: whether the caption is taken out of what the policy wrote before it is scored, without
            reasoning (`<think>...</think>`), marks of answers and end marks, in a trainer's call and by `rewards`; see
            `reward.data.written_captions.caption_in`.
        on_error: `"none"` gives None to a row that cannot be scored, `"raise"` raises InvalidSampleError.
        batch_size: most samples in one forward pass; None leaves it to the metric.
        offload: whether the network waits in the CPU's memory between calls, which leaves the GPU's to the policy.
        revision, device, dtype: for loading. Default device: `cuda:LOCAL_RANK` where there is CUDA, else the CPU.
        options: the metric's own, such as `prompt="my.yaml"` of `judge` and `column="checklist"` (or `rubric_column=`)
            of `rubric`.

    What is wrong with these raises at construction, or at `load()` and the first call where only the checkpoint tells.

    Example:
        >>> reward = MetricReward("length", name="words")
        >>> reward(prompts=["Describe."] * 2, completions=["A red star.", "A star."], image=["a.png", "a.png"])
        [3.0, 2.0]
    """

    __name__: str  # trainers read it from the instance
    _aspect = ""  # of the reward of one aspect

    def __init__(
        self,
        metric: str | os.PathLike[str] | Scorer | Callable[..., Any],
        source: str | os.PathLike[str] = "embedded",
        weights: Mapping[str, float] | None = None,
        *,
        name: str | None = None,
        image_column: str | None = None,
        references_column: str | None = None,
        strip_thinking: bool = True,
        on_error: Literal["none", "raise"] = "none",
        batch_size: int | None = None,
        offload: bool = False,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if on_error not in ("none", "raise"):
            raise ValueError(f'on_error must be "none" or "raise", got {on_error!r}')
        check_batch_size(batch_size)
        given = given_metric(metric, source, revision, options)
        self.spec, self.source, self._given_scorer = given.spec, given.source, given.scorer
        self._loading = {**given.options, "dtype": dtype}
        self.weights = self.spec.weigh(weights)
        self._given_weights = weights
        self.image_column, self.references_column = image_column, references_column
        self.strip_thinking, self.on_error = strip_thinking, on_error
        self.batch_size, self.offload = batch_size, offload
        self.failures: Counter[str] = Counter()
        self.goes_on = False  # after a first call without a score: true if the caller has a number for such rows
        self._device, self._shared = device, _Shared()
        self.__name__ = self._logged_as = name or default_name(self.spec, self.source, weights)

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions, one each, in order.

        Args:
            prompts: N prompts, plain strings or lists of messages. Never changed.
            completions: N completions, strings or lists of messages.
            completion_ids: token ids, not used.
            log_extra, log_metric: a trainer's loggers. Each aspect becomes a column `<name>/<aspect>` of the table of
                completions and a mean of that name; `<name>/unscored` is the share of rows without a score and
                `<name>/truncated` the share whose text was cut to fit the model. See `log_rows` for the means. The
                reward of one aspect logs these shares alone, under the name of the whole.
            columns: data set columns, N values each.
        """
        rows, table = self._rate_call(prompts, completions, columns)
        is_scored = np.isfinite(table.scores).all(axis=1)
        for aspect in () if self._aspect else self.spec.aspects:
            if log_extra is not None:
                log_extra(f"{self._logged_as}/{aspect}", table.column(aspect).tolist())
            if log_metric is not None:
                log_rows(log_metric, f"{self._logged_as}/{aspect}", table.column(aspect)[is_scored])
        if log_metric is not None:
            log_rows(log_metric, f"{self._logged_as}/unscored", ~is_scored)
            log_rows(log_metric, f"{self._logged_as}/truncated", table.truncated)
        return self._combine(rows, table)

    def score(self, samples: Any = None, captions: Any = None, references: Any = None, **columns: Any) -> ScoreTable:
        """Scores (N, A) of captions, in order; what the metric cannot score is NaN with an entry in `errors`.

        Args:
            samples, captions, references, columns: as in `score(images, captions)`, see
                `reward.data.held_data.as_samples`.
        """
        scorer = self._load()
        held = as_samples(samples, captions, spec=self.spec, references=references, **columns)
        with self._turn(scorer):
            return held.spread(self._score(scorer, held.samples))

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order: the weighted mean of the aspects, None where there is no finite score.

        Example:
            >>> MetricReward("length").rewards([CaptionSample("A red star.")])
            [3.0]
        """
        return self._combine(*self._rate_samples(samples))

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a valid sample has no reward; None if it has one.

        Example:
            >>> MetricReward("length").reason(CaptionSample("A red star.")) is None
            True
        """
        return self._rate_samples([sample])[1].errors.get(0)

    def aspects(self) -> list[Self]:
        """One reward function per aspect, named `<name>_<aspect>`, for trainers that weigh or normalise each reward.

        They share this reward's model and `failures`, and one forward pass serves all of them when they are called in
        turn with the same lists, as trainers do.

        Example:
            >>> [aspect.__name__ for aspect in MetricReward("length", name="words").aspects()]
            ['words_length']
        """
        return [self.aspect(aspect) for aspect in self.spec.aspects]

    def aspect(self, name: str) -> Self:
        """The reward function of one aspect, by its name or short name; see `aspects`.

        Example:
            >>> MetricReward("vela").aspect("flu").__name__
            'vela_fluency'
        """
        aspect = self.spec.aliases.get(name, name)
        if aspect not in self.spec.aspects:
            known = list_names(self.spec.aspects, self.spec.aliases)
            raise ConfigError(f"{self.__name__}: metric {self.spec.name!r} has no aspect {name!r}; known: {known}")
        self._shared.has_aspects = True
        alone = copy(self)
        alone.__name__, alone._aspect, alone._given_weights = f"{self.__name__}_{aspect}", aspect, {aspect: 1.0}
        alone.weights = self.spec.weigh(alone._given_weights)
        return alone

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest reward, infinite where the metric knows no bound."""
        return weighted_range(self.weights, [self.spec.range] * len(self.weights))

    def load(self) -> Self:
        """Loads the model now, and gives the reward back. What is wrong shows before a trainer loads its policy.

        Example:
            >>> MetricReward("length").load().rewards([CaptionSample("A red star.")])
            [3.0]
        """
        scorer = self._load()
        if self.offload:
            with self._turn(scorer), away_between_calls(scorer):
                pass  # it waits in the CPU's memory
        return self

    def _rate_call(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]
    ) -> tuple[list[Row], ScoreTable]:
        """Rows and scores (N, A) of a trainer's call."""
        check_one_name(self, columns.get("trainer_state"))
        names = {name: getattr(self, name) for name in ("image_column", "references_column", "strip_thinking")}

        def read(scorer: Scorer) -> list[Row]:
            return read_rows(prompts, completions, columns, self.spec, scorer, **names)

        rows, table = self._rate(read, (completions, *columns.values()))
        if rows and self._shared.is_first_call:
            hopeless = fault_of_all(self.__name__, self.spec, rows, table.errors)
            if hopeless is not None and not self.goes_on:
                raise InvalidSampleError(hopeless)
            if hopeless is not None:
                logger.warning("%s", hopeless)
            self._shared.is_first_call = False
        return rows, table

    def _rate_samples(self, samples: Sequence[CaptionSample]) -> tuple[list[Row], ScoreTable]:
        def read(scorer: Scorer) -> list[Row]:
            return [sample_row(each, self.spec, scorer, strip_thinking=self.strip_thinking) for each in samples]

        return self._rate(read, (samples,))

    def _rate(self, read: Callable[[Scorer], list[Row]], call: tuple[Any, ...]) -> tuple[list[Row], ScoreTable]:
        """Rows and their scores; what was found for another aspect of the same call is given again, once for each."""
        scorer, shared = self._load(), self._shared  # only the checkpoint knows what it needs
        with self._turn(scorer):
            kept = shared.kept
            if kept is not None and kept.serves(call, self._aspect):
                return kept.rows, kept.table
            rows = read(scorer)
            table = self._table(scorer, rows)
            if shared.has_aspects:
                shared.kept = _Pass(call, rows, table, self._aspect)
            return rows, table

    def _table(self, scorer: Scorer, rows: list[Row]) -> ScoreTable:
        """Scores (N, A): the lowest for captions without a word; NaN, a reason and a counted failure for none."""
        samples = {index: row for index, row in enumerate(rows) if isinstance(row, CaptionSample)}
        reasons = {index: row for index, row in enumerate(rows) if isinstance(row, Reason)}
        scores = np.full((len(rows), len(self.spec.aspects)), np.nan)
        truncated = np.zeros(len(rows), dtype=bool)
        if samples:
            part = self._score(scorer, list(samples.values()))
            scores[list(samples)], truncated[list(samples)] = part.scores, part.truncated
            for place, index in enumerate(samples):
                if not np.isfinite(part.scores[place]).all():
                    told = part.errors.get(place, f"the metric gave {part.scores[place].tolist()}")
                    reasons[index] = Reason("not scored by the metric", told)
            scores[~np.isfinite(scores)] = np.nan
        errors = {index: reason.message for index, reason in sorted(reasons.items()) if not reason.is_wordless}
        if errors and self.on_error == "raise":
            index, message = next(iter(errors.items()))
            raise InvalidSampleError(
                f"{self.__name__}: row {index} cannot be scored ({reasons[index].kind}): {message}"
            )
        with self._shared.lock:
            report_reasons(self.__name__, reasons, self.failures)
        scores[[index for index, reason in reasons.items() if reason.is_wordless]] = self.spec.range[0]
        return ScoreTable(scores, self.spec.aspects, errors, truncated, aliases=self.spec.aliases)

    def _score(self, scorer: Scorer, samples: list[CaptionSample]) -> ScoreTable:
        import torch  # on use: importing this module must stay cheap

        place = away_between_calls(scorer) if self.offload else nullcontext()
        with place, torch.inference_mode():  # trainers call rewards with gradients on
            score = getattr(scorer, "score_samples", scorer.score)  # somebody's own scorer may have `score` alone
            table = score(samples, batch_size=self.batch_size)
        if len(table) != len(samples):
            raise RuntimeError(f"metric {self.spec.name!r} gave {len(table)} scores for {len(samples)} samples")
        return table

    def _combine(self, rows: list[Row], table: ScoreTable) -> list[float | None]:
        combined = weighted_mean(table.scores, self.weights)
        lowest, _ = self.range
        if not math.isfinite(lowest):  # no wordless caption beats another of its call
            lowest = min(combined[np.isfinite(combined)], default=math.nan)
        wordless = [isinstance(row, Reason) and row.is_wordless for row in rows]
        return [float(value) if math.isfinite(value) else None for value in np.where(wordless, lowest, combined)]

    def _load(self) -> Scorer:
        with self._shared.lock:
            scorer = self._shared.scorer or self._given_scorer
            if scorer is None:
                load = partial(load_scorer, self.spec.name, self.source, **self._loading)
                scorer = load_beside_a_trainer(load, self._device)
            if self.spec is not scorer.spec:  # a checkpoint may have fewer aspects than its metric, or need no image
                self.weights = scorer.spec.weigh(self._given_weights)
                self.spec = scorer.spec
            self._shared.scorer = scorer
            return scorer

    def _turn(self, scorer: Scorer) -> AbstractContextManager[Any]:
        """One forward pass at a time; a service takes many calls together, and joins them."""
        return nullcontext() if getattr(scorer, "takes_calls_together", False) else self._shared.lock

    def __repr__(self) -> str:
        weights = dict(zip(self.spec.aspects, self.weights.round(4).tolist(), strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, source={str(self.source)!r}, weights={weights})"
