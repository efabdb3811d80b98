"""Scores from the cosine of CLIP's embeddings of image and caption, and of caption and references."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from reward.backbones.clip import ClipTowers, load_clip
from reward.backbones.inference import number_format, scoring_mode, scoring_progress, usable_device
from reward.backbones.shipped_clip import load_shipped_clip
from reward.checkpoints import CONFIG_FILE, named_metric, read_config, save_checkpoint
from reward.errors import CheckpointError, ImageError
from reward.images import load_image
from reward.metrics.base import MetricSpec
from reward.metrics.clipscore.spec import CLIP, LONG_CLIP, PAC, REF_CLIP
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable
from reward.scoring.grouping import Group, group_samples, windows

__all__ = ["ClipScorer", "LongClipScorer", "PacScorer", "RefClipScorer"]

logger = logging.getLogger(__name__)

PREFIX = (
    "A photo depicts "  # put before every caption and reference by the authors of CLIPScore, and of PAC-S after them
)
_WINDOW = 1024  # captions whose features are in memory at once
_IMAGES_PER_PASS, _TEXTS_PER_PASS = 32, 64


class ClipScorer:
    """CLIPScore: 2.5 * max(cos(image, "A photo depicts " + caption), 0).

    Each image and each different text of a call is embedded once. Captions that are longer than the text tower can read
    are cut and flagged; for long captions see `LongClipScorer`, or take the mean over sentences (`clipscore_avg`).

    Args:
        towers: the CLIP.
        source: what `from_pretrained` loads it from, for `save_pretrained`.

    Example:
        >>> from PIL import Image
        >>> scorer = ClipScorer.from_pretrained("embedded", device="cpu")
        >>> scorer.score([CaptionSample("A red star.", Image.new("RGB", (96, 96)))]).scores.shape
        (1, 1)
    """

    spec: MetricSpec = CLIP
    weight: ClassVar[float] = 2.5

    def __init__(self, towers: ClipTowers, *, source: str | None = None) -> None:
        self.model, self.source = towers, source

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
    ) -> ClipScorer:
        """Loads the CLIP.

        Args:
            source: whatever `reward.backbones.load_clip` takes, such as `"ViT-B-32:openai"` (the paper's),
                `"hf-hub:org/name"`, a folder, or a checkpoint file in CLIP's own layout; a folder that
                `save_pretrained` wrote; or `"embedded"`, the CLIP of the embedded VELA, for trials and tests on scenes.
            revision: must be None: download another revision, and give its folder.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; float32 by default.

        Raises:
            CheckpointError: the source is missing, incomplete, of another metric, or not for this one.
        """
        name = os.fspath(source)
        if revision is not None:
            raise CheckpointError(
                f"metric {cls.spec.name!r} reads no revision={revision!r}: get it with `hf download {name} --revision "
                f"{revision} --local-dir FOLDER` and give the folder"
            )
        dtype, device = number_format(dtype), usable_device(device)
        folder = Path(name)
        if named_metric(folder) is not None:
            name = read_config(folder, metric=cls.spec.name).get("clip", "")
            if not isinstance(name, str) or not name:
                raise CheckpointError(f"{str(folder)!r} names no CLIP under 'clip' in its {CONFIG_FILE}")
        if name != "embedded":
            return cls(load_clip(name, device=device, dtype=dtype), source=name)
        if not cls.spec.has_embedded:
            raise CheckpointError(f"no {cls.spec.name} checkpoint is shipped with this package; {cls._needs()}")
        return cls(load_shipped_clip(device=device, dtype=dtype), source=name)

    @classmethod
    def _needs(cls) -> str:
        """What to give as source, for messages."""
        return "give a CLIP"

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that names the CLIP; its weights stay where they are.

        Raises:
            CheckpointError: the scorer was made of towers that came from no source, or the folder cannot be written.
        """
        if self.source is None:
            raise CheckpointError(f"this {self.spec.name} scorer does not know where its CLIP came from: pass source=")
        path = Path(self.source)
        source = str(path.absolute()) if path.exists() else self.source
        card = f"# {self.spec.name}\n\nOn the CLIP {self.source}. Source: {self.spec.paper}.\n"
        save_checkpoint(folder, config={"metric": self.spec.name, "clip": source}, tensors={}, card=card)

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, 1) in the order of the samples; NaN and an error where an image or needed references are missing.

        Args:
            samples: any number.
            batch_size: most images or texts of one forward pass; by default 32 images and 64 texts.
            progress: whether to show a progress bar.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
        """
        check_samples(samples, batch_size)
        scores, truncated = np.full((len(samples), 1), np.nan), np.zeros(len(samples), dtype=bool)
        errors: dict[int, str] = {}
        groups = group_samples(samples)
        groups.sort(key=lambda group: group.image_key or "")
        device = self.model.device
        with scoring_mode(self.model, device), scoring_progress(self.spec.name, len(samples), progress) as advance:
            for window in windows(groups, _WINDOW):
                self._score(window, batch_size, device, scores, truncated)
                for group in window:
                    rows = [row for places in group.rows.values() for row in places]
                    if group.error is not None:
                        errors.update(dict.fromkeys(rows, group.error))
                    advance(len(rows))
        for row in np.flatnonzero(~np.isfinite(scores[:, 0])).tolist():
            errors.setdefault(row, "the model gave a score that is not finite")
            scores[row] = np.nan
        if truncated.any():
            logger.warning("%d of %d samples were cut to fit the model", int(truncated.sum()), len(samples))
        return ScoreTable(scores, self.spec.aspects, dict(sorted(errors.items())), truncated)

    def _score(
        self,
        groups: list[Group],
        batch_size: int | None,
        device: torch.device,
        scores: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Fills in the scores of some groups; gives those that cannot be scored an error."""
        for group in groups:
            if self.spec.needs_references and not group.references:
                group.error = f"metric {self.spec.name!r} needs references, but the sample has none"
        images = self._encode_images(groups, batch_size or _IMAGES_PER_PASS, device)
        readable = [group for group in groups if group.error is None]
        texts = dict.fromkeys(text for group in readable for text in (*group.rows, *self._references(group)))
        features, cut = self._encode_texts(list(texts), batch_size or _TEXTS_PER_PASS, device)
        for group in readable:
            assert group.image_key is not None  # else it has an error
            candidates = np.stack([features[candidate] for candidate in group.rows])
            references = [features[reference] for reference in self._references(group)]
            found = self._rate(
                np.clip(candidates @ images[group.image_key], -1, 1),
                np.clip(candidates @ np.stack(references).T, -1, 1) if references else None,
            )
            references_cut = any(reference in cut for reference in self._references(group))
            for score, (candidate, rows) in zip(found, group.rows.items(), strict=True):
                scores[rows], truncated[rows] = score, references_cut or candidate in cut

    def _references(self, group: Group) -> tuple[str, ...]:
        """References that the metric reads."""
        return group.references if self.spec.needs_references else ()

    def _rate(self, image: np.ndarray, references: np.ndarray | None) -> np.ndarray:
        """Scores (G,) from the cosines of G captions with their image (G,) and with R references (G, R)."""
        scores: np.ndarray = self.weight * np.maximum(image, 0)
        return scores

    def _encode_images(self, groups: list[Group], step: int, device: torch.device) -> dict[str, np.ndarray]:
        """{image key: features of length 1 (d,)}; groups without a readable image get an error."""
        pixels: dict[str, torch.Tensor] = {}
        found: dict[str, np.ndarray] = {}
        problems: dict[str, str] = {}

        def encode() -> None:
            if pixels:
                features = self.model.encode_image(torch.stack(list(pixels.values())).to(device))
                found.update(zip(pixels, _unit(features), strict=True))
                pixels.clear()

        for group in groups:
            key = group.image_key
            if group.error is None and key is None:
                group.error = f"metric {self.spec.name!r} needs an image, and this sample has none"
            if group.error is not None or key is None or key in found or key in pixels:
                continue
            if key not in problems:
                try:
                    pixels[key] = self.model.preprocess(load_image(group.image))  # type: ignore[arg-type]
                except ImageError as error:
                    problems[key] = str(error)
            group.error = problems.get(key)
            if len(pixels) >= step:
                encode()
        encode()
        return found

    def _encode_texts(
        self, texts: list[str], step: int, device: torch.device
    ) -> tuple[dict[str, np.ndarray], set[str]]:
        """{text: features of length 1 (d,)}, and the texts that were cut."""
        found: dict[str, np.ndarray] = {}
        cut: set[str] = set()
        for start in range(0, len(texts), step):
            part = texts[start : start + step]
            ids, too_long = self.model.tokenize([PREFIX + text for text in part])
            found.update(zip(part, _unit(self.model.encode_text(ids.to(device))), strict=True))
            cut.update(text for text, long in zip(part, too_long, strict=True) if long)
        return found, cut


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

    @classmethod
    def _needs(cls) -> str:
        return 'give a Long-CLIP, such as "BeichenZhang/LongCLIP-L" or its file longclip-L.pt'


class PacScorer(ClipScorer):
    """PAC-S: 2 * max(cos, 0) on a CLIP whose projections were trained further with generated positives.

    Its authors publish the weights as checkpoints in CLIP's own layout: give the path of one. Any other CLIP is read as
    well, and then gives CLIPScore times 0.8.
    """

    spec = PAC
    weight = 2.0

    @classmethod
    def _needs(cls) -> str:
        return "give the path of a checkpoint that the authors of PAC-S publish (CLIP's own layout, .pth)"


def _unit(features: torch.Tensor) -> np.ndarray[Any, Any]:
    """Features (B, d) scaled to length 1, in double precision: sums then do not depend on their order."""
    return functional.normalize(features.float().cpu().double(), dim=-1).numpy()
