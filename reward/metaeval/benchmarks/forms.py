"""The three forms that every benchmark of human judgments is read into: rated captions, pairs, and quadruples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from reward.errors import InvalidSampleError
from reward.samples import CaptionSample, ImageLike, is_blank

__all__ = ["OVERALL", "Benchmark", "BenchmarkSpec", "CaptionPair", "Item", "Quadruple", "RatedCaption"]

OVERALL = "overall"  # the aspect of benchmarks that rate a caption as a whole


@dataclass(frozen=True, eq=False)
class RatedCaption:
    """A caption that people have rated.

    Args:
        candidate: the caption.
        ratings: {aspect: one number a rater}; on any scale, larger is better. Benchmarks of one rating use `"overall"`.
            An aspect that nobody rated is left out.
        image: as for `CaptionSample`, or None.
        references: zero or more captions by people.
        image_id: which image it is; intervals draw whole images.
        category: task, level or system, where the benchmark has such parts; else empty.
        columns: {name: score} that came with the data, NaN where one has none.
    """

    candidate: str
    ratings: Mapping[str, tuple[float, ...]]
    image: ImageLike | None = None
    references: tuple[str, ...] = ()
    image_id: str = ""
    category: str = ""
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CaptionPair:
    """Two captions of one image, one of which is right, or is preferred by people.

    Args:
        captions: the two.
        label: place of the better one, 0 or 1; None for a tie.
        image, references, image_id, category: as for `RatedCaption`.
        systems: who wrote them, in an arena; else None.
        columns: {name: scores of the two captions} that came with the data.
    """

    captions: tuple[str, str]
    label: int | None
    image: ImageLike | None = None
    references: tuple[str, ...] = ()
    image_id: str = ""
    category: str = ""
    systems: tuple[str, str] | None = None
    columns: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Quadruple:
    """Two images and two captions, caption k of image k (Winoground).

    Args:
        images: the two.
        captions: the two.
        image_id: of the quadruple.
        category: its tag, or empty.
        columns: {name: four scores} that came with the data, in the order of `samples`: caption 0 with image 0,
            caption 1 with image 0, caption 0 with image 1, caption 1 with image 1.
    """

    images: tuple[ImageLike | None, ImageLike | None]
    captions: tuple[str, str]
    image_id: str = ""
    category: str = ""
    columns: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)


Item: TypeAlias = "RatedCaption | CaptionPair | Quadruple"


@dataclass(frozen=True)
class BenchmarkSpec:
    """Facts about a benchmark, readable without its files.

    Args:
        name: registry name, lower case with dashes.
        title: as its paper writes it.
        form: class of its items.
        loader: `"package.module:function"`, called with (path, part, images) of `load_benchmark`; gives an iterable
            of the items.
        statistic: what papers on it report first: `"tau-b"`, `"tau-c"`, `"accuracy"`, `"group"` or `"agreement"`.
        judgments: of several ratings of a caption, whether each counts by itself (`"single"`, the score is repeated) or
            their `"mean"`.
        ties: what equal scores count in pairwise accuracy: `"half"` or `"wrong"`.
        headline: of pairs of several categories, what its papers give as the one figure: `"mean"` over the categories,
            or `"overall"`, all pairs together.
        files: what to put where, for people.
        origin: where its files come from.
        licence: under which terms, or that none is stated.
        hub: id of its data set on the Hub, read when no path is given; None where there is none that we know.
        hub_files: which of its files are downloaded; `{split}` stands for the name of the part there.
        parts: its parts, the default one first; empty where it has one.
        splits: {part: its name in the files}, of parts that have another name there.
        checked: `"published"` if the loader ran on files its authors published, `"schema"` if only on small files that
            we wrote in the documented form, `"own"` for data of this project.
    """

    name: str
    title: str
    form: type[RatedCaption] | type[CaptionPair] | type[Quadruple]
    loader: str
    statistic: str
    judgments: str = "single"
    ties: str = "half"
    headline: str = "mean"
    files: str = ""
    origin: str = ""
    licence: str = ""
    hub: str | None = None
    hub_files: tuple[str, ...] = ("*",)
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
        """K: how many scores belong to an item: 1, 2 or 4."""
        return {RatedCaption: 1, CaptionPair: 2, Quadruple: 4}[self.spec.form]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of scores that came with the data: columns of every item, with a number in one at least."""
        columns = [item.columns for item in self.items]
        return tuple(
            name
            for name in (columns[0] if columns else ())
            if all(name in values for values in columns) and any(not np.isnan(values[name]).all() for values in columns)
        )

    def samples(self, *, references: bool = True) -> list[CaptionSample | None]:
        """What is to be scored, K samples an item, item by item; None for a caption that no metric can score.

        Args:
            references: False leaves them out, for metrics that can do without.
        """
        found: list[CaptionSample | None] = []
        for item in self.items:
            if isinstance(item, Quadruple):
                pairs = [(caption, image) for image in item.images for caption in item.captions]
            else:
                captions = item.captions if isinstance(item, CaptionPair) else (item.candidate,)
                pairs = [(caption, item.image) for caption in captions]
            given = () if isinstance(item, Quadruple) or not references else item.references
            given = tuple(text for text in given if not is_blank(text))
            for caption, image in pairs:
                try:
                    found.append(CaptionSample(caption, image=image, references=given))
                except InvalidSampleError:  # an empty caption, say: published data have some
                    found.append(None)
        return found
