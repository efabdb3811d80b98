"""Rated captions as training rows, from a data set in LongCap-Arena's layout or from the synthetic scenes."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from torch.utils.data import Dataset as TorchDataset

from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import OVERALL
from reward.metrics.base import MetricSpec, installed_specs
from reward.samples import CaptionSample
from reward.training.published import PUBLISHED, load_published

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from reward.training.config import TrainingConfig


# Short names accepted in place of a Hub id.
ALIASES = {
    "longcap-arena": "Ka2ukiMatsuda/LongCap-Arena",
    "polaris": "yuwd/Polaris",
    "nebula": "Ka2ukiMatsuda/Nebula",
}
# What published data sets call the columns `cand`, `refs`, `score` and `image`, and the part `val`.
_SYNONYMS = {"mt": "cand", "references": "refs", "human_score": "score", "img": "image"}
_VALIDATION = ("validation", "valid")


class Judgement(TypedDict):
    """One training row: a caption, the aspect that was rated (its place in the metric's aspects), and the rating."""

    sample: CaptionSample
    aspect: int
    target: float


@dataclass(frozen=True)
class _Table:
    """One split whose column `column` rates one aspect."""

    rows: Dataset
    column: str
    aspect: int


class Judgements(TorchDataset[Judgement]):
    """Rows (caption, aspect, rating) of one part of a data set. An image is read when its row is asked for.

    The references of a row depend only on `seed`, `epoch` and the row. The order of the rows, the number of worker
    processes, and whether the run was resumed do not matter.

    Args:
        tables: splits with the column that rates an aspect.
        root: folder of relative image paths, or None.
        seed: seed of the choices below.
        reference_free_rate: share of rows without references.
        max_references: most references per row, or None.
        choose: whether `max_references` are chosen at random (training), or the first ones are taken (evaluation).
    """

    step = 1  # rows of a judgement

    def __init__(
        self,
        tables: Sequence[_Table],
        *,
        root: Path | None = None,
        seed: int = 0,
        reference_free_rate: float = 0.0,
        max_references: int | None = None,
        choose: bool = False,
    ) -> None:
        self.epoch = 0
        self._tables = list(tables)
        self._root = root
        self._seed = seed
        self._reference_free_rate = reference_free_rate
        self._max_references = max_references
        self._choose = choose
        self._index = [(place, row) for place, table in enumerate(tables) for row in range(len(table.rows))]
        self.kinds = [0] * len(self._index)  # of errors, as pairs have them; judgements are all of one kind

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, item: int) -> Judgement:
        place, number = self._index[item]
        table = self._tables[place]
        row = table.rows[number]
        sample = CaptionSample(row["cand"], image_of(row, self._root), self._references(row.get("refs") or [], item))
        return {"sample": sample, "aspect": table.aspect, "target": float(row[table.column])}

    def _references(self, references: Sequence[str], item: int) -> list[str]:
        rng = random.Random(f"references {self._seed} {self.epoch} {item}")
        if rng.random() < self._reference_free_rate:
            return []
        if self._max_references is None or len(references) <= self._max_references:
            return list(references)
        if not self._choose:
            return list(references[: self._max_references])
        kept = sorted(rng.sample(range(len(references)), self._max_references))
        return [references[place] for place in kept]

    def aspects(self) -> set[int]:
        """Places of the aspects that are rated."""
        return {table.aspect for table in self._tables}

    def ratings(self) -> dict[int, set[float]]:
        """Different ratings of each aspect that is rated, {place of the aspect: ratings}."""
        ratings: dict[int, set[float]] = {}
        for table in self._tables:
            ratings.setdefault(table.aspect, set()).update(table.rows[table.column])
        return ratings

    def lengths(self) -> list[int]:
        """Characters of candidate and references of each row, a measure of its cost; shape (N,)."""
        lengths: list[int] = []
        for table in self._tables:
            for candidate, references in zip(table.rows["cand"], _references_of(table.rows), strict=True):
                lengths.append(len(candidate) + sum(map(len, (references or [])[: self._max_references])))
        return lengths

    def texts(self) -> list[str]:
        """Every candidate and reference once, in a fixed order, for training a tokenizer."""
        texts: dict[str, None] = {}
        for table in self._tables:
            texts |= dict.fromkeys(table.rows["cand"])
            texts |= dict.fromkeys(text for references in _references_of(table.rows) for text in references or [])
        return list(texts)

    def sorted_by_length(self) -> Judgements:
        """The same rows from short to long, so that batches taken in order need little padding."""
        lengths, ordered = self.lengths(), copy(self)
        order = sorted(range(len(self)), key=lambda item: (lengths[item], item))
        ordered._index = [self._index[item] for item in order]
        return ordered

    def without_references(self) -> Judgements:
        """The same rows without references."""
        bare = copy(self)
        bare._reference_free_rate = 1.0
        return bare


