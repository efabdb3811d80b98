"""VelaScorer: caption samples to scores, with everything that samples share computed once."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from reward.backbones.inference import scoring_mode, scoring_progress
from reward.checkpoints import push_checkpoint
from reward.errors import ImageError
from reward.images import load_image
from reward.metrics.vela.checkpoint import save_model
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.spec import SPEC
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable
from reward.scoring.grouping import Group, group_samples, windows

__all__ = ["VelaScorer"]

logger = logging.getLogger(__name__)

_WINDOW = 1024  # samples whose tokens and pixels may be in memory at once
_IMAGES_PER_PASS = 32


class VelaScorer:
    """Scores captions with a VELA model.

    Grouping is automatic: prompts with equal rubric and references share the language model's work on them, equal
    images are encoded once, and equal (image, references, candidate) are scored once.

    Args:
        model: a trained model.
        token_budget: most tokens of one forward pass of the language model, counting padding; lower it if memory
            runs out.

    Example:
        >>> from PIL import Image
        >>> scorer = VelaScorer.from_pretrained("embedded", device="cpu")
        >>> scorer.score([CaptionSample("A red star.", Image.new("RGB", (96, 96)))]).scores.shape
        (1, 3)
    """

    def __init__(self, model: VelaModel, *, token_budget: int = 8192) -> None:
        self.model = model
        self.token_budget = token_budget
        self.spec = replace(SPEC.with_aspects(model.config.aspects), needs_image=model.image is not None)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        token_budget: int = 8192,
        trust_remote_code: bool = False,
    ) -> VelaScorer:
        """Loads a checkpoint.

        Args:
            source: `"embedded"` (shipped, trained on synthetic scenes), a checkpoint folder, or a Hub id.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: of the backbones, such as `"bfloat16"`; float32 by default. The head is always float32.
            token_budget: see the class.
            trust_remote_code: whether Python files of the language model that the checkpoint names may run. They can do
                whatever you can do. No configuration or command has this setting.

        Raises:
            CheckpointError: the source is missing, incomplete or of another metric, its files do not fit each other, a
                backbone is unreachable, or one wants to run code and is not trusted.
            ConfigError: no such device or dtype.
        """
        model = VelaModel.from_pretrained(
            source, revision=revision, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return cls(model, token_budget=token_budget)

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None, card: str | None = None
    ) -> None:
        """Writes a checkpoint folder that `from_pretrained` reads.

        Args:
            folder: made if absent.
            dtype: of the stored weights, such as `torch.float16` to halve the file; as they are by default.
            card: text of the model card; a short one is written otherwise.
        """
        save_model(self.model, folder, dtype=dtype, card=card)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Uploads the checkpoint to the Hub and returns the address of the commit."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_checkpoint(folder, repo_id, private=private, revision=revision)

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) in [0, 1], in the order of the samples.

        A sample whose image is missing or cannot be read gets NaN and an error. Texts that do not fit are cut
        (references first, see TextConfig; candidates at their ends) and flagged in `truncated`.

        Args:
            samples: any number.
            batch_size: most prompts, images or captions of one forward pass; by default as `token_budget` allows.
            progress: whether to show a progress bar.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
        """
        check_samples(samples, batch_size)
        run = _Run(self, len(samples), batch_size)
        groups = group_samples(samples, use_images=self.model.image is not None)
        # samples of one image come together, so that its features need not be kept
        groups.sort(key=lambda group: group.image_key or "")
        device = self.model.device
        with scoring_mode(self.model, device), scoring_progress(SPEC.name, len(samples), progress) as advance:
            for window in windows(groups, _WINDOW):
                advance(run.score(window))
        if run.truncated.any():
            logger.warning("%d of %d samples were cut to fit the model", int(run.truncated.sum()), len(samples))
        return ScoreTable(run.scores, self.spec.aspects, run.errors, run.truncated, aliases=self.spec.aliases)


