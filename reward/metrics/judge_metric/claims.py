"""ClaimsScorer: which claims of a caption the image shows, and which facts the caption says."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from reward.data.samples import CaptionSample, is_blank
from reward.data.sentences import split_sentences
from reward.data.written_captions import without_reasoning
from reward.errors import ConfigError
from reward.judges.base import Answer, Judge, Question, read_each
from reward.judges.wording import fill
from reward.metrics.judge_metric import CLAIMS
from reward.metrics.judge_metric.base import JudgedCaption, Rating
from reward.metrics.judge_metric.items import BULLET, Item, read_facts, weighted_share
from reward.metrics.judge_metric.prompt import AskPrompt
from reward.metrics.judge_metric.scorer import ItemVerdict, JudgeScorer

PRECISION, COVERAGE = CLAIMS.aspects
_COLUMNS = dict(zip(CLAIMS.aspects, CLAIMS.texts, strict=True))  # of what failed, by aspect


@dataclass(frozen=True)
class ClaimsPrompt(AskPrompt):
    """The texts about claims and facts, see `claims.yaml` beside this file.

    Args:
        ask: asks whether the image shows a claim; holds `{claim}` once.
        cover: asks whether a caption says a fact; holds `{candidate}` and `{fact}` once.
        split: asks for the list of a caption's claims; holds `{candidate}` once.
    """

    metric: ClassVar = "claims"
    default_file: ClassVar[Path] = Path(__file__).with_name("claims.yaml")
    places: ClassVar = {"ask": ("claim",), "cover": ("candidate", "fact"), "split": ("candidate",)}
    optional_places: ClassVar = ()

    read: Any = "yes"
    cover: str = ""
    split: str = ""


class Statement(NamedTuple):
    """What the judge is asked about a caption: a claim of it, of the aspect "precision", or a fact, of "coverage"."""

    aspect: str
    item: Item
    question: Question

    @property
    def key(self) -> tuple[int, str]:
        """That of equal questions about one image, which is one object in a call."""
        return id(self.question.image), self.question.text


class ClaimsScorer(JudgeScorer):
    """Which of its claims are right, and which facts it says: a caption's precision and coverage, each from 0 to 1.

    Precision is the mean over the claims of a caption of the probability that the image shows them. Coverage is the
    mean over facts, which are the sentences of the references or stand in a column, of the probability that the
    caption says them; the judge sees caption and fact alone. Equal sentences count once, and the judge is asked once
    about a claim that several captions of an image make. The tables have the columns `wrong_claims` and
    `missing_facts`: those with a probability below one half, one a line.

    Source: Jing et al., "FaithScore", with probabilities in place of verdicts, and facts that are to be said.

    Args:
        judge: a vision-language model.
        aspects: which of "precision" and "coverage" are asked for. Precision alone needs no references, coverage alone
            no image.
        split: the claims of a caption are its "sentences", or those that the "judge" lists in one further answer.
        column: of the facts, in the forms of criteria, see `read_facts`; None takes the sentences of the references.
        prompt: a ClaimsPrompt, its fields, or a YAML file (start from a copy of `claims.yaml`).
        max_new_tokens, max_characters, explain: see `JudgeScorer`.

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda asked: {"Yes": 0.1, "No": 0.9} if "ball" in asked.text else
        ...     {"Yes": 0.9, "No": 0.1})
        >>> sample = CaptionSample("A dog runs. It has a ball.", Image.new("RGB", (8, 8)), ["There is a dog."])
        >>> table = ClaimsScorer(judge).score([sample])
        >>> table.texts["wrong_claims"], table.scores[:, 0].tolist()
        (['It has a ball.'], [0.5])
    """

    spec = CLAIMS
    asks_several = False
    prompt_class = ClaimsPrompt
    saved = (*JudgeScorer.saved, "aspects", "split")

    def __init__(
        self,
        judge: Judge,
        *,
        aspects: Sequence[str] = CLAIMS.aspects,
        split: str = "sentences",
        column: str | None = None,
        prompt: ClaimsPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 2048,
        max_characters: int = 4000,
        explain: bool = False,
    ) -> None:
        super().__init__(
            judge,
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            max_characters=max_characters,
            explain=explain,
        )
        if not aspects or not set(aspects) <= set(CLAIMS.aspects):
            raise ConfigError(f"aspects must be a list of {' and '.join(CLAIMS.aspects)}, got {aspects!r:.80}")
        if split not in ("sentences", "judge"):
            raise ConfigError(f"split must be 'sentences' or 'judge', got {split!r:.80}")
        # Always in this order, as what is asked about the image comes first.
        self.aspects = tuple(aspect for aspect in CLAIMS.aspects if aspect in aspects)
        self.split = split
        self.column = column
        covers = COVERAGE in self.aspects
        self.spec = replace(
            self.spec.with_aspects(self.aspects),
            texts=(*(_COLUMNS[aspect] for aspect in self.aspects), *self.spec.texts[2:]),
            columns=(column,) if column is not None and covers else (),
            needs_image=PRECISION in self.aspects,
            needs_references=column is None and covers,
        )

    def context(self, sample: CaptionSample) -> Hashable:
        """The facts in the column."""
        return read_facts(sample.columns.get(self.spec.columns[0])) if self.spec.columns else ()

    def rate(self, captions: list[JudgedCaption]) -> list[Rating | str]:
        """See `JudgedScorer.rate`."""
        statements_by_caption: list[list[Statement] | str] = []
        questions: dict[tuple[int, str], Question] = {}  # each once, for all captions
        for caption, claims in zip(captions, self._claims(captions), strict=True):
            if isinstance(claims, str):
                statements_by_caption.append(claims)
                continue
            statements = self._statements(caption, claims)
            statements_by_caption.append(statements)
            for statement in statements:
                questions.setdefault(statement.key, statement.question)
        answers = self._verdicts(list(questions.values()), [], self._word_readers[0])
        verdicts = dict(zip(questions, answers, strict=True))
        return [self._rating(statements, verdicts) for statements in statements_by_caption]

    def _claims(self, captions: list[JudgedCaption]) -> Sequence[list[str] | str]:
        """The claims of each caption, each once, or why there are none."""
        if PRECISION not in self.aspects:
            return [[] for _ in captions]
        if self.split == "sentences":
            return [_sentences(caption.candidate) for caption in captions]
        questions = []
        for caption in captions:
            text = fill(self.prompt.split, candidate=self.prompt.quoted(caption.candidate))
            questions.append(Question(text, system=self.prompt.system or None))
        return read_each(self.judge, questions, _listed_claims, max_new_tokens=self.max_new_tokens)

    def _statements(self, caption: JudgedCaption, claims: Sequence[str]) -> list[Statement]:
        """The claims of a caption, and then the facts that it is to say."""
        candidate = self.prompt.quoted(caption.candidate)
        system = self.prompt.system or None
        statements = []
        for claim in claims:
            text = fill(self.prompt.ask, claim=self.prompt.quoted(claim))
            statements.append(Statement(PRECISION, Item(claim), Question(text, image=caption.image, system=system)))
        facts: Sequence[Item] = caption.context
        if COVERAGE in self.aspects and not self.spec.columns:
            facts = [Item(sentence) for sentence in _sentences("\n".join(caption.references))]
        for fact in facts:
            text = fill(self.prompt.cover, candidate=candidate, fact=self.prompt.quoted(fact.text))
            statements.append(Statement(COVERAGE, fact, Question(text, system=system)))
        return statements

    def _rating(self, statements: list[Statement] | str, verdicts: Mapping[Any, ItemVerdict | str]) -> Rating | str:
        """The scores of a caption by the verdicts on its statements, and what failed; or the reason why not."""
        if isinstance(statements, str):
            return statements
        scores = []
        turns = []
        texts = {}
        for aspect in self.aspects:
            items = []
            values = []
            failed = []
            for statement in statements:
                if statement.aspect != aspect:
                    continue
                verdict = verdicts[statement.key]
                if isinstance(verdict, str):
                    return verdict
                turns.append((statement.question, verdict.answer))
                items.append(statement.item)
                values.append(verdict.value)
                if verdict.value < 0.5 and statement.item.weight > 0:
                    failed.append(statement.item.text)
            scores.append(weighted_share(items, values) if items else 0.0)  # nothing is claimed: nothing is right
            texts[_COLUMNS[aspect]] = "\n".join(failed)
        return Rating(scores, turns, texts=texts)


def _sentences(text: str) -> list[str]:
    """The sentences of a text, each once."""
    sentences = [sentence.strip() for sentence, _ in split_sentences(text)]
    return list(dict.fromkeys(sentence for sentence in sentences if not is_blank(sentence)))


def _listed_claims(answer: Answer) -> list[str] | str:
    """The claims that a judge lists: its lines with a bullet or number, or all lines where none has one."""
    if answer.truncated:
        return "the list of claims was cut at the limit of new tokens: raise max_new_tokens="
    lines = [line.strip() for line in without_reasoning(answer.text).splitlines() if not is_blank(line)]
    claims = [BULLET.sub("", line) for line in lines if BULLET.match(line)] or lines
    if claims in (["none"], ["None"], ["None."]):  # as the prompt says
        return []
    return list(dict.fromkeys(claims)) or "the judge listed no claims"
