"""What a metric is: MetricSpec and CheckpointFacts (facts, no torch), and the Scorer protocol that all fulfil."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reward.aspect_weights import normalise_weights
from reward.checkpoints.folders import CheckpointKind
from reward.data.score_table import ScoreTable

if TYPE_CHECKING:
    import numpy as np

S = TypeVar("S")

logger = logging.getLogger(__name__)

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class CheckpointFacts:
    """What is known of a checkpoint. What nobody has stated or counted stays `"unknown"` or None.

    Args:
        source: what to write as `source=` or `--source`: a name of the Hub or of open_clip, the path of a file that its
            authors publish elsewhere, the folder of a checkpoint that you train, or a service.
        licence: of the weights, as their makers state it.
        download: bytes to fetch, of the backbones if you train it.
        weights: numbers in the networks, counted on their published sizes.
        dtype: in which the scorer holds them unless it is told otherwise.
        gflops: a caption, in billions: counted for eight captions of one image, 60 words each, with five references of
            30 words where the metric reads them.
        note: what one must know besides.

    Example:
        >>> CheckpointFacts("ViT-B-32:openai", weights=151_277_313).memory
        0.5635...
    """

    source: str
    licence: str = "unknown"
    download: int | None = None
    weights: int | None = None
    dtype: str = "float32"
    gflops: float | None = None
    note: str = ""

    @property
    def memory(self) -> float | None:
        """GiB that the weights take."""
        return None if self.weights is None else self.weights * _BYTES[self.dtype] / 2**30


@dataclass(frozen=True)
class MetricSpec:
    """Facts about a metric, readable without loading torch.

    Args:
        name: registry name, lower case.
        scorer: `"package.module:Class"` of the scorer.
        aspects: names of the score columns.
        aliases: {short name: aspect}, accepted wherever an aspect is named.
        needs_image, needs_references: whether a sample without it gets an error instead of a score.
        model_decides: whether only the loaded model says if it needs images or references.
        needs_corpus: whether the scorer weighs words by a corpus of references and has none yet. It cannot score until
            it is fitted, see `fitted`, or loaded from the folder of a fitted scorer.
        range: lowest and highest possible score.
        paper: title of the source.
        extra: extra of this distribution that the scorer needs, or None.
        has_embedded: whether `source="embedded"` works.
        default_weights: {aspect: weight} of a reward for which the user gives none; None weighs all aspects alike.
        texts: names of the texts that a score table holds beside the scores, see `ScoreTable.texts`.
        columns: further columns that it needs: keys of `reward.data.column_names.COLUMN_NAMES` such as `"rubric"`, or
            columns' own names. See `CaptionSample.columns`.
        reads_questions: whether it reads the question that a candidate answers.
        suits: captions that it is made for: `"short"` (a sentence), `"long"` (a paragraph) or `"short, long"`.
        blind_to: what it cannot see, for who chooses a metric.
        checkpoints: checkpoints for photos, best known first.
        citation: BibTeX fields of the paper, `author`, `title`, `year` and where it appeared.
        sources: what checkpoints other than "embedded" are, so that a wrong one is refused before anything is loaded: a
            `"checkpoint"` of this library, a `"clip"`, a `"judge"` (a model with an owner in its Hub id), or any
            `"model"` of transformers. None leaves it to the scorer.
        model_types: what config.json of a checkpoint that does not name its metric has as `architectures` or
            `model_type`, such as `"clip"` or `"*ForSequenceClassification"`, if this metric scores with it. A path or
            Hub id alone then means this metric, see `reward.registry.metric_of`. No type may be of two metrics.
    """

    name: str
    scorer: str
    aspects: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    needs_image: bool = True
    needs_references: bool = False
    model_decides: bool = False
    needs_corpus: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    paper: str = ""
    extra: str | None = None
    has_embedded: bool = False
    default_weights: Mapping[str, float] | None = None
    texts: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    reads_questions: bool = False
    suits: str = ""
    blind_to: str = ""
    checkpoints: tuple[CheckpointFacts, ...] = ()
    citation: Mapping[str, str] = field(default_factory=dict)
    sources: CheckpointKind | None = None
    model_types: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """What a row must have beside its caption: `"image"`, `"references"`, and further `columns`.

        Example:
            >>> MetricSpec("m", "m:M", ("quality",), columns=("rubric",)).needs
            ('image', 'rubric')
        """
        needs = ("image",) * self.needs_image + ("references",) * self.needs_references
        return needs + self.columns

    def with_aspects(self, aspects: Sequence[str]) -> MetricSpec:
        """The facts of a checkpoint that has other aspects, or the same in another order.

        Example:
            >>> spec = MetricSpec("m", "m:M", ("relevance", "fluency"), {"rel": "relevance", "flu": "fluency"})
            >>> spec.with_aspects(["fluency"]).aliases
            {'flu': 'fluency'}
        """
        aliases = {short: aspect for short, aspect in self.aliases.items() if aspect in aspects}
        return replace(self, aspects=tuple(aspects), aliases=aliases)

    def weigh(self, weights: Mapping[str, float] | None = None) -> np.ndarray:
        """Weights (A,) of the aspects in a reward, which sum to 1: those given, else the metric's defaults.

        Raises:
            WeightsError: see `reward.aspect_weights.normalise_weights`.
        """
        return normalise_weights(self.default_weights if weights is None else weights, self.aspects, self.aliases)

    def scorer_class(self) -> type[Any]:
        """Imports the scorer class."""
        module, _, name = self.scorer.partition(":")
        return getattr(importlib.import_module(module), name)


class Scorer(Protocol):
    """Scores caption samples; deterministic, and independent of batch size, order, grouping and duplicates."""

    spec: MetricSpec

    def score(
        self,
        samples: Any = None,
        captions: Any = None,
        references: Any = None,
        *,
        batch_size: int | None = None,
        progress: bool = False,
        **columns: Any,
    ) -> ScoreTable:
        """Scores (N, A) in the order of the samples; a sample that cannot be scored gets NaN and an error.

        Samples alone are what this library gives; those who type it by hand give more, see `reward.data.held_data`.
        """
        ...

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a checkpoint folder that `from_pretrained` reads."""
        ...


