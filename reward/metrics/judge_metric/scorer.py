"""JudgeScorer: what any judge says of a caption, as a number from 0 to 1; rubrics, questions, CLAIR, VQAScore."""

from __future__ import annotations

import os
import string
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reward.data.samples import CaptionSample
from reward.data.written_captions import without_reasoning
from reward.errors import ConfigError
from reward.judges.base import Answer, Judge, Question, read_each
from reward.judges.wording import fill, quoted
from reward.metrics.judge_metric import CLAIR, JUDGE, QUESTIONS, RUBRIC, VQASCORE
from reward.metrics.judge_metric.base import JudgedCaption, JudgedScorer, Rating
from reward.metrics.judge_metric.items import Item, read_questions, read_rubric, shuffle_choices, weighted_share
from reward.metrics.judge_metric.prompt import AskPrompt, QuestionsPrompt, RubricPrompt
from reward.metrics.judge_metric.reading import WordReader, json_score, written_number

_YES_NO = ("Yes", "No")
_ARTICLES = ("a", "an", "the")
_UNKNOWN = "unknown"  # what the prompt has the judge write where a question cannot be answered


class ItemVerdict(NamedTuple):
    """What a judge answered to one question.

    Args:
        value: from 0 to 1.
        answer: its words, or the likeliest of those it was given.
    """

    value: float
    answer: str


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
        max_characters, explain: see `JudgedScorer`.

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
        explain: bool = False,
    ) -> None:
        prompt = self.prompt_class.of(prompt or self.shipped, pattern=pattern, scale=scale, sees_image=sees_image)
        super().__init__(judge, prompt=prompt, max_characters=max_characters, explain=explain)
        columns = self.spec.columns
        if column is not None:
            if not columns:
                raise ConfigError(f"metric {self.spec.name!r} reads no further column: leave out column=")
            columns = (column,)
        self.column = column
        self.max_new_tokens = max_new_tokens
        self.spec = replace(
            self.spec,
            columns=columns,
            needs_image=self.prompt.sees_image,
            needs_references=self.prompt.shows_references,
        )
        is_exact = self.prompt.read == "p(yes)"
        self._word_readers = [WordReader(model, max_new_tokens, is_exact=is_exact) for model in self.judges]

    def context(self, sample: CaptionSample) -> Hashable:
        """What the judge is asked about a caption, one question an item; here a single one, about the whole of it."""
        return (Item(""),)

    def rate(self, captions: list[JudgedCaption]) -> list[Rating | str]:
        """See `JudgedScorer.rate`."""
        ratings_by_judge = [self._rate(captions, words) for words in self._word_readers]
        return [_mean_rating(ratings) for ratings in zip(*ratings_by_judge, strict=True)]

    def _rate(self, captions: list[JudgedCaption], words: WordReader) -> list[Rating | str]:
        """What one judge makes of each caption: the weighted share of its items, or why one of these has no verdict."""
        questions: list[Question] = []
        items: list[Item] = []
        # The items of all captions go to the judge in one call, and its verdicts are cut apart by caption afterwards.
        for caption in captions:
            for item in caption.context:
                questions.append(self._question(caption, item))
                items.append(item)
        verdicts = self._verdicts(questions, items, words)
        ratings = []
        first = 0
        for caption in captions:
            last = first + len(caption.context)
            ratings.append(_rating(caption.context, questions[first:last], verdicts[first:last]))
            first = last
        return ratings

    def _question(self, caption: JudgedCaption, item: Item) -> Question:
        """The question about an item of a caption."""
        return self._filled(caption)

    def _filled(self, caption: JudgedCaption, **values: str) -> Question:
        """The prompt's question about a caption, with further values for its places."""
        low, high = self.prompt.scale
        text = fill(
            self.prompt.ask,
            candidate=self.prompt.quoted(caption.candidate),
            references="\n\n".join(map(self.prompt.quoted, caption.references)),
            low=f"{low:g}",
            high=f"{high:g}",
            **values,
        )
        return Question(text, image=caption.image, system=self.prompt.system or None)

    def _verdicts(self, questions: list[Question], items: list[Item], words: WordReader) -> list[ItemVerdict | str]:
        """What the judge answers to the question about each item, read as the prompt says, or why there is none."""
        if "yes" in self.prompt.read:
            return _word_verdicts(words(questions, _YES_NO), _YES_NO, (1.0, 0.0))
        low, high = self.prompt.scale
        if self.prompt.read == "digit":
            digits = np.arange(low, high + 1)
            names = [f"{digit:g}" for digit in digits]
            return _word_verdicts(words(questions, names), names, (digits - low) / (high - low))
        if self.prompt.read == "json":
            read_grade = partial(json_score, scale=self.prompt.scale)
        else:
            read_grade = partial(written_number, scale=self.prompt.scale, pattern=self.prompt.number_pattern())

        def read(answer: Answer) -> ItemVerdict | str:
            grade = read_grade(answer)
            if isinstance(grade, str):
                return grade
            return ItemVerdict((grade - low) / (high - low), without_reasoning(answer.text))

        return read_each(words.judge, questions, read, max_new_tokens=self.max_new_tokens)


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

    def _question(self, caption: JudgedCaption, item: Item) -> Question:
        return self._filled(caption, criterion=quoted(item.text, quote=False))


