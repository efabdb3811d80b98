"""JudgedScorer: base of the metrics that ask a judge."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from reward.checkpoints.code import fingerprint_code
from reward.checkpoints.fingerprint_objects import fingerprint_scorer
from reward.checkpoints.fingerprints import split_sources
from reward.checkpoints.folders import named_metric, read_config, save_checkpoint
from reward.data.samples import ImageLike
from reward.data.score_table import ScoreTable
from reward.errors import CheckpointError, ConfigError
from reward.judges.asking import asking_for
from reward.judges.base import Judge
from reward.judges.sources import is_server, load_judge
from reward.judges.wording import JudgePrompt, pad_to_square
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group, windows

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class JudgedCaption(NamedTuple):
    """A caption as the judge sees it, with the image and the references that it sees.

    `context` is that of its group. `truncated` says that a text was too long, and was cut.
    """

    candidate: str
    image: ImageLike | None
    references: list[str]
    context: Any
    truncated: bool


class JudgedScorer(CaptionScorer):
    """Base of the metrics that ask a judge: derive, set `spec`, `prompt_class` and `saved`, and write `rate`.

    Args:
        judge: the model that answers; a list of several where `asks_several`.
        prompt: of `prompt_class`, its fields, or a YAML file with them; None is the one that ships.
        max_characters: most characters of a candidate that the judge sees; references together get twice as many.
            What is longer is cut and flagged in `ScoreTable.truncated`.
        pad_images: whether images are padded to squares before the judge sees them.

    Attributes:
        saved: names of the attributes that are arguments of the class, besides prompt and these.
    """

    window_size = 256
    asks_several: ClassVar[bool] = False
    prompt_class: ClassVar[type[JudgePrompt]]
    saved: ClassVar[tuple[str, ...]] = ()
    prompt: Any

    def __init__(
        self,
        judge: Judge | Sequence[Judge],
        *,
        prompt: Any = None,
        max_characters: int = 4000,
        pad_images: bool = False,
    ) -> None:
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
        self.prompt = self.prompt_class.of(prompt)
        self.max_characters = max_characters
        self.pad_images = self.decodes_images = pad_images
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
        prices: Sequence[float] | None = None,
        extra_body: Any = None,
        timeout: float | None = None,
        retries: int | None = None,
        top_logprobs: int | None = None,
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
            cache, concurrency, prices, extra_body, timeout, retries, top_logprobs: for a server, see `ServerJudge`.
            settings: arguments of the class, which replace saved ones.

        Raises:
            CheckpointError: there is no such folder or model, it belongs to another metric, or none is given: no
                judge ships with this package.
            JudgeError: the model cannot be a judge for this metric.
        """
        metric, place = cls.spec.name, os.fspath(source)
        if place == "embedded":
            raise CheckpointError(
                f"no judge for {metric} is shipped with this package. Give a vision-language model, as a folder or a "
                f"Hub id: load_scorer({metric!r}, 'name/model'), or -m {metric}=name/model. For a server: "
                f"-m {metric}=http://localhost:8000/v1#name/model, or {cls.__name__}(ServerJudge(...)) of reward.judges"
            )
        origin: dict[str, Any] = {"source": place, "revision": revision}
        if named_metric(source) is not None:  # not a model's own folder, nor a Hub id
            saved = read_config(source, metric=metric)
            settings = {**{name: value for name, value in saved.items() if name not in ("metric", "judge")}, **settings}
            origin = saved.get("judge") or {}
        told: Any = judge
        if judge is None:
            if not origin:
                raise CheckpointError(
                    f"{place!r} was saved with a judge that cannot be loaded from files; give one: "
                    f"{cls.__name__}.from_pretrained({place!r}, judge=...)"
                )
            server = {"cache": cache, "concurrency": concurrency, "prices": prices, "extra_body": extra_body}
            server |= {"timeout": timeout, "retries": retries, "top_logprobs": top_logprobs}
            local = {"revision": origin.get("revision"), "device": device, "dtype": dtype}
            told = [
                load_judge(each, **server | ({} if is_server(each) else local))
                for each in split_sources(origin["source"])
            ]
        scorer = cls(told, **settings)
        if origin:
            places = split_sources(origin["source"])
            places = [os.path.abspath(each) if os.path.isdir(each) else each for each in places]
            scorer._origin = {**origin, "source": ",".join(places)}
        return scorer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the prompt, the settings and the name of the judge's model, but not its weights.

        `from_pretrained` loads the model from the same source again. If the judge was given as an object, such as a
        server, it must be given again.
        """
        config = {"metric": self.spec.name, "judge": self._origin, **self._settings()}
        card = (
            f"# {self.spec.name}\n\nPrompt and settings of a metric that asks a judge: {self.judge_names}. No weights "
            f"are here.\n\nSource: {self.spec.paper}.\n"
        )
        save_checkpoint(folder, config=config, tensors={}, card=card)

    def _settings(self) -> dict[str, Any]:
        """The arguments of the class, as plain values."""
        own = {name: getattr(self, name) for name in (*self.saved, "max_characters", "pad_images")}
        return {"prompt": self.prompt.to_json(), **own}

    @property
    def fingerprint(self) -> str:
        """Names judge, wording, settings and code; a resumed run continues only if they are unchanged."""
        code = fingerprint_code(*(each.__module__ for each in type(self).__mro__))
        made_of = {"judge": [fingerprint_scorer(each) for each in self.judges], "code": code, **self._settings()}
        return f"{self.judge_names} {hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]}"

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
        captions = [
            self.seen(candidate, group.features, group.references, group.context)
            for group in groups
            for candidate in group.rows
        ]
        results = self.rate(captions)
        none = [np.nan] * len(self.spec.aspects)
        return CandidateScores(
            [none if isinstance(result, str) else result for result in results],
            [caption.truncated for caption in captions],
            {index: result for index, result in enumerate(results) if isinstance(result, str)},
        )

    def seen(
        self, candidate: str, image: ImageLike | None, references: Sequence[str] = (), context: Any = None
    ) -> JudgedCaption:
        """A caption with texts that are cut to `max_characters`; of the references the longest are cut first."""
        candidate, texts = candidate.strip(), [reference.strip() for reference in references]
        room = left = 2 * self.max_characters
        shares = [0] * len(texts)
        for done, index in enumerate(sorted(range(len(texts)), key=lambda index: len(texts[index]))):
            shares[index] = min(len(texts[index]), left // (len(texts) - done))
            left -= shares[index]
        shown = [text[:share] for text, share in zip(texts, shares, strict=True) if share]
        truncated = len(candidate) > self.max_characters or sum(map(len, texts)) > room
        return JudgedCaption(candidate[: self.max_characters], image, shown, context, truncated)

    def score_samples(self, *arguments: Any, **options: Any) -> ScoreTable:
        """See `CaptionScorer`. Judges that wait for a server say for which metric they are asked."""
        with asking_for(self.spec.name):
            return super().score_samples(*arguments, **options)

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        # padded images are held in memory, others are opened by the judge
        most_images = self.images_per_pass if self.pad_images else None
        return windows(groups, batch_size or self.window_size, most_images)

    def _warn(self, count: int, failed: dict[int, str], truncated: np.ndarray) -> None:
        if failed:
            told = "%s: %d of %d samples got no score from the judge, such as: %s"
            logger.warning(told, self.spec.name, len(failed), count, failed[min(failed)])
        super()._warn(count, failed, truncated)
