"""Minimum Bayes risk: the caption that agrees best with the other samples of its image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reward.decoding.selection import rank, rate_candidates
from reward.errors import ConfigError, InvalidSampleError
from reward.functions.wrappers import rates_captions
from reward.metrics.words.scorer import unigram_f1, word_counts
from reward.samples import CaptionSample, ImageLike, is_wordless

__all__ = ["expected_utilities", "minimum_bayes_risk"]

_BOOTSTRAPS = 500


def minimum_bayes_risk(
    candidates: Iterable[str],
    *,
    image: ImageLike | None = None,
    utility: Any = "unigram",
    reward: Any = None,
    keep: int | None = None,
    aggregate: bool = False,
    confidence: float | None = None,
    seed: int | None = None,
) -> list[int]:
    """Indices of samples of one image, those that agree best with all samples first.

    Args:
        candidates: captions sampled for the image; one that comes up twice counts twice as a reference.
        image, utility, aggregate, confidence: see `expected_utilities`.
        reward, keep: both for the hybrid: only the `keep` captions that the reward likes best may win.
        seed: for `confidence`.

    Raises:
        ConfigError, InvalidSampleError: as `expected_utilities` and `rate_candidates`.

    Example:
        >>> minimum_bayes_risk(["a red star", "a blue star", "a red star left", "two dogs"])
        [0, 2, 1, 3]
    """
    captions = list(candidates)
    if (reward is None) != (keep is None):
        raise ConfigError("reward and keep belong together: the reward says which captions are kept")
    kept = range(len(captions))
    if keep is not None:
        kept = rank(rate_candidates([captions], [image], [()], reward)[0])[:keep]  # type: ignore[assignment]
    rng = np.random.default_rng(seed)
    scores, _ = expected_utilities(
        captions, kept, image=image, utility=utility, aggregate=aggregate, confidence=confidence, rng=rng
    )
    return rank(scores)


def expected_utilities(
    captions: Sequence[str],
    hypotheses: Iterable[int] | None = None,
    *,
    image: ImageLike | None = None,
    utility: Any = "unigram",
    aggregate: bool = False,
    confidence: float | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[list[float | None], int]:
    """Mean utility of each caption against all captions as its reference, one after the other, itself included.

    Args:
        captions: N samples of one image. Captions without a word are no references and get None.
        hypotheses: indices of the captions that may win; others get None.
        image: for utilities that look at it.
        utility: `"unigram"`, the F1 of words; or a metric's name, a scorer or a reward (see `rates_captions`) that
            reads references, such as `"meteor"`, a CIDEr scorer fitted on a corpus, or `"vela"`.
        aggregate: one utility a caption instead of N. For `"unigram"`, against the mean word counts of all captions
            (nearly the same). For others, with all different captions as its references at once: what a metric makes
            of several references, such as the closest, takes the place of the mean.
        confidence: such as 0.99: compares with 8, 16, 32, ... references, and drops captions that are less likely than
            1 - confidence to be as good as the best, by 500 bootstraps (arXiv 2311.14919). Dropped ones get None.
        rng: draws references and bootstraps, for `confidence`.

    Returns:
        N numbers or None, and how many captions a metric scored (0 for `"unigram"`, which is counted here).

    Raises:
        ConfigError: the utility cannot rate captions, `confidence` is not between 0 and 1, or it is given together with
            `aggregate`.
        InvalidSampleError: a utility could not be computed; the message says why.

    Example:
        >>> expected_utilities(["a star", "a red star", "a star"])
        ([0.9333333333333332, 0.8666666666666667, 0.9333333333333332], 0)
    """
    if confidence is not None and not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie between 0 and 1, such as 0.99, got {confidence}")
    if confidence is not None and aggregate:
        raise ConfigError("aggregate uses all references at once, confidence adds them in steps: choose one of the two")
    if any(not isinstance(caption, str) for caption in captions):
        raise InvalidSampleError("captions must be strings")
    may_win = range(len(captions)) if hypotheses is None else hypotheses
    alive = list(dict.fromkeys(captions[i] for i in may_win if not is_wordless(captions[i])))
    references = [caption for caption in captions if not is_wordless(caption)]
    compare = _Utility(utility, image)
    if not alive:
        return [None] * len(captions), 0
    if aggregate:
        means = dict(zip(alive, compare.with_all(alive, references), strict=True))
        return [means.get(caption) for caption in captions], compare.scored
    rng = np.random.default_rng() if rng is None else rng
    order = rng.permutation(len(references)) if confidence is not None else np.arange(len(references))
    table: dict[tuple[str, str], float] = {}
    sizes = [8 << step for step in range(len(references)) if confidence is not None and 8 << step < len(references)]
    for size in [*sizes, len(references)]:
        drawn = [references[index] for index in order[:size]]
        missing = [pair for pair in ((c, r) for c in alive for r in dict.fromkeys(drawn)) if pair not in table]
        table.update(zip(missing, compare(missing), strict=True))
        matrix = np.array([[table[caption, reference] for reference in drawn] for caption in alive])
        if confidence is not None and size in sizes:
            alive = [alive[index] for index in _as_good(matrix, confidence, rng)]
    means = {c: float(np.mean([table[c, reference] for reference in references])) for c in alive}
    return [means.get(captions[i]) if i in set(may_win) else None for i in range(len(captions))], compare.scored


class _Utility:
    """Utilities of captions against references."""

    def __init__(self, utility: Any, image: ImageLike | None) -> None:
        self.image, self.scored = image, 0
        self.metric = None if utility == "unigram" else rates_captions(utility)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if self.metric is None:
            counts = {text: word_counts(text) for pair in pairs for text in pair}
            return [unigram_f1(counts[caption], counts[reference]) for caption, reference in pairs]
        return self._rated([(caption, (reference,)) for caption, reference in pairs])

    def with_all(self, captions: Sequence[str], references: Sequence[str]) -> list[float]:
        if self.metric is None:
            total = sum((word_counts(reference) for reference in references), Counter[str]())
            mean = Counter({word: count / len(references) for word, count in total.items()})
            return [unigram_f1(word_counts(caption), mean) for caption in captions]
        others = {c: tuple(dict.fromkeys(r for r in references if r != c)) or (c,) for c in captions}
        return self._rated([(caption, others[caption]) for caption in captions])

    def _rated(self, pairs: Sequence[tuple[str, tuple[str, ...]]]) -> list[float]:
        assert self.metric is not None  # only metrics come here
        samples = [CaptionSample(caption, image=self.image, references=known) for caption, known in pairs]
        utilities = self.metric.rewards(samples) if samples else []
        self.scored += len(samples)
        for sample, value in zip(samples, utilities, strict=True):
            if value is None or np.isnan(value):
                reason = self.metric.reason(sample) if hasattr(self.metric, "reason") else None
                raise InvalidSampleError(
                    f"the utility of {sample.candidate!r:.80} against {sample.references[0]!r:.80} could not be "
                    f"computed: {reason or 'it gave None and no reason'}"
                )
        return [float(value) for value in utilities if value is not None]


def _as_good(matrix: np.ndarray, confidence: float, rng: np.random.Generator) -> list[int]:
    """Rows that are as good as the row with the largest mean in more than 1 - confidence of the bootstraps."""
    draws = rng.integers(matrix.shape[1], size=(_BOOTSTRAPS, matrix.shape[1]))
    means = matrix[:, draws].mean(-1)  # (captions, bootstraps)
    best = means[matrix.mean(1).argmax()]
    return [index for index, row in enumerate(means) if (row >= best).mean() > 1 - confidence]
