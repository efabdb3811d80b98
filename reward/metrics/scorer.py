"""CaptionScorer: what all metrics share on the way from samples to a table of scores."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.data.held_data import TakesData
from reward.data.images import KeyedImage, image_names, in_threads, load_image
from reward.data.samples import CaptionSample, ImageLike
from reward.data.score_table import ScoreTable
from reward.errors import ImageError, InvalidSampleError
from reward.metrics.base import MetricSpec

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from reward.checkpoints.caches import TensorCache

logger = logging.getLogger(__name__)


@dataclass
class Group:
    """Samples with equal image and references.

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
    """Groups samples by image content and references; `Group.rows` holds the positions of the samples.

    Args:
        samples: in any order.
        use_images: whether samples are grouped by image. Without, no image is opened.
        use_references: whether samples are grouped by references. Without, groups have none.
        contexts: one hashable value for each sample; the samples of a group have the same one.
        by_content: see `image_names`.

    Example:
        >>> samples = [CaptionSample("a"), CaptionSample("b"), CaptionSample("a"), CaptionSample("a", None, ["c"])]
        >>> [group.rows for group in group_samples(samples)]
        [{'a': [0, 2], 'b': [1]}, {'a': [3]}]
    """
    groups: dict[Any, Group] = {}
    # `samples` keeps the objects alive, so ids stay unique
    images = {id(sample.image): sample.image for sample in samples if use_images and sample.image is not None}
    names = dict(zip(images, image_names(list(images.values()), by_content=by_content), strict=True))
    for row, sample in enumerate(samples):
        name = names.get(id(sample.image))
        key, error = (None, str(name)) if isinstance(name, ImageError) else (name, None)
        references = tuple(sample.references) if use_references else ()
        context = contexts[row] if contexts is not None else None
        own = key, error, references, context
        if (group := groups.get(own)) is None:
            group = groups[own] = Group(key, sample.image, references, error=error, context=context)
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


class CandidateScores(NamedTuple):
    """What `CaptionScorer.score_groups` gives for K candidates.

    Args:
        scores: array (K, A).
        truncated: K flags, True where some text was cut; None if none was.
        errors: {index of a candidate: why it has no score}.
    """

    scores: Any
    truncated: Sequence[bool] | np.ndarray | None = None
    errors: Mapping[int, str] = {}


