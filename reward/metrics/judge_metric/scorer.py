"""JudgeScorer: what any judge says of a caption, as a number from 0 to 1; rubrics, questions, CLAIR, VQAScore."""

from __future__ import annotations

import os
import string
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from reward.data.samples import CaptionSample
from reward.data.written_captions import without_reasoning
from reward.errors import ConfigError
from reward.judges.base import Judge, Question, ask, read_each
from reward.judges.wording import fill, quoted
from reward.metrics.judge_metric import CLAIR, JUDGE, QUESTIONS, RUBRIC, VQASCORE
from reward.metrics.judge_metric.base import JudgedCaption, JudgedScorer
from reward.metrics.judge_metric.items import Item, read_questions, read_rubric, weighted_share
from reward.metrics.judge_metric.prompt import AskPrompt, QuestionsPrompt, RubricPrompt
from reward.metrics.judge_metric.reading import WordReader, json_score, written_number

_YES_NO = ("Yes", "No")
Value = float | str  # from 0 to 1, or why there is none


class JudgeScorer(JudgedScorer):
    """What a judge says of a caption, in your words or ours, as a number from 0 to 1.

    Of several judges the score is their mean, and a caption has none if one of them gives none.

    Args:
        judge: a vision-language model, or several.
        prompt: a question with `{caption}` in it, a YAML file or its fields (see `AskPrompt`), or one that ships:
            "grade5" (the default), "grade100" or "yes".
        pattern, scale, sees_image: replace what the prompt says, see `AskPrompt`.
        column: of `rubric` and `questions`: the column that holds them, of any name.
        max_new_tokens: length limit of an answer that the judge writes.
        max_characters, pad_images: see `JudgedScorer`.

    Raises:
        ConfigError: a prompt, pattern or scale that cannot be, or a column for a metric that reads none.

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda question: "Two of three. **Score:** 4")
        >>> mine = JudgeScorer(judge, prompt="Rate this: {caption}", pattern="Score: {number}", scale="1:5")
        >>> mine.score([CaptionSample("A star.", Image.new("RGB", (8, 8)))]).scores.tolist()
        [[0.75]]
    """

    spec = JUDGE
    asks_several = True
    prompt_class: ClassVar[type[AskPrompt]] = AskPrompt
    saved: ClassVar[tuple[str, ...]] = ("max_new_tokens", "column")
    shipped: ClassVar[str | None] = None  # name of the prompt, where it is not that of the prompt's class

    def __init__(
        self,
        judge: Judge | Sequence[Judge],
        *,
        prompt: AskPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        pattern: str | None = None,
        scale: str | Sequence[float] | None = None,
        sees_image: bool | None = None,
        column: str | None = None,
        max_new_tokens: int = 2048,
        max_characters: int = 4000,
        pad_images: bool = False,
    ) -> None:
        asked = self.prompt_class.of(prompt or self.shipped, pattern=pattern, scale=scale, sees_image=sees_image)
        super().__init__(judge, prompt=asked, max_characters=max_characters, pad_images=pad_images)
        if column is not None and not self.spec.columns:
            raise ConfigError(f"metric {self.spec.name!r} reads no further column: leave out column=")
        self.column, columns = column, self.spec.columns if column is None else (column,) * len(self.spec.columns)
        self.max_new_tokens = max_new_tokens
        shows = {"needs_image": self.prompt.sees_image, "needs_references": self.prompt.shows_references}
        self.spec = replace(self.spec, columns=columns, **shows)
        self._words = [WordReader(each, max_new_tokens, is_exact=self.prompt.read == "p(yes)") for each in self.judges]

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        each = [self._rate(captions, words) for words in self._words]
        return [
            next((value for value in values if isinstance(value, str)), None) or [float(np.mean(values))]
            for values in zip(*each, strict=True)
        ]

    def _rate(self, captions: list[JudgedCaption], words: WordReader) -> list[Value]:
        return self._values([self._question(caption) for caption in captions], words)

    def _question(self, caption: JudgedCaption, **values: str) -> Question:
        low, high = (f"{end:g}" for end in self.prompt.scale)
        values |= {"candidate": self.prompt.quoted(caption.candidate), "low": low, "high": high}
        values["references"] = "\n\n".join(map(self.prompt.quoted, caption.references))
        return self._asked(fill(self.prompt.ask, **values), caption.image)

    def _asked(self, text: str, image: Any = None) -> Question:
        return Question(text, image=image, system=self.prompt.system or None)

    def _values(self, questions: list[Question], words: WordReader) -> list[Value]:
        """What the judge says to each question, as the prompt has it read."""
        if "yes" in self.prompt.read:
            return [each if isinstance(each, str) else float(each[0]) for each in words(questions, _YES_NO)]
        scale = low, high = self.prompt.scale
        if self.prompt.read == "digit":
            digits = np.arange(low, high + 1)
            found = words(questions, [f"{digit:g}" for digit in digits])
            grades = [each if isinstance(each, str) else float(each @ digits) for each in found]
        else:
            number = partial(written_number, scale=scale, pattern=self.prompt.number)
            read = partial(json_score, scale=scale) if self.prompt.read == "json" else number
            grades = read_each(words.judge.generate, questions, read, max_new_tokens=self.max_new_tokens)
        return [
            grade if isinstance(grade, str) else min(max((grade - low) / (high - low), 0.0), 1.0) for grade in grades
        ]


