"""What a benchmark is: a table of captions that people have judged, one item a row, in one of three forms."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from reward.data.samples import CaptionSample, is_blank
from reward.errors import InvalidSampleError

if TYPE_CHECKING:
    import pandas as pd

OVERALL = "overall"  # the aspect of captions rated as a whole, and the column of all pairs together
RATINGS, PAIRS, QUADRUPLES = "ratings", "pairs", "quadruples"
CAPTIONS = {RATINGS: 1, PAIRS: 2, QUADRUPLES: 4}  # to score in each item

Entry: TypeAlias = "Mapping[str, Any]"  # an item as the common JSONL has it, see `reward.metaeval.benchmarks.jsonl`


@dataclass(frozen=True)
class BenchmarkSpec:
    """Facts about a benchmark, readable without its files; those of all are in benchmarks.yaml.

    Args:
        name: registry name, lower case with dashes.
        title: as its paper writes it.
        form: `"ratings"` of captions, `"pairs"` of captions of one image, or `"quadruples"` of two images and two
            captions (Winoground).
        statistic: what papers on it report first: of ratings `"tau-b"`, `"tau-c"`, `"spearman"` or `"pearson"`, of
            pairs `"accuracy"`, of quadruples `"group"`.
        statistics: {column: statistic} of ratings of one aspect, where several are reported; the first ranks.
        load: module:function, called with (path or Hub id, part, images) of `load_benchmark`, that yields the entries
            of the published files; none for the common JSONL form only, which is read for every benchmark.
        config: which configuration of a data set on the Hub, for `load`.
        refine: module:function, called with (items, part) on what was read in either form; checks or changes the items.
        drawn_references: how many references of an item a metric sees, drawn at random where it has more; 0 for all.
        cider_documents: what a document of CIDEr's corpus is: the references of an `"image"`, or as published figures
            have it those of a `"row"`, so that an image counts once for each of its captions.
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
        category_is_task: whether the category of an item is its task, see `CaptionSample`.
        parts: names of its parts, the default one first; empty if it has only one.
        checked: `"public"` if the loader ran on the public files, `"schema"` if only on small files that we wrote in
            the documented form, `"own"` for data of this project.
    """

    name: str
    title: str
    form: str
    statistic: str
    statistics: Mapping[str, str] = field(default_factory=dict)
    load: str = ""
    config: str = ""
    refine: str = ""
    drawn_references: int = 0
    cider_documents: str = "row"
    judgments: str = "single"
    judged_by: str = "human judgments"
    ties: str = "half"
    headline: str = "mean"
    files: str = ""
    origin: str = ""
    licence: str = ""
    hub: str | None = None
    category_is_task: bool = False
    parts: tuple[str, ...] = ()
    checked: str = "schema"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The items of a benchmark, or of one part of it.

    Args:
        spec: its facts.
        rows: a row for each of N items, with the columns:
            - `captions`, `images`: a tuple of one or two each;
            - `references`: a tuple of texts;
            - `image_id`: names the image; the bootstrap draws whole images;
            - `category`: a text, empty where there is none;
            - `question`: a text or None;
            - `cells`: {name: cell} of further columns that a metric needs;
            - `ratings`, of a rated caption: {aspect: a number for each rater};
            - `label`, of a pair: the place of the better caption, 0 or 1, or NaN for a tie.
        columns: {name: scores that came with the data (N, K)}, NaN where there is none.
        part: name of the part, one of `spec.parts`; empty for a whole benchmark.
        draws: how many times `spec.drawn_references` are drawn of each item; each draw scores all captions once more.
            0 takes all references.
        provenance: of one's own ratings, in a line how many there are, in which columns and by whom; else empty.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=3)
        >>> len(scenes.rows), scenes.aspects
        (3, ('descriptiveness', 'relevance', 'fluency'))
    """

    spec: BenchmarkSpec
    rows: pd.DataFrame
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    part: str = ""
    draws: int = 0
    provenance: str = ""

    @classmethod
    def of(
        cls, spec: BenchmarkSpec, items: Iterable[Mapping[str, Any]], part: str = "", *, draws: int = 0
    ) -> Benchmark:
        """The benchmark of items as `reward.metaeval.benchmarks.jsonl.as_item` makes them.

        Their `columns`, {name: K scores} of each item, become arrays (N, K).
        """
        import pandas as pd

        rows = pd.DataFrame(list(items), dtype=object)  # None stays None
        if "label" in rows:
            rows = rows.astype({"label": float})
        scores_of_items = [] if rows.empty else rows.pop("columns").tolist()
        names = dict.fromkeys(name for scores in scores_of_items for name in scores)
        unscored = (np.nan,) * CAPTIONS[spec.form]
        columns = {}
        for name in names:
            values = np.array([scores.get(name, unscored) for scores in scores_of_items], dtype=np.float64)
            if not np.isnan(values).all():
                columns[name] = values
        # No item has more references than a metric sees: every draw would be the same.
        if not spec.drawn_references or all(len(texts) <= spec.drawn_references for texts in rows["references"]):
            draws = 0
        return cls(spec, rows, columns, part, draws)

    @property
    def aspects(self) -> tuple[str, ...]:
        """Aspects that are rated, in order of appearance; empty for pairs and quadruples."""
        return tuple(dict.fromkeys(aspect for ratings in self.rows.get("ratings", ()) for aspect in ratings))

    @property
    def shape(self) -> tuple[int, int]:
        """Number N of items, and K of the captions to score in each: 1, 2 or 4."""
        return len(self.rows), CAPTIONS[self.spec.form]

    def subset(self, members: np.ndarray) -> Benchmark:
        """The benchmark of those items for which `members` (N,) is true."""
        columns = {name: values[members] for name, values in self.columns.items()}
        return replace(self, rows=self.rows[members].reset_index(drop=True), columns=columns)

    def samples(self, *, references: bool = True, draw: int = 1) -> list[CaptionSample | None]:
        """The N * K samples to score, item by item; None for a caption that no metric can score.

        Args:
            references: False leaves out the references.
            draw: which draw of references, 1 to `draws`, where some are drawn.
        """
        samples: list[CaptionSample | None] = []
        references_of_items = self.references(draw) if references else [()] * len(self.rows)
        for item, item_references in zip(self.rows.to_dict("records"), references_of_items, strict=True):
            context = {"question": item["question"], "columns": item["cells"]}
            if self.spec.category_is_task:
                context["task"] = item["category"] or None
            for image, caption in product(item["images"], item["captions"]):
                try:
                    sample = CaptionSample(caption, image=image, references=item_references, **context)
                except InvalidSampleError:  # such as an empty caption: published data have some
                    samples.append(None)
                else:
                    samples.append(sample)
        return samples

    def references(self, draw: int = 1) -> list[tuple[str, ...]]:
        """The references of each item that a metric sees, N tuples; `draw` as in `samples`."""
        references_of_items = []
        for number, item_references in enumerate(self.rows["references"]):
            texts = tuple(text for text in item_references if not is_blank(text))
            if self.draws and len(texts) > self.spec.drawn_references:
                generator = random.Random(f"capreward {self.spec.name} draw {draw} {number} references")
                texts = tuple(generator.sample(texts, self.spec.drawn_references))
            references_of_items.append(texts)
        return references_of_items
