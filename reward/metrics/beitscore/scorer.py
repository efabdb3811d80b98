"""BeitScoreScorer: caption samples to scores; an image with many captions is decoded and embedded once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from reward.backbones.inference import scoring_mode, scoring_progress
from reward.checkpoints import push_checkpoint
from reward.errors import ImageError
from reward.images import load_image
from reward.metrics.beitscore.checkpoint import load_model, save_model
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.preprocess import preprocess
from reward.metrics.beitscore.spec import SPEC
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable
from reward.scoring.batching import token_budget_batches
from reward.scoring.grouping import Group, group_samples

__all__ = ["BeitScoreScorer"]

logger = logging.getLogger(__name__)

# How much may be in memory at once: captions, and image embeddings in multiples of the token budget.
_WINDOW = 1024
_WINDOW_BUDGETS = 8


class BeitScoreScorer:
    """Scores captions with a BEiTScore model; references are not looked at.

    Grouping is automatic: equal images are decoded and embedded once, and equal (image, candidate) are scored once. The
    encoder itself cannot be shared between captions, because image and caption read each other in every layer.

    Args:
        model: a trained model.
        tokenizer: the tokenizer it was trained with.
        token_budget: most tokens of one forward pass, image patches and padding included; lower it if memory runs out.

    Raises:
        ValueError: the tokenizer does not fit the model.

    Example:
        >>> from reward.metrics.beitscore.config import BeitScoreConfig
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> words = {word: row for row, word in enumerate(["<p>", "<s>", "</s>", "<?>", "red"])}
        >>> fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "<?>")),
        ...                                pad_token="<p>", bos_token="<s>", eos_token="</s>")
        >>> config = BeitScoreConfig(hidden_size=8, layers=1, heads=2, ffn_size=16, image_size=32, vocab_size=5)
        >>> tokenizer = BeitScoreTokenizer.from_fast(fast, max_tokens=config.max_text_tokens)
        >>> scorer = BeitScoreScorer(BeitScoreModel(config), tokenizer)  # untrained: scores say nothing
        >>> from PIL import Image
        >>> scorer.score([CaptionSample("red", Image.new("RGB", (32, 32)))]).scores.shape
        (1, 1)
    """

    def __init__(self, model: BeitScoreModel, tokenizer: BeitScoreTokenizer, *, token_budget: int = 8192) -> None:
        if token_budget < 1:
            raise ValueError(f"token_budget must be at least 1, got {token_budget}")
        if tokenizer.size > model.config.vocab_size or tokenizer.max_tokens > model.config.max_text_tokens:
            raise ValueError(
                f"the tokenizer has {tokenizer.size} tokens and gives rows of up to {tokenizer.max_tokens}, but the "
                f"model has {model.config.vocab_size} tokens and room for {model.config.max_text_tokens}"
            )
        self.model, self.tokenizer, self.token_budget = model, tokenizer, token_budget
        self.spec = SPEC

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        token_budget: int = 8192,
    ) -> BeitScoreScorer:
        """Loads a checkpoint.

        Args:
            source: `"embedded"` (shipped, trained on synthetic scenes), a checkpoint folder, or a Hub id. Published
                BEiT-3 weights are no BEiTScore: see `load_beit3`.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: of encoder and pooler, such as `"bfloat16"`; float32 by default. The head is always float32.
            token_budget: see the class.

        Raises:
            CheckpointError: the source is missing, incomplete, damaged or of another metric.
        """
        model, tokenizer = load_model(source, revision=revision, device=device, dtype=dtype)
        return cls(model, tokenizer, token_budget=token_budget)

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None, card: str | None = None
    ) -> None:
        """Writes a checkpoint folder that `from_pretrained` reads.

        Args:
            folder: made if absent.
            dtype: of the stored weights, such as `torch.float16` to halve the file; as they are by default.
            card: text of the model card; a short one is written otherwise.
        """
        save_model(self.model, self.tokenizer, folder, dtype=dtype, card=card)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Uploads the checkpoint to the Hub and returns the address of the commit."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_checkpoint(folder, repo_id, private=private, revision=revision)

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, 1) in [0, 1], in the order of the samples.

        A sample whose image is missing or cannot be read gets NaN and an error. A caption longer than the model's table
        of positions is cut at its end and flagged in `truncated`.

        Args:
            samples: any number.
            batch_size: most captions of one forward pass; by default as `token_budget` allows.
            progress: whether to show a progress bar.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
        """
        check_samples(samples, batch_size)
        run = _Run(self, len(samples), batch_size)
        # without their references, samples of one image are one group
        groups = group_samples([replace(sample, references=()) for sample in samples])
        device = self.model.device
        with scoring_mode(self.model, device), scoring_progress(SPEC.name, len(samples), progress) as advance:
            for window in run.windows(groups):
                advance(run.score(window))
        if run.truncated.any():
            logger.warning("%d of %d samples were cut to fit the model", int(run.truncated.sum()), len(samples))
        return ScoreTable(run.scores, self.spec.aspects, run.errors, run.truncated)


