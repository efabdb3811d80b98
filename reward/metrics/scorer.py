"""CaptionScorer: the way from samples to a table of scores, which all metrics share.

`CaptionScorer.score_samples` is this way from start to end: samples become groups, groups are cut into windows, the
images of a window are encoded (`_ImageEncoder`), the metric scores it, and each sample gets its scores (`_Results`).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
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
    """Samples with equal image, references and context, which differ in their candidates alone.

    What the candidates share is computed once for the group, and a candidate that several samples have is scored once.
    This is exact, because no network here lets a candidate see another one: scores differ from those of single samples
    only by rounding, since the shape of a batch changes the order of its sums.

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


class CandidateScores(NamedTuple):
    """What `CaptionScorer.score_groups` gives for K candidates.

    Args:
        scores: array (K, A).
        truncated: K flags, True where some text was cut; None if none was.
        errors: {index of a candidate: why it has no score}.
        texts: {name: K texts, None where there is none}, for each of `MetricSpec.texts`.
        remarks: {index of a candidate that keeps its scores: why it lacks a text}.
    """

    scores: Any
    truncated: Sequence[bool] | np.ndarray | None = None
    errors: Mapping[int, str] = {}
    texts: Mapping[str, Sequence[str | None]] = {}
    remarks: Mapping[int, str] = {}


class CaptionScorer(TakesData):
    """Base of the metrics: derive, set `spec`, and write `score_groups`, `from_pretrained` and `save_pretrained`.

    The base checks the samples, groups them by image and references, and gives groups to the metric in windows of
    bounded size. Every image is decoded once and encoded once. A sample that lacks what the metric needs, whose image
    cannot be read, or whose score is not finite gets NaN and a reason; the others are scored. Scores do not depend on
    the order of the samples, on the batch size, or on which samples come together, but for rounding (below 1e-6 in
    float32). Do not score in several threads at a time while the network is in training mode.

    Attributes:
        reads_images, reads_references: whether the metric reads them. By default it reads what `spec` says it needs.
        decodes_images: whether images are decoded here; otherwise `Group.features` is the image of the sample.
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
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) of N samples, which are not checked, in their order; see `score`."""
        groups = self._group(samples)
        # Groups of one image follow each other, so that its features can be dropped when the next image comes.
        groups.sort(key=lambda group: group.image_key or "")

        results = _Results(self.spec, len(samples))
        images = _ImageEncoder(self, batch_size)
        with ExitStack() as stack:
            stack.enter_context(self._scoring_mode())
            bar = None
            if progress:
                from rich.progress import Progress

                bar = stack.enter_context(Progress())
                task = bar.add_task(self.spec.name, total=len(samples))
            # A window at a time, so that only its images, tokens and states are in memory.
            for window in self._windows(groups, batch_size):
                if self.reads_images:
                    images.encode(window)
                complete = []
                for group in window:
                    if group.error is None:
                        complete.append(group)
                        continue
                    for rows in group.rows.values():
                        results.errors.update(dict.fromkeys(rows, group.error))
                if complete:
                    results.add(complete, self.score_groups(complete, batch_size))
                if bar is not None:
                    bar.advance(task, sum(len(rows) for group in window for rows in group.rows.values()))
        self._warn(len(samples), results.failed, results.truncated)
        errors = dict(sorted((results.errors | results.failed).items()))
        return ScoreTable(
            results.scores, self.spec.aspects, errors, results.truncated, aliases=self.spec.aliases, texts=results.texts
        )

    def _group(self, samples: list[CaptionSample]) -> list[Group]:
        """Samples grouped by what the metric reads beside the candidate, in order of first appearance."""
        # Many samples hold the same image object, which is then looked at once. `samples` keeps the objects alive, so
        # no two of them have the same id.
        images: dict[int, ImageLike] = {}
        if self.reads_images:
            for sample in samples:
                if sample.image is not None:
                    images[id(sample.image)] = sample.image
        names = dict(zip(images, image_names(list(images.values()), by_content=bool(self.caches)), strict=True))

        groups: dict[Any, Group] = {}
        for row, sample in enumerate(samples):
            image_key, error, context = names.get(id(sample.image)), None, None
            if isinstance(image_key, ImageError):
                image_key, error = None, str(image_key)
            references: tuple[str, ...] = ()
            if self.reads_references:
                references = tuple(sample.references)
            try:
                context = self.context(sample)
            except InvalidSampleError as reason:
                error = error or str(reason)
            shared = (image_key, error, references, context)
            group = groups.get(shared)
            if group is None:
                group = Group(image_key, sample.image, references, error=error, context=context)
                group.error = error or self._lack(group)
                groups[shared] = group
            group.rows.setdefault(sample.candidate, []).append(row)
        return list(groups.values())

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        """The groups in parts that are scored one after the other."""
        return windows(groups, self.window_size)

    def _lack(self, group: Group) -> str | None:
        """Why the metric cannot score a group, such as a missing image; None if it can."""
        if self.spec.needs_image and group.image is None:
            return f"metric {self.spec.name!r} needs an image, but the sample has none"
        if self.spec.needs_references and not group.references:
            return f"metric {self.spec.name!r} needs references, but the sample has none"
        return None

    def _scoring_mode(self) -> AbstractContextManager[None]:
        """The state in which the metric scores; it ends with the call."""
        return nullcontext()

    def _warn(self, count: int, failed: dict[int, str], truncated: np.ndarray) -> None:
        """Warns once for all samples; `failed` are those that the metric itself could not score."""
        if truncated.any():
            logger.warning("%s: %d of %d samples were cut to fit the model", self.spec.name, truncated.sum(), count)


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
            # A copy, since the windows of a long group differ in their rows, and its features go with its window.
            window.append(Group(group.image_key, group.image, group.references, dict(part), group.error, group.context))
            room -= len(part)
            if room == 0 or len(window) == most_groups:
                yield window
                window, room = [], size
    if window:
        yield window