def load_parts(source: str | os.PathLike[str], config: TrainingConfig) -> tuple[DatasetDict, Path | None]:
    """Loads the splits of a data set.

    Args:
        source: `"scenes"` (made on the spot), a folder written by `save_to_disk` or readable by
            `datasets.load_dataset`, a Hub id, one of `ALIASES`, or `NAME=PATH` for a copy of one of these or for
            published files, see `reward.training.published`. A split `validation` or `valid` is the part `val` if there
            is no such split.
        config: numbers and seed of the scenes.

    Returns:
        The splits, and the folder in which image paths are relative (None when the data set is not a folder).
    """
    from datasets import Dataset, DatasetDict, load_dataset, load_from_disk

    if source == "scenes":
        from reward.scenes import make_dataset

        sizes = scene_parts(config)
        rows = {part: make_dataset(n, config.scenes_seed + place) for place, (part, n) in enumerate(sizes.items())}
        return DatasetDict(rows), None
    name, _, path = str(source).partition("=")
    if path and name in PUBLISHED:
        return load_published(name, Path(path)), None
    if path and name in ALIASES:  # a copy of what the Hub has
        source = path
        if not Path(path).is_dir():
            raise DataError(f"{name}: {path!r} is not a folder. {_way_out(name)}")
    folder = Path(source)
    if folder.is_file():
        raise DataError(
            f"{source} is one file; training needs a data set with a part to train on and one to stop by: a folder of "
            "save_to_disk, or one with files such as train.jsonl and val.jsonl"
        )
    if str(source).startswith((".", "~", "/")) and not folder.exists():
        raise DataError(f"the data set folder {str(source)!r} does not exist")
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            loaded = load_from_disk(str(folder))
        else:
            loaded = load_dataset(str(folder) if folder.is_dir() else ALIASES.get(str(source), str(source)))
    except Exception as error:  # `datasets` raises errors of httpx, pyarrow, fsspec, yaml and its own
        raise DataError(
            f"cannot load the data set {str(source)!r}: {type(error).__name__}: {error}\n{_way_out(str(source))}"
        ) from error
    if isinstance(loaded, Dataset) or not isinstance(loaded, DatasetDict):
        raise DataError(f"{source} is one table; training needs a DatasetDict: a part to train on and one to stop by")
    other = next((split for split in _VALIDATION if split in loaded), None)
    if other and "val" not in loaded and config.validation_part not in loaded:
        loaded["val"] = loaded.pop(other)
    return loaded, folder if folder.is_dir() else None


def _way_out(source: str) -> str:
    """What to give instead of a data set that cannot be loaded."""
    if source in ALIASES:
        copy = f"hf download {ALIASES[source]} --repo-type dataset --local-dir FOLDER"
        return f"Without a network here, run `{copy}` where there is one, bring FOLDER and give {source}=FOLDER."
    copies = ", ".join(dict.fromkeys([*ALIASES, *PUBLISHED]))
    return (
        f"Give 'scenes', a folder, a Hub id, {', '.join(ALIASES)}, or NAME=PATH with one of {copies}; a Hub id needs a "
        "network or a filled cache."
    )


def scene_parts(config: TrainingConfig) -> dict[str, int]:
    """{part: number of rows} of the synthetic scenes; `train`, `val` and, unless it is empty, `test`."""
    sizes = {"train": config.scenes_train, "val": config.scenes_val, "test": config.scenes_test}
    return {part: size for part, size in sizes.items() if size}


def image_of(row: Mapping[str, Any], root: Path | None) -> Any:
    """The image of a row, or its path: the column `image`, else `file_name`; relative paths start in `root`."""
    image = row["file_name"] if row.get("image") is None else row["image"]
    if isinstance(image, str) and root is not None:
        return root / image  # an absolute path is left as it is
    return image


def make_judgements(
    splits: Mapping[str, Dataset], part: str, spec: MetricSpec, config: TrainingConfig, *, root: Path | None = None
) -> Judgements:
    """The rows of one part of a data set.

    A part is either one split an aspect, named `<part>.<aspect>` with the rating in the column `score` (LongCap-Arena),
    or one split `<part>` with one column an aspect (the scenes), or, for a metric of one aspect, a split `<part>` with
    the column `score`. Aspects may be named by their aliases. A checkpoint may have the single score `overall` in place
    of the metric's aspects. If the data do not rate `overall`, each rating of an aspect then counts as a rating of
    `overall`. Besides the rating, a split has the columns `image` (or `file_name`), `cand` and, unless
    `config.reference_free_rate` is 1, `refs`.

    Args:
        splits: {name: split}.
        part: the part's name.
        spec: facts of the metric: its aspects and aliases.
        config: gives seed, `reference_free_rate` and `max_references`; the part `config.train_part` is shown as in
            training, others as in evaluation.
        root: folder of relative image paths.
    """
    tables = _find_tables(splits, part, spec)
    if not tables:
        names = [f"{part}.{alias}" for alias in spec.aliases] or [f"{part}.{aspect}" for aspect in spec.aspects]
        raise DataError(
            f"the data set has no part {part!r} that rates {spec.name}: expected splits {', '.join(names)}, or a split "
            f"{part!r} with columns named after the aspects; it has {', '.join(splits) or 'no splits'}"
        )
    text_columns = ("cand",) if config.reference_free_rate == 1 else ("refs", "cand")
    checked = [dataclasses.replace(table, rows=_checked(table, name, text_columns, root)) for name, table in tables]
    training = part == config.train_part
    rate = config.reference_free_rate if training else float(config.reference_free_rate == 1)
    return Judgements(
        checked,
        root=root,
        seed=config.seed,
        reference_free_rate=rate,
        max_references=config.max_references,
        choose=training,
    )