class QuestionsScorer(JudgeScorer):
    """How many questions about an image its caption answers rightly; a column holds them with the right answers.

    The judge answers from the caption alone, as in CapRL, or from picture and caption with `sees_image`. With choices
    a question counts by the probability of the right letter among all letters and one more, for what cannot be told.
    Without, an answer in other words than the right one's counts by the share of yes to whether it says the same.

    Source: Xing et al., "CapRL", with probabilities in place of the letter chosen.

    Args:
        seed: of the order in which the judge sees the choices of a question, see `shuffle_choices`.
        judge, prompt, sees_image, column, max_new_tokens, max_characters, explain: see `JudgeScorer`.

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
    saved = (*JudgeScorer.saved, "seed")

    def __init__(
        self,
        judge: Judge | Sequence[Judge],
        *,
        prompt: AskPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        sees_image: bool | None = None,
        column: str | None = None,
        seed: int = 0,
        max_new_tokens: int = 2048,
        max_characters: int = 4000,
        explain: bool = False,
    ) -> None:
        super().__init__(
            judge,
            prompt=prompt,
            sees_image=sees_image,
            column=column,
            max_new_tokens=max_new_tokens,
            max_characters=max_characters,
            explain=explain,
        )
        self.seed = seed

    def context(self, sample: CaptionSample) -> Hashable:
        items = read_questions(sample.columns.get(self.spec.columns[0]))
        return tuple(shuffle_choices(item, self.seed) for item in items)

    def _question(self, caption: JudgedCaption, item: Item) -> Question:
        if not item.choices:
            return self._filled(caption, question=quoted(item.text, quote=False), how=self.prompt.write)
        lines = [item.text]
        for letter, choice in zip(string.ascii_uppercase, (*item.choices, self.prompt.unknown), strict=False):
            lines.append(f"{letter}. {choice}")
        return self._filled(caption, question=quoted("\n".join(lines), quote=False), how=self.prompt.choose)

    def _verdicts(self, questions: list[Question], items: list[Item], words: WordReader) -> list[ItemVerdict | str]:
        # Questions with equally many choices have the same letters, and are asked together.
        rows_by_count: dict[int, list[int]] = {}
        for row, item in enumerate(items):
            rows_by_count.setdefault(len(item.choices), []).append(row)
        verdicts: dict[int, ItemVerdict | str] = {}
        for count, rows in rows_by_count.items():
            ask_items = self._ask_letters if count else self._ask_words
            answers = ask_items([questions[row] for row in rows], [items[row] for row in rows], words)
            verdicts.update(zip(rows, answers, strict=True))
        return [verdicts[row] for row in range(len(items))]

    def _ask_letters(self, questions: list[Question], items: list[Item], words: WordReader) -> list[ItemVerdict | str]:
        """The verdicts of questions with equally many choices: the probability of the right one."""
        letters = string.ascii_uppercase[: len(items[0].choices) + 1]
        verdicts: list[ItemVerdict | str] = []
        for item, probabilities in zip(items, words(questions, list(letters)), strict=True):
            if isinstance(probabilities, str):
                verdicts.append(probabilities)
            else:
                right = item.choices.index(item.answer)
                verdicts.append(ItemVerdict(float(probabilities[right]), letters[probabilities.argmax()]))
        return verdicts

    def _ask_words(self, questions: list[Question], items: list[Item], words: WordReader) -> list[ItemVerdict | str]:
        """The verdicts of questions without choices. Other words than the right ones are compared by the judge."""

        def read(answer: Answer) -> ItemVerdict | str:
            text = without_reasoning(answer.text).strip()
            return ItemVerdict(0.0, text) if text else "the judge's answer is empty"

        verdicts = read_each(words.judge, questions, read, max_new_tokens=self.max_new_tokens)
        written: dict[int, str] = {}  # answers in other words than the right one's, by row
        for row, (verdict, item) in enumerate(zip(verdicts, items, strict=True)):
            if isinstance(verdict, str):
                continue
            if _plain_words(verdict.answer) == _plain_words(item.answer):
                verdicts[row] = verdict._replace(value=1.0)
            elif _plain_words(verdict.answer) != [_UNKNOWN]:
                written[row] = verdict.answer
        comparisons = [self._comparison(answer, items[row]) for row, answer in written.items()]
        equal = super()._verdicts(comparisons, items, words)
        for row, verdict in zip(written, equal, strict=True):
            verdicts[row] = verdict if isinstance(verdict, str) else verdict._replace(answer=written[row])
        return verdicts

    def _comparison(self, answer: str, item: Item) -> Question:
        """The question whether an answer says the same as the right one."""
        text = fill(
            self.prompt.same,
            question=quoted(item.text, quote=False),
            right=quoted(item.answer, quote=False),
            answer=self.prompt.quoted(answer),
        )
        return Question(text, system=self.prompt.system or None)


def _mean_rating(ratings: Sequence[Rating | str]) -> Rating | str:
    """The mean of several judges' ratings, with the turns of the first; or the first reason why one has none."""
    scores = []
    for rating in ratings:
        if isinstance(rating, str):
            return rating
        scores.append(rating.scores[0])
    return Rating([float(np.mean(scores))], ratings[0].turns)  # type: ignore[union-attr]