@dataclass(frozen=True)
class _Item:
    """One distinct caption of one image, as token ids, and the rows of the samples that have it."""

    image: int
    tokens: list[int]
    rows: list[int]


class _Run:
    """One call of `BeitScoreScorer.score`, and its results."""

    def __init__(self, scorer: BeitScoreScorer, count: int, batch_size: int | None) -> None:
        self.model, self.tokenizer = scorer.model, scorer.tokenizer
        self.token_budget, self.batch_size = scorer.token_budget, batch_size
        self.scores = np.full((count, 1), np.nan)
        self.truncated = np.zeros(count, dtype=bool)
        self.errors: dict[int, str] = {}
        self._image_tokens = 1 + scorer.model.config.patches

    def windows(self, groups: list[Group]) -> Iterator[list[Group]]:
        """Groups in turn, as many at a time as may be in memory together."""
        most_images = max(1, _WINDOW_BUDGETS * self.token_budget // self._image_tokens)
        window: list[Group] = []
        size = 0
        for group in groups:
            window.append(group)
            size += len(group.rows)
            if size >= _WINDOW or len(window) >= most_images:
                yield window
                window, size = [], 0
        if window:
            yield window

    def score(self, groups: list[Group]) -> int:
        """Scores the groups of a window; returns how many samples they hold."""
        readable, pixels = [], []
        for group in groups:
            try:
                pixels.append(self._pixels(group))
                readable.append(group)
            except ImageError as error:
                self.errors.update({row: str(error) for rows in group.rows.values() for row in rows})
        if readable:
            self._score_items(self._items(readable), self._embed(pixels))
        return sum(len(rows) for group in groups for rows in group.rows.values())

    def _pixels(self, group: Group) -> torch.Tensor:
        if group.error is not None:
            raise ImageError(group.error)
        if group.image is None:
            raise ImageError("beitscore needs an image, and this sample has none")
        return preprocess(load_image(group.image), self.model.config)

    def _embed(self, pixels: list[torch.Tensor]) -> torch.Tensor:
        """Embeddings (images, 1 + patches, d)."""
        step = max(1, self.token_budget // self._image_tokens)
        parts = [
            self.model.beit3.embed_image(torch.stack(pixels[start : start + step]).to(self.model.device))
            for start in range(0, len(pixels), step)
        ]
        return torch.cat(parts)

    def _items(self, groups: list[Group]) -> list[_Item]:
        items = []
        for image, group in enumerate(groups):
            tokens, cut = self.tokenizer.encode(list(group.rows))
            for ids, rows, was_cut in zip(tokens, group.rows.values(), cut, strict=True):
                items.append(_Item(image, ids, rows))
                self.truncated[rows] = was_cut
        return items

    def _score_items(self, items: list[_Item], images: torch.Tensor) -> None:
        lengths = [self._image_tokens + len(item.tokens) for item in items]
        for batch in token_budget_batches(lengths, self.token_budget, self.batch_size):
            ids, padding = self.tokenizer.pad_rows([items[index].tokens for index in batch])
            of_images = images[[items[index].image for index in batch]]
            device = self.model.device
            _, pooled = self.model.encode_embedded(of_images, ids.to(device), padding.to(device))
            scores = torch.sigmoid(self.model.logits(pooled)).double().cpu().numpy()
            for index, score in zip(batch, scores, strict=True):
                rows = items[index].rows
                if np.isfinite(score):
                    self.scores[rows] = score
                else:
                    self.errors.update(dict.fromkeys(rows, "the model gave a score that is not finite"))
