"""Scores from the cosine of CLIP's embeddings of image and caption, and of caption and references."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from reward.backbones.clip import ClipTowers, stacked_on
from reward.backbones.clip_loading import load_clip, load_shipped_clip
from reward.checkpoints.code import fingerprint_code
from reward.errors import CheckpointError, ConfigError
from reward.metrics.base import MetricSpec
from reward.metrics.clipscore import CLIP, LONG_CLIP, PAC, REF_CLIP, REF_PAC, SIGLIP
from reward.metrics.saving import BorrowedScorer
from reward.metrics.scorer import CandidateScores, Group

if TYPE_CHECKING:
    from PIL import Image

logger = logging.getLogger(__name__)

PREFIX = "A photo depicts "  # the authors of CLIPScore, and of PAC-S, put it before every caption and reference
_TEXTS_PER_PASS = 64


class ClipScorer(BorrowedScorer):
    """CLIPScore: 2.5 * max(cos(image, "A photo depicts " + caption), 0).

    Captions that are too long for the text tower are cut and flagged. For long captions see `LongClipScorer`, or take
    the mean over sentences (`clipscore_avg`).

    `from_pretrained` takes a source of `reward.backbones.load_clip`: a Hub id or a folder of transformers or open_clip,
    such as `"openai/clip-vit-large-patch14"`, `"ViT-B-32:openai"` (the paper's), or a checkpoint file in CLIP's own
    layout; or `"embedded"`, the CLIP of the embedded VELA, for trials on scenes. A revision is downloaded by hand.

    Args:
        towers: the CLIP.
        activation: `"quick_gelu"` or `"gelu"`, of a file that does not say; see `reward.backbones.load_clip`.
        prefix: words before every caption and reference, such as `""`; None is the paper's, "A photo depicts ".
        cache, cache_size: see `ClipTowers.feature_caches`; without a folder nothing is kept.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> scorer = ClipScorer.from_pretrained("embedded", device="cpu")
        >>> scorer.score([CaptionSample("A red star.", Image.new("RGB", (96, 96)))]).scores.shape
        (1, 1)
    """

    spec: MetricSpec = CLIP
    weight: ClassVar[float] = 2.5
    words: ClassVar[str] = PREFIX
    settings = ("activation", "prefix")
    needs = "a CLIP"
    is_of_siglip: ClassVar[bool] = False  # whether the score is made of SigLIP's own scale and bias

    def __init__(
        self,
        towers: ClipTowers,
        *,
        activation: str | None = None,
        prefix: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str = "20GB",
    ) -> None:
        self.model, self.activation = towers, activation
        self.prefix = self.words if prefix is None else prefix
        if self.is_of_siglip and towers.scale_and_bias is None:
            raise CheckpointError(
                f"this CLIP has no logit_bias, which {self.spec.name} needs: take clipscore, or give {self.needs}"
            )
        if towers.scale_and_bias is not None and not self.is_of_siglip:
            logger.warning("this CLIP is a SigLIP, whose cosines are near 0 or below: siglipscore is its own score")
        if cache is not None:
            self.caches = towers.feature_caches(cache, cache_size, fingerprint_code(__name__), "unit length")

    @classmethod
    def _resolve(cls, name: str, revision: str | None) -> Path:
        """The source itself, since `load_clip` reads layouts of several libraries and fetches what it needs."""
        if revision is not None:
            raise CheckpointError(
                f"metric {cls.spec.name!r} cannot load revision={revision!r}: download it with `hf download {name} "
                f"--revision {revision} --local-dir FOLDER` and give the folder"
            )
        if name == "embedded" and not cls.spec.has_embedded:
            return super()._resolve(name, revision)
        return Path(name)

    @classmethod
    def _load(
        cls, folder: Path, *, name: str, device: Any, dtype: Any, activation: str | None = None, **settings: Any
    ) -> ClipScorer:
        if name != "embedded":
            towers = load_clip(name, device=device, dtype=dtype, activation=activation)
        elif activation is None:
            towers = load_shipped_clip(device=device, dtype=dtype)
        else:
            raise ConfigError(f"the embedded CLIP has its activation: leave out activation={activation!r}")
        return cls(towers, activation=activation, **settings)

    def preprocess(self, image: Image.Image) -> Any:
        return self.model.preprocess(image)

    def read_ahead(self, texts: Sequence[str]) -> None:
        self.model.read_ahead([self.prefix + text for text in texts])

    def cached_features(self, features: torch.Tensor) -> np.ndarray:
        return features.numpy()

    def encode_images(self, images: list[Any]) -> np.ndarray:
        return _unit(self.model.encode_image(stacked_on(self.model.device, images)))

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1)."""
        texts = dict.fromkeys(text for group in groups for text in (*group.rows, *group.references))
        features, cut = self.encode_texts(list(texts), batch_size)
        scores, truncated = [], []
        for group in groups:
            candidates = np.stack([features[candidate] for candidate in group.rows])
            # A rounding error may lead out of the range of a cosine, and then out of that of the score.
            image = np.clip(candidates @ group.features, -1, 1)
            references = None
            if group.references:
                references = np.clip(candidates @ np.stack([features[text] for text in group.references]).T, -1, 1)
            scores.append(self._rate(image, references))
            references_cut = not cut.isdisjoint(group.references)
            truncated += [references_cut or candidate in cut for candidate in group.rows]
        return CandidateScores(np.concatenate(scores)[:, None], truncated)

    def _rate(self, image: np.ndarray, references: np.ndarray | None) -> np.ndarray:
        """Scores (G,) from the cosines of G captions with their image (G,) and with R references (G, R)."""
        scores: np.ndarray = self.weight * np.maximum(image, 0)
        return scores

    def encode_texts(self, texts: list[str], batch_size: int | None) -> tuple[dict[str, np.ndarray], set[str]]:
        """{text: features of length 1 (d,)} of texts with the prefix before them, and the texts that were cut."""
        features: dict[str, np.ndarray] = {}
        cut: set[str] = set()
        step = batch_size or _TEXTS_PER_PASS
        # Texts of like length go together, so that little of a batch is padding.
        texts = sorted(texts, key=len)
        for start in range(0, len(texts), step):
            batch = texts[start : start + step]
            ids, is_long = self.model.tokenize([self.prefix + text for text in batch])
            features.update(zip(batch, _unit(self.model.encode_text(ids)), strict=True))
            cut.update(text for text, text_is_long in zip(batch, is_long, strict=True) if text_is_long)
        return features, cut


class RefClipScorer(ClipScorer):
    """RefCLIPScore: harmonic mean of CLIPScore and the largest cosine (at least 0) of caption and references."""

    spec = REF_CLIP

    def _rate(self, image: np.ndarray, references: np.ndarray | None) -> np.ndarray:
        assert references is not None  # samples without references have an error
        first, second = super()._rate(image, None), np.maximum(references.max(axis=1), 0)
        return np.divide(2 * first * second, first + second, out=np.zeros(len(first)), where=first + second > 0)


class LongClipScorer(ClipScorer):
    """CLIPScore's formula on a Long-CLIP, which reads 248 tokens, such as `"BeichenZhang/LongCLIP-L"`."""

    spec = LONG_CLIP
    needs = 'a Long-CLIP, such as "BeichenZhang/LongCLIP-L" or its file longclip-L.pt'


class PacScorer(ClipScorer):
    """PAC-S and PAC-S++: 2 * max(cos, 0) on a CLIP that was trained further with generated positives.

    Give the path of a file that the authors publish, under its own name: clip_ViT-B-32.pth or openClip_ViT-L-14.pth for
    PAC-S, PAC++_clip_ViT-B-32.pth or PAC++_clip_ViT-L-14.pth for PAC-S++. With any other CLIP the score is CLIPScore
    times 0.8.
    """

    spec = PAC
    weight = 2.0
    needs = "the path of a checkpoint that the authors of PAC-S publish (CLIP's own layout, .pth)"


class RefPacScorer(RefClipScorer, PacScorer):
    """RefPAC-S and RefPAC-S++: harmonic mean of PAC-S and the largest cosine (at least 0) of caption and references."""

    spec = REF_PAC


class SiglipScorer(ClipScorer):
    """The probability that SigLIP gives to image and caption: sigmoid(scale * cos + bias), with its own two numbers.

    The caption has no words before it. Cosines of SigLIP are small, so that `clipscore` of it seldom passes 0.5.

    Source: Zhai et al., "Sigmoid Loss for Language Image Pre-Training", section 3.2.
    """

    spec = SIGLIP
    words = ""
    needs = 'a SigLIP, such as "google/siglip2-so400m-patch14-384"'

    is_of_siglip = True

    def _rate(self, image: np.ndarray, references: np.ndarray | None) -> np.ndarray:
        scale, bias = self.model.scale_and_bias
        scores: np.ndarray = 1 / (1 + np.exp(-(scale * image + bias)))
        return scores


def _unit(features: torch.Tensor) -> np.ndarray[Any, Any]:
    """Features (B, d) scaled to length 1, in double precision, so that batch sizes do not change scores."""
    return functional.normalize(features.float().cpu().double(), dim=-1).numpy()