def fitted(scorer: S, corpus: Iterable[Sequence[str]]) -> S:
    """Fits a scorer to a corpus if it needs one, so that no score depends on the other samples of a call.

    Args:
        scorer: any scorer. It is not changed.
        corpus: documents, as `image_documents` gives those of the whole evaluation; read only if needed.

    Example:
        >>> from reward import load_scorer
        >>> scorer = load_scorer("length")
        >>> fitted(scorer, []) is scorer
        True
    """
    return scorer.fit(corpus) if scorer.spec.needs_corpus else scorer  # type: ignore[attr-defined]


def image_documents(rows: Iterable[tuple[Hashable, Sequence[str]]]) -> Iterator[tuple[str, ...]]:
    """The documents of a corpus: all references of an image are one, however many captions the image has.

    So the captions of one image weigh no more in CIDEr than those of another.

    Args:
        rows: what names the image of a caption, and its references. Without an image (None), captions with the same
            references are of one image.

    Example:
        >>> list(image_documents([("1.png", ["A dog."]), ("2.png", ["A cat."]), ("1.png", ["A dog.", "It runs."])]))
        [('A dog.', 'It runs.'), ('A cat.',)]
    """
    documents: dict[Hashable, dict[str, None]] = {}
    for image, references in rows:
        key = ("references", *references) if image is None else ("image", image)
        documents.setdefault(key, {}).update(dict.fromkeys(references))
    for references_of_image in documents.values():
        if references_of_image:
            yield tuple(references_of_image)


@lru_cache(maxsize=1)
def installed_specs() -> dict[str, MetricSpec]:
    """{name: facts} of all metrics: the folders of `reward.metrics`, and entry points `capreward.metrics`."""
    specs = _specs_of_other_packages()
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.ispkg:  # the loose modules beside the folders are what metrics share
            for spec in _specs_of_folder(module.name):
                specs[spec.name] = spec  # another package cannot replace a metric of this one
    return dict(sorted(specs.items()))


@lru_cache
def own_spec(name: str) -> MetricSpec | None:
    """Facts of the metric whose folder in `reward.metrics` has its name; no other folder is imported.

    Example:
        >>> own_spec("vela").name, own_spec("bleu4")
        ('vela', None)
    """
    if not name.isidentifier() or not Path(__file__).with_name(name).is_dir():
        return None
    return next((spec for spec in _specs_of_folder(name) if spec.name == name), None)


def _specs_of_folder(name: str) -> Sequence[MetricSpec]:
    """A folder holds one metric, several that share their code, or the settings of an arena and no metric."""
    folder = importlib.import_module(f"reward.metrics.{name}")
    if hasattr(folder, "SPECS"):
        return folder.SPECS
    return [folder.SPEC] if hasattr(folder, "SPEC") else []


def _specs_of_other_packages() -> dict[str, MetricSpec]:
    """{name: facts} of the metrics of other packages; one that is broken is named in a warning, and left out."""
    specs: dict[str, MetricSpec] = {}
    for point in entry_points(group="capreward.metrics"):
        try:
            spec = point.load()
            if not isinstance(spec, MetricSpec):
                raise TypeError(f"it is no MetricSpec; a function needs no entry point: write -m {point.value}")
        except (Exception, SystemExit) as error:  # whatever the code of another package raises
            reason = f"{type(error).__name__}: {error}"
            logger.warning("the metric %s is left out, %s: %s", point.name, point.value, reason)
        else:
            specs.setdefault(spec.name, spec)
    return specs


# Judges that several metrics can ask.
QWEN_VL_7B = CheckpointFacts(
    "Qwen/Qwen2.5-VL-7B-Instruct", "apache-2.0", download=16_584_000_000, weights=8_292_166_656, dtype="bfloat16"
)
QWEN3_VL_4B = CheckpointFacts(
    "Qwen/Qwen3-VL-4B-Instruct", "apache-2.0", download=8_876_000_000, weights=4_437_815_808, dtype="bfloat16"
)
LLAVA_13B = CheckpointFacts(
    "llava-hf/llava-1.5-13b-hf", "llama2", download=26_690_000_000, weights=13_351_494_656, dtype="float16"
)