class _Run:
    """One call of `VelaScorer.score`: its results and what is shared between windows."""

    def __init__(self, scorer: VelaScorer, count: int, batch_size: int | None) -> None:
        self.model, self.token_budget, self.batch_size = scorer.model, scorer.token_budget, batch_size
        self.scores = np.full((count, len(scorer.spec.aspects)), np.nan)
        self.truncated = np.zeros(count, dtype=bool)
        self.errors: dict[int, str] = {}
        self._image: tuple[str, torch.Tensor] | None = None  # the last window's last image may go on in the next

    def score(self, groups: list[Group]) -> int:
        """Scores the groups of a window; returns how many samples they hold."""
        images = self._encode_images(groups) if self.model.image is not None else None
        items = [  # one per distinct (group, candidate)
            (group, candidate, rows)
            for group in groups
            if group.error is None
            for candidate, rows in group.rows.items()
        ]
        for group in groups:
            if group.error is not None:
                self.errors.update({row: group.error for rows in group.rows.values() for row in rows})
        if items:
            cut = np.zeros(len(items), dtype=bool)
            g_r2c = self._encode_texts(items, cut) if self.model.text is not None else None
            g_i2c = None if images is None else self._relate(items, images, cut)
            scores = self.model.head(g_r2c, g_i2c).double().cpu().numpy()
            for index, (_, _, rows) in enumerate(items):
                self.scores[rows] = scores[index]
                self.truncated[rows] = cut[index]
                if not np.isfinite(scores[index]).all():
                    self.errors.update(dict.fromkeys(rows, "the model gave a score that is not finite"))
        return sum(len(rows) for group in groups for rows in group.rows.values())

    def _encode_images(self, groups: list[Group]) -> dict[str, torch.Tensor]:
        """{image key: features (d,)}; groups without a readable image get an error."""
        features = dict([self._image]) if self._image else {}
        problems: dict[str, str] = {}
        waiting: dict[str, torch.Tensor] = {}
        towers = self.model.image.towers  # type: ignore[union-attr]

        def flush() -> None:
            if waiting:
                encoded = self.model.encode_image(torch.stack(list(waiting.values())).to(self.model.device))
                features.update(zip(waiting, encoded, strict=True))
                waiting.clear()

        for group in groups:
            key = group.image_key
            if group.error is None and key is None:
                group.error = "vela needs an image, and this sample has none"
            if group.error is not None or key is None or key in features or key in waiting:
                continue
            if key not in problems:
                try:
                    waiting[key] = towers.preprocess(load_image(group.image))  # type: ignore[arg-type]
                except ImageError as problem:
                    problems[key] = str(problem)
            group.error = problems.get(key)
            if len(waiting) >= min(_IMAGES_PER_PASS, self.batch_size or _IMAGES_PER_PASS):
                flush()
        flush()
        if features:
            last = next(reversed(features))
            self._image = (last, features[last])
        return features

    def _encode_texts(self, items: list[tuple[Group, str, list[int]]], cut: np.ndarray) -> torch.Tensor:
        """g_r2c (items, A, 2 * d)."""
        texts = [(candidate, group.references) for group, candidate, _ in items]
        prompts = self.model.text.prompts.many(texts, self.model.config.aspects)  # type: ignore[union-attr]
        cut |= np.array([any(prompt.truncated for prompt in row) for row in prompts])
        return self.model.encode_text(prompts, token_budget=self.token_budget, max_rows=self.batch_size)

    def _relate(
        self, items: list[tuple[Group, str, list[int]]], images: dict[str, torch.Tensor], cut: np.ndarray
    ) -> torch.Tensor:
        """g_i2c (items, 2 * d)."""
        texts = list(dict.fromkeys(candidate for _, candidate, _ in items))
        features: list[torch.Tensor] = []
        texts_cut: list[bool] = []
        towers = self.model.image.towers  # type: ignore[union-attr]
        step = self.batch_size or max(1, self.token_budget // towers.context_length)
        for start in range(0, len(texts), step):
            ids, ids_cut = towers.tokenize(texts[start : start + step])
            features.append(self.model.encode_candidate(ids.to(self.model.device)))
            texts_cut += ids_cut
        order = {text: position for position, text in enumerate(texts)}
        positions = [order[candidate] for _, candidate, _ in items]
        cut |= np.array([texts_cut[position] for position in positions])
        image = torch.stack([images[group.image_key] for group, _, _ in items])  # type: ignore[index]
        return self.model.image.relate(image, torch.cat(features)[positions])  # type: ignore[union-attr]
