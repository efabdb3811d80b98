"""Domain: whether images and captions are of the kind that a checkpoint was trained on. It changes no score."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import CheckpointError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Domain", "warn_out_of_domain", "words_of"]

logger = logging.getLogger(__name__)

_SIDE = 24  # pixels of the thumbnail; it picks pixels, since their means cost more and tell no more
_WORD = re.compile(r"[^\W_]+")
_NOTABLE = 0.1  # share of a call's samples from which on it is worth a warning: one scene in a thousand is mistaken
_warned: set[str] = set()


@dataclass(frozen=True)
class Domain:
    """What a checkpoint was trained on, as the entry `domain` of its config.json says; few checkpoints have one.

    An image is of the domain if most of it has one of a few colours, as a drawing on a plain ground has. A caption is
    if nearly all of its words are known. `examples/research/embedded/domain.py` finds and measures such an entry.

    Args:
        about: what the checkpoint knows, in a few words.
        instead: the line to write for other data.
        grounds: RGB levels of 0 to 255.
        tolerance: how many levels each channel of a pixel may be from a ground.
        least_ground: smallest share of pixels of one ground that an image of the domain has.
        words: all words of the captions, in small letters, separated by blanks.
        most_unknown: largest share of other words that a caption of the domain has.

    Raises:
        ValueError: an argument has another type or range.

    Example:
        >>> from PIL import Image
        >>> night = Domain("stars at night", "...", grounds=((0, 0, 40),), tolerance=8, least_ground=0.5,
        ...                words="a star", most_unknown=0.2)
        >>> night.knows_image(Image.new("RGB", (64, 48), (2, 0, 44))), night.knows_image(Image.new("RGB", (64, 48)))
        (True, False)
        >>> night.knows_caption("A star."), night.knows_caption("A cat.")
        (True, False)
    """

    about: str
    instead: str
    grounds: tuple[tuple[int, int, int], ...]
    tolerance: int
    least_ground: float
    words: str
    most_unknown: float

    def __post_init__(self) -> None:
        try:
            grounds = tuple((int(red), int(green), int(blue)) for red, green, blue in self.grounds)
        except (TypeError, ValueError):
            raise ValueError(f"grounds must be a list of [red, green, blue], got {self.grounds!r:.200}") from None
        if not 1 <= len(grounds) <= 32 or not all(0 <= level <= 255 for ground in grounds for level in ground):
            raise ValueError(f"grounds must be 1 to 32 colours with levels of 0 to 255, got {self.grounds!r:.200}")
        object.__setattr__(self, "grounds", grounds)
        for name, high in (("tolerance", 255), ("least_ground", 1), ("most_unknown", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= high:
                raise ValueError(f"{name} must be a number of 0 to {high}, got {value!r:.80}")
        for name in ("about", "instead", "words"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text, got {getattr(self, name)!r:.80}")

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Domain | None:
        """Reads the entry `domain` of a checkpoint's configuration; None without one.

        Raises:
            CheckpointError: the entry is not one that this version can read.
        """
        entry = config.get("domain")
        try:
            return None if entry is None else cls(**entry)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"domain in config.json cannot be read: {error}") from None

    def to_config(self) -> dict[str, Any]:
        """The entry for config.json."""
        return {**asdict(self), "grounds": [list(ground) for ground in self.grounds]}

    def ground_share(self, image: Image.Image) -> float:
        """Largest share of pixels near one ground, of an RGB image of any size."""
        pixels = np.asarray(image.resize((_SIDE, _SIDE), resample=0))  # 0: nearest
        red, green, blue = (near[pixels[..., channel]] for channel, near in enumerate(self._near))
        near = red & green & blue
        most = max(np.count_nonzero(near & (1 << place)) for place in range(len(self.grounds)))
        return float(most / near.size)

    def unknown_share(self, caption: str) -> float:
        """Share of a caption's words that are not in `words`; 0 for a caption without a word."""
        words = words_of(caption)
        return sum(word not in self._known for word in words) / len(words) if words else 0.0

    def knows_image(self, image: Image.Image) -> bool:
        """Whether an RGB image is of the domain."""
        return self.ground_share(image) >= self.least_ground

    def knows_caption(self, caption: str) -> bool:
        """Whether a caption is of the domain."""
        return self.unknown_share(caption) <= self.most_unknown

    @cached_property
    def _near(self) -> np.ndarray:
        """For each channel and level (3, 256), a bit a ground: whether the level is near that of the ground."""
        distance = np.abs(np.arange(256) - np.array(self.grounds)[..., None])  # (grounds, 3, 256)
        bits = 1 << np.arange(len(self.grounds))
        return ((distance <= self.tolerance) * bits[:, None, None]).sum(axis=0)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.words.split())


def words_of(caption: str) -> list[str]:
    """The words and numbers of a caption, in small letters.

    Example:
        >>> words_of("There's ONE star.")
        ['there', 's', 'one', 'star']
    """
    return _WORD.findall(caption.lower())


def warn_out_of_domain(metric: str, flags: Iterable[bool], domain: Mapping[str, str]) -> None:
    """Warns, once a process and metric, and in a distributed run on the first process, of samples out of domain.

    Args:
        metric: its name.
        flags: of the samples of a call, True where one is out of domain.
        domain: `about` and `instead`, see `Domain`.
    """
    flags = list(flags)
    if metric in _warned or not flags or sum(flags) < _NOTABLE * len(flags) or os.environ.get("RANK", "0") != "0":
        return
    _warned.add(metric)
    logger.warning(
        "%s: %d of %d samples are out of domain, so that their scores mean nothing: this checkpoint knows %s. For "
        'photos write MetricReward("%s", "folder-or-hub-id") with a checkpoint trained on photos, or %s; see '
        "docs/PHOTOS.md. The scores are not changed, and this is said once",
        metric,
        sum(flags),
        len(flags),
        domain["about"],
        metric,
        domain["instead"],
    )
