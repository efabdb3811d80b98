"""JudgedScorer: base of the metrics that ask a judge."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from reward.checkpoints.code import fingerprint_code
from reward.checkpoints.fingerprint_objects import fingerprint_scorer
from reward.checkpoints.fingerprints import split_sources
from reward.checkpoints.folders import named_metric, read_config, save_checkpoint
from reward.data.samples import ImageLike
from reward.data.written_captions import without_reasoning
from reward.errors import CheckpointError, ConfigError, JudgeError
from reward.judges.base import Judge, Question, ask
from reward.judges.loading import is_server, load_judge
from reward.judges.wording import JudgePrompt, check_text, quoted
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group, windows

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

EXPLANATION = "explanation"  # the column of the judge's reasons
EXPLANATION_LENGTH = 256  # tokens


class JudgedCaption(NamedTuple):
    """A caption as the judge sees it.

    Args:
        candidate: the caption, cut to `max_characters`.
        image: as the judge sees it; None if the sample has none.
        references: those that are shown, cut as well.
        context: that of its group, see `CaptionScorer.context`.
        truncated: whether a text was cut.
    """

    candidate: str
    image: ImageLike | None
    references: list[str]
    context: Any
    truncated: bool


class Rating(NamedTuple):
    """What a judge made of a caption.

    Args:
        scores: one an aspect.
        turns: the questions that were asked about the caption, each with the judge's answer. Where an explanation is
            wanted, it is asked for as the next turn of this conversation.
        explanation: the judge's reason, if it was given before the scores.
        texts: {name: text} of the metric's own `MetricSpec.texts`.
    """

    scores: Sequence[float]
    turns: Sequence[tuple[Question, str]] = ()
    explanation: str | None = None
    texts: Mapping[str, str] = {}


class JudgedScorer(CaptionScorer):
    """Base of the metrics that ask a judge: derive, set `spec`, `prompt_class` and `saved`, and write `rate`.

    Args:
        judge: the model that answers; a list of several where `asks_several`.
        prompt: of `prompt_class`, its fields, or a YAML file with them; None is the one that ships.
        max_characters: most characters of a candidate that the judge sees; references together get twice as many.
            What is longer is cut and flagged in `ScoreTable.truncated`.
        explain: whether the judge is asked for the reason of its scores, which costs one question a caption more; the
            first judge, where there are several. `ScoreTable.texts["explanation"]` has the reasons. One that fails
            leaves the scores as they are, and `ScoreTable.errors` says why.

    Attributes:
        saved: names of the attributes that are arguments of the class, besides prompt and these.
    """

    window_size = 256
    decodes_images = False
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
        explain: bool = False,
    ) -> None:
        judges: Any = [judge]
        if isinstance(judge, (list, tuple)):
            judges = judge
        for model in judges:
            if not isinstance(model, Judge):
                name = type(self).__name__
                raise TypeError(
                    f"{name} needs a judge, got {type(model).__name__}: pass a LocalJudge or a ServerJudge of "
                    f"reward.judges, or load a vision-language model with {name}.from_pretrained(folder or Hub id)"
                )
        if len(judges) != 1 and not (self.asks_several and judges):
            raise ConfigError(f"metric {self.spec.name!r} asks one judge, got {len(judges)}")
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, got {max_characters}")
        if not isinstance(explain, bool):
            raise ConfigError(f"explain must be true or false, got {explain!r:.80}")
        self.judges: tuple[Judge, ...] = tuple(judges)
        self.judge = self.judges[0]
        self.prompt = self.prompt_class.of(prompt)
        self.max_characters = max_characters
        self.explain: bool | str = explain
        if explain:
            check_text(self.prompt.explain, "explain")
            self.spec = replace(self.spec, texts=(*self.spec.texts, EXPLANATION))
        self._origin: dict[str, Any] | None = None  # what from_pretrained loaded the judge from

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        max_thinking: int | None = None,
        judge: Judge | None = None,
        cache: str | os.PathLike[str] | None = None,
        concurrency: int | None = None,
        prices: Sequence[float] | None = None,
        extra_body: Any = None,
        timeout: float | None = None,
        retries: int | None = None,
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
            max_thinking: most tokens of a judge's thought, see `LocalJudge`.
            judge: for a folder of `save_pretrained`: replaces the model that is named there.
            cache, concurrency, prices, extra_body, timeout, retries: for a server, see `ServerJudge`.
            settings: arguments of the class, which replace saved ones.

        Raises:
            CheckpointError: there is no such folder or model, it belongs to another metric, or none is given: no
                judge ships with this package.
            JudgeError: the model cannot be a judge for this metric.
        """
        metric = cls.spec.name
        name = os.fspath(source)
        if name == "embedded":
            raise CheckpointError(
                f"no judge for {metric} is shipped with this package: write {metric}=http://localhost:8000/v1#MODEL "
                f"for a model behind a server, {metric}=FOLDER or {metric}=HUB_ID for one on this machine"
            )
        origin: dict[str, Any] = {"source": name, "revision": revision}
        if named_metric(source) is not None:  # a folder of `save_pretrained`, and neither a model's nor a Hub id
            saved = dict(read_config(source, metric=metric))
            del saved["metric"]
            origin = saved.pop("judge") or {}
            for setting in saved.keys() - inspect.signature(cls).parameters.keys():
                raise CheckpointError(f"{name!r} has {setting!r}, which {metric} does not: take it out of config.json")
            settings = {**saved, **settings}
        if judge is None and not origin:
            raise CheckpointError(
                f"{name!r} was saved with a judge that cannot be loaded from files; give one: "
                f"{cls.__name__}.from_pretrained({name!r}, judge=...)"
            )
        judges: Any = judge
        if judge is None:
            server = {"cache": cache, "concurrency": concurrency, "prices": prices, "extra_body": extra_body}
            server |= {"timeout": timeout, "retries": retries}
            local = {"revision": origin.get("revision"), "device": device, "dtype": dtype}
            local |= {"max_thinking": max_thinking}
            judges = []
            for model in split_sources(origin["source"]):
                # A model on this machine refuses the options of a server.
                options = server if is_server(model) else server | local
                judges.append(load_judge(model, **options))
        scorer = cls(judges, **settings)
        if origin:
            models = split_sources(origin["source"])
            models = [os.path.abspath(model) if os.path.isdir(model) else model for model in models]
            scorer._origin = {**origin, "source": ",".join(models)}
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
        settings = {"prompt": self.prompt.to_json()}
        for name in (*self.saved, "max_characters", "explain"):
            settings[name] = getattr(self, name)
        return settings

    @property
    def fingerprint(self) -> str:
        """Names judge, wording, settings and code; a resumed run continues only if they are unchanged."""
        code = fingerprint_code(*(ancestor.__module__ for ancestor in type(self).__mro__))
        judges = [fingerprint_scorer(judge) for judge in self.judges]
        identity = json.dumps({"judge": judges, "code": code, **self._settings()}, sort_keys=True)
        return f"{self.judge_names} {hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @property
    def judge_names(self) -> str:
        return ", ".join(judge.name for judge in self.judges)

    @abstractmethod
    def rate(self, captions: list[JudgedCaption]) -> list[Rating | str]:
        """What the judge makes of each caption, or why it has no score.

        Raises:
            JudgeError: the judge itself fails: wrong key, server down, a tokenizer that does not fit the metric.
        """

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, A), and explanations where they are wanted. How many questions run together is for the judge."""
        captions = [self._cut(candidate, group) for group in groups for candidate in group.rows]
        ratings: dict[int, Rating] = {}
        errors: dict[int, str] = {}
        scores: list[Sequence[float]] = []
        for index, rating in enumerate(self.rate(captions)):
            if isinstance(rating, str):
                errors[index] = rating
                scores.append([np.nan] * len(self.spec.aspects))
            else:
                ratings[index] = rating
                scores.append(rating.scores)
        truncated = [caption.truncated for caption in captions]
        texts: dict[str, list[str | None]] = {name: [None] * len(captions) for name in self.spec.texts}
        for index, rating in ratings.items():
            for name, text in rating.texts.items():
                texts[name][index] = text
        remarks: dict[int, str] = {}
        if self.explain:
            explanations, remarks = self._explanations(ratings)
            texts[EXPLANATION] = [explanations.get(index) for index in range(len(captions))]
        return CandidateScores(scores, truncated, errors, texts, remarks)

    def _cut(self, candidate: str, group: Group) -> JudgedCaption:
        """A caption with texts that are cut to `max_characters`; of the references the longest are cut first."""
        candidate = candidate.strip()
        references = [reference.strip() for reference in group.references]
        characters_left = 2 * self.max_characters
        truncated = len(candidate) > self.max_characters or sum(map(len, references)) > characters_left
        # From the shortest on, each reference may take an equal share of what is left.
        lengths = [0] * len(references)
        shortest_first = sorted(range(len(references)), key=lambda index: len(references[index]))
        for count, index in enumerate(shortest_first):
            share = characters_left // (len(references) - count)
            lengths[index] = min(len(references[index]), share)
            characters_left -= lengths[index]
        shortened = [reference[:length] for reference, length in zip(references, lengths, strict=True) if length]
        return JudgedCaption(candidate[: self.max_characters], group.features, shortened, group.context, truncated)

    def _explanations(self, ratings: dict[int, Rating]) -> tuple[dict[int, str], dict[int, str]]:
        """The explanation of each rating, and {index: why there is none}."""
        explanations: dict[int, str] = {}
        questions: dict[int, Question] = {}
        for index, rating in ratings.items():
            if rating.explanation is None:
                questions[index] = self._next_question(rating)
            else:
                explanations[index] = rating.explanation
        try:
            reasons, failures = self.ask_reasons(questions)
        except JudgeError as error:
            # The scores are there, and stay. A judge that is gone ends the run at its next caption.
            reasons, failures = {}, dict.fromkeys(questions, f"the judge gave no explanation: {error}")
        return explanations | reasons, failures

    def _next_question(self, rating: Rating) -> Question:
        """The question for the reason, as the next turn of the conversation that led to a rating."""
        history: list[tuple[str, str]] = []
        images: list[ImageLike] = []
        for question, answer in rating.turns:
            # What the judge wrote may quote a caption, and so a chat marker of it.
            history += [("user", question.text), ("assistant", quoted(answer, quote=False))]
            if question.image is not None:
                images.append(question.image)
        image = images[0] if images else None  # a judge is shown one, before the first turn
        return Question(self.prompt.explain, image, system=self.prompt.system or None, history=tuple(history))

    def ask_reasons(self, questions: dict[int, Question]) -> tuple[dict[int, str], dict[int, str]]:
        """What the first judge says to questions for its reasons.

        Returns:
            ({key of a question: the reason}, {key of a question: why there is none}).

        Raises:
            JudgeError: the judge itself fails.
        """
        reasons: dict[int, str] = {}
        failures: dict[int, str] = {}
        answers, problems = ask(self.judge.generate, list(questions.values()), max_new_tokens=EXPLANATION_LENGTH)
        for number, (index, answer) in enumerate(zip(questions, answers, strict=True)):
            reason = "" if answer is None else without_reasoning(answer.text).strip()
            if reason:
                reasons[index] = reason
            else:
                failures[index] = f"the judge gave no explanation: {problems.get(number, 'its answer is empty')}"
        return reasons, failures

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        # Images that a metric prepares are held in memory; others are opened by the judge.
        most_images = self.images_per_pass if self.decodes_images else None
        return windows(groups, batch_size or self.window_size, most_images)

    def _warn(self, count: int, failed: dict[int, str], truncated: np.ndarray) -> None:
        if failed:
            logger.warning(
                "%s: %d of %d samples got no score from the judge, such as: %s",
                self.spec.name,
                len(failed),
                count,
                failed[min(failed)],
            )
        super()._warn(count, failed, truncated)
