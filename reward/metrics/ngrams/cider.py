"""CIDEr-D of single captions, with document frequencies from a stated corpus of references."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reward.checkpoints.folders import read_config, resolve_checkpoint, save_checkpoint
from reward.data.samples import CaptionSample, read_references
from reward.data.score_table import ScoreTable
from reward.errors import CheckpointError, ConfigError
from reward.metrics.ngrams import CIDER
from reward.metrics.ngrams.counting import ngram_counts
from reward.metrics.ngrams.java import tokenize
from reward.metrics.ngrams.scorer import NgramScorer, Words

if TYPE_CHECKING:
    from typing_extensions import Self

FREQUENCIES_FILE = "document_frequencies.json"
_MOST, _SIGMA = 4, 6.0  # words of an n-gram; words by which lengths may differ
_DOCUMENTS_AT_ONCE = 10_000  # whose texts are in memory and given to one Java process


class CiderScorer(NgramScorer):
    """Similarity of n-grams, each weighed by how few documents of a corpus have it: CIDEr-D, 0 to 10.

    A document is the references of one caption. The corpus is usually the references of all evaluated captions, as in
    `capreward bench` and `capreward score`. Without a corpus the scorer raises an error, because scores would
    depend on the other captions of the call. For a reward, fit on the references of the training data, save, and load
    the folder:

        CiderScorer().fit(references).save_pretrained("cider-coco")
        MetricReward("cider", "cider-coco")

    Args:
        frequencies: {n-gram of up to 4 words, joined by spaces: number of documents that have it}; None for no corpus.
        documents: size of the corpus.
    """

    spec = CIDER

    def __init__(self, frequencies: Mapping[str, int] | None = None, documents: int = 0) -> None:
        super().__init__()
        self.frequencies, self.documents = frequencies, documents
        rarest, *rarities = np.log(np.maximum(1, [documents, *(frequencies or {}).values()])).tolist()
        self._rarity = {
            tuple(ngram.split(" ")): rarest - frequent
            for ngram, frequent in zip(frequencies or {}, rarities, strict=True)
        }
        self._rarest = rarest  # of an n-gram in no document, or in one
        self.spec = replace(CIDER, needs_corpus=frequencies is None)

    @property
    def fingerprint(self) -> str:
        """Hash of the corpus; scores of two scorers with the same corpus are comparable."""
        counts = json.dumps(sorted((self.frequencies or {}).items()), ensure_ascii=False)
        return hashlib.sha256(f"{self.documents} {counts}".encode()).hexdigest()[:16]

    def fit(self, corpus: Iterable[Sequence[str]]) -> CiderScorer:
        """A scorer with the document frequencies of a corpus; this one stays as it is.

        An n-gram in no document counts like one in a single document. So repeated documents change scores slightly;
        published figures on Flickr8k-Expert count the references of an image once for each of its captions.

        Args:
            corpus: the references of each caption; captions without references are ignored.

        Raises:
            ConfigError: there are fewer than two different documents, so every weight would be 0.
            InvalidSampleError: references are not a list of texts.
        """
        counts: Counter[tuple[str, ...]] = Counter()
        documents = 0
        left = iter(corpus)
        while chunk := [read_references(references) for references in islice(left, _DOCUMENTS_AT_ONCE)]:
            words = tokenize((text for references in chunk for text in references), purpose=self._purpose)
            for references, times in Counter(tuple(references) for references in chunk if references).items():
                documents += times
                split = [words[text].split() for text in references]
                for ngram in {ngram for each in split for counted in ngram_counts(each, _MOST) for ngram in counted}:
                    counts[ngram] += times
        if documents < 2 or all(count == documents for count in counts.values()):
            raise ConfigError(
                f"a corpus of {documents} documents that do not differ gives all words the same weight; fit CIDEr on "
                "the references of a whole data set"
            )
        return CiderScorer({" ".join(ngram): count for ngram, count in counts.items()}, documents)

    def score_samples(
        self,
        samples: list[CaptionSample],
        batch_size: int | None = None,
        progress: bool = False,
        contexts: Any = None,
    ) -> ScoreTable:
        """Scores (N, 1).

        Raises:
            ConfigError: there is no corpus.
        """
        if self.frequencies is None:
            raise ConfigError(
                "metric 'cider' weighs words by how rare they are in a corpus of references, and has none: call "
                "fit(the references of every caption), or load a folder that a fitted scorer has saved"
            )
        return super().score_samples(samples, batch_size, progress, contexts)

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """CIDEr-D of each caption."""
        scores = []
        for candidates, references in items:
            others = [self._weigh(reference.split()) for reference in references]
            for candidate in candidates:
                own = self._weigh(candidate.split())
                by_order = [sum(each) for each in zip(*(_similarity(own, other) for other in others), strict=True)]
                scores.append(10 * (sum(by_order) / _MOST / len(others)))
        return scores

    def _weigh(self, words: list[str]) -> _Weighed:
        rarity, rarest = self._rarity, self._rarest
        by_order = [
            {ngram: times * rarity.get(ngram, rarest) for ngram, times in counted.items()}
            for counted in ngram_counts(words, _MOST)
        ]
        lengths = [math.sqrt(sum(weight**2 for weight in weights.values())) for weights in by_order]
        return _Weighed(by_order, lengths, max(0, len(words) - 1))

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Self:
        """Loads document frequencies from a folder or Hub id; `"embedded"` gives a scorer without a corpus.

        Raises:
            CheckpointError: the source is missing, damaged, or belongs to another metric.
        """
        if os.fspath(source) == "embedded":
            return cls()
        folder = resolve_checkpoint(source, metric=CIDER.name, revision=revision)
        config = read_config(folder, metric=CIDER.name)
        path = folder / FREQUENCIES_FILE
        try:
            frequencies = json.loads(path.read_text(encoding="utf-8"))
            documents = int(config["documents"])
            if not all(0 < count <= documents for count in frequencies.values()):
                raise ValueError("a frequency is not between 1 and the number of documents")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{str(path)!r} holds no document frequencies: {error}") from error
        return cls(frequencies, documents)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the document frequencies, which `from_pretrained` reads.

        Raises:
            ConfigError: there is no corpus.
            CheckpointError: the folder cannot be written.
        """
        if self.frequencies is None:
            raise ConfigError("metric 'cider' without a corpus has nothing to save: call fit(corpus) first")
        path = Path(folder) / FREQUENCIES_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.frequencies, ensure_ascii=False), encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be written: {error}") from error
        card = f"# cider\n\nDocument frequencies of {len(self.frequencies)} n-grams in {self.documents} documents.\n"
        save_checkpoint(folder, config={"metric": CIDER.name, "documents": self.documents}, tensors={}, card=card)


class _Weighed(NamedTuple):
    """A text: {n-gram: weight} and the length of that vector for each n, and the number of pairs of words."""

    by_order: list[dict[tuple[str, ...], float]]
    lengths: list[float]
    pairs: int


def _similarity(candidate: _Weighed, reference: _Weighed) -> list[float]:
    """Similarity for each n: cosine with clipped weights, less for a different number of words."""
    alike = math.e ** (-((candidate.pairs - reference.pairs) ** 2) / (2 * _SIGMA**2))
    found = []
    for own, other, length, length_other in zip(
        candidate.by_order, reference.by_order, candidate.lengths, reference.lengths, strict=True
    ):
        product = sum(min(weight, other[ngram]) * other[ngram] for ngram, weight in own.items() if ngram in other)
        norm = length * length_other
        found.append((product / norm if norm else product) * alike)
    return found