def _find_tables(splits: Mapping[str, Dataset], part: str, spec: MetricSpec) -> list[tuple[str, _Table]]:
    names = {**{aspect: aspect for aspect in spec.aspects}, **spec.aliases}
    tables = []
    for name, aspect in names.items():
        split = f"{part}.{name}"
        if split in splits:
            tables.append((split, _Table(splits[split], "score", spec.aspects.index(aspect))))
    if not tables and part in splits:
        there = splits[part].column_names
        renamed = {other: own for other, own in _SYNONYMS.items() if other in there and own not in there}
        splits = {part: splits[part].rename_columns(renamed)}
        columns = [name for name in names if name in splits[part].column_names]
        tables = [(part, _Table(splits[part], name, spec.aspects.index(names[name]))) for name in columns]
    if not tables and (whole := replaced_aspects(spec)) is not None:
        tables = [(name, dataclasses.replace(table, aspect=0)) for name, table in _find_tables(splits, part, whole)]
    if not tables and part in splits and len(spec.aspects) == 1:
        tables = [(part, _Table(splits[part], "score", 0))]
    return tables


def replaced_aspects(spec: MetricSpec) -> MetricSpec | None:
    """The metric's own facts, if a checkpoint has one score in place of its aspects."""
    whole = installed_specs().get(spec.name, spec)
    return whole if spec.aspects == (OVERALL,) != whole.aspects else None


def _references_of(rows: Dataset) -> Sequence[Sequence[str] | None]:
    return rows["refs"] if "refs" in rows.column_names else [None] * len(rows)


def _checked(table: _Table, name: str, text_columns: Sequence[str], root: Path | None) -> Dataset:
    rows = table.rows
    check_columns(rows, name, {column: column for column in (*text_columns, table.column)})
    for number, value in enumerate(rows[table.column]):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:  # NaN fails as well
            raise DataError(
                f"split {name!r}, row {number}: {table.column} must be a number in [0, 1], got {value!r}; "
                "map a five-point rating r to (r - 1) / 4"
            )
    references_of: Any = rows["refs"] if "refs" in text_columns else [()] * len(rows)
    for number, (candidate, references) in enumerate(zip(rows["cand"], references_of, strict=True)):
        try:
            CaptionSample(candidate, references=references)
        except InvalidSampleError as error:
            raise DataError(f"split {name!r}, row {number}: {error}") from error
    _check_files(rows, name, root)
    return with_encoded_images(rows, [*text_columns, table.column])


def _check_files(rows: Dataset, name: str, root: Path | None) -> None:
    """Refuses a path without a file, on which the training would stop hours later."""
    column = "image" if "image" in rows.column_names else "file_name"
    if root is None or getattr(rows.features[column], "dtype", "") != "string":
        return
    for number, value in enumerate(rows[column]):
        if value is not None and not (root / value).is_file():
            raise DataError(f"split {name!r}, row {number}: {column} names {value!r}, and there is no {root / value}")


def check_columns(rows: Dataset, name: str, needed: Mapping[str, str]) -> None:
    """Checks that the split `name` has rows, the needed columns {column: what messages call it}, and images."""
    if not len(rows):
        raise DataError(f"split {name!r} is empty")
    missing = [words for column, words in needed.items() if column not in rows.column_names]
    if not {"image", "file_name"} & set(rows.column_names):
        missing.append("image (or file_name)")
    if missing:
        raise DataError(f"split {name!r} lacks the columns {', '.join(missing)}; it has {', '.join(rows.column_names)}")


def with_encoded_images(rows: Dataset, columns: Sequence[str]) -> Dataset:
    """The columns that training reads, with images left encoded: `reward.images` decodes them in the worker."""
    from datasets import Image

    if "image" in rows.column_names and isinstance(rows.features["image"], Image):
        rows = rows.cast_column("image", Image(decode=False))
    wanted = {*columns, "image", "file_name"}  # other columns would be decoded with every row
    return rows.select_columns([column for column in rows.column_names if column in wanted])
