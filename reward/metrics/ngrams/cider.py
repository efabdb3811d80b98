"""CIDEr-D of single captions, with document frequencies from a stated corpus of references."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from reward.metrics.ngrams.java import tokenize
from reward.metrics.ngrams.scorer import NgramScorer, Words

if TYPE_CHECKING:
    from typing_extensions import Self

FREQUENCIES_FILE = "document_frequencies.json"
_MOST_WORDS = 4  # of an n-gram
_SIGMA = 6.0  # words: the standard deviation by which lengths may differ
_DOCUMENTS_AT_ONCE = 10_000  # whose texts are in memory and given to one Java process


class CiderScorer(NgramScorer):
    """Similarity of n-grams, each weighed by how few documents of a corpus have it: CIDEr-D, 0 to 10.

    A document is the references of one image, however many captions it has; the corpus is usually those of all
    evaluated images, as in all commands, see `reward.metrics.base.image_documents`. Without a corpus the scorer raises
    an error, because scores would depend on the other captions of the call. For a reward, fit on the references of the
    training data, save, and load the folder:

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
        counts = [documents, *(frequencies or {}).values()]
        rarest, *log_frequencies = np.log(np.maximum(1, counts)).tolist()
        self._rarest = rarest  # of an n-gram in no document, or in one
        self._rarity: dict[str, float] = {}
        for ngram, log_frequency in zip(frequencies or {}, log_frequencies, strict=True):
            self._rarity[ngram] = rarest - log_frequency
        self.spec = replace(CIDER, needs_corpus=frequencies is None)

    @property
    def fingerprint(self) -> str:
        """Hash of the corpus; scores of two scorers with the same corpus are comparable."""
        counts = json.dumps(sorted((self.frequencies or {}).items()), ensure_ascii=False)
        return hashlib.sha256(f"{self.documents} {counts}".encode()).hexdigest()[:16]

    def fit(self, corpus: Iterable[Sequence[str]]) -> CiderScorer:
        """A scorer with the document frequencies of a corpus; this one stays as it is.

        An n-gram in no document counts like one in a single document. So repeated documents change scores.

        Args:
            corpus: the references of each image; images without references are ignored.

        Raises:
            ConfigError: there are fewer than two different documents, so every weight would be 0.
            InvalidSampleError: references are not a list of texts.
        """
        counts: Counter[str] = Counter()
        documents = 0
        rows = iter(corpus)
        # A chunk is one call of Java. Equal documents of a chunk are counted once, with how often they come.
        while chunk := [read_references(references) for references in islice(rows, _DOCUMENTS_AT_ONCE)]:
            words = tokenize((text for references in chunk for text in references), purpose=self._purpose)
            for references, times in Counter(references for references in chunk if references).items():
                documents += times
                ngrams_of_document: set[str] = set()
                for text in references:
                    for ngrams in _ngrams(words[text].split()):
                        ngrams_of_document.update(ngrams)
                for _ in range(times):
                    counts.update(ngrams_of_document)
        if documents < 2 or all(count == documents for count in counts.values()):
            raise ConfigError(
                f"a corpus of {documents} documents that do not differ gives all words the same weight; fit CIDEr on "
                "the references of a whole data set"
            )
        return CiderScorer(counts, documents)

    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
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
        return super().score_samples(samples, batch_size, progress)

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """CIDEr-D of each caption."""
        scores = []
        for candidates, references in items:
            weighed_references = [self._weigh(reference.split()) for reference in references]
            for candidate in candidates:
                weighed = self._weigh(candidate.split())
                sums = [0.0] * _MOST_WORDS  # for each n, over the references
                for weighed_reference in weighed_references:
                    for n, similarity in enumerate(_similarities(weighed, weighed_reference)):
                        sums[n] += similarity
                scores.append(10 * (sum(sums) / _MOST_WORDS / len(references)))
        return scores

    def _weigh(self, words: list[str]) -> _Weighed:
        rarity, rarest = self._rarity, self._rarest
        # pycocoevalcap weighs each n apart, and takes the number of pairs of words for the length of a text.
        weights_by_order, lengths = [], []
        for ngrams in _ngrams(words):
            weights = {ngram: times * rarity.get(ngram, rarest) for ngram, times in Counter(ngrams).items()}
            weights_by_order.append(weights)
            lengths.append(math.sqrt(sum([weight**2 for weight in weights.values()])))
        return _Weighed(weights_by_order, lengths, max(0, len(words) - 1))

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
            CheckpointError: the checkpoint is missing, damaged, or belongs to another metric.
        """
        if os.fspath(source) == "embedded":
            return cls()
        folder = resolve_checkpoint(source, model=CIDER.name, revision=revision)
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

    weights_by_order: list[dict[str, float]]
    lengths: list[float]
    pairs: int


def _ngrams(words: list[str]) -> Iterator[Iterator[str]]:
    """The n-grams of a text for each n, with their repeats; their words are joined by spaces."""
    for n in range(1, _MOST_WORDS + 1):
        yield map(" ".join, zip(*(words[start:] for start in range(n)), strict=False))


def _similarities(candidate: _Weighed, reference: _Weighed) -> list[float]:
    """Similarity for each n: cosine with clipped weights, less for a different number of words."""
    length_penalty = math.e ** (-((candidate.pairs - reference.pairs) ** 2) / (2 * _SIGMA**2))
    similarities = []
    for n in range(_MOST_WORDS):
        weights, reference_weights = candidate.weights_by_order[n], reference.weights_by_order[n]
        product = 0.0
        for ngram, weight in weights.items():
            # An n-gram that the caption repeats counts no more than in the reference: the D of CIDEr-D.
            reference_weight = reference_weights.get(ngram)
            if reference_weight is not None:
                product += min(weight, reference_weight) * reference_weight
        norm = candidate.lengths[n] * reference.lengths[n]
        if norm:
            product /= norm
        similarities.append(product * length_penalty)
    return similarities
