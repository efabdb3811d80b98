"""CrossEncoderScorer: what a cross-encoder gives to an image and a caption, or to a reference and a caption."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, MissingExtraError, first_line
from reward.judges.prompts import PlainTexts
from reward.metrics.crossencoder import SPEC
from reward.metrics.saving import BorrowedScorer, check_longest
from reward.metrics.scorer import CandidateScores, Group
from reward.optional import require

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
        is_share = type(model.activation_fn).__name__ == "Sigmoid"
        bounds = (0.0, 1.0) if is_share else (-math.inf, math.inf)
        self.spec = replace(SPEC, needs_image=takes_images, needs_references=not takes_images, range=bounds)
        self.processor, self._plain = model.processor, PlainTexts(model.processor)

    @classmethod
    def _load(
        cls, folder: Path, *, name: str, device: Any, dtype: Any, activation: str | None = None, **settings: Any
    ) -> CrossEncoderScorer:
        library = require("sentence_transformers", extra="rerankers", purpose="metric 'crossencoder'")
        if int(library.__version__.partition(".")[0]) < 6:  # which runs the module classes of a folder unasked
            raise MissingExtraError(
                "metric 'crossencoder' needs sentence-transformers 6 or newer, and "
                f'{library.__version__} is installed: pip install "capreward[rerankers]"'
            )
        from reward.metrics.crossencoder.loading import ACTIVATIONS, load_cross_encoder

        if activation is not None and activation not in ACTIVATIONS:
            raise ConfigError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        model = load_cross_encoder(folder, device=device, dtype=dtype, activation=activation)
        return cls(model, activation=activation, **settings)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1)."""
        pairs, counts, cut = [], [], []
        for group in groups:
            firsts = [group.features] if self.spec.needs_image else [self._text(each) for each in group.references]
            for candidate in group.rows:
                own = [(first, self._text(candidate)) for first in firsts]
                pairs += own
                counts.append(len(own))
                is_long = any(len(text.strip()) > self.max_characters for text in (candidate, *group.references))
                cut.append(is_long or any(self._is_cut(*pair) for pair in own))
        scores, errors = self._predict(pairs, batch_size or _BATCH_SIZE)
        starts = np.cumsum([0, *counts[:-1]])
        failed = {int(np.searchsorted(starts, row, side="right")) - 1: reason for row, reason in errors.items()}
        return CandidateScores(np.maximum.reduceat(scores, starts)[:, None], cut, failed)

    def _predict(self, pairs: list[Any], batch_size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Scores (N,), and why some pairs have none."""
        try:
            scores = self.model.predict(pairs, prompt=self.prompt, batch_size=batch_size, show_progress_bar=False)
            return np.asarray(scores, dtype=np.float64), {}
        except ValueError as error:  # such as an image that the processor refuses
            if len(pairs) == 1:
                return np.array([np.nan]), {0: f"the model: {first_line(error)}"}
        single = [self._predict([pair], 1) for pair in pairs]
        errors = {row: reasons[0] for row, (_, reasons) in enumerate(single) if reasons}
        return np.concatenate([score for score, _ in single]), errors

    def _text(self, text: str) -> Any:
        plain = self._plain(text.strip()[: self.max_characters])
        # the library would open a text that looks like a path or an address of an image, unless it is said to be text
        is_typed = "message" in self.model.modalities and self.model[0].input_formatter.message_format == "structured"
        return {"text": plain} if is_typed else plain

    def _is_cut(self, first: Any, text: Any) -> bool:
        """Whether the library cuts a pair of texts; no token but the marks is shorter than a byte."""
        limit = self.model.max_seq_length
        if not (isinstance(first, str) and isinstance(text, str)) or len(f"{first}{text}".encode()) + 8 <= (limit or 0):
            return False
        return limit is not None and len(self.model.tokenizer(first, text)["input_ids"]) > limit
