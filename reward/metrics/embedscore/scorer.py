"""EmbedScorer: how near an image and a caption are to each other among the embeddings of one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.backbones.fit import foreign_errors
from reward.errors import CheckpointError, ImageError, first_line
from reward.judges.prompts import PlainTexts
from reward.metrics.embedscore import SPEC
from reward.metrics.saving import BorrowedScorer, check_longest
from reward.metrics.scorer import CandidateScores, Group
from reward.optional import require_major

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BATCH_SIZE = 16
_MOST_OF_A_TEMPLATE = 64  # tokens that a chat template adds
_BY_HAND = "EmbedScorer(SentenceTransformer(FOLDER, trust_remote_code=True))"


class EmbedScorer(BorrowedScorer):
    """The cosine of image and caption by a model of sentence-transformers that embeds both, by its own `encode`.

    Args:
        model: `from_pretrained` loads what `sentence_transformers.SentenceTransformer` loads without code of its own,
            in the dtype that is stored; it needs sentence-transformers 6.
        prompt: the instruction for image and caption, as in `SentenceTransformer.encode`; None is the model's own.
        max_characters: longer captions are cut and flagged; so are those of more tokens than the model reads.

    Raises:
        CheckpointError: the model embeds no images, or no texts.
    """

    spec = SPEC
    settings = ("prompt", "max_characters")
    needs = "an embedding model, such as 'Qwen/Qwen3-VL-Embedding-2B'"
    subfolders = True
    window_size = 64
    images_per_pass = _BATCH_SIZE

    def __init__(self, model: SentenceTransformer, *, prompt: str | None = None, max_characters: int = 32_000) -> None:
        check_longest(max_characters)
        if not {"image", "text"} <= set(model.modalities):
            raise CheckpointError(
                f"embedscore needs a model that embeds images and texts; this one embeds {', '.join(model.modalities)}"
            )
        self.model, self.prompt, self.max_characters = model, prompt, max_characters
        self.processor, self._plain = model.processor, PlainTexts(model.processor)

    @classmethod
    def _load(cls, folder: Path, *, name: str, device: Any, dtype: Any, **settings: Any) -> EmbedScorer:
        require_major("sentence_transformers", 6, extra="rerankers", purpose="metric 'embedscore'")
        from sentence_transformers import SentenceTransformer

        from reward.backbones.sentence_modules import load_modules, read_settings

        where = f"embedding model {name!r}"
        with foreign_errors(where):
            config, options = read_settings(folder, where)
            modules: Any = load_modules(folder, where, dtype=dtype, by_hand=_BY_HAND)
            if not modules:
                raise CheckpointError(
                    f"{where} has no modules.json of sentence-transformers, which says how it embeds: give a revision "
                    "that has it; a CLIP is one for -m clipscore=FOLDER"
                )
            options["truncate_dim"] = config.get("truncate_dim")
            model = SentenceTransformer(modules=modules, device=str(device), **options)
        return cls(model.eval(), **settings)

    def encode_images(self, images: list[Any]) -> list[Any]:
        try:
            return list(self._encode(images, len(images)))
        except ValueError as error:  # such as an image that the processor refuses
            if len(images) == 1:
                return [ImageError(f"the model: {first_line(error)}")]
        # One of the images is at fault: each goes alone, so that the others have their features.
        return [features for image in images for features in self.encode_images([image])]

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1)."""
        captions = list(dict.fromkeys(caption for group in groups for caption in group.rows))
        texts = [self._plain(caption.strip()[: self.max_characters]) for caption in captions]
        # The library would open a text that looks like a path or an address of an image.
        inputs = [{"text": text} for text in texts]
        features = dict(zip(captions, self._encode(inputs, batch_size or _BATCH_SIZE), strict=True))
        is_cut = dict(zip(captions, map(self._is_cut, captions, texts), strict=True))
        scores, cut = [], []
        for group in groups:
            for caption in group.rows:
                scores.append([np.clip(features[caption] @ group.features, -1, 1)])
                cut.append(is_cut[caption])
        return CandidateScores(scores, cut)

    def _encode(self, inputs: list[Any], batch_size: int) -> np.ndarray:
        """Embeddings (N, d) of length 1, in double precision, so that a cosine has no rounding of its own."""
        features = self.model.encode(
            inputs, prompt=self.prompt, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        array: np.ndarray = features.double().cpu().numpy()
        return array / np.linalg.norm(array, axis=1, keepdims=True)

    def _is_cut(self, caption: str, text: str) -> bool:
        """Whether a caption was cut here, or its text in the library, which does not say so."""
        if len(caption.strip()) > self.max_characters:
            return True
        limit = self.model.max_seq_length
        prompt = self.prompt or self.model.prompts.get(self.model.default_prompt_name) or ""
        # No token is shorter than a byte, but for those of a template. So most texts need not be counted.
        if limit is None or len(f"{prompt}{text}".encode()) + _MOST_OF_A_TEMPLATE <= limit:
            return False
        whole = {"text": {"truncation": False}}
        tokens = self.model.preprocess([{"text": text}], prompt=prompt or None, processing_kwargs=whole)
        return bool(tokens["input_ids"].shape[1] > limit)
