"""CapRLScorer: questions about an image, answered by a reader who has the caption alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from reward.errors import ConfigError
from reward.fingerprints import fingerprint_file
from reward.judges.base import Judge
from reward.judges.wording import JudgePrompt, fill, quoted
from reward.metrics.asking import AskingScorer
from reward.metrics.caprl import SPEC
from reward.metrics.caprl.quiz import LETTERS, Item, check_questions, read_questions, shuffled
from reward.metrics.judged import JudgedCaption

__all__ = ["CapRLPrompt", "CapRLScorer"]


@dataclass(frozen=True)
class CapRLPrompt(JudgePrompt):
    """The texts of the questions, see `prompt.yaml` beside this file."""

    metric = "caprl"
    default_file = Path(__file__).with_name("prompt.yaml")
    places: ClassVar = {"write": ("count",), "read": ("candidate",), "ask": ("question", "options")}

    version: str
    system: str
    write: str
    read: str
    ask: str
    cannot: str
    quote: bool = True

    def question(self, item: Item, candidate: str | None = None) -> str:
        """The user's turn: to be answered from a caption, with one option more; or, without one, from the image."""
        options = item.options if candidate is None else [*item.options, self.cannot]
        lettered = "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))
        plain = [quoted(text, quote=False) for text in (item.question, lettered)]  # without marks of chats
        asked = fill(self.ask, question=plain[0], options=plain[1])
        return asked if candidate is None else f"{fill(self.read, candidate=self.quoted(candidate))}\n\n{asked}"


class CapRLScorer(AskingScorer):
    """CapRL: the share of questions about the image that a reader of the caption answers correctly.

    The judge sees the image and writes questions with four options, once an image. It keeps those that it answers
    correctly with the image and not without. The answerer sees a caption and a question, but no image. Its last option
    is to say that the caption does not tell, so that an empty caption gets about 0 and not a quarter. The aspect
    `right` is the share answered correctly, `answered` the share for which another option than the last was chosen.

    All captions of an image get the same questions in the same orders of the options, so that nothing but the captions
    differs; the paper draws both anew for each caption, which costs as much and is noisier.

    Source: CapRL (arXiv 2509.22647), with our own prompts, and greedy answers instead of sampled ones.

    Args:
        judge: a vision-language model.
        answerer: a judge that reads text; None is the same judge, which is then shown no image.
        count: questions that are written about an image; fewer are kept.
        shuffles: how often each question is asked about a caption, each time with another order of the options.
        questions: a JSON file with questions of yours instead, see `read_questions`. Other images get no score.
        check: whether questions are chosen as above; False keeps all.
        seed: of the orders of the options.
        settings: see `AskingScorer`.

    Raises:
        ConfigError: a number is below 1, or `answerer` is no judge.
        DataError: the file of questions cannot be read.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> from reward.judges import ScriptedJudge
        >>> quiz = '[{"question": "What is red?", "options": ["star", "ring", "disc", "box"]}]'
        >>> def answer(asked):
        ...     chosen = "star" if asked.image or "star" in asked.text.split("Question")[0] else "does not tell"
        ...     return {line[0]: 1.0 for line in asked.text.splitlines() if chosen in line and line[1:2] == ")"}
        >>> scorer = CapRLScorer(ScriptedJudge(lambda asked: quiz, answer), check=False)
        >>> image = Image.new("RGB", (8, 8))
        >>> scorer.score([CaptionSample("A red star.", image), CaptionSample("Red.", image)]).scores.tolist()
        [[1.0, 1.0], [0.0, 0.0]]
    """

    spec = SPEC
    prompt_class = CapRLPrompt

    def __init__(
        self,
        judge: Judge,
        *,
        answerer: Judge | None = None,
        count: int = 5,
        shuffles: int = 2,
        questions: str | os.PathLike[str] | None = None,
        check: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(judge, **settings)
        if answerer is not None and not isinstance(answerer, Judge):
            raise ConfigError(
                f"answerer must be a judge of reward.judges, got {answerer!r:.80}; a saved scorer keeps only its name: "
                "give it again, from_pretrained(folder, answerer=...)"
            )
        if count < 1 or shuffles < 1:
            raise ConfigError(f"count and shuffles must be at least 1, got {count} and {shuffles}")
        self.answerer, self.count, self.shuffles, self.check, self.seed = answerer, count, shuffles, check, seed
        self.questions = None if questions is None else os.path.abspath(questions)
        self._given = None if questions is None else read_questions(questions)

    @property
    def fingerprint(self) -> str:
        """See `JudgedScorer.fingerprint`; a file of questions counts by its content."""
        content = "" if self.questions is None else f" {fingerprint_file(Path(self.questions))[:16]}"
        return super().fingerprint + content

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        keys = [("quiz", caption.image_key) for caption in captions]
        none = "no question about the image is answered correctly with the image and not without; raise count="
        found = self.keep(keys, lambda rows: self._checked([captions[row] for row in rows]))
        results: list[Any] = [quiz if isinstance(quiz, str) else [] if quiz else none for quiz in found]
        asked = [
            (row, item)
            for row, result in enumerate(results)
            if not isinstance(result, str)
            for turn in range(self.shuffles)
            for item in shuffled(found[row], f"{self.seed} {captions[row].image_key} {turn}")
        ]
        texts = [(self.prompt.question(item, captions[row].candidate), None) for row, item in asked]
        chosen = self.choose(texts, LETTERS[: 1 + _most(item for _, item in asked)], self.answerer)
        for (row, item), choice in zip(asked, chosen, strict=True):
            if isinstance(choice, str):
                results[row] = choice
            elif not isinstance(results[row], str):
                results[row].append((choice == item.right, choice != len(item.options)))
        return [each if isinstance(each, str) else np.mean(each, axis=0).tolist() for each in results]

    def _checked(self, captions: list[JudgedCaption]) -> list[Any]:
        """The questions about different images, without those that are not answered as they should be."""
        if self._given is None:
            text = fill(self.prompt.write, count=str(self.count))
            written = self.write([(text, caption.image) for caption in captions], list)
            found: list[Any] = [check_questions(each) for each in written]
        else:
            none = f"the file {self.questions} has no questions about the image"
            found = [self._given.get(str(caption.image_key), none) for caption in captions]
        if not self.check:
            return found
        tried = [
            (row, place, item)
            for row, quiz in enumerate(found)
            if not isinstance(quiz, str)
            for place, item in enumerate(shuffled(quiz, f"{self.seed} {captions[row].image_key}"))
        ]
        images = [captions[row].image for row, _, _ in tried]
        letters = LETTERS[: _most(item for _, _, item in tried)]
        seen, blind = (
            self.choose(
                [(self.prompt.question(item), image) for (_, _, item), image in zip(tried, shown, strict=True)], letters
            )
            for shown in (images, [None] * len(tried))
        )
        kept: list[Any] = [quiz if isinstance(quiz, str) else [] for quiz in found]
        for (row, place, item), with_image, without in zip(tried, seen, blind, strict=True):
            if with_image == item.right != without:
                kept[row].append(found[row][place])
        return kept

    def _saved_settings(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("count", "shuffles", "questions", "check", "seed")}
        return {**super()._saved_settings(), **own, "answerer": None if self.answerer is None else self.answerer.name}


def _most(items: Iterable[Item]) -> int:
    return max((len(item.options) for item in items), default=1)