class _ImageEncoder:
    """Sets the features of groups. Each image is decoded and encoded once if its groups follow each other."""

    def __init__(self, scorer: CaptionScorer, batch_size: int | None) -> None:
        self.scorer = scorer
        self.cache = scorer.caches.get("images")
        self.images_per_pass = min(scorer.images_per_pass, batch_size or scorer.images_per_pass)
        self.features = dict[str, Any]()  # by image key; of an image that cannot be read, the ImageError

    def encode(self, window: list[Group]) -> None:
        """Sets `features` of the groups with an image, or `error` if the image cannot be read."""
        if not self.scorer.decodes_images:
            for group in window:
                group.features = group.image
            return
        images = dict[str, Any]()  # that have no features yet, by their keys
        for group in window:
            if group.error is None and group.image_key is not None and group.image_key not in self.features:
                images[group.image_key] = group.image
        if self.cache is not None:
            for key in list(images):
                cached = self.cache.load(key)
                if cached is not None:
                    self.features[key] = self.scorer.cached_features(cached["features"])
                    del images[key]
        # At most `images_per_pass` decoded images are in memory at a time.
        keys = list(images)
        for start in range(0, len(keys), self.images_per_pass):
            self._encode_pass({key: images[key] for key in keys[start : start + self.images_per_pass]})

        for group in window:
            if group.error is None and group.image_key is not None:
                group.features = self.features[group.image_key]
                if isinstance(group.features, ImageError):
                    group.error = str(group.features)
        # Only groups of the last image can follow in the next window.
        for key in list(self.features):
            if key != window[-1].image_key:
                del self.features[key]

    def _encode_pass(self, images: dict[str, Any]) -> None:
        """Decodes images in threads, and encodes those that can be read."""
        readable = dict[str, Any]()
        for key, prepared in zip(images, in_threads(self._prepare, list(images.values())), strict=True):
            if isinstance(prepared, ImageError):
                self.features[key] = prepared
            else:
                readable[key] = prepared
        if not readable:
            return
        self.features.update(zip(readable, self.scorer.encode_images(list(readable.values())), strict=True))
        if self.cache is not None:
            self.cache.save({key: {"features": self.features[key]} for key in readable})

    def _prepare(self, image: Any) -> Any:
        """The image preprocessed, or the ImageError that says why it is not; called in threads."""
        try:
            # A reader of files prepares images ahead, in other threads, while the network is busy.
            if isinstance(image, KeyedImage) and id(self.scorer) in image.prepared:
                return image.prepared[id(self.scorer)]
            return self.scorer.preprocess(load_image(image))
        except ImageError as error:
            return error


class _Results:
    """Scores, flags, texts and errors of N samples, by row."""

    def __init__(self, spec: MetricSpec, count: int) -> None:
        self.spec = spec
        self.scores = np.full((count, len(spec.aspects)), np.nan)
        self.truncated = np.zeros(count, dtype=bool)
        self.errors: dict[int, str] = {}  # why the metric was not given a sample, or one with scores lacks a text
        self.failed: dict[int, str] = {}  # why the metric gave a sample no finite score
        self.texts: dict[str, list[str | None]] = {name: [None] * count for name in spec.texts}

    def add(self, groups: list[Group], result: CandidateScores) -> None:
        """Gives the samples of some groups the scores (K, A) of their K candidates."""
        rows: list[int] = []  # of samples,
        candidates: list[int] = []  # and for each of these the index of its candidate in `result`
        count = 0
        for group in groups:
            for candidate_rows in group.rows.values():
                rows += candidate_rows
                candidates += [count] * len(candidate_rows)
                count += 1
        scores = np.asarray(result.scores, dtype=np.float64)
        shape = (count, len(self.spec.aspects))
        if scores.shape != shape:
            raise ValueError(f"score_groups of metric {self.spec.name!r} must give scores {shape}, got {scores.shape}")

        # A candidate's scores go to every sample that has it. Infinity is no score.
        is_finite = np.isfinite(scores)
        self.scores[rows] = np.where(is_finite, scores, np.nan)[candidates]
        if result.truncated is not None:
            self.truncated[rows] = np.asarray(result.truncated)[candidates]
        incomplete = set(np.argwhere(~is_finite)[:, 0].tolist())
        if not (incomplete or result.errors or result.remarks or result.texts):
            return
        for row, candidate in zip(rows, candidates, strict=True):
            if candidate in result.errors:
                self.scores[row] = np.nan
                self.failed[row] = result.errors[candidate]
            elif candidate in incomplete:  # the aspects that are finite keep their scores
                self.failed[row] = f"metric {self.spec.name!r} gave a score that is not finite"
            elif candidate in result.remarks:
                self.errors[row] = result.remarks[candidate]
            for name, texts in result.texts.items():
                self.texts[name][row] = texts[candidate]


class NetworkScorer(CaptionScorer):
    """Base of the metrics that run a network of their own; `model` is an `nn.Module` with the property `device`."""

    model: Any

    @contextmanager
    def _scoring_mode(self) -> Iterator[None]:
        """Without gradients, without the caller's autocast, in eval mode; the network's own mode is restored after."""
        import torch

        from reward.backbones.language import evaluating  # on use, since metrics of words need no torch

        no_autocast = torch.autocast(self.model.device.type, enabled=False)
        with evaluating(self.model), torch.inference_mode(), no_autocast:
            yield


def is_on_gpu(scorer: Any) -> bool:
    """Whether a scorer runs a network of its own on a CUDA device."""
    return isinstance(scorer, NetworkScorer) and scorer.model.device.type == "cuda"
