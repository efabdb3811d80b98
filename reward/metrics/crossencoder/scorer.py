"""CrossEncoderScorer: what a cross-encoder gives to an image and a caption, or to a reference and a caption."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, first_line
from reward.judges.prompts import PlainTexts
from reward.metrics.crossencoder import SPEC
from reward.metrics.saving import BorrowedScorer, check_longest
from reward.metrics.scorer import CandidateScores, Group
from reward.optional import require_major

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

logger = logging.getLogger(__name__)

_BATCH_SIZE = 16


class CrossEncoderScorer(BorrowedScorer):
    """A cross-encoder of sentence-transformers, by its own `predict`: the pair is (image, caption).

    A model that takes no images gets pairs of (reference, caption), and the best reference counts.

    Args:
        model: gives one number a pair. Its `activation_fn` decides whether the score lies from 0 to 1 (a sigmoid).
            `from_pretrained` loads what `sentence_transformers.CrossEncoder` loads without code of its own, in the
            dtype that is stored; it needs sentence-transformers 6.
        prompt: the instruction, as in `CrossEncoder.predict`; None is the model's own.
        max_characters: longer captions and references are cut and flagged.
        activation: for `from_pretrained`: `"sigmoid"`, or `"none"` for the bare number; None is what the files say.
    """

    spec = SPEC
    settings = ("prompt", "max_characters", "activation")
    needs = "a cross-encoder, such as 'Qwen/Qwen3-VL-Reranker-2B'"
    subfolders = True
    window_size = 64  # the images of a window are in memory

    def __init__(
        self,
        model: CrossEncoder,
        *,
        prompt: str | None = None,
        max_characters: int = 4000,
        activation: str | None = None,
    ) -> None:
        check_longest(max_characters)
        self.model, self.prompt, self.max_characters, self.activation = model, prompt, max_characters, activation
        takes_images = {"image", "message"} <= set(model.modalities)
        if not takes_images:
            logger.warning("crossencoder: this model takes no images; captions are compared with references")
        score_range = (-math.inf, math.inf)
        if type(model.activation_fn).__name__ == "Sigmoid":
            score_range = (0.0, 1.0)
        self.spec = replace(SPEC, needs_image=takes_images, needs_references=not takes_images, range=score_range)
        self.processor, self._plain = model.processor, PlainTexts(model.processor)

    @classmethod
    def _load(
        cls, folder: Path, *, name: str, device: Any, dtype: Any, activation: str | None = None, **settings: Any
    ) -> CrossEncoderScorer:
        require_major("sentence_transformers", 6, extra="rerankers", purpose="metric 'crossencoder'")
        from reward.metrics.crossencoder.loading import ACTIVATIONS, load_cross_encoder

        if activation is not None and activation not in ACTIVATIONS:
            raise ConfigError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        model = load_cross_encoder(folder, device=device, dtype=dtype, activation=activation)
        return cls(model, activation=activation, **settings)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1): of a caption with its image, or with the reference that it fits best."""
        pairs: list[Any] = []
        first_pairs: list[int] = []  # of each caption; the pairs of all captions are predicted together
        cut: list[bool] = []
        for group in groups:
            if self.spec.needs_image:
                compared = [group.features]
            else:
                compared = [self._text(reference) for reference in group.references]
            for candidate in group.rows:
                text = self._text(candidate)
                candidate_pairs = [(first, text) for first in compared]
                first_pairs.append(len(pairs))
                pairs += candidate_pairs
                is_long = any(len(text.strip()) > self.max_characters for text in (candidate, *group.references))
                cut.append(is_long or any(self._is_cut(first, text) for first, text in candidate_pairs))
        scores, pair_errors = self._predict(pairs, batch_size or _BATCH_SIZE)
        # One failed reference leaves the caption without a score: the best of the others might not be the best of all.
        errors: dict[int, str] = {}
        for pair, reason in pair_errors.items():
            candidate_row = int(np.searchsorted(first_pairs, pair, side="right")) - 1
            errors[candidate_row] = reason
        best = np.maximum.reduceat(scores, first_pairs)
        return CandidateScores(best[:, None], cut, errors)

    def _predict(self, pairs: list[Any], batch_size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Scores (N,), and why some pairs have none."""
        try:
            scores = self.model.predict(pairs, prompt=self.prompt, batch_size=batch_size, show_progress_bar=False)
            return np.asarray(scores, dtype=np.float64), {}
        except ValueError as error:  # such as an image that the processor refuses
            if len(pairs) == 1:
                return np.array([np.nan]), {0: f"the model: {first_line(error)}"}
        # One of the pairs is at fault: each is predicted alone, so that the others have their scores.
        single_scores = []
        errors: dict[int, str] = {}
        for row, pair in enumerate(pairs):
            score, reasons = self._predict([pair], 1)
            single_scores.append(score)
            if reasons:
                errors[row] = reasons[0]
        return np.concatenate(single_scores), errors

    def _text(self, text: str) -> Any:
        """A text as the library takes it; it would open one that looks like a path or an address of an image."""
        plain = self._plain(text.strip()[: self.max_characters])
        takes_types = "message" in self.model.modalities
        if takes_types and self.model[0].input_formatter.message_format == "structured":
            return {"text": plain}
        return plain

    def _is_cut(self, first: Any, text: Any) -> bool:
        """Whether the library cuts a pair of texts; of an image and a text it says nothing."""
        limit = self.model.max_seq_length
        if limit is None or not isinstance(first, str) or not isinstance(text, str):
            return False
        # No token is shorter than a byte, but for a few marks. So most pairs need no tokenizer to be known as short.
        if len(f"{first}{text}".encode()) + 8 <= limit:
            return False
        return len(self.model.tokenizer(first, text)["input_ids"]) > limit