class CaptionScorer(TakesData):
    """Base of the metrics: derive, set `spec`, and write `score_groups`, `from_pretrained` and `save_pretrained`.

    The base checks the samples, groups them by image and references, and gives groups to the metric in windows of
    bounded size. Every image is decoded once and encoded once. A sample that lacks what the metric needs, whose image
    cannot be read, or whose score is not finite gets NaN and a reason; the others are scored. Scores do not depend on
    the order of the samples, on the batch size, or on which samples come together, but for rounding (below 1e-6 in
    float32). Do not score in several threads at a time while the network is in training mode.

    Attributes:
        spec: facts about the metric.
        reads_images, reads_references: whether the metric reads them. By default it reads what `spec` says it needs.
        decodes_images: whether images are decoded here; otherwise `Group.features` is the image as it was given.
        window_size: most different candidates of a call of `score_groups`.
        images_per_pass: most images of a call of `encode_images`.
        caches: what is kept on disk: `"images"` holds what `encode_images` gave. Empty unless a cache was asked for.
    """

    spec: MetricSpec
    decodes_images: bool = True
    window_size: ClassVar[int] = 1024
    images_per_pass: int = 32
    caches: Mapping[str, TensorCache] = MappingProxyType({})

    @property
    def fingerprint(self) -> str:
        """Names everything that makes its scores: code, settings and weights as they are now.

        A kept score belongs to it: a run goes on, and a finished output is accepted, only if it is the same.
        """
        return fingerprint_object(self, leave_out=("caches", "token_budget"))

    @property
    def reads_images(self) -> bool:
        return self.spec.needs_image

    @property
    def reads_references(self) -> bool:
        return self.spec.needs_references

    @abstractmethod
    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores the candidates of some groups, in the order of the groups and of their `rows`.

        Args:
            groups: those that can be scored; `features` is set if the metric reads images.
            batch_size: most captions of a forward pass; None leaves it to the metric.
        """

    def context(self, sample: CaptionSample) -> Hashable:
        """What its score depends on beside caption, image and references, as `Group.context`; None for nothing.

        Raises:
            InvalidSampleError: it is not as it should be; the sample then has no score, and this reason.
        """
        return None

    def preprocess(self, image: Image.Image) -> Any:
        """What `encode_images` needs of a decoded image; called in several threads at a time.

        Raises:
            ImageError: the image cannot be used.
        """
        return image

    def encode_images(self, images: list[Any]) -> Any:
        """Features of some preprocessed images, one each."""
        return images

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Does for captions and references what can be done before they are scored; called in another thread."""

    def cached_features(self, features: torch.Tensor) -> Any:
        """The features of an image, as `encode_images` gave them, from the tensor that the cache kept."""
        return features

    def score_samples(
        self,
        samples: list[CaptionSample],
        batch_size: int | None = None,
        progress: bool = False,
        contexts: Sequence[Any] | None = None,
    ) -> ScoreTable:
        results = _Results(self.spec.name, len(samples), len(self.spec.aspects))
        images = _Images(self, batch_size)
        contexts = [self._context(sample) for sample in samples] if contexts is None else contexts
        reads = {"use_images": self.reads_images, "use_references": self.reads_references}
        groups = group_samples(samples, contexts=contexts, by_content=bool(self.caches), **reads)
        groups.sort(key=lambda group: group.image_key or "")  # so that the features of an image can be dropped early
        with self._mode(), _progress(self.spec.name, len(samples), progress) as advance:
            for window in self._windows(groups, batch_size):
                for group in window:
                    group.error = group.error or self._lack(group)
                if self.reads_images:
                    images.encode(window)
                readable = [group for group in window if group.error is None]
                refused = [group for group in window if group.error is not None]
                results.refused |= {row: str(group.error) for group in refused for row in chain(*group.rows.values())}
                if readable:
                    results.add(readable, self.score_groups(readable, batch_size))
                advance(sum(len(rows) for group in window for rows in group.rows.values()))
        self._warn(len(samples), results.failed, results.truncated)
        errors = dict(sorted((results.refused | results.failed).items()))
        return ScoreTable(results.scores, self.spec.aspects, errors, results.truncated, aliases=self.spec.aliases)

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        return windows(groups, self.window_size)

    def _context(self, sample: CaptionSample) -> Hashable | InvalidSampleError:
        try:
            return self.context(sample)
        except InvalidSampleError as error:
            return error

    def _lack(self, group: Group) -> str | None:
        """What a group lacks for this metric, as a reason."""
        if isinstance(group.context, InvalidSampleError):
            return str(group.context)
        if self.spec.needs_image and group.image is None:
            return f"metric {self.spec.name!r} needs an image, but the sample has none"
        if self.spec.needs_references and not group.references:
            return f"metric {self.spec.name!r} needs references, but the sample has none"
        return None

    def _mode(self) -> AbstractContextManager[None]:
        return nullcontext()  # the state in which the metric scores

    def _warn(self, count: int, failed: dict[int, str], truncated: np.ndarray) -> None:
        """Warns once for all samples; `failed` are those that the metric itself could not score."""
        if truncated.any():
            logger.warning("%s: %d of %d samples were cut to fit the model", self.spec.name, truncated.sum(), count)