def _rating(
    items: Sequence[Item], questions: Sequence[Question], verdicts: Sequence[ItemVerdict | str]
) -> Rating | str:
    """The weighted share of a caption, with the questions about its items and their answers as turns."""
    values = []
    turns = []
    for question, verdict in zip(questions, verdicts, strict=True):
        if isinstance(verdict, str):
            return verdict
        values.append(verdict.value)
        turns.append((question, verdict.answer))
    return Rating([weighted_share(items, values)], turns)


def _word_verdicts(
    results: Sequence[np.ndarray | str], words: Sequence[str], values: Sequence[float] | np.ndarray
) -> list[ItemVerdict | str]:
    """The mean of the words' values by their probabilities, and the likeliest word."""
    verdicts: list[ItemVerdict | str] = []
    for probabilities in results:
        if isinstance(probabilities, str):
            verdicts.append(probabilities)
        else:
            value = min(float(np.dot(probabilities, values)), 1.0)  # rounding may put it above
            verdicts.append(ItemVerdict(value, words[int(np.argmax(probabilities))]))
    return verdicts


def _plain_words(text: str) -> list[str]:
    """The words of an answer without capitals, punctuation and articles."""
    words = text.casefold().translate(str.maketrans("", "", string.punctuation)).split()
    return [word for word in words if word not in _ARTICLES]