class ClairScorer(JudgeScorer):
    """CLAIR: the judge's number from 0 to 100, divided by 100. It sees no image, so any language model will do.

    The authors' code scores 0 where it cannot read three answers. Here there is no score then, and a reason.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda asked: '{"score": 85, "reason": "Both name a star."}')
        >>> ClairScorer(judge).score([CaptionSample("A star.", None, ["A red star."])]).scores.tolist()
        [[0.85]]
    """

    spec = CLAIR
    shipped = "clair"


class VqaScorer(JudgeScorer):
    """VQAScore: the probability of "Yes" as the judge's next token, over its whole vocabulary.

    The paper's CLIP-FlanT5 is an encoder-decoder, which no judge here runs; its LLaVA-1.5 is none.

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda question: {"Yes": 0.7, "No": 0.2})
        >>> VqaScorer(judge).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))]).scores.tolist()
        [[0.7]]
    """

    spec = VQASCORE
    shipped = "vqascore"


class RubricScorer(JudgeScorer):
    """How far a caption meets the criteria of its image, which a column holds: the weighted share of yes, from 0 to 1.

    The judge is asked about each criterion by itself. A negative weight is of what a caption must not do; the share is
    of the weights above 0.

    Source: Gunjal et al., "Rubrics as Rewards", explicit aggregation, with probabilities in place of verdicts.

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda asked: {"Yes": 0.9 if "dog" in asked.text else 0.1, "No": 0.1})
        >>> columns = {"rubric": [{"criterion": "It names the dog.", "weight": 3}, "It is short."]}
        >>> sample = CaptionSample("A star.", Image.new("RGB", (8, 8)), columns=columns)
        >>> RubricScorer(judge).score([sample]).scores.round(3).tolist()
        [[0.8]]
    """

    spec = RUBRIC
    prompt_class = RubricPrompt

    def context(self, sample: CaptionSample) -> Hashable:
        return read_rubric(sample.columns.get(self.spec.columns[0]))

    def _rate(self, captions: list[JudgedCaption], words: WordReader) -> list[Value]:
        asked = [
            self._question(caption, criterion=quoted(item.text, quote=False))
            for caption in captions
            for item in caption.context
        ]
        return _shares(captions, self._values(asked, words))


