"""JudgedScorer: base of the metrics that ask a judge."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reward.checkpoints import named_metric, read_config, save_checkpoint
from reward.errors import CheckpointError, ConfigError, JudgeError
from reward.fingerprint_objects import fingerprint_scorer
from reward.fingerprints import fingerprint_code, split_sources
from reward.judges.base import Judge
from reward.judges.wording import pad_to_square
from reward.metrics.groups import Group, windows
from reward.metrics.scorer import CandidateScores, CaptionScorer
from reward.samples import ImageLike

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Self

__all__ = ["JudgedCaption", "JudgedScorer", "ask"]

logger = logging.getLogger(__name__)


class JudgedCaption:
    """A caption as the judge sees it: texts that are too long are cut.

    Args:
        candidate: the caption.
        image: the image that the judge sees.
        references: the references that the judge sees.
        room: most characters of the candidate. All references together get twice as many, evenly.
        context: see `Group.context`.
    """

    def __init__(
        self,
        candidate: str,
        image: ImageLike | None,
        references: Sequence[str],
        room: int,
        context: Any = None,
    ) -> None:
        references = [reference.strip() for reference in references]
        self.image, self.context = image, context
        self.candidate = candidate.strip()[:room]
        self.references = _cut_evenly(references, 2 * room)
        self.truncated = len(candidate.strip()) > room or sum(map(len, references)) > 2 * room


class JudgedScorer(CaptionScorer):
    """Base of the metrics that ask a judge: derive, set `spec`, and write `rate` and `_saved_settings`.

    Args:
        judge: the model that answers; a list of several where `asks_several`.
        max_characters: most characters of a candidate that the judge sees; references together get twice as many.
            What is longer is cut and flagged in `ScoreTable.truncated`.
        pad_images: whether images are padded to squares before the judge sees them.
    """

    window_size = 256
    asks_several: ClassVar[bool] = False

    def __init__(self, judge: Judge | Sequence[Judge], *, max_characters: int = 4000, pad_images: bool = False) -> None:
        self.judges: tuple[Judge, ...] = tuple(judge) if isinstance(judge, (list, tuple)) else (judge,)  # type: ignore[assignment]
        for each in self.judges:
            if not isinstance(each, Judge):
                name = type(self).__name__
                raise TypeError(
                    f"{name} needs a judge, got {type(each).__name__}: pass a LocalJudge or a ServerJudge of "
                    f"reward.judges, or load a vision-language model with {name}.from_pretrained(folder or Hub id)"
                )
        if len(self.judges) != 1 and not (self.asks_several and self.judges):
            raise ConfigError(f"metric {self.spec.name!r} asks one judge, got {len(self.judges)}")
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, got {max_characters}")
        self.judge = self.judges[0]
        self.max_characters = max_characters
        self.pad_images = pad_images
        self.decodes_images = pad_images
        self._origin: dict[str, Any] | None = None  # what from_pretrained loaded the judge from

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        judge: Judge | None = None,
        cache: str | os.PathLike[str] | None = None,
        concurrency: int | None = None,
        **settings: Any,
    ) -> Self:
        """Loads the scorer with a judge on this machine, or behind a server.

        Args:
            source: folder or Hub id of a vision-language model that `AutoModelForImageTextToText` knows; the address
                of an OpenAI-compatible server and a model of it, as in `"http://localhost:8000/v1#name/model"`; several
                of both, separated by commas, for the mean; or a folder that `save_pretrained` wrote.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; by default what the model is stored in.
            judge: for a folder of `save_pretrained`: replaces the model that is named there.
            cache, concurrency: for a server, see `ServerJudge`.
            settings: arguments of the class, which replace saved ones.

        Raises:
            CheckpointError: there is no such folder or model, it belongs to another metric, or none is given: no
                judge ships with this package.
            JudgeError: the model cannot be a judge for this metric.
        """
        metric = cls.spec.name
        if os.fspath(source) == "embedded":
            raise CheckpointError(
                f"no judge for {metric} is shipped with this package. Give a vision-language model, as a folder or a "
                f"Hub id: load_scorer({metric!r}, 'name/model'), or -m {metric}=name/model. For a server: "
                f"-m {metric}=http://localhost:8000/v1#name/model, or {cls.__name__}(ServerJudge(...)) of reward.judges"
            )
        saved = _saved_config(source, metric)
        origin: dict[str, Any] = {"source": os.fspath(source), "revision": revision}
        if saved is not None:
            settings = {**{name: value for name, value in saved.items() if name not in ("metric", "judge")}, **settings}
            origin = saved.get("judge") or {}
        told: Any = judge
        if judge is None:
            if not origin:
                raise CheckpointError(
                    f"{os.fspath(source)!r} was saved with a judge that cannot be loaded from files; give one: "
                    f"{cls.__name__}.from_pretrained({os.fspath(source)!r}, judge=...)"
                )
            server = {"cache": cache, "concurrency": concurrency}
            server = {name: value for name, value in server.items() if value is not None}
            local = {"revision": origin.get("revision"), "device": device, "dtype": dtype}
            told = [_load_judge(each, local, server) for each in split_sources(origin["source"])]
        scorer = cls(told, **settings)
        if origin:
            places = [
                os.path.abspath(each) if os.path.isdir(each) else each for each in split_sources(origin["source"])
            ]
            scorer._origin = {**origin, "source": ",".join(places)}
        return scorer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the prompt, the settings and the name of the judge's model, but not its weights.

        `from_pretrained` loads the model from the same source again. If the judge was given as an object, such as a
        server, it must be given again.
        """
        config = {"metric": self.spec.name, "judge": self._origin, **self._saved_settings()}
        config |= {"max_characters": self.max_characters, "pad_images": self.pad_images}
        card = (
            f"# {self.spec.name}\n\nPrompt and settings of a metric that asks a judge: {self.judge_names}. No weights "
            f"are here.\n\nSource: {self.spec.paper}.\n"
        )
        save_checkpoint(folder, config=config, tensors={}, card=card)

    @property
    def fingerprint(self) -> str:
        """Names judge, wording, settings and code; a resumed run continues only if they are unchanged."""
        code = fingerprint_code(*(each.__module__ for each in type(self).__mro__))
        settings = {
            "judge": [fingerprint_scorer(each) for each in self.judges],
            "code": code,
            "max_characters": self.max_characters,
            **self._saved_settings(),
        }
        settings["pad_images"] = self.pad_images
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return f"{self.judge_names} {digest[:16]}"

    @property
    def judge_names(self) -> str:
        return ", ".join(each.name for each in self.judges)

    @abstractmethod
    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """The scores of each caption, or why there are none.

        Raises:
            JudgeError: the judge itself fails: wrong key, server down, a tokenizer that does not fit the metric.
        """

    def preprocess(self, image: Image.Image) -> Image.Image:
        return pad_to_square(image)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, A). How many questions run together is the judge's own matter."""
        captions = [self._seen(candidate, group) for group in groups for candidate in group.rows]
        results = self.rate(captions)
        none = [np.nan] * len(self.spec.aspects)
        return CandidateScores(
            [none if isinstance(result, str) else result for result in results],
            [caption.truncated for caption in captions],
            {index: result for index, result in enumerate(results) if isinstance(result, str)},
        )

    def _seen(self, candidate: str, group: Group) -> JudgedCaption:
        return JudgedCaption(candidate, group.features, group.references, self.max_characters, group.context)

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        # padded images are held in memory, others are opened by the judge
        most_images = self.images_per_pass if self.pad_images else None
        return windows(groups, batch_size or self.window_size, most_images)

    def _warn(self, count: int, failed: dict[int, str], truncated: np.ndarray) -> None:
        if failed:
            example = failed[min(failed)]
            logger.warning(
                "%s: %d of %d samples got no score from the judge, such as: %s",
                self.spec.name,
                len(failed),
                count,
                example,
            )
        super()._warn(count, failed, truncated)

    @abstractmethod
    def _saved_settings(self) -> dict[str, Any]:
        """Settings for config.json, as plain values."""


