"""RetrievalReward: whether a caption finds its own image among the others of the step, as a reward function."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.images import image_names
from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.metrics.scorer import CandidateScores, Group, NetworkScorer
from reward.rewards.logs import default_name
from reward.rewards.metric_reward import MetricReward

if TYPE_CHECKING:
    import torch

    from reward.metrics.clipscore.scorer import ClipScorer

_METRICS = ("clipscore", "longclipscore", "siglipscore", "pacscore")
_SPEC = MetricSpec("retrieval", f"{__name__}:_Retrieval", ("own_image",))


class RetrievalReward(MetricReward):
    """The probability that a CLIP gives to a caption's own image among the different images of the call, in [0, 1].

    It is the softmax of the cosines of the caption with all images, divided by the CLIP's temperature. Captions that
    are all alike have a mean of exactly 1 / images, so this pays for what tells images apart, and for nothing else. Use
    it beside a metric that sees what is wrong, as in `CombinedReward([VelaReward(), RetrievalReward()])`.

    A trainer's call compares with the images of all processes of the training, each of which must call it; `rewards`
    and `score` compare with those of the call. Rewards of different numbers of images are not on one scale. With fewer
    different images than `minimum_images`, of those that have a caption with a word, rows get None, and a trainer's
    first call raises InvalidSampleError.

    Source: the self-retrieval reward of Liu et al., "Show, Tell and Discriminate" (2018), with the probability in place
    of a margin.

    Args:
        metric: `"clipscore"`, `"longclipscore"`, `"siglipscore"` or `"pacscore"`, or its scorer. The caption has the
            words before it that the metric puts there, and is cut and flagged as there.
        source: its CLIP, see `load_scorer`.
        minimum_images: fewest different images of a call.
        name: in the logs; `retrieval` by default, followed by the last part of a source other than `"embedded"`.
        options: further arguments of `MetricReward`.

    Example:
        >>> from PIL import Image
        >>> images = [Image.new("RGB", (96, 96), colour) for colour in ("red", "green", "blue", "white")]
        >>> reward = RetrievalReward(device="cpu")
        >>> sum(reward(["Describe."] * 4, ["A red star."] * 4, image=images))
        1.0
    """

    def __init__(
        self,
        metric: str | ClipScorer = "clipscore",
        source: str | os.PathLike[str] = "embedded",
        *,
        minimum_images: int = 4,
        name: str | None = None,
        **options: Any,
    ) -> None:
        if minimum_images < 1:
            raise ConfigError(f"a RetrievalReward needs minimum_images >= 1, got {minimum_images}")
        super().__init__(metric, source, name=name, **options)
        if self.spec.name not in _METRICS:
            raise ConfigError(f"a RetrievalReward takes one of {', '.join(_METRICS)}, got {self.spec.name!r}")
        self.minimum_images = minimum_images
        self.spec, self.weights = _SPEC, _SPEC.weigh(self._weights_by_name)
        self.__name__ = self._logged_as = name or default_name(_SPEC, self.source, self._weights_by_name)

    def __call__(self, *arguments: Any, **columns: Any) -> list[float | None]:
        """See `MetricReward.__call__`."""
        scorer: Any
        scorer, _ = self._load()
        with self._turn(scorer):
            is_first = self._shared.is_first_call
            scorer.shortage, scorer.others_wait = None, True
            try:
                rewards = super().__call__(*arguments, **columns)
            finally:
                if scorer.others_wait:  # there was nothing to score in this process
                    scorer.gather({})
            if is_first and scorer.shortage is not None and not self.goes_on:
                raise InvalidSampleError(f"{self.__name__}: {scorer.shortage}")
        return rewards

    def _rating(self, loaded: Any) -> Any:
        return _Retrieval(loaded, self.minimum_images)


class _Retrieval(NetworkScorer):
    """The scorer behind the reward. Scores depend on the other images of the call, so it is no metric by itself."""

    spec = _SPEC
    window_size = sys.maxsize  # all images of a call are compared

    def __init__(self, clip: ClipScorer, minimum_images: int) -> None:
        self.clip, self.model, self.caches, self.minimum_images = clip, clip.model, clip.caches, minimum_images
        self.scale: float = clip.model.clip.logit_scale.exp().item()  # 1 / temperature
        self.shortage: str | None = None  # why the last call has no scores
        self.others_wait = False  # whether other processes wait for the images of this one

    def preprocess(self, image: Any) -> Any:
        return self.clip.preprocess(image)

    def encode_images(self, images: list[Any]) -> Any:
        return self.clip.encode_images(images)

    def cached_features(self, features: torch.Tensor) -> Any:
        return self.clip.cached_features(features)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1): the share of the own image in the softmax over all images."""
        captions = dict.fromkeys(caption for group in groups for caption in group.rows)
        features, cut = self.clip.encode_texts(list(captions), batch_size)
        # Names by content, which are the same in all processes.
        names = image_names([group.image for group in groups], by_content=True)  # type: ignore[misc]
        images = {str(name): group.features for name, group in zip(names, groups, strict=True)}
        if self.others_wait:
            images = self.gather(images)
        columns = {name: column for column, name in enumerate(sorted(images))}
        image_features = np.stack([images[name] for name in columns])
        scores, truncated = [], []
        for name, group in zip(names, groups, strict=True):
            caption_features = np.stack([features[caption] for caption in group.rows])
            logits = caption_features @ image_features.T * self.scale
            # The highest becomes 1, so that no power overflows.
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            scores.append(powers[:, columns[str(name)]] / powers.sum(axis=1))
            truncated += [caption in cut for caption in group.rows]
        errors: dict[int, str] = {}
        self.shortage = None
        if len(images) < self.minimum_images:
            self.shortage = (
                f"the step has {len(images)} different images, and minimum_images is {self.minimum_images}: raise "
                "per_device_train_batch_size or gradient_accumulation_steps"
            )
            errors = dict.fromkeys(range(len(truncated)), self.shortage)
        return CandidateScores(np.concatenate(scores)[:, None], truncated, errors)

    def gather(self, images: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Features by name of this process's images and of those of all others."""
        from torch import distributed

        self.others_wait = False
        if not distributed.is_available() or not distributed.is_initialized():
            return images
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, images)
        merged: dict[str, np.ndarray] = {}
        for part in parts:
            merged |= part
        return merged
