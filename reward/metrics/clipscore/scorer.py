"""Scores from the cosine of CLIP's embeddings of image and caption, and of caption and references."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from reward.backbones.clip import ClipTowers, stacked_on
from reward.backbones.clip_loading import load_clip, load_shipped_clip
from reward.backbones.pretrained import parse_dtype, usable_device
from reward.checkpoints.caches import TensorCache
from reward.checkpoints.code import fingerprint_code
from reward.checkpoints.fingerprints import fingerprint_checkpoint, fingerprint_network
from reward.checkpoints.folders import CONFIG_FILE, named_metric, read_config, save_checkpoint
from reward.errors import CheckpointError, ConfigError
from reward.metrics.base import MetricSpec
from reward.metrics.clipscore import CLIP, LONG_CLIP, PAC, REF_CLIP, REF_PAC, SIGLIP
from reward.metrics.scorer import CandidateScores, Group, NetworkScorer

if TYPE_CHECKING:
    from PIL import Image

logger = logging.getLogger(__name__)

PREFIX = "A photo depicts "  # the authors of CLIPScore, and of PAC-S, put it before every caption and reference
_TEXTS_PER_PASS = 64


class ClipScorer(NetworkScorer):
    """CLIPScore: 2.5 * max(cos(image, "A photo depicts " + caption), 0).

    Captions that are too long for the text tower are cut and flagged. For long captions see `LongClipScorer`, or take
    the mean over sentences (`clipscore_avg`).

    Args:
        towers: the CLIP.
        source, activation: what `from_pretrained` can load it from, for `save_pretrained`.
        prefix: words before every caption and reference; None is the paper's.

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
    _needs: ClassVar[str] = "give a CLIP"  # what source to give, for messages

    def __init__(
        self,
        towers: ClipTowers,
        *,
        source: str | None = None,
        activation: str | None = None,
        prefix: str | None = None,
    ) -> None:
        self.model, self.source, self.activation = towers, source, activation
        self.prefix = self.words if prefix is None else prefix
        if towers.sigmoid is not None and self.words:
            logger.warning("%s is a SigLIP, whose cosines are near 0 or below: siglipscore is its own score", source)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        activation: str | None = None,
        prefix: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str = "20GB",
    ) -> ClipScorer:
        """Loads the CLIP.

        Args:
            source: a source of `reward.backbones.load_clip`: a Hub id or a folder of transformers or open_clip, such
                as `"openai/clip-vit-large-patch14"`, `"ViT-B-32:openai"` (the paper's), or a checkpoint file in CLIP's
                own layout; a folder that `save_pretrained` wrote; or `"embedded"`, the CLIP of the embedded VELA, for
                trials on scenes.
            revision: must be None. To use another revision, download it and give the folder.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; float32 by default.
            activation: `"quick_gelu"` or `"gelu"`, of a file that does not say; see `reward.backbones.load_clip`.
            prefix: words before every caption and reference, such as `""`; None is the paper's, "A photo depicts ".
            cache, cache_size: see `use_cache`; without a folder nothing is kept.

        Raises:
            CheckpointError: the source is missing or incomplete, or belongs to another metric.
        """
        name = os.fspath(source)
        if revision is not None:
            raise CheckpointError(
                f"metric {cls.spec.name!r} cannot load revision={revision!r}: download it with `hf download {name} "
                f"--revision {revision} --local-dir FOLDER` and give the folder"
            )
        dtype, device = parse_dtype(dtype), usable_device(device)
        folder = Path(name)
        if named_metric(folder) is not None:
            saved = read_config(folder, metric=cls.spec.name)
            name, activation = saved.get("clip", ""), activation or saved.get("activation")
            prefix = saved.get("prefix") if prefix is None else prefix
            if not isinstance(name, str) or not name:
                raise CheckpointError(f"{str(folder)!r} names no CLIP under 'clip' in its {CONFIG_FILE}")
        if name == "embedded" and not cls.spec.has_embedded:
            raise CheckpointError(f"no {cls.spec.name} checkpoint is shipped with this package; {cls._needs}")
        if name == "embedded" and activation is not None:
            raise ConfigError(f"the embedded CLIP has its activation: leave out activation={activation!r}")
        load = load_shipped_clip if name == "embedded" else partial(load_clip, name, activation=activation)
        scorer = cls(load(device=device, dtype=dtype), source=name, activation=activation, prefix=prefix)
        if cache is not None:
            scorer.use_cache(cache, size=cache_size)
        return scorer

    def use_cache(self, folder: str | os.PathLike[str], *, size: int | str = "20GB") -> None:
        """Keeps image embeddings in a folder on disk, so that new captions of known images cost the captions only.

        Scores are equal up to rounding, as between batch sizes. Call it again if the CLIP was trained meanwhile.

        Args:
            folder, size: see `reward.checkpoints.caches.TensorCache`.

        Raises:
            ConfigError: the folder cannot be written, or the size is wrong.
        """
        # What an embedding depends on beside the weights; the network's text says with which activation it computes.
        network = (self.model.preprocess_cfg, repr(self.model))
        facts = (fingerprint_code(__name__), "unit length", fingerprint_checkpoint(self.source), *network)
        fingerprint = fingerprint_network(self.model, *facts, self.model.device.type)
        self.caches = {"images": TensorCache(folder, "images", fingerprint, size=size)}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that names the CLIP, without its weights.

        Raises:
            CheckpointError: the scorer was made without `source`, or the folder cannot be written.
        """
        if self.source is None:
            raise CheckpointError(f"this {self.spec.name} scorer does not know where its CLIP came from: pass source=")
        path = Path(self.source)
        source = str(path.absolute()) if path.exists() else self.source
        card = f"# {self.spec.name}\n\nOn the CLIP {self.source}. Source: {self.spec.paper}.\n"
        config = {"metric": self.spec.name, "clip": source}
        if self.activation is not None:
            config["activation"] = self.activation
        if self.prefix != self.words:
            config["prefix"] = self.prefix
        save_checkpoint(folder, config=config, tensors={}, card=card)

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
        # Texts of like length go together, so that little of a batch is padding.
        features, cut = self._encode_texts(sorted(texts, key=len), batch_size or _TEXTS_PER_PASS)
        scores, truncated = [], []
        for group in groups:
            candidates = np.stack([features[candidate] for candidate in group.rows])
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

    def _encode_texts(self, texts: list[str], step: int) -> tuple[dict[str, np.ndarray], set[str]]:
        """{text: features of length 1 (d,)}, and the texts that were cut."""
        features: dict[str, np.ndarray] = {}
        cut: set[str] = set()
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
    _needs = 'give a Long-CLIP, such as "BeichenZhang/LongCLIP-L" or its file longclip-L.pt'


class PacScorer(ClipScorer):
    """PAC-S and PAC-S++: 2 * max(cos, 0) on a CLIP that was trained further with generated positives.

    Give the path of a file that the authors publish, under its own name: clip_ViT-B-32.pth or openClip_ViT-L-14.pth for
    PAC-S, PAC++_clip_ViT-B-32.pth or PAC++_clip_ViT-L-14.pth for PAC-S++. With any other CLIP the score is CLIPScore
    times 0.8.
    """

    spec = PAC
    weight = 2.0
    _needs = "give the path of a checkpoint that the authors of PAC-S publish (CLIP's own layout, .pth)"


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
    _needs = 'give a SigLIP, such as "google/siglip2-so400m-patch14-384"'

    def __init__(self, towers: ClipTowers, *, source: str | None = None, **options: Any) -> None:
        super().__init__(towers, source=source, **options)
        if towers.sigmoid is None:
            raise CheckpointError(
                f"the CLIP {source!r} has no logit_bias, which {self.spec.name} needs: take clipscore, or {self._needs}"
            )
        self.scale, self.bias = towers.sigmoid

    def _rate(self, image: np.ndarray, references: np.ndarray | None) -> np.ndarray:
        scores: np.ndarray = 1 / (1 + np.exp(-(self.scale * image + self.bias)))
        return scores


def _unit(features: torch.Tensor) -> np.ndarray[Any, Any]:
    """Features (B, d) scaled to length 1, in double precision, so that batch sizes do not change scores."""
    return functional.normalize(features.float().cpu().double(), dim=-1).numpy()
