"""Makes the data of a pairwise training: rows of an image, its caption, and wrong captions by kind of error."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from reward.data.image_files import image_file
from reward.data.images import encoded_image, image_key
from reward.data.samples import find_column, is_blank, one_image
from reward.data.tagging import tag_words
from reward.data.word_edits import corrupt_words
from reward.errors import ConfigError, DataError, ImageError, InvalidSampleError, OutputError
from reward.scoring.kept import Kept
from reward.scoring.runs import progress_bar
from reward.scoring.sources import BadRow, Source, image_root
from reward.scoring.writers import check_output_name, write_atomically
from reward.training.corruptions.retrieved import BANDS, clip_embeddings, retrieve_negatives
from reward.training.corruptions.rewrite_prompts import RewritePrompts, load_prompts
from reward.training.corruptions.rewrites import rewrite_captions
from reward.training.corruptions.sampler import WORD_LEVEL, Negative, comparable

if TYPE_CHECKING:
    from reward.backbones.clip import ClipTowers
    from reward.judges import Judge


# The paper's kinds of rewrites (table 7): nouns and adjectives in one, scene text for TextCaps.
PAPER_REWRITES = ("spatial", "actant_swap", "action", "noun_attribute", "count", "scene_text")
_CHUNK = 1024  # rows whose embeddings are saved together
_ROWS = 256  # rows of a table; they may hold whole images
_PREFIX = "incorrect_"  # of columns of wrong captions


@dataclass(frozen=True)
class Retriever:
    """What retrieves negatives: towers of images and texts, and how many of the captions that they find are taken.

    Args:
        towers: `ClipTowers`, or BEiT-3's of `reward.metrics.beitscore.retrieval`.
        name: of the model, by which saved embeddings are told apart.
        per_band: most negatives of a caption and band.
    """

    towers: ClipTowers | Any
    name: str
    per_band: int = 30


@dataclass(frozen=True)
class Corrupted:
    """What `make_corrupted` made.

    Args:
        output: the file.
        rows: number of captions in it.
        counts: {kind of error: number of wrong captions}.
        dropped: {reason: number of rows or answers that were left out}.
        already_done: whether the file was there, made of the same data and settings.
    """

    output: Path
    rows: int
    counts: dict[str, int]
    dropped: dict[str, int]
    already_done: bool = False


def make_corrupted(
    reader: Source,
    output: str | os.PathLike[str],
    *,
    words: Collection[str] = (),
    judge: Judge | None = None,
    rewrites: Collection[str] = PAPER_REWRITES,
    prompts: RewritePrompts | None = None,
    retriever: Retriever | None = None,
    caption_column: str | None = None,
    image_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = False,
) -> Corrupted:
    """Makes wrong captions of the captions of a data set, and writes them as rows that BEiTScore is trained on.

    A row has `file_name` (from the folder of the output) or, where the data hold images, `image`; `caption`; and for
    each kind of error `incorrect_<kind>`, a list of wrong captions that may be empty. Wrong captions that the data hold
    already, in `incorrect` and `category` or in such columns, stay; others of the same kind come after them.

    What is slow is saved beside the output as it is made, in hidden files: the judge's answers, which are kept for
    further runs, and the embeddings. The same call goes on where one was stopped.

    Args:
        reader: the data; see `reward.scoring.readers.open_source`.
        output: a `.parquet` file.
        words: which of `WORD_LEVEL` to make. Training makes them on demand anyway.
        judge: rewrites the captions; None makes no rewrites.
        rewrites: categories of the prompts.
        prompts: see `rewrite_captions`.
        retriever: finds captions of other images; None retrieves none.
        caption_column, image_column: their columns; None takes those that `capreward score` would.
        image_root: folder in which relative image paths start; None is that of the data.
        seed: of word-level corruptions and of what is drawn from each band.
        overwrite: replace a finished output, and discard what is saved.
        progress: whether to show bars on stderr.
    """
    output = Path(output)
    prompts = prompts or load_prompts()
    _check_kinds(words, rewrites if judge else (), prompts, retriever)
    check_output_name(output, ".parquet")
    columns = caption_and_image(reader, caption_column, image_column)
    run = {
        "data": reader.fingerprint(),
        "columns": list(columns),
        "words": sorted(words),
        "seed": seed,
        "rewrites": [judge.name, prompts.digest, sorted(rewrites)] if judge else None,
        "retrieved": [retriever.name, retriever.per_band] if retriever else None,
    }
    finished = _finished(output, run)
    if finished is not None and not overwrite:
        return finished
    rows = CaptionRows(reader, *columns, image_root)
    output.parent.mkdir(parents=True, exist_ok=True)
    embeddings_file = output.with_name(f".{output.name}.embeddings")
    kinds: list[str] = []
    negatives: list[Sequence[Sequence[Negative]]] = []  # wrong captions of each row, by each way to make them
    if words:
        kinds += words
        negatives.append(_by_words(rows.captions, words, seed))
    if retriever is not None:
        keys, queries = _embeddings(rows, retriever, embeddings_file, overwrite, progress)
        kinds += [f"retrieved_{band}" for band in BANDS]
        retrieved = retrieve_negatives(rows.captions, rows.image_ids, keys, queries, cap=retriever.per_band, seed=seed)
        negatives.append(retrieved)
    if judge is not None:
        rewritten = rewrite_captions(
            rows.captions,
            judge,
            output.with_name(f".{output.name}.answers"),
            categories=rewrites,
            prompts=prompts,
            overwrite=overwrite,
            progress=progress,
        )
        kinds += rewrites
        negatives.append(rewritten.negatives)
        for category, reasons in rewritten.counts.items():
            for reason, count in reasons.items():
                if reason != "kept":
                    rows.dropped[f"{category}: {reason}"] += count
    counts = _write(output, rows, kinds, negatives, run)
    embeddings_file.unlink(missing_ok=True)
    return Corrupted(output, len(rows.captions), counts, dict(rows.dropped))


def caption_and_image(reader: Source, caption: str | None, image: str | None) -> tuple[str, str]:
    """The columns of the caption and of the image; None takes those that `capreward score` would."""
    columns = []
    for role, name in (("candidate", caption), ("image", image)):
        option = f"--{role}-column"
        columns.append(find_column(role, reader.columns, name, option=option, needed_by="making wrong captions"))
    return str(columns[0]), str(columns[1])  # without a column, `find_column` raised


class CaptionRows:
    """The rows of a reader that have a caption and an image that opens, as its header shows.

    Args:
        reader: the data.
        caption, image: names of the columns.
        root: folder in which relative image paths start; None is that of the data.

    Attributes:
        captions: of the rows that are left.
        image_ids: of each, equal for equal images.
        wrong_columns: columns of wrong captions that the data hold.
        dropped: {reason: number of rows that are left out}.
    """

    def __init__(self, reader: Source, caption: str, image: str, root: str | os.PathLike[str] | None = None) -> None:
        self.wrong_columns = [name for name in reader.columns if name.startswith(_PREFIX)]
        if {"incorrect", "category"} <= set(reader.columns):
            self.wrong_columns = ["incorrect", "category", *self.wrong_columns]
        self._reader, self._image, self._root = reader, image, image_root(reader, image, root)
        self.captions: list[str] = []
        self.image_ids: list[str] = []
        self.dropped: Counter[str] = Counter()
        self._numbers: set[int] = set()  # of the rows that are left: the images are read again when they are written
        for number, row in enumerate(reader.rows([caption, image])):
            if isinstance(row, BadRow):
                self.dropped["row cannot be read"] += 1
                continue
            if not isinstance(row.get(caption), str) or is_blank(row[caption]):
                self.dropped["no caption"] += 1
                continue
            image_id = self._image_id(row)
            if image_id is None:
                self.dropped["image cannot be read"] += 1
                continue
            self.captions.append(row[caption])
            self.image_ids.append(image_id)
            self._numbers.add(number)
        if not self.captions:
            reasons = "; ".join(f"{reason}: {count} rows" for reason, count in self.dropped.items())
            raise DataError(f"{reader.name} has no caption with an image ({reasons or 'no rows'})")

    def _image_id(self, row: dict[str, Any]) -> str | None:
        """What equal images share; None if the image does not open."""
        try:
            image = self._image_of(row)
            is_file = isinstance(image, Path)
            with Image.open(image if is_file else BytesIO(encoded_image(image))) as opened:
                is_empty = not min(opened.size)
        except (OSError, ImageError, InvalidSampleError):
            return None
        if is_empty:
            return None
        return str(image) if is_file else image_key(image)

    def _image_of(self, row: dict[str, Any]) -> Any:
        """The path of the image of a row, or the image itself where the data hold it."""
        image = one_image(row.get(self._image))
        if isinstance(image, dict) and image.get("bytes") is None:
            image = image.get("path")
        return Path(image_file(self._root / image)) if isinstance(image, str) else image

    def images(self) -> Iterator[Any]:
        """The image of each row, read again."""
        return (image for image, _ in self.records([]))

    def records(self, columns: Sequence[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The image of each row and columns of it, read again."""
        for number, row in enumerate(self._reader.rows([self._image, *columns])):
            if number in self._numbers and not isinstance(row, BadRow):
                yield self._image_of(row), row


