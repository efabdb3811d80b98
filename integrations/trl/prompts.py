"""From a data set of images and references to the columns that TRL's trainers and our rewards read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from reward.errors import InvalidSampleError

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["make_prompt_dataset"]

logger = logging.getLogger(__name__)


def make_prompt_dataset(
    dataset: Dataset,
    prompt: str = "Describe the image in detail.",
    *,
    system: str | None = None,
    image_column: str = "image",
    references_column: str | None = None,
) -> Dataset:
    """Gives each row a prompt for a vision-language policy, its image and its references.

    The prompt is conversational, as TRL wants it beside images: TRL puts the image before the text of the first user
    message. Rows without an image are left out, with a warning that counts them: TRL cannot mix them with others.

    Args:
        dataset: N rows with one image each: a `datasets.Image` column, or paths (relative to the working directory).
        prompt: what the policy is asked, the same for all rows.
        system: system message, or None for none.
        image_column: holds the image; becomes `image`.
        references_column: holds a list of reference captions, or one; becomes `references`. None: no references.

    Returns:
        The data set with the columns `prompt`, `image` and, if asked for, `references`; its other columns stay.

    Raises:
        InvalidSampleError: a column is missing, of another type, or in the way of a new one.

    Example:
        >>> from datasets import Dataset
        >>> rows = Dataset.from_dict({"picture": ["a.png"], "refs": [["A red star."]]})
        >>> rows = make_prompt_dataset(rows, "Describe.", image_column="picture", references_column="refs")
        >>> rows.remove_columns("image")[0]
        {'references': ['A red star.'], 'prompt': [{'role': 'user', 'content': 'Describe.'}]}
    """
    from datasets import Image  # on use: a large package

    dataset = _renamed(dataset, image_column, "image")
    if "images" in dataset.column_names:
        raise InvalidSampleError(
            "TRL would show the column 'images' to the policy instead of 'image': remove or rename it"
        )
    feature = dataset.features["image"]
    if not isinstance(feature, Image):
        if getattr(feature, "dtype", None) not in ("string", "large_string"):
            raise InvalidSampleError(f"column {image_column!r} must hold images or paths, got {feature}")
        dataset = dataset.cast_column("image", Image())
    dataset = _with_images(dataset, image_column)

    if references_column is not None:
        dataset = _renamed(dataset, references_column, "references")
        dataset = _with_reference_lists(dataset, references_column)

    message: list[dict[str, Any]] = [{"role": "system", "content": system}] if system is not None else []
    message.append({"role": "user", "content": prompt})
    if "prompt" in dataset.column_names:
        dataset = dataset.remove_columns("prompt")
    return dataset.add_column("prompt", [message] * len(dataset))


def _renamed(dataset: Dataset, name: str, new: str) -> Dataset:
    if name not in dataset.column_names:
        raise InvalidSampleError(f"the data set has no column {name!r}; it has {', '.join(dataset.column_names)}")
    if name == new:
        return dataset
    if new in dataset.column_names:
        raise InvalidSampleError(
            f"column {name!r} should become {new!r}, but there is such a column already: remove it first"
        )
    return dataset.rename_column(name, new)


def _with_images(dataset: Dataset, name: str) -> Dataset:
    """The rows that have an image; a processor that is given None beside images stops the training."""
    from datasets import Image  # on use: a large package

    if dataset.data.column("image").null_count == 0:
        return dataset
    feature = dataset.features["image"]
    stored = dataset.cast_column("image", Image(decode=False))
    kept = [index for index, image in enumerate(stored["image"]) if image is not None]
    if not kept:
        raise InvalidSampleError(f"column {name!r} holds no image in any row")
    logger.warning("%d of %d rows have no image in column %r: left out", len(dataset) - len(kept), len(dataset), name)
    return stored.select(kept).cast_column("image", feature)


def _with_reference_lists(dataset: Dataset, name: str) -> Dataset:
    from datasets import List, Value  # on use: a large package

    feature = dataset.features["references"]
    if isinstance(feature, Value) and feature.dtype in ("string", "large_string"):
        captions = dataset.with_format(None)["references"]
        lists = [None if caption is None else [caption] for caption in captions]
        return dataset.remove_columns("references").add_column("references", lists)
    if isinstance(feature, List) and getattr(feature.feature, "dtype", None) in ("string", "large_string"):
        return dataset
    raise InvalidSampleError(f"column {name!r} must hold a list of captions or one caption, got {feature}")
