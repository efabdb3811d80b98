"""MetricReward: a caption metric as the reward function that TRL's trainers call."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reward.aspect_weights import list_names, weighted_range
from reward.errors import ConfigError, InvalidSampleError
from reward.held_data import as_samples
from reward.metrics.base import Scorer
from reward.metrics.options import check_options
from reward.registry import MetricSource, as_scorer, as_source, check_loading, dry_scorer, load_scorer
from reward.rewards.aspect_reward import AspectReward
from reward.rewards.completions import CaptionRow, Problem, check_first_call, read_rows
from reward.rewards.names import check_one_name, default_name, log_rows
from reward.rewards.processes import OwnInEachProcess, away_between_calls, load_beside_a_trainer
from reward.samples import CaptionSample, ScoreTable, check_batch_size

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MetricReward"]

logger = logging.getLogger(__name__)


class MetricReward(OwnInEachProcess):
    """A caption metric as a reward function for GRPO, RLOO and every trainer with TRL's call.

    The model loads at the first call, or at `load()`, on the process's own device, and is left out when the reward is
    pickled; a process that unpickles it loads it again. Calls from several threads take turns.

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
        strip_thinking: whether reasoning (`<think>...</think>`) is cut from captions before they are scored, in a
            trainer's call and by `rewards`. A tokenizer with a response template has done so; others leave it in, and
            it is no part of the caption. `thinking_cut` counts the captions from which some was cut.
        on_error: `"none"` gives None to a row that cannot be scored, `"raise"` raises InvalidSampleError.
        batch_size: most samples in one forward pass; None leaves it to the metric.
        offload: whether the network waits in the CPU's memory between calls, which leaves the GPU's to the policy.
        revision, device, dtype: for loading. Default device: `cuda:LOCAL_RANK` where there is CUDA, else the CPU.
        options: the metric's own, such as `prompt="my.yaml"` of `judge` and `column="checklist"` (or `rubric_column=`)
            of `rubric`.

    Raises:
        UnknownMetricError, WeightsError, ConfigError, ValueError: at construction, before anything is loaded.
        CheckpointError: at construction for a source that is seen not to be one: a path that is not there, a
            checkpoint of another metric, no possible Hub id. At `load()` or the first call for any other.
        InvalidSampleError: in the first call, if none of its rows can be scored for reasons that lie in the data.

    Example:
        >>> reward = MetricReward("length", name="words")
        >>> reward(prompts=["Describe."] * 2, completions=["A red star.", "A star."], image=["a.png", "a.png"])
        [3.0, 2.0]
    """

    __name__: str  # trainers read it from the instance
    _scorer: Scorer | None
    _last: tuple[list[tuple[Any, ...]], ScoreTable] | None
    _is_first_call: bool
    _is_unusable: bool

    _of_process = (*OwnInEachProcess._of_process, "_last", "_is_first_call")

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
        if not isinstance(offload, bool):
            raise ValueError(f"offload must be True or False, got {offload!r}")
        check_batch_size(batch_size)
        for alias in {"rubric_column", "questions_column"} & options.keys():
            options["column"] = options.pop(alias)
        scorer: Any = metric if hasattr(metric := as_scorer(metric), "spec") else None
        source = as_source(source)
        if scorer is None and isinstance(source, list):
            scorer, options = load_scorer(metric, source, **options), {}  # type: ignore[arg-type]
            source = scorer.judge_names
        if scorer is None:
            given = MetricSource.of(metric, source, revision)  # type: ignore[arg-type]
            source, revision = given.source, given.revision
            check_loading(source, device, metric=given.name)
            check_options(given.loads, options)
            self.spec = replace(given, options=tuple(options.items())).spec
            if "prompt" in options and (dry := dry_scorer(given.spec, options)) is not None:
                options["prompt"] = dry.prompt  # its file need not be there in another process
        elif options:
            raise ConfigError(f"{', '.join(options)} is of a metric given by name; give it where the scorer is made")
        else:
            self.spec = scorer.spec
        if self.spec.needs_corpus and (scorer is not None or os.fspath(source) == "embedded"):
            raise ConfigError(
                f"metric {self.spec.name!r} weighs words by a corpus of references, and has none: a reward would "
                "depend on the other captions of its batch. Fit it on the references of the training data, "
                f"load_scorer({self.spec.name!r}).fit(references), and pass that scorer, or the folder it was saved in"
            )
        self.weights = self.spec.weigh(weights)
        self._given_weights = weights
        self.source = source
        self.image_column = image_column
        self.references_column = references_column
        self.strip_thinking = strip_thinking
        self.on_error = on_error
        self.batch_size = batch_size
        self.offload = offload
        self.failures: Counter[str] = Counter()
        self.thinking_cut = 0
        self._device = device
        self._loading: dict[str, Any] = {"revision": revision, "dtype": dtype, **options}
        self._given_scorer = scorer
        self._keep_last = False
        self.goes_on = False  # after a first call without a score: true if the caller has a number for such rows
        self._start_empty()
        self.__name__ = name or default_name(self.spec, source, weights)

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
                `<name>/truncated` the share whose text was cut to fit the model. See `log_rows` for the means.
            columns: data set columns, N values each.

        Raises:
            InvalidSampleError: lengths differ, a named column is missing, or it is the first call and the data have
                a fault in every row; with `on_error="raise"`, also for a row that cannot be scored.
            ConfigError: another reward of this trainer has the same name.
        """
        rows, table = self._rate_call(prompts, completions, columns)
        if log_extra is not None:
            for aspect in self.spec.aspects:
                log_extra(f"{self.__name__}/{aspect}", table.column(aspect).tolist())
        if log_metric is not None:
            self._log_means(table, log_metric)
            self._log_shares(rows, table, log_metric)
        return self._combine(rows, table, self.weights)

    def score(self, samples: Any = None, captions: Any = None, references: Any = None, **columns: Any) -> ScoreTable:
        """Scores (N, A) of captions, in order; what the metric cannot score is NaN with an entry in `errors`.

        Args:
            samples, captions, references, columns: as in `score(images, captions)`, see `reward.held_data.as_samples`.
        """
        held = as_samples(samples, captions, spec=self.spec, references=references, **columns)
        samples = held.samples
        if not samples:
            return ScoreTable(np.zeros((0, len(self.spec.aspects))), self.spec.aspects, aliases=self.spec.aliases)
        with self._lock:
            scorer = self._load()
            import torch  # on use: importing this module must stay cheap

            place = away_between_calls(scorer) if self.offload else nullcontext()
            with place, torch.inference_mode():  # trainers call rewards with gradients on
                table = scorer.score(samples, batch_size=self.batch_size)
        if len(table) != len(samples):
            raise RuntimeError(f"metric {self.spec.name!r} gave {len(table)} scores for {len(samples)} samples")
        return held.spread(table)

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order: the weighted mean of the aspects, None where there is no finite score.

        Example:
            >>> MetricReward("length").rewards([CaptionSample("A red star.")])
            [3.0]
        """
        return self._combine(*self._rate(self._rows_of(samples)), self.weights)

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a valid sample has no reward; None if it has one. Nothing is counted or logged.

        Example:
            >>> MetricReward("length").reason(CaptionSample("A red star.")) is None
            True
        """
        return self._rate(self._rows_of([sample]), report=False)[1].errors.get(0)

    def _rows_of(self, samples: Sequence[CaptionSample]) -> list[CaptionRow]:
        return [CaptionRow.of_sample(sample, strip_thinking=self.strip_thinking) for sample in samples]

    def aspects(self) -> list[AspectReward]:
        """One reward function per aspect, named `<name>_<aspect>`, for trainers that weigh or normalise each reward.

        They share this reward's model, and one forward pass serves all of them when they are called in turn for the
        same rows, as trainers do. The scores of the last call are kept for that, and belong to its captions,
        references and pixels.

        Example:
            >>> [aspect.__name__ for aspect in MetricReward("length", name="words").aspects()]
            ['words_length']
        """
        self._keep_last = True
        return [AspectReward(self, aspect) for aspect in self.spec.aspects]

    def aspect(self, name: str) -> AspectReward:
        """The reward function of one aspect, by its name or short name; see `aspects`.

        Raises:
            ConfigError: the metric has no such aspect.

        Example:
            >>> MetricReward("vela").aspect("flu").__name__
            'vela_fluency'
        """
        aspect = self.spec.aliases.get(name, name)
        if aspect not in self.spec.aspects:
            known = list_names(self.spec.aspects, self.spec.aliases)
            raise ConfigError(f"{self.__name__}: metric {self.spec.name!r} has no aspect {name!r}; known: {known}")
        self._keep_last = True
        return AspectReward(self, aspect)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest reward, infinite where the metric knows no bound."""
        return weighted_range(self.weights, [self.spec.range] * len(self.weights))

    def _rate_call(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]
    ) -> tuple[list[CaptionRow], ScoreTable]:
        """Rows and scores of a trainer's call."""
        check_one_name(self, columns.get("trainer_state"))
        options = {name: getattr(self, name) for name in ("image_column", "references_column", "strip_thinking")}
        options["further"] = self.spec.columns
        return self._rate(read_rows(prompts, completions, columns, **options), by_trainer=True)

    def _rate(
        self, rows: list[CaptionRow], *, by_trainer: bool = False, report: bool = True
    ) -> tuple[list[CaptionRow], ScoreTable]:
        """Rows and their scores (N, A): the lowest for captions without a word, NaN and a counted failure for none."""
        with self._lock:  # one forward pass at a time, and the kept rows belong to the kept table
            if rows:
                self._load()  # only the checkpoint knows what it needs
            rows = [row.check_needs(self.spec, self._scorer) for row in rows]
            if self._keep_last:
                with_images = bool(getattr(self._scorer, "reads_images", True))
                contents = [row.content(with_image=with_images) for row in rows]
                last = self._last
                if last is not None and last[0] == contents:
                    return rows, last[1]
            samples = {index: row.sample for index, row in enumerate(rows) if row.sample is not None}
            part, scored = self.score(list(samples.values())), list(samples)

            scores = np.full((len(rows), len(self.spec.aspects)), np.nan)
            truncated = np.zeros(len(rows), dtype=bool)
            scores[scored] = np.where(np.isfinite(part.scores), part.scores, np.nan)
            truncated[scored] = part.truncated
            problems = {index: row.problem for index, row in enumerate(rows) if row.problem is not None}
            for position, index in enumerate(scored):
                if np.isnan(scores[index]).any():
                    reason = part.errors.get(position, f"the metric gave {part.scores[position].tolist()}")
                    problems[index] = Problem("not scored by the metric", reason)
            wordless = [index for index, row in enumerate(rows) if row.is_wordless]
            scores[wordless] = self.spec.range[0]
            if report:
                self._report(problems, len(wordless))
                self.thinking_cut += sum(row.thinking_cut for row in rows)
            if by_trainer and rows and self._is_first_call:
                self._look_at_first_call(rows, problems)
            errors = {index: problem.message for index, problem in problems.items()}
            table = ScoreTable(scores, self.spec.aspects, errors, truncated, aliases=self.spec.aliases)
            if self._keep_last:
                self._last = (contents, table)
            return rows, table

    def _look_at_first_call(self, rows: list[CaptionRow], problems: dict[int, Problem]) -> None:
        try:
            check_first_call(self.__name__, self.spec, rows, problems)
        except InvalidSampleError as error:
            if not self.goes_on:
                raise
            logger.warning("%s", error)
        self._is_first_call = False

    def _report(self, problems: dict[int, Problem], wordless: int) -> None:
        if problems and self.on_error == "raise":
            index, problem = min(problems.items())
            raise InvalidSampleError(
                f"{self.__name__}: row {index} cannot be scored ({problem.kind}): {problem.message}"
            )
        kinds = Counter(problem.kind for problem in problems.values())
        if wordless:
            kinds["empty caption"] = wordless
        for kind, count in kinds.items():
            before = self.failures[kind]
            self.failures[kind] += count
            if before == 0 or len(str(before)) < len(str(self.failures[kind])):  # at 1, 10, 100, ...
                example = next((p.message for p in problems.values() if p.kind == kind), "given the lowest score")
                count = self.failures[kind]
                logger.warning("%s: %d row%s so far: %s (%s)", self.__name__, count, "s" * (count != 1), kind, example)

    def _log_means(self, table: ScoreTable, log_metric: Callable[[str, float], None]) -> None:
        scored = table.scores[np.isfinite(table.scores).all(axis=1)]
        for aspect, values in zip(self.spec.aspects, scored.T, strict=True):
            log_rows(log_metric, f"{self.__name__}/{aspect}", values)

    def _log_shares(self, rows: list[CaptionRow], table: ScoreTable, log_metric: Callable[[str, float], None]) -> None:
        log_rows(log_metric, f"{self.__name__}/unscored", ~np.isfinite(table.scores).all(axis=1))
        log_rows(log_metric, f"{self.__name__}/truncated", table.truncated)
        if self.thinking_cut:  # of policies that do not think there is nothing to tell
            log_rows(log_metric, f"{self.__name__}/thinking_cut", [row.thinking_cut for row in rows])

    def _combine(self, rows: list[CaptionRow], table: ScoreTable, weights: np.ndarray) -> list[float | None]:
        used = weights != 0  # an aspect without weight must not spread its NaN
        combined = table.scores[:, used] @ weights[used]
        lowest, _ = weighted_range(weights, [self.spec.range] * len(weights))
        if not math.isfinite(lowest):  # no wordless caption beats another of its call
            lowest = min(combined[np.isfinite(combined)], default=math.nan)
        rewards = [float(lowest if row.is_wordless else value) for row, value in zip(rows, combined, strict=True)]
        return [value if math.isfinite(value) else None for value in rewards]

    def load(self) -> Self:
        """Loads the model now, and gives the reward back. What is wrong shows before a trainer loads its policy.

        Example:
            >>> MetricReward("length").load().rewards([CaptionSample("A red star.")])
            [3.0]
        """
        with self._lock:
            scorer = self._load()
            if self.offload:
                with away_between_calls(scorer):
                    pass  # it waits in the CPU's memory
        return self

    def _load(self) -> Scorer:
        self._check_usable()
        if self._scorer is None:
            scorer = self._given_scorer
            if scorer is None:
                load = partial(load_scorer, self.spec.name, self.source, **self._loading)
                scorer = load_beside_a_trainer(load, self._device)
            # a checkpoint may have fewer aspects than its metric, or need no image
            self.weights = scorer.spec.weigh(self._given_weights)
            self.spec = scorer.spec
            self._scorer = scorer
        return self._scorer

    def _start_empty(self) -> None:
        super()._start_empty()
        self._last = None
        self._is_first_call = True

    def __repr__(self) -> str:
        weights = dict(zip(self.spec.aspects, self.weights.round(4).tolist(), strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, source={str(self.source)!r}, weights={weights})"