class _Images:
    """Decodes and encodes the images of a run, each once, if groups with equal images follow each other."""

    def __init__(self, scorer: CaptionScorer, batch_size: int | None) -> None:
        self.scorer = scorer
        self.step = min(scorer.images_per_pass, batch_size or scorer.images_per_pass)
        self.features, self.waiting = dict[str, Any](), dict[str, Any]()
        self.errors: dict[str, str] = {}

    def encode(self, groups: list[Group]) -> None:
        """Sets `features` of the groups, or `error` if the image cannot be read."""
        if not self.scorer.decodes_images:
            for group in groups:
                group.features = group.image
            return
        keyed = [(group, group.image_key) for group in groups if group.error is None and group.image_key is not None]
        for group, key in keyed:
            self._read(key, group.image)
        self._encode_waiting()
        for group, key in keyed:
            group.error, group.features = self.errors.get(key), self.features.get(key)
        # only groups with the last image can continue in the next window
        self.features = {key: kept for key, kept in self.features.items() if key == groups[-1].image_key}

    def _read(self, key: str, image: Any) -> None:
        if key in self.features or key in self.waiting or key in self.errors:
            return
        cache = self.scorer.caches.get("images")
        kept = None if cache is None else cache.load(key)
        if kept is not None:
            self.features[key] = self.scorer.cached_features(kept["features"])
            return
        self.waiting[key] = image
        if len(self.waiting) >= self.step:
            self._encode_waiting()

    def _encode_waiting(self) -> None:
        images, prepared = list(self.waiting.values()), dict[str, Any]()
        for key, ready in zip(self.waiting, in_threads(self._prepare, images), strict=True):
            if isinstance(ready, ImageError):
                self.errors[key] = str(ready)
            else:
                prepared[key] = ready
        self.waiting = {}
        if prepared:
            self.features.update(zip(prepared, self.scorer.encode_images(list(prepared.values())), strict=True))
        if cache := self.scorer.caches.get("images"):
            cache.save({key: {"features": self.features[key]} for key in prepared})

    def _prepare(self, image: Any) -> Any:
        """The image preprocessed, or the ImageError that says why it is not."""
        ready = image.prepared.get(id(self.scorer)) if isinstance(image, KeyedImage) else None
        try:
            return self.scorer.preprocess(load_image(image)) if ready is None else ready
        except ImageError as error:
            return error


class _Results:
    """Scores, flags and errors of a run by row; `refused` rows were not scored, `failed` ones have no finite score."""

    def __init__(self, metric: str, count: int, columns: int) -> None:
        self.metric = metric
        self.scores = np.full((count, columns), np.nan)
        self.truncated = np.zeros(count, dtype=bool)
        self.refused: dict[int, str] = {}
        self.failed: dict[int, str] = {}

    def add(self, groups: list[Group], result: CandidateScores) -> None:
        scores = np.asarray(result.scores, dtype=np.float64)
        shape = sum(len(group.rows) for group in groups), self.scores.shape[1]
        if scores.shape != shape:
            raise ValueError(f"score_groups of metric {self.metric!r} must give scores {shape}, got {scores.shape}")
        rows = [rows for group in groups for rows in group.rows.values()]
        samples, of = list(chain(*rows)), np.repeat(np.arange(len(rows)), list(map(len, rows)))
        is_finite = np.isfinite(scores)
        self.scores[samples] = np.where(is_finite, scores, np.nan)[of]
        if result.truncated is not None:
            self.truncated[samples] = np.asarray(result.truncated)[of]
        not_finite = f"metric {self.metric!r} gave a score that is not finite"
        reasons = dict.fromkeys(np.flatnonzero(~is_finite.all(axis=1)).tolist(), not_finite) | dict(result.errors)
        for index, reason in reasons.items():
            self.failed.update(dict.fromkeys(rows[index], reason))
        for index in result.errors:
            self.scores[rows[index]] = np.nan


class NetworkScorer(CaptionScorer):
    """Base of the metrics that run a network of their own; `model` is an `nn.Module` with the property `device`."""

    model: Any

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """Without gradients, without the caller's autocast, in eval mode; the network's own mode is restored after."""
        import torch

        from reward.backbones.language import evaluating  # on use, since metrics of words need no torch

        off = torch.autocast(self.model.device.type, enabled=False)
        with evaluating(self.model), torch.inference_mode(), off:
            yield


def is_on_gpu(scorer: Any) -> bool:
    """Whether a scorer runs a network of its own on a CUDA device."""
    return isinstance(scorer, NetworkScorer) and scorer.model.device.type == "cuda"


@contextmanager
def _progress(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function to be called with the number of samples that are done; draws a bar if `shown`."""
    if not shown:
        yield lambda count: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)
