"""The candidates of each image as `capreward caption` stores them, and what is still to be written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reward.decoding.captioners import Wanted
from reward.errors import InvalidSampleError
from reward.judges.chat import Sampled
from reward.samples import check_encodable
from reward.scoring.kept import Kept
from reward.thinking import without_thinking

__all__ = ["CandidatePools", "ImageRow"]


@dataclass(frozen=True)
class ImageRow:
    """An image to be captioned.

    Args:
        path: of the image file.
        references: reference captions for the metric, may be empty.
        problem: why it cannot be captioned; None if it can.
    """

    path: Path
    references: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def key(self) -> str:
        """Tells whether stored candidates belong to this file."""
        try:
            facts = self.path.stat()
        except OSError:
            return os.path.abspath(self.path)
        return f"{os.path.abspath(self.path)} {facts.st_size} {facts.st_mtime_ns}"


class CandidatePools:
    """The candidates of each image; of each reply is kept [key, [[text, truncated, logprob], ...]].

    That is what was written; `captions` are without the reasoning, from `thinking_cut` of them some was cut.
    """

    def __init__(self, images: Sequence[ImageRow], count: int, kept: Kept) -> None:
        seen: Counter[str] = Counter()
        self._keys = []
        for row in images:  # an image that comes twice is captioned twice
            seen[row.key] += 1
            self._keys.append(f"{row.key} {seen[row.key]}")
        self.images, self.count, self._kept = images, count, kept
        self.problems = {place: row.problem for place, row in enumerate(images) if row.problem is not None}
        stored: dict[str, list[Sampled]] = {}
        for key, captions in kept:
            stored.setdefault(key, []).extend(Sampled(*caption) for caption in captions)
        self.thinking_cut = 0
        self.captions = [self._shown(stored.get(key, [])[:count]) for key in self._keys]

    def _shown(self, captions: list[Sampled]) -> list[Sampled]:
        shown = [replace(caption, text=without_thinking(caption.text)) for caption in captions]
        self.thinking_cut += sum(a != b for a, b in zip(captions, shown, strict=True))
        return shown

    def complete(self, row: int) -> bool:
        """Whether no more is to be written for an image."""
        return row in self.problems or len(self.captions[row]) >= self.count

    def missing(self) -> list[Wanted]:
        """What is to be written."""
        return [
            Wanted(row, image.path, len(captions), self.count - len(captions))
            for row, (image, captions) in enumerate(zip(self.images, self.captions, strict=True))
            if not self.complete(row)
        ]

    def add(self, row: int, captions: list[Sampled] | str) -> None:
        """Stores what was written, or notes the reason why nothing was."""
        if isinstance(captions, str):
            self.problems[row] = captions
            return
        try:
            for caption in captions:
                check_encodable(caption.text, "a caption")
        except InvalidSampleError as error:  # which no file holds
            self.problems[row] = str(error)
            return
        lines = [[caption.text, caption.truncated, caption.logprob] for caption in captions]
        self._kept.add([[self._keys[row], lines]])
        self.captions[row] += self._shown(captions)

    def scored(self, row: int) -> bool:
        """Whether an image has candidates to choose from; one that failed midway has fewer than it should."""
        return row not in self.problems and bool(self.captions[row])

    def rows(self, names: Sequence[str | None]) -> Iterator[dict[str, Any]]:
        """Rows for `rerank_dataset`."""
        for row, (image, captions) in enumerate(zip(self.images, self.captions, strict=True)):
            if self.scored(row):
                references = {"references": list(image.references)} if image.references else {}
                yield {"image": names[row], **references, "candidates": [caption.text for caption in captions]}
