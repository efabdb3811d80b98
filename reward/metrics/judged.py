"""JudgedScorer: base of the metrics that ask a judge: loading, saving, cutting texts, samples without an answer."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.checkpoints import CONFIG_FILE, read_config, save_checkpoint
from reward.errors import CheckpointError, ImageError, JudgeError
from reward.judges.base import Judge
from reward.judges.wording import pad_to_square
from reward.metrics.base import MetricSpec
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable
from reward.scoring.fingerprints import fingerprint_source
from reward.scoring.grouping import group_samples

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Asked", "JudgedScorer", "ask"]

logger = logging.getLogger(__name__)

_WINDOW = 256  # samples whose questions are put to the judge at a time


class Asked:
    """A sample as the judge is to see it: texts that are too long are cut.

    Args:
        sample: the sample.
        room: most characters of the candidate. All references together get twice as many, evenly.
        use_references: whether the judge is to see references at all.
    """

    def __init__(self, sample: CaptionSample, room: int, *, use_references: bool) -> None:
        references = [reference.strip() for reference in sample.references] if use_references else []
        self.image = sample.image
        self.candidate = sample.candidate.strip()[:room]
        self.references = _cut_evenly(references, 2 * room)
        self.truncated = len(sample.candidate.strip()) > room or sum(map(len, references)) > 2 * room


class JudgedScorer(ABC):
    """A scorer whose model is a judge: derive, set `spec`, and write `_rate`, `_table` and the settings to be saved.

    Args:
        judge: the model that is asked.
        max_characters: most characters of a candidate that the judge sees; references together get twice as many.
            What is longer is cut and flagged in `ScoreTable.truncated`.
        pad_images: whether images are padded to squares before the judge sees them.
    """

    spec: MetricSpec
    use_references = False  # whether the judge sees references

    def __init__(self, judge: Judge, *, max_characters: int = 4000, pad_images: bool = False) -> None:
        if not isinstance(judge, Judge):
            name = type(self).__name__
            raise TypeError(
                f"{name} needs a judge, got {type(judge).__name__}: pass a LocalJudge or a ServerJudge of "
                f"reward.judges, or load a vision-language model with {name}.from_pretrained(folder or Hub id)"
            )
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, got {max_characters}")
        self.judge = judge
        self.max_characters = max_characters
        self.pad_images = pad_images
        self._padded: tuple[Any, Any] = (None, None)  # the last image, and it padded: captions of one come together
        self._origin: dict[str, Any] | None = None  # where from_pretrained found the judge

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        judge: Judge | None = None,
        **settings: Any,
    ) -> Self:
        """Loads the scorer with a judge on this machine.

        Args:
            source: folder or Hub id of a vision-language model that `AutoModelForImageTextToText` knows, or a folder
                that `save_pretrained` wrote.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; by default what the model is stored in.
            judge: for a folder of `save_pretrained`: asked instead of the model that is named there.
            settings: arguments of the class, instead of those that were saved.

        Raises:
            CheckpointError: no such folder or model, one of another metric, or none is given: no model ships with
                this package.
            JudgeError: the model cannot be a judge for this metric.
        """
        metric = cls.spec.name
        if os.fspath(source) == "embedded":
            raise CheckpointError(
                f"no judge for {metric} is shipped with this package. Give a vision-language model, as a folder or a "
                f"Hub id: load_scorer({metric!r}, 'name/model'). For a server: {cls.__name__}(ServerJudge(...)), see "
                "reward.judges."
            )
        saved = _saved_config(source, metric)
        origin: dict[str, Any] = {"source": str(source), "revision": revision}
        if saved is not None:
            settings = {**cls._settings_of(saved), **settings}
            origin = saved.get("judge") or {}
        if judge is None:
            if not origin:
                raise CheckpointError(
                    f"{os.fspath(source)!r} was saved with a judge that cannot be loaded from files; give one: "
                    f"{cls.__name__}.from_pretrained({os.fspath(source)!r}, judge=...)"
                )
            from reward.judges import LocalJudge

            judge = LocalJudge.from_pretrained(
                origin["source"], revision=origin.get("revision"), device=device, dtype=dtype
            )
        scorer = cls(judge, **settings)
        if origin:
            folder = Path(origin["source"])
            scorer._origin = {**origin, "source": str(folder.absolute()) if folder.is_dir() else origin["source"]}
        return scorer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the prompt, the settings and the name of the judge's model, but not its weights.

        `from_pretrained` loads the model from where it was loaded before. If it was not loaded by `from_pretrained`,
        but given as an object, a server say, the judge must be given again.
        """
        config = {"metric": self.spec.name, "judge": self._origin, **self._saved_settings()}
        config |= {"max_characters": self.max_characters, "pad_images": self.pad_images}
        card = (
            f"# {self.spec.name}\n\nPrompt and settings of a metric that asks a judge: {self.judge.name}. There are no "
            f"weights here.\n\nSource: {self.spec.paper}.\n"
        )
        save_checkpoint(folder, config=config, tensors={}, card=card)

    @property
    def fingerprint(self) -> str:
        """What scores depend on: judge, wording and settings; a resumed run goes on only if it is the same."""
        import hashlib
        import json

        judge = fingerprint_source(self.judge.name)  # of the files, if it is a folder
        settings = {"judge": judge, "max_characters": self.max_characters, **self._saved_settings()}
        settings["pad_images"] = self.pad_images
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return f"{self.judge.name} {digest[:16]}"

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) in the order of the samples.

        A sample without a readable image, or whose answer cannot be read, gets NaN and an error.

        Args:
            samples: any number.
            batch_size: most samples whose questions are put to the judge at a time; 256 by default. How many of them
                run together is the judge's own matter.
            progress: whether to show a progress bar.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
            JudgeError: the judge itself fails: wrong key, server down, a tokenizer that does not fit the metric.
        """
        return self._score(samples, [None] * len(samples), batch_size, progress)

    def _score(
        self, samples: Sequence[CaptionSample], contexts: Sequence[Any], batch_size: int | None, progress: bool
    ) -> ScoreTable:
        check_samples(samples, batch_size)
        order, errors = self._order(samples)
        results: list[Any] = [None] * len(samples)
        truncated = np.zeros(len(samples), dtype=bool)
        step = batch_size or _WINDOW
        with _progress(self.spec.name, len(samples), progress) as advance:
            for start in range(0, len(order), step):
                rows = order[start : start + step]
                asked = [self._asked(samples[row]) for row in rows]
                rated = self._rate(asked, [contexts[row] for row in rows])
                for row, one, result in zip(rows, asked, rated, strict=True):
                    truncated[row] = one.truncated
                    if isinstance(result, str):
                        errors[row] = result
                    else:
                        results[row] = result
                advance(len(rows))
        unread = len(order) - sum(result is not None for result in results)
        if unread:
            example = next(errors[row] for row in order if row in errors)
            logger.warning(
                "%s: %d of %d samples got no score from the judge, such as: %s",
                self.spec.name,
                unread,
                len(samples),
                example,
            )
        if truncated.any():
            logger.warning("%s: %d of %d samples had text cut", self.spec.name, int(truncated.sum()), len(samples))
        return self._table(results, errors, truncated)

    def _order(self, samples: Sequence[CaptionSample]) -> tuple[list[int], dict[int, str]]:
        """Rows that can be asked about, those of one image next to each other, and {row: error} of the others."""
        order: list[int] = []
        errors: dict[int, str] = {}
        for group in sorted(group_samples(samples), key=lambda group: group.image_key or ""):
            rows = [row for same in group.rows.values() for row in same]
            if group.image_key is None:
                reason = group.error or f"{self.spec.name} needs an image, and this sample has none"
                errors.update(dict.fromkeys(rows, reason))
            else:
                order += rows
        return order, errors

    def _asked(self, sample: CaptionSample) -> Asked:
        asked = Asked(sample, self.max_characters, use_references=self.use_references)
        if self.pad_images and asked.image is not None:
            image, padded = self._padded
            if image is not asked.image:
                try:
                    padded = pad_to_square(asked.image)
                except ImageError:  # the judge says so, for this sample
                    return asked
                self._padded = asked.image, padded
            asked.image = padded
        return asked

    @abstractmethod
    def _rate(self, asked: list[Asked], contexts: list[Any]) -> list[Any]:
        """A result for each sample, or a string that says why there is none."""

    @abstractmethod
    def _table(self, results: list[Any], errors: dict[int, str], truncated: np.ndarray) -> ScoreTable:
        """Results by row, None for rows in `errors`, as a table."""

    @abstractmethod
    def _saved_settings(self) -> dict[str, Any]:
        """Settings for the config, as plain values."""

    @classmethod
    def _settings_of(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the class from a saved config."""
        return {name: value for name, value in config.items() if name not in ("metric", "judge")}


