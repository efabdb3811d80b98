"""Scores a long caption sentence by sentence, for metrics that were made for short ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.checkpoints.fingerprint_objects import fingerprint_scorer
from reward.data.held_data import TakesData
from reward.data.samples import CaptionSample, is_blank
from reward.data.score_table import ScoreTable
from reward.data.sentences import split_sentences
from reward.metrics.base import MetricSpec, Scorer, fitted

if TYPE_CHECKING:
    from reward.checkpoints.caches import TensorCache

SUFFIX = "_avg"  # as the paper on LongCap-Arena names them, in subscript


class SentenceMean(TakesData):
    """Mean of a metric over the sentences of a caption.

    The paper on LongCap-Arena computes CLIPScore and PAC-S of long captions in this way, because CLIP reads 77 tokens.
    References are split into sentences too, and each sentence is a reference. This is our choice: compared with a whole
    paragraph, a sentence would be penalised for its length. A caption of one sentence with references of one sentence
    has the same score as without averaging.

    `load_scorer` and the commands know it by the metric's name with `_avg` appended.

    Args:
        scorer: scorer of the metric.

    Example:
        >>> from reward import load_scorer
        >>> load_scorer("length_avg").score([CaptionSample("A red star. It shines on the grass.")]).scores.tolist()
        [[4.0]]
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.spec = sentence_mean_spec(scorer.spec)

    @property
    def caches(self) -> Mapping[str, TensorCache]:
        """What the metric keeps on disk; see `CaptionScorer.caches`."""
        return getattr(self.scorer, "caches", {})

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the metric, under this name."""
        return f"{self.spec.name}:{fingerprint_scorer(self.scorer)}"

    def fit(self, corpus: Iterable[Sequence[str]]) -> SentenceMean:
        """See `reward.metrics.base.fitted`; references are split as for scoring."""
        return SentenceMean(fitted(self.scorer, (_split_all(references) for references in corpus)))

    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A); a caption lacks one if one of its sentences does, and has the texts of all of them."""
        sentences: list[CaptionSample] = []
        captions: list[int] = []  # for each sentence the row of its caption
        split: dict[Any, tuple[str, ...]] = {}  # references in sentences: samples of an image share them
        for row, sample in enumerate(samples):
            if sample.references not in split:
                split[sample.references] = tuple(_split_all(sample.references))
            for sentence in _split(sample.candidate):
                sentences.append(replace(sample, candidate=sentence, references=split[sample.references]))
                captions.append(row)
        # All sentences of a call go together, so that those of one image share its pass.
        table = self.scorer.score(sentences, batch_size=batch_size, progress=progress)

        # Several sentences add to one row, for which `sums[rows] += scores` would count one of them.
        rows = np.array(captions, dtype=np.int64)
        sums = np.zeros((len(samples), len(self.spec.aspects)))
        np.add.at(sums, rows, table.scores)
        counts = np.bincount(rows, minlength=len(samples))  # a caption has at least one sentence
        truncated = np.zeros(len(samples), dtype=bool)
        np.logical_or.at(truncated, rows, table.truncated)
        errors: dict[int, str] = {}
        for index, message in sorted(table.errors.items()):
            errors.setdefault(captions[index], message)  # that of its first sentence without a score
        texts = {name: _join(column, captions, len(samples)) for name, column in table.texts.items()}
        means = sums / counts[:, None]
        return ScoreTable(means, self.spec.aspects, errors, truncated, aliases=self.spec.aliases, texts=texts)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the checkpoint of the metric, which `load_scorer("<metric>_avg", folder)` reads."""
        self.scorer.save_pretrained(folder)


def sentence_mean_spec(spec: MetricSpec) -> MetricSpec:
    """Facts of the mean over sentences of a metric."""
    return replace(spec, name=spec.name + SUFFIX)


def _join(texts: Sequence[str | None], captions: Sequence[int], count: int) -> list[str | None]:
    """For each caption the texts of its sentences, a line each; None where no sentence has one."""
    lines: list[list[str]] = [[] for _ in range(count)]
    for text, row in zip(texts, captions, strict=True):
        if text is not None:
            lines[row].append(text)
    return ["\n".join(texts_of_caption) or None for texts_of_caption in lines]


def _split(text: str) -> list[str]:
    sentences = [sentence.strip() for sentence, _ in split_sentences(text)]
    return [sentence for sentence in sentences if not is_blank(sentence)]


def _split_all(references: Sequence[str]) -> list[str]:
    return [sentence for reference in references for sentence in _split(reference)]
