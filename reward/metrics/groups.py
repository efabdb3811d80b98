"""Groups: samples with equal image and references, which metrics score together, and windows of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reward.data.images import image_names
from reward.data.samples import CaptionSample, ImageLike
from reward.errors import ImageError


@dataclass
class Group:
    """Samples with equal image, references and context, which differ in their candidates alone.

    What the candidates share is computed once for the group: the features of the image, a language model's states of
    the references. A candidate that several samples have is scored once. This is exact: a score depends on image,
    references, context and candidate, and in no network here does a candidate see another one. Scores differ from
    those of samples scored one by one only by rounding, since the shape of a batch changes the order of its sums.

    Args:
        image_key: names the image in this call, by its content if the scorer has a cache; None without image.
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
    by_content: bool = False,
) -> list[Group]:
    """Groups samples by image content, references and context, in order of first appearance.

    Args:
        samples: N samples in any order.
        use_images: whether samples are grouped by image. Without, no image is opened.
        use_references: whether samples are grouped by references. Without, groups have none.
        contexts: N hashable values; the samples of a group have the same one. None for none.
        by_content: see `image_names`.

    Example:
        >>> samples = [CaptionSample("a"), CaptionSample("b"), CaptionSample("a"), CaptionSample("a", None, ["c"])]
        >>> [group.rows for group in group_samples(samples)]
        [{'a': [0, 2], 'b': [1]}, {'a': [3]}]
    """
    # Many samples hold the same image object, which is then looked at once. `samples` keeps the objects alive, so no
    # two of them have the same id.
    images: dict[int, ImageLike] = {}
    for sample in samples:
        if use_images and sample.image is not None:
            images[id(sample.image)] = sample.image
    names = dict(zip(images, image_names(list(images.values()), by_content=by_content), strict=True))

    groups: dict[Any, Group] = {}
    for row, sample in enumerate(samples):
        image_key, error = names.get(id(sample.image)), None
        if isinstance(image_key, ImageError):
            image_key, error = None, str(image_key)
        references: tuple[str, ...] = ()
        if use_references:
            references = tuple(sample.references)
        context = None
        if contexts is not None:
            context = contexts[row]
        shared = (image_key, error, references, context)
        if shared not in groups:
            groups[shared] = Group(image_key, sample.image, references, error=error, context=context)
        groups[shared].rows.setdefault(sample.candidate, []).append(row)
    return list(groups.values())


def windows(groups: Sequence[Group], size: int, most_groups: int | None = None) -> Iterator[list[Group]]:
    """Splits groups into windows of at most `size` different candidates and `most_groups` groups.

    A group with more candidates than fit continues in the next window.
    """
    window: list[Group] = []
    room = size
    for group in groups:
        remaining = list(group.rows.items())
        while remaining:
            part, remaining = remaining[:room], remaining[room:]
            # A copy, since the windows of a long group differ in their rows.
            window.append(replace(group, rows=dict(part)))
            room -= len(part)
            if room == 0 or len(window) == most_groups:
                yield window
                window, room = [], size
    if window:
        yield window