def ask(method: Callable[..., Any], questions: Sequence[Any], **options: Any) -> tuple[Any, dict[int, str]]:
    """Calls a method of a judge. Failures of single questions are returned, not raised.

    Returns:
        (results, {index: reason}).
    """
    try:
        return method(questions, **options), {}
    except JudgeError as error:
        if not error.failures:
            raise
        return error.results, error.failures


def _load_judge(place: str, local: dict[str, Any], server: dict[str, Any]) -> Judge:
    """The judge of one source: at an address, by the model behind `#` or the only one there, else on this machine."""
    from reward.judges import LocalJudge, ServerJudge

    if not place.startswith(("http://", "https://")):
        if server:
            raise ConfigError(
                f"{', '.join(server)} is for a judge behind a server, as in http://localhost:8000/v1#{place}"
            )
        return LocalJudge.from_pretrained(place, **local)
    address, _, model = place.partition("#")
    if not model:
        asked = ServerJudge("", address, **server)
        models = asked.models()
        asked.close()
        if len(models) != 1:
            raise ConfigError(f"name the model behind {place}, as in {place}#{(models or ['name/model'])[0]}")
        (model,) = models
    return ServerJudge(model, address, **server)


def _saved_config(source: str | os.PathLike[str], metric: str) -> dict[str, Any] | None:
    """The config of a folder that `save_pretrained` wrote; None for a model's own folder or a Hub id."""
    return None if named_metric(source) is None else read_config(source, metric=metric)


def _cut_evenly(texts: list[str], room: int) -> list[str]:
    """Cuts texts to `room` characters together, the longest first; texts without any characters left are dropped."""
    left, share = room, {}
    for done, index in enumerate(sorted(range(len(texts)), key=lambda index: len(texts[index]))):
        share[index] = min(len(texts[index]), left // (len(texts) - done))
        left -= share[index]
    return [texts[index][: share[index]] for index in range(len(texts)) if share[index]]