class QuestionsScorer(JudgeScorer):
    """How many questions about an image its caption answers rightly; a column holds them with the right answers.

    The judge answers from the caption alone, as in CapRL, or from picture and caption with `sees_image`. With choices
    a question counts by the probability of the right letter among all letters and one more, for what cannot be told.
    Without, an answer in other words than the right one's counts by the share of yes to whether it says the same.

    Source: Xing et al., "CapRL", with probabilities in place of the letter chosen.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda asked: "Red." if "> A red star." in asked.text else "unknown",
        ...     lambda asked: {"Yes": 0.0, "No": 1.0})
        >>> columns = {"questions": [{"question": "What colour is the star?", "answer": "red"}]}
        >>> samples = [CaptionSample(text, columns=columns) for text in ("A red star.", "A star.")]
        >>> QuestionsScorer(judge).score(samples).scores.tolist()
        [[1.0], [0.0]]
    """

    spec = QUESTIONS
    prompt_class = QuestionsPrompt

    def context(self, sample: CaptionSample) -> Hashable:
        return read_questions(sample.columns.get(self.spec.columns[0]))

    def _rate(self, captions: list[JudgedCaption], words: WordReader) -> list[Value]:
        asked = [(caption, item) for caption in captions for item in caption.context]
        questions = [self._about(caption, item) for caption, item in asked]
        values: list[Value] = [0.0] * len(asked)
        for letters in {item.letters for _, item in asked}:
            rows = [row for row, (_, item) in enumerate(asked) if item.letters == letters]
            some, items = [questions[row] for row in rows], [asked[row][1] for row in rows]
            found = self._written(some, items, words) if letters is None else self._chosen(some, items, words)
            for row, value in zip(rows, found, strict=True):
                values[row] = value
        return _shares(captions, values)

    def _about(self, caption: JudgedCaption, item: Item) -> Question:
        text, how = item.text, self.prompt.write
        if item.letters is not None:
            text, how = f"{text}\n{_unknown(item)}. {self.prompt.unknown}", self.prompt.choose
        return self._question(caption, question=quoted(text, quote=False), how=how)

    def _chosen(self, questions: list[Question], items: list[Item], words: WordReader) -> list[Value]:
        letters = [*(items[0].letters or ""), _unknown(items[0])]
        return [
            each if isinstance(each, str) else float(each[letters.index(item.answer)])
            for each, item in zip(words(questions, letters), items, strict=True)
        ]

    def _written(self, questions: list[Question], items: list[Item], words: WordReader) -> list[Value]:
        answers, failures = ask(words.judge.generate, questions, max_new_tokens=self.max_new_tokens)
        values: list[Value] = [0.0] * len(items)
        unlike: dict[int, Question] = {}
        for row, (answer, item) in enumerate(zip(answers, items, strict=True)):
            if row in failures or not (told := without_reasoning(answer.text)):
                values[row] = failures.get(row, "the judge's answer is empty")
            elif _plain(told) == _plain(item.answer):
                values[row] = 1.0
            elif _plain(told) != "unknown":
                texts = {"question": quoted(item.text, quote=False), "right": quoted(item.answer, quote=False)}
                unlike[row] = self._asked(fill(self.prompt.same, answer=self.prompt.quoted(told), **texts))
        for row, value in zip(unlike, self._values([*unlike.values()], words) if unlike else (), strict=True):
            values[row] = value
        return values


def _unknown(item: Item) -> str:
    """The letter behind the last choice."""
    return string.ascii_uppercase[string.ascii_uppercase.index((item.letters or "A")[-1]) + 1]


def _plain(text: str) -> str:
    words = text.casefold().translate(str.maketrans("", "", string.punctuation)).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _shares(captions: list[JudgedCaption], values: list[Value]) -> list[Value]:
    """The weighted share of each caption, of the values of its items; or the first reason why one has none."""
    shares: list[Value] = []
    rest = iter(values)
    for caption in captions:
        own = [next(rest) for _ in caption.context]
        lost = next((value for value in own if isinstance(value, str)), None)
        shares.append(lost or weighted_share(caption.context, own))  # type: ignore[arg-type]
    return shares
