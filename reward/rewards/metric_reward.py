"""MetricReward: a caption metric as the reward function that TRL's trainers call."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reward.aspect_weights import list_names
from reward.data.held_data import as_samples
from reward.data.samples import CaptionSample, check_batch_size
from reward.data.score_table import ScoreTable, fill_lowest, rewards_of_rows, weighted_mean, weighted_range
from reward.errors import ConfigError
from reward.metrics.base import Scorer
from reward.registry import load_scorer
from reward.rewards.completions import Reason, Row, RowReader
from reward.rewards.loading import away_between_calls, load_beside_a_trainer, read_metric, wait_for_judges
from reward.rewards.logs import check_first_call, default_name, log_scores, report_reasons
from reward.rewards.trainers import check_one_name, warn_of_sums

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class _RatedCall:
    """Rows and scores of a call, with the lists of the call: a trainer gives the same ones to all rewards of a step."""

    lists: tuple[Any, ...]
    rows: list[Row]
    table: ScoreTable
    aspects: set[str]  # that have taken it

    def take(self, lists: tuple[Any, ...], aspect: str) -> bool:
        """Takes it for an aspect, once: lists that come again may hold new rows. False if it is of other lists."""
        is_same = len(lists) == len(self.lists) and all(a is b for a, b in zip(lists, self.lists, strict=True))
        if not is_same or aspect in self.aspects:
            return False
        self.aspects.add(aspect)
        return True


class _Shared:
    """What a reward and those of its aspects have in common in one process; a pickle keeps only that it is one."""

    def __init__(self, has_aspects: bool = False) -> None:
        self.has_aspects = has_aspects
        self.lock = threading.RLock()
        self.scorer: Scorer | None = None
        self.reader: RowReader | None = None
        self.last_call: _RatedCall | None = None
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
    - the lowest value of the metric, if the policy wrote no word (no letter and no number) and the row lacks nothing.
      With None instead, a policy could avoid a low reward by writing nothing. Where the metric has no lowest value, it
      is the lowest of the call.

    Services, files and adapters follow the same rule, see `reward.data.score_table.rewards_of_rows`. Rows without a
    score are counted in `failures` by kind, and the first, tenth, hundredth, ... of each kind is logged. If the data
    are at fault in every row of the first call, that call raises.

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
        on_error: what a row gets that cannot be scored: None with `"none"`, the lowest value with `"lowest"`, for
            trainers that count None as 0 or refuse it; `"raise"` raises InvalidSampleError.
        batch_size: most samples in one forward pass; None leaves it to the metric.
        offload: whether the network waits in the CPU's memory between calls, which leaves the GPU's to the policy.
        revision, device, dtype: for loading. Default device: `cuda:LOCAL_RANK` where there is CUDA, else the CPU.
        options: the metric's own, such as `prompt="my.yaml"` of `judge` and `column="checklist"` of `rubric`.

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
        on_error: Literal["none", "lowest", "raise"] = "none",
        batch_size: int | None = None,
        offload: bool = False,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if on_error not in ("none", "lowest", "raise"):
            raise ValueError(f'on_error must be "none", "lowest" or "raise", got {on_error!r}')
        check_batch_size(batch_size)
        self._loaded_scorer, self.spec, self.source, loading = read_metric(metric, source, revision, options)
        self._metric_name, self._loading = self.spec.name, {**loading, "dtype": dtype}
        self.weights = self.spec.weigh(weights)
        self._weights_by_name = weights
        self.image_column, self.references_column = image_column, references_column
        self.strip_thinking, self.on_error = strip_thinking, on_error
        self.batch_size, self.offload = batch_size, offload
        self.failures: Counter[str] = Counter()
        self.goes_on = False  # after a first call without a score: true if the caller has a number for such rows
        self._device, self._shared = device, _Shared()
        self.__name__ = self._logged_as = name or default_name(self.spec, self.source, weights)

    def __call__(
        self,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Any] = (),
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions, one each, in order.

        Args:
            prompts: N prompts, plain strings or lists of messages, or None. Never changed.
            completions: N completions, strings or lists of messages.
            completion_ids: token ids, not used.
            log_extra, log_metric: a trainer's loggers. Each aspect becomes a column `<name>/<aspect>` of the table of
                completions and a mean of that name; `<name>/unscored` is the share of rows without a score and
                `<name>/truncated` the share whose text was cut to fit the model. See `log_rows` for the means. The
                reward of one aspect logs these shares alone, under the name of the whole.
            columns: data set columns, N values each.
        """
        if log_extra is not None:
            check_one_name(self, log_extra)
        scorer, reader = self._load()
        lists = (completions, *columns.values())  # tell one call from another, since a trainer makes completions anew
        with self._turn(scorer):
            call = self._shared.last_call
            if call is None or not call.take(lists, self._aspect):
                call = self._rate(scorer, reader.read(prompts, completions, columns), lists)
        if call.rows and self._shared.is_first_call:
            if not self.goes_on:
                check_first_call(self.__name__, self.spec, call.rows, call.table.errors)
            self._shared.is_first_call = False
        if log_extra is not None or log_metric is not None:
            aspects = () if self._aspect else self.spec.aspects
            log_scores(self._logged_as, aspects, call.table, log_extra, log_metric)
        rewards = self._rewards(call)
        if log_extra is not None:
            warn_of_sums(self, rewards, log_extra)
        return rewards

    def score(self, samples: Any = None, captions: Any = None, references: Any = None, **columns: Any) -> ScoreTable:
        """Scores (N, A) of captions, in order; what the metric cannot score is NaN with an entry in `errors`.

        The table's `reward` is the mean by this reward's weights.

        Args:
            samples, captions, references, columns: as in `score(images, captions)`, see
                `reward.data.held_data.as_samples`.
        """
        scorer, _ = self._load()
        data = as_samples(samples, captions, spec=self.spec, references=references, **columns)
        with self._turn(scorer):
            table = self._score(scorer, data.samples)
        weights = dict(zip(self.spec.aspects, self.weights.tolist(), strict=True))
        return data.spread(replace(table, default_weights=weights))

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order, as a trainer's call would give them."""
        return self._rewards(self._rate_samples(samples))

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a valid sample has no reward; None if it has one."""
        return self._rate_samples([sample]).table.errors.get(0)

    def aspects(self) -> list[Self]:
        """One reward function per aspect, named `<name>_<aspect>`, for trainers that weigh or normalise each reward.

        They share this reward's model and `failures`, and one forward pass serves all of them when they are called in
        turn with the same lists, as trainers do.
        """
        return [self.aspect(aspect) for aspect in self.spec.aspects]

    def aspect(self, name: str) -> Self:
        """The reward function of one aspect, by its name or short name, such as `vela_fluency` for `flu`."""
        aspect = self.spec.aliases.get(name, name)
        if aspect not in self.spec.aspects:
            names = list_names(self.spec.aspects, self.spec.aliases)
            raise ConfigError(f"{self.__name__}: metric {self.spec.name!r} has no aspect {name!r}; known: {names}")
        self._shared.has_aspects = True
        # The copy shares model, lock and failures, and weighs one aspect.
        alone = copy(self)
        alone.__name__, alone._aspect, alone._weights_by_name = f"{self.__name__}_{aspect}", aspect, {aspect: 1.0}
        alone.weights = self.spec.weigh(alone._weights_by_name)
        return alone

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest reward, infinite where the metric knows no bound."""
        return weighted_range(self.weights, [self.spec.range] * len(self.weights))

    def load(self) -> Self:
        """Loads the model now, and gives the reward back. What is wrong shows before a trainer loads its policy."""
        scorer, _ = self._load()
        if self.offload:
            with self._turn(scorer), away_between_calls(scorer):
                pass  # it waits in the CPU's memory
        return self

    def _rate_samples(self, samples: Sequence[CaptionSample]) -> _RatedCall:
        scorer, reader = self._load()
        with self._turn(scorer):
            call = self._shared.last_call
            if call is None or not call.take((samples,), self._aspect):
                call = self._rate(scorer, reader.read_samples(samples), (samples,))
            return call

    def _rate(self, scorer: Scorer, rows: list[Row], lists: tuple[Any, ...]) -> _RatedCall:
        """Rows with their scores, kept for the other aspects of the call."""
        indices, samples = [], []
        reasons: dict[int, Reason] = {}
        for index, row in enumerate(rows):
            if isinstance(row, CaptionSample):
                indices.append(index)
                samples.append(row)
            else:
                reasons[index] = row
        scores = np.full((len(rows), len(self.spec.aspects)), np.nan)
        truncated = np.zeros(len(rows), dtype=bool)
        if samples:
            table = self._score(scorer, samples)
            # A user's scorer may give infinity, or NaN without a reason.
            is_finite = np.isfinite(table.scores)
            scores[indices] = np.where(is_finite, table.scores, np.nan)
            truncated[indices] = table.truncated
            for position in np.flatnonzero(~is_finite.all(axis=1)).tolist():
                message = table.errors.get(position, f"the metric gave {table.scores[position].tolist()}")
                reasons[indices[position]] = Reason("not scored by the metric", message)
        errors: dict[int, str] = {}
        if reasons:
            errors = self._report(reasons, scores)
        table = ScoreTable(scores, self.spec.aspects, errors, truncated, aliases=self.spec.aliases)
        call = _RatedCall(lists, rows, table, {self._aspect})
        if self._shared.has_aspects:
            self._shared.last_call = call
        return call

    def _report(self, reasons: dict[int, Reason], scores: np.ndarray) -> dict[int, str]:
        """Reports rows without a score, and gives {row: what is wrong with it}.

        The `scores` (N, A) of captions without a word become the lowest, so that they are logged as what they get.
        """
        reasons = dict(sorted(reasons.items()))
        with self._shared.lock:  # calls of several threads may go on beside each other, and count together
            errors = report_reasons(self.__name__, reasons, self.failures, raises=self.on_error == "raise")
        for index, reason in reasons.items():
            if reason.is_wordless:
                scores[index] = self.spec.range[0]
        if math.isinf(self.spec.range[0]):  # what is logged is the lowest of the call, as the reward is
            for aspect in range(scores.shape[1]):
                scores[:, aspect] = fill_lowest(scores[:, aspect])
        return errors

    def _score(self, scorer: Scorer, samples: list[CaptionSample]) -> ScoreTable:
        import torch  # on use: importing this module must stay cheap

        home = away_between_calls(scorer) if self.offload else nullcontext()
        with home, torch.inference_mode():  # trainers call rewards with gradients on
            score = getattr(scorer, "score_samples", scorer.score)  # a user's scorer may have `score` alone
            table = score(samples, batch_size=self.batch_size)
        if len(table.scores) != len(samples):
            raise RuntimeError(f"metric {self.spec.name!r} gave {len(table)} scores for {len(samples)} samples")
        return table

    def _rewards(self, call: _RatedCall) -> list[float | None]:
        """What each row gets."""
        scores, weights = call.table.scores, self.weights
        is_wordless = np.zeros(len(call.rows), dtype=bool)
        is_complete = np.ones(len(call.rows), dtype=bool)
        for index, row in enumerate(call.rows):
            if isinstance(row, Reason):  # the row lacks something, unless it is its caption that has no word
                is_wordless[index] = row.is_wordless
                is_complete[index] = row.is_wordless
        if self.on_error == "lowest":
            # As if they were captions without a word, in rows that lack nothing.
            unscored = ~np.isfinite(weighted_mean(scores, weights))
            is_wordless |= unscored
            is_complete |= unscored
        rewards = rewards_of_rows(scores, weights, self.spec.range, is_wordless=is_wordless, is_complete=is_complete)
        return [None if math.isnan(reward) else reward for reward in rewards.tolist()]

    def _load(self) -> tuple[Scorer, RowReader]:
        """The scorer, loaded if this process does not have it yet, and what reads rows for it."""
        shared = self._shared
        with shared.lock:
            scorer = shared.scorer
            if scorer is None:
                scorer = self._loaded_scorer
                if scorer is None:
                    load = partial(load_scorer, self._metric_name, self.source, **self._loading)
                    scorer = load_beside_a_trainer(load, self._device)
                wait_for_judges(scorer)
                scorer = shared.scorer = self._rating(scorer)
            # A checkpoint may have fewer aspects than its metric, or need no image: only now this is known, and of a
            # service only once it was asked.
            spec = scorer.spec
            if self.spec is not spec:
                self.weights = spec.weigh(self._weights_by_name)
                self.spec = spec
            if shared.reader is None or shared.reader.spec is not spec:
                shared.reader = RowReader(
                    spec,
                    scorer,
                    image_column=self.image_column,
                    references_column=self.references_column,
                    strip_thinking=self.strip_thinking,
                )
            return scorer, shared.reader

    def _rating(self, loaded: Any) -> Any:
        """What rates the rows: the scorer that was loaded, or one that a derived class makes of it."""
        return loaded

    def _turn(self, scorer: Scorer) -> AbstractContextManager[Any]:
        """One forward pass at a time; a service takes many calls together, and joins them."""
        return nullcontext() if getattr(scorer, "takes_calls_together", False) else self._shared.lock

    def __repr__(self) -> str:
        weights = dict(zip(self.spec.aspects, self.weights.round(4).tolist(), strict=True))
        source = f", source={str(self.source)!r}"
        if self._loaded_scorer is not None and self.source == "embedded":  # a function or a scorer, and not ours
            source = ""
        return f"{type(self).__name__}(name={self.__name__!r}{source}, weights={weights})"