def _check_kinds(
    words: Collection[str], rewrites: Collection[str], prompts: RewritePrompts, retriever: Retriever | None
) -> None:
    if not words and not rewrites and retriever is None:
        raise ConfigError("nothing to make: ask for words (--words), rewrites (--judge) or retrieval (--retrieve)")
    for name, kinds, names in (("words", words, WORD_LEVEL), ("rewrites", rewrites, tuple(prompts.changes))):
        unknown = [kind for kind in kinds if kind not in names]
        if unknown:
            raise ConfigError(f"{name}: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    if any(kind.startswith("repeat") for kind in words):
        tag_words("a star")  # a missing tagger shows now


def _finished(output: Path, run: dict[str, Any]) -> Corrupted | None:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    if not output.exists():
        return None
    try:
        facts = json.loads((pq.read_metadata(output).metadata or {}).get(b"capreward", b"{}"))
    except (ArrowException, OSError, ValueError):
        facts = {}
    if facts.get("run") != run:
        raise OutputError(
            f"{output} exists already and is not of this run (other data, judge or settings). Choose another output, "
            "or replace it with --overwrite (overwrite=True)."
        )
    return Corrupted(output, facts["rows"], facts["counts"], {}, already_done=True)


def _by_words(captions: Sequence[str], kinds: Collection[str], seed: int) -> list[list[Negative]]:
    negatives: list[list[Negative]] = []
    for row, caption in enumerate(captions):
        negatives.append([])
        for kind in kinds:
            text = corrupt_words(caption, random.Random(f"{seed} {row} {kind}"), kind)
            if text is not None:
                negatives[row].append(Negative(text, kind))
    return negatives


def _embeddings(
    rows: CaptionRows, retriever: Retriever, path: Path, overwrite: bool, progress: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Embeddings (N, D) of the captions and of the image of each, in chunks that are kept as they are made."""
    all_images = rows.images()
    size = len(rows.captions)
    chunks = []
    with (
        Kept(path, {"what": "embeddings of captions and images"}, overwrite=overwrite, what="embeddings") as store,
        progress_bar(progress, done=0, total=size, doing="embedding") as advance,
    ):
        vectors = {entry["key"]: entry["vectors"] for entry in store}
        for start in range(0, size, _CHUNK):
            captions = rows.captions[start : start + _CHUNK]
            image_ids = rows.image_ids[start : start + _CHUNK]
            images = list(islice(all_images, len(captions)))
            # By what was embedded, so that a run on changed data embeds only the chunks that changed.
            content = json.dumps([retriever.name, captions, image_ids])
            key = hashlib.sha256(content.encode()).hexdigest()
            if key not in vectors:
                pair = clip_embeddings(retriever.towers, captions, images)
                vectors[key] = base64.b64encode(np.stack(pair).astype("<f4").tobytes()).decode()
                store.add([{"key": key, "vectors": vectors[key]}])
            chunk = np.frombuffer(base64.b64decode(vectors[key]), "<f4")
            chunks.append(chunk.reshape(2, len(captions), -1))
            advance(len(captions), 0)
    keys, queries = np.concatenate(chunks, axis=1)
    return keys, queries


def _write(
    output: Path,
    rows: CaptionRows,
    kinds: Sequence[str],
    negatives: Sequence[Sequence[Sequence[Negative]]],
    run: dict[str, Any],
) -> dict[str, int]:
    """Writes the rows; returns how many wrong captions of each kind there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Kinds of which none could be made are told as 0, and have their columns all the same.
    counts: Counter[str] = Counter(dict.fromkeys(kinds, 0))
    holds_images = not isinstance(next(rows.images()), Path)
    types: dict[str, Any] = {"file_name": pa.string()}
    if holds_images:
        types = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    types["caption"] = pa.string()
    for name in rows.wrong_columns:
        types[name] = pa.list_(pa.string()) if name.startswith(_PREFIX) else pa.string()
    for kind in kinds:
        types[_PREFIX + kind] = pa.list_(pa.string())
    schema = pa.schema(types)

    def record(number: int, image: Any, row: dict[str, Any]) -> dict[str, Any]:
        cells: dict[str, Any] = {"caption": rows.captions[number]}
        if holds_images:
            cells["image"] = {"bytes": encoded_image(image), "path": None}
        else:
            cells["file_name"] = os.path.relpath(image, output.parent)
        for name in rows.wrong_columns:
            is_text = name.startswith(_PREFIX) and isinstance(row.get(name), str)
            cells[name] = [row[name]] if is_text else row.get(name)
        for kind in kinds:
            cells[_PREFIX + kind] = list(cells.get(_PREFIX + kind) or [])
        for rows_of_negatives in negatives:
            for negative in rows_of_negatives[number]:
                name = _PREFIX + negative.category
                is_same = comparable(negative.text) == comparable(rows.captions[number])
                if not is_same and negative.text not in (row.get(name) or ()):
                    cells[name].append(negative.text)
                    counts[negative.category] += 1
        return cells

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, schema) as writer:
            batch: list[dict[str, Any]] = []
            for number, (image, row) in enumerate(rows.records(rows.wrong_columns)):
                batch.append(record(number, image, row))
                if len(batch) == _ROWS:
                    writer.write_table(pa.Table.from_pylist(batch, schema))
                    batch = []
            writer.write_table(pa.Table.from_pylist(batch, schema))
            facts = {"run": run, "rows": len(rows.captions), "counts": counts}
            writer.add_key_value_metadata({"capreward": json.dumps(facts)})

    write_atomically(output, write)
    return dict(counts)
