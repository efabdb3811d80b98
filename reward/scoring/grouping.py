"""Groups samples that share image and references, by content, so that what they share is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
        error: why the image cannot even be hashed (a missing file), else None.
    """

    image_key: str | None
    image: ImageLike | None
    references: tuple[str, ...]
    rows: dict[str, list[int]] = field(default_factory=dict)
    error: str | None = None


def group_samples(samples: Sequence[CaptionSample], *, use_images: bool = True) -> list[Group]:
    """Groups samples by image content and references; positions in `Group.rows` restore the order.

    Trainers hand over a new image object for every member of a group, so identity says nothing: bytes and
    pixels are compared by hash.

    Args:
        samples: in any order.
        use_images: whether images tell groups apart; a metric that does not look at them saves the hashing.

    Example:
        >>> samples = [CaptionSample("a"), CaptionSample("b"), CaptionSample("a"), CaptionSample("a", None, ["c"])]
        >>> [group.rows for group in group_samples(samples)]
        [{'a': [0, 2], 'b': [1]}, {'a': [3]}]
    """
    groups: dict[tuple[str | None, str | None, tuple[str, ...]], Group] = {}
    hashed: dict[int, tuple[str | None, str | None]] = {}  # `samples` keeps the objects alive, so ids stay theirs
    for row, sample in enumerate(samples):
        key = error = None
        if use_images and sample.image is not None:
            if id(sample.image) not in hashed:
                try:
                    hashed[id(sample.image)] = image_key(sample.image), None
                except ImageError as problem:
                    hashed[id(sample.image)] = None, str(problem)
            key, error = hashed[id(sample.image)]
        references = tuple(sample.references)
        group = groups.setdefault((key, error, references), Group(key, sample.image, references, error=error))
        group.rows.setdefault(sample.candidate, []).append(row)
    return list(groups.values())


def windows(groups: Sequence[Group], size: int) -> Iterator[list[Group]]:
    """Groups in turn, as many at a time as hold about `size` different candidates; at least one."""
    window: list[Group] = []
    count = 0
    for group in groups:
        window.append(group)
        count += len(group.rows)
        if count >= size:
            yield window
            window, count = [], 0
    if window:
        yield window
