"""What benchmarks of human judgments consist of: rated captions, pairs of captions, and quadruples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from reward.errors import InvalidSampleError
from reward.samples import CaptionSample, ImageLike, is_blank

__all__ = ["OVERALL", "Benchmark", "BenchmarkSpec", "Item", "PreferencePair", "Quadruple", "RatedCaption"]

OVERALL = "overall"  # the aspect of captions rated as a whole, and the column of all pairs together


@dataclass(frozen=True, eq=False)
class RatedCaption:
    """A caption that people have rated.

    Args:
        candidate: the caption.
        ratings: {aspect: one number per rater}, on any scale on which larger is better. Benchmarks of one rating use
            `"overall"`. An aspect that nobody rated is left out.
        image: as for `CaptionSample`, or None.
        references: zero or more captions by people.
        image_id: name of the image; the bootstrap draws whole images.
        category: task, level or system, if the benchmark has any; else empty.
        question: what the candidate answers; None for a caption.
        columns: {name: score} of scores that came with the data; NaN means no score.
        cells: further cells that a metric needs, see `CaptionSample.columns`.
    """

    candidate: str
    ratings: Mapping[str, tuple[float, ...]]
    image: ImageLike | None = None
    references: tuple[str, ...] = ()
    image_id: str = ""
    category: str = ""
    question: str | None = None
    columns: Mapping[str, float] = field(default_factory=dict)
    cells: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PreferencePair:
    """Two captions of one image, one of which is correct or preferred by people.

    Args:
        captions: the two captions.
        label: place of the better one, 0 or 1; None for a tie.
        image, references, image_id, category, question: as for `RatedCaption`.
        columns: {name: scores of the two captions} that came with the data.
    """

    captions: tuple[str, str]
    label: int | None
    image: ImageLike | None = None
    references: tuple[str, ...] = ()
    image_id: str = ""
    category: str = ""
    question: str | None = None
    columns: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Quadruple:
    """Two images and two captions, caption k of image k (Winoground).

    Args:
        images: the two images.
        captions: the two captions.
        image_id: name of the quadruple.
        category: its tag, or empty.
        columns: {name: four scores} that came with the data: caption 0 with image 0, caption 1 with image 0, caption 0
            with image 1, caption 1 with image 1.
    """

    images: tuple[ImageLike | None, ImageLike | None]
    captions: tuple[str, str]
    image_id: str = ""
    category: str = ""
    columns: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)


Item: TypeAlias = "RatedCaption | PreferencePair | Quadruple"
Load: TypeAlias = "Callable[[Any, str, Path | None], Iterator[Item]]"
Refine: TypeAlias = "Callable[[Iterator[Item], Path | None, str], Iterator[Item]]"


@dataclass(frozen=True)
class BenchmarkSpec:
    """Facts about a benchmark, readable without its files.

    Args:
        name: registry name, lower case with dashes.
        title: as its paper writes it.
        form: class of its items.
        statistic: what papers on it report first: of rated captions `"tau-b"`, `"tau-c"`, `"spearman"` or `"pearson"`,
            of pairs `"accuracy"`, `"auc"` or `"ap"`, of quadruples `"group"`, `"text"` or `"image"`.
        statistics: {column: statistic} of rated captions with one aspect, where several are reported; the first ranks.
        load: reads the published files, called with (path, part, images) of `load_benchmark`. None if the benchmark is
            read from the common JSONL form only, which `load_benchmark` reads for every benchmark.
        refine: called with (items, path, part) on what was read in either form; checks or changes the items.
        judgments: `"single"` if each of several ratings of a caption counts by itself, with the score repeated, or
            `"mean"` if their mean counts.
        judged_by: what its ratings or labels are, in words: `"human judgments"`, or those of made data.
        ties: whether equal scores count `"half"` or as `"wrong"` in the pairwise accuracy.
        headline: for pairs of several categories, the figure that papers give: `"mean"` over the categories, or
            `"overall"`, all pairs together.
        files: which files it needs, for people.
        origin: where its files come from.
        licence: their terms, or that none are stated.
        hub: id of its data set on the Hub, read when no path is given; None if we know of none.
        hub_files: patterns of the files to download; `{split}` stands for the name of the part there.
        tasks: whether the category of an item is its task, see `CaptionSample`.
        parts: names of its parts, the default one first; empty if it has only one.
        splits: {part: its name in the files}, for parts that have another name there.
        checked: `"schema"` if the loader ran only on small files that we wrote in the documented form, `"own"` for data
            of this project.
    """

    name: str
    title: str
    form: type[RatedCaption] | type[PreferencePair] | type[Quadruple]
    statistic: str
    statistics: Mapping[str, str] = field(default_factory=dict)
    load: Load | None = None
    refine: Refine | None = None
    judgments: str = "single"
    judged_by: str = "human judgments"
    ties: str = "half"
    headline: str = "mean"
    files: str = ""
    origin: str = ""
    licence: str = ""
    hub: str | None = None
    hub_files: tuple[str, ...] = ("*",)
    tasks: bool = False
    parts: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)
    checked: str = "schema"


@dataclass(frozen=True)
class Benchmark:
    """The items of a benchmark, or of one part of it.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=3)
        >>> len(scenes.items), scenes.aspects
        (3, ('descriptiveness', 'relevance', 'fluency'))
    """

    spec: BenchmarkSpec
    items: Sequence[Item]
    part: str = ""

    @property
    def aspects(self) -> tuple[str, ...]:
        """Aspects that are rated, in order of appearance; empty for pairs and quadruples."""
        return tuple(
            dict.fromkeys(name for item in self.items if isinstance(item, RatedCaption) for name in item.ratings)
        )

    @property
    def captions_per_item(self) -> int:
        """Number K of scores of an item: 1, 2 or 4."""
        return {RatedCaption: 1, PreferencePair: 2, Quadruple: 4}[self.spec.form]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of scores that came with the data: those that every item has, and that are not NaN throughout."""
        columns = [item.columns for item in self.items]
        return tuple(
            name
            for name in (columns[0] if columns else ())
            if all(name in values for values in columns) and any(not np.isnan(values[name]).all() for values in columns)
        )

    def samples(self, *, references: bool = True) -> list[CaptionSample | None]:
        """The samples to score, K for each item, in order; None for a caption that no metric can score.

        Args:
            references: False leaves out the references.
        """
        samples: list[CaptionSample | None] = []
        for item in self.items:
            if isinstance(item, Quadruple):
                pairs = [(caption, image) for image in item.images for caption in item.captions]
            else:
                captions = item.captions if isinstance(item, PreferencePair) else (item.candidate,)
                pairs = [(caption, item.image) for caption in captions]
            given = () if isinstance(item, Quadruple) or not references else item.references
            given = tuple(text for text in given if not is_blank(text))
            context: dict[str, Any] = {} if isinstance(item, Quadruple) else {"question": item.question}
            context |= {"columns": item.cells} if isinstance(item, RatedCaption) else {}
            context |= {"task": item.category or None} if self.spec.tasks else {}
            for caption, image in pairs:
                try:
                    samples.append(CaptionSample(caption, image=image, references=given, **context))
                except InvalidSampleError:  # such as an empty caption: published data have some
                    samples.append(None)
        return samples
