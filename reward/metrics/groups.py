"""Samples with equal image and references, and windows of them that are scored together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reward.errors import ImageError
from reward.images import image_key
from reward.samples import CaptionSample, ImageLike

__all__ = ["Group", "group_samples", "windows"]


@dataclass
class Group:
    """Samples with equal image and references.

    Args:
        image_key: content hash of the image; None without image.
        image: the first sample's image.
        references: the references.
        rows: {candidate: positions of the samples that have it}, in order of first appearance.
        error: why the group cannot be scored, such as a missing file; None if it can.
        context: whatever else the samples share, such as the question that their captions answer.
        features: what `CaptionScorer.encode_images` gives for the image.
    """

    image_key: str | None
    image: ImageLike | None
    references: tuple[str, ...]
    rows: dict[str, list[int]] = field(default_factory=dict)
    error: str | None = None
    context: Any = None
    features: Any = None


def group_samples(
    samples: Sequence[CaptionSample],
    *,
    use_images: bool = True,
    use_references: bool = True,
    contexts: Sequence[Any] | None = None,
) -> list[Group]:
    """Groups samples by image content and references; `Group.rows` holds the positions of the samples.

    Trainers make a new image object for every caption of a group. So images are compared by a hash of their bytes or
    pixels.

    Args:
        samples: in any order.
        use_images: whether samples are grouped by image. Without, no image is opened.
        use_references: whether samples are grouped by references. Without, groups have none.
        contexts: one hashable value for each sample; the samples of a group have the same one.

    Example:
        >>> samples = [CaptionSample("a"), CaptionSample("b"), CaptionSample("a"), CaptionSample("a", None, ["c"])]
        >>> [group.rows for group in group_samples(samples)]
        [{'a': [0, 2], 'b': [1]}, {'a': [3]}]
    """
    groups: dict[Any, Group] = {}
    hashed: dict[int, tuple[str | None, str | None]] = {}  # `samples` keeps the objects alive, so ids stay unique
    for row, sample in enumerate(samples):
        key = error = None
        if use_images and sample.image is not None:
            if id(sample.image) not in hashed:
                try:
                    hashed[id(sample.image)] = image_key(sample.image), None
                except ImageError as problem:
                    hashed[id(sample.image)] = None, str(problem)
            key, error = hashed[id(sample.image)]
        references = tuple(sample.references) if use_references else ()
        context = contexts[row] if contexts is not None else None
        group = groups.setdefault(
            (key, error, references, context), Group(key, sample.image, references, error=error, context=context)
        )
        group.rows.setdefault(sample.candidate, []).append(row)
    return list(groups.values())


def windows(groups: Sequence[Group], size: int, most_groups: int | None = None) -> Iterator[list[Group]]:
    """Splits groups into windows of at most `size` different candidates and `most_groups` groups.

    A group with more candidates than fit continues in the next window.
    """
    window: list[Group] = []
    room = size
    for group in groups:
        candidates = list(group.rows)
        while candidates:
            taken, candidates = candidates[:room], candidates[room:]
            window.append(replace(group, rows={candidate: group.rows[candidate] for candidate in taken}))
            room -= len(taken)
            if room == 0 or len(window) == most_groups:
                yield window
                window, room = [], size
    if window:
        yield window