def ask(method: Callable[..., Any], questions: Sequence[Any], **options: Any) -> tuple[Any, dict[int, str]]:
    """Calls a method of a judge; single questions that fail are told beside the results instead of raised.

    Returns:
        (results, {index: reason}).
    """
    try:
        return method(questions, **options), {}
    except JudgeError as error:
        if not error.failures:
            raise
        return error.results, error.failures


def _saved_config(source: str | os.PathLike[str], metric: str) -> dict[str, Any] | None:
    """The config of a folder of `save_pretrained`; None for a model's own folder or a Hub id."""
    path = Path(source) / CONFIG_FILE
    if not path.is_file():
        return None
    import json

    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not JSON
        raise CheckpointError(f"{str(path)!r} cannot be read: {error}") from error
    if isinstance(config, dict) and "metric" in config:
        return read_config(source, metric=metric)
    return None


def _cut_evenly(texts: list[str], room: int) -> list[str]:
    """Texts that are together no longer than `room`: the longest are cut first; those left with nothing go."""
    left, share = room, {}
    for done, index in enumerate(sorted(range(len(texts)), key=lambda index: len(texts[index]))):
        share[index] = min(len(texts[index]), left // (len(texts) - done))
        left -= share[index]
    return [texts[index][: share[index]] for index in range(len(texts)) if share[index]]


@contextmanager
def _progress(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda count: None
        return
    from reward.backbones.inference import scoring_progress  # brings torch, which a remote judge does not need

    with scoring_progress(name, total, shown) as advance:
        yield advance
