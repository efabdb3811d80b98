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


def minimum_bayes_risk(
    candidates: Iterable[str],
    *,
    image: ImageLike | None = None,
    utility: Any = "unigram",
    reward: Any = None,
    keep: int | None = None,
    aggregate: bool = False,
) -> list[int]:
    """Indices of samples of one image, those that agree best with all samples first.

    Args:
        candidates: captions sampled for the image; one that comes up twice counts twice as a reference.
        image, utility, aggregate: see `expected_utilities`.
        reward, keep: both for the hybrid: only the `keep` captions that the reward likes best may win.

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
    return rank(expected_utilities(captions, kept, image=image, utility=utility, aggregate=aggregate)[0])


def expected_utilities(
    captions: Sequence[str],
    hypotheses: Iterable[int] | None = None,
    *,
    image: ImageLike | None = None,
    utility: Any = "unigram",
    aggregate: bool = False,
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

    Returns:
        N numbers or None, and how many captions a metric scored (0 for `"unigram"`, which is counted here).

    Raises:
        ConfigError: the utility cannot rate captions.
        InvalidSampleError: a utility could not be computed; the message says why.

    Example:
        >>> expected_utilities(["a star", "a red star", "a star"])
        ([0.9333333333333332, 0.8666666666666667, 0.9333333333333332], 0)
    """
    if any(not isinstance(caption, str) for caption in captions):
        raise InvalidSampleError("captions must be strings")
    may_win = set(range(len(captions)) if hypotheses is None else hypotheses)
    rivals = list(dict.fromkeys(captions[i] for i in sorted(may_win) if not is_wordless(captions[i])))
    references = [caption for caption in captions if not is_wordless(caption)]
    compare = _Utility(utility, image)
    if aggregate:
        means = dict(zip(rivals, compare.with_all(rivals, references), strict=True)) if rivals else {}
    else:
        pairs = [(caption, reference) for caption in rivals for reference in dict.fromkeys(references)]
        table = dict(zip(pairs, compare(pairs), strict=True))
        means = {c: float(np.mean([table[c, reference] for reference in references])) for c in rivals}
    return [means.get(caption) if i in may_win else None for i, caption in enumerate(captions)], compare.scored


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
