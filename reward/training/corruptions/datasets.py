"""Makes the data of a pairwise training: rows of an image, its caption, and wrong captions by kind of error."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from reward.errors import ConfigError, DataError, ImageError, InvalidSampleError, OutputError
from reward.image_files import image_file
from reward.images import encoded_image, image_key
from reward.samples import find_column, is_blank, one_image
from reward.scoring.image_root import image_root
from reward.scoring.progress import progress_bar
from reward.scoring.runs import ScoringInterrupted
from reward.scoring.sources import BadRow, Source
from reward.scoring.writers import check_output_name, write_atomically
from reward.training.corruptions.prompts import RewritePrompts, load_prompts
from reward.training.corruptions.retrieval import BANDS, clip_embeddings, retrieve_negatives
from reward.training.corruptions.rewrites import rewrite_captions
from reward.training.corruptions.sampler import WORD_LEVEL, Negative, comparable
from reward.training.corruptions.tagging import tag_words
from reward.training.corruptions.words import corrupt_words

if TYPE_CHECKING:
    from reward.backbones.clip import ClipTowers
    from reward.judges import Judge


# The paper's kinds of rewrites (table 7): nouns and adjectives in one, scene text for TextCaps.
PAPER_REWRITES = ("spatial", "actant_swap", "action", "noun_attribute", "count", "scene_text")
_CHUNK = 1024  # rows whose embeddings are saved together
_ROWS = 256  # rows of a table; they may hold whole images
_KEPT = ("incorrect", "category")  # wrong captions that came with the data stay, as do columns incorrect_<kind>


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
    source: Source,
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
        source: the data; see `reward.scoring.readers.open_source`.
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
    output, prompts = Path(output), prompts or load_prompts()
    _check_kinds(words, rewrites if judge else (), prompts, retriever)
    check_output_name(output, ".parquet")
    rows = CaptionRows(source, caption_column, image_column, image_root)
    run = {
        **{"data": source.fingerprint(), "columns": rows.columns, "words": sorted(words), "seed": seed},
        "rewrites": [judge.name, prompts.digest, sorted(rewrites)] if judge else None,
        "retrieved": [retriever.name, retriever.per_band] if retriever else None,
    }
    if (done := _finished(output, run)) is not None and not overwrite:
        return done
    rows.check()
    output.parent.mkdir(parents=True, exist_ok=True)
    made: list[Sequence[Sequence[Negative]]] = []
    kinds = list(words)
    dropped = rows.dropped
    if words:
        made.append(_by_words(rows.captions, words, seed))
    if retriever is not None:
        saved = output.with_name(f".{output.name}.embeddings")
        if overwrite:
            shutil.rmtree(saved, ignore_errors=True)
        keys, queries = _embeddings(rows, retriever, saved, progress)
        found = retrieve_negatives(*(rows.captions, rows.image_ids, keys, queries), cap=retriever.per_band, seed=seed)
        made.append(found)
        kinds += [f"retrieved_{band}" for band in BANDS]
    if judge is not None:
        written = rewrite_captions(
            rows.captions,
            judge,
            output.with_name(f".{output.name}.answers"),
            categories=rewrites,
            prompts=prompts,
            overwrite=overwrite,
            progress=progress,
        )
        for category, reasons in written.counts.items():
            for reason in reasons.keys() - {"kept"}:
                dropped[f"{category}: {reason}"] += reasons[reason]
        made.append(written.negatives)
        kinds += list(rewrites)
    counts = _write(output, rows, made, kinds, run)
    if retriever is not None:
        shutil.rmtree(saved, ignore_errors=True)
    return Corrupted(output, len(rows.captions), counts, dict(dropped))


class CaptionRows:
    """The rows of a source that have a caption and an image that opens; images are read when asked for.

    Args:
        source: the data.
        caption, image: names of the columns; None takes those that `capreward score` would.
        root: folder in which relative image paths start; None is that of the data.

    Attributes:
        columns: of the caption and of the image.
        captions: of the rows that are left.
        image_ids: of each, equal for equal images.
        dropped: {reason: number of rows that are left out}.
    """

    def __init__(
        self, source: Source, caption: str | None, image: str | None, root: str | os.PathLike[str] | None
    ) -> None:
        given = {"candidate": caption, "image": image}
        found = [
            find_column(role, source.columns, name, option=f"--{role}-column", needed_by="making wrong captions")
            for role, name in given.items()
        ]
        self.columns = [str(name) for name in found]  # without the column, `find_column` raised
        self._caption, self._image = self.columns
        self._source, self._root = source, image_root(source, self._image, root)
        self.captions: list[str] = []
        self.image_ids: list[str] = []
        self.dropped: Counter[str] = Counter()
        self._places: set[int] = set()

    def check(self) -> None:
        """Reads captions, and the headers of the images."""
        for place, row in enumerate(self._source.rows(self.columns)):
            problem = self._problem(row)
            if problem is None and not isinstance(row, BadRow):
                value = self.opened(row)
                self.captions.append(row[self._caption])
                self.image_ids.append(str(value) if isinstance(value, Path) else image_key(value))
                self._places.add(place)
            else:
                self.dropped[str(problem)] += 1
        if not self.captions:
            reasons = "; ".join(f"{reason}: {count} rows" for reason, count in self.dropped.items())
            raise DataError(f"{self._source.name} has no caption with an image ({reasons or 'no rows'})")

    def _problem(self, row: dict[str, Any] | BadRow) -> str | None:
        if isinstance(row, BadRow):
            return "row cannot be read"
        if not isinstance(row.get(self._caption), str) or is_blank(row[self._caption]):
            return "no caption"
        try:
            value = self.opened(row)
            with Image.open(value if isinstance(value, Path) else BytesIO(encoded_image(value))) as opened:
                return None if min(opened.size) else "image cannot be read"  # the header alone: it is quick
        except (OSError, ImageError, InvalidSampleError):
            return "image cannot be read"

    def images(self) -> Iterator[Any]:
        """The images, in order."""
        return (self.opened(row) for row in self.records([self._image]))

    def opened(self, row: dict[str, Any]) -> Any:
        """The image of a row: its path, or the image itself where the data hold it."""
        value = one_image(row.get(self._image))
        if isinstance(value, dict) and value.get("bytes") is None:
            value = value.get("path")
        return Path(image_file(self._root / value)) if isinstance(value, str) else value

    def records(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Columns of the rows, in order."""
        for place, row in enumerate(self._source.rows(columns)):
            if place in self._places and not isinstance(row, BadRow):
                yield row

    def kept(self) -> list[str]:
        """Columns of the source that the output takes over: the image, and wrong captions."""
        there = self._source.columns
        given = [name for name in there if name in _KEPT and set(_KEPT) <= set(there)]
        return [self._image, *given, *(name for name in there if name.startswith("incorrect_"))]


def _check_kinds(
    words: Collection[str], rewrites: Collection[str], prompts: RewritePrompts, retriever: Retriever | None
) -> None:
    if not words and not rewrites and retriever is None:
        raise ConfigError("nothing to make: ask for words (--words), rewrites (--judge) or retrieval (--retrieve)")
    for name, asked, known in (("words", words, WORD_LEVEL), ("rewrites", rewrites, tuple(prompts.changes))):
        if unknown := [kind for kind in asked if kind not in known]:
            raise ConfigError(f"{name}: unknown {', '.join(unknown)}; known: {', '.join(known)}")
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
    lists = []
    for row, caption in enumerate(captions):
        texts = {kind: corrupt_words(caption, random.Random(f"{seed} {row} {kind}"), kind) for kind in kinds}
        lists.append([Negative(text, kind) for kind, text in texts.items() if text is not None])
    return lists


def _embeddings(
    rows: CaptionRows, retriever: Retriever, folder: Path, progress: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Embeddings (N, D) of the captions and of the image of each, by chunks that are saved as they are made."""
    folder.mkdir(exist_ok=True)
    images, found = rows.images(), []
    starts = range(0, len(rows.captions), _CHUNK)
    with progress_bar(progress, done=0, total=len(rows.captions), doing="embedding") as advance:
        for start in starts:
            captions = rows.captions[start : start + _CHUNK]
            shown = list(islice(images, len(captions)))
            rows_read = json.dumps([retriever.name, captions, rows.image_ids[start : start + _CHUNK]])
            file = folder / f"{hashlib.sha256(rows_read.encode()).hexdigest()[:16]}-{start}.npz"
            try:
                with np.load(file) as saved:
                    found.append((saved["captions"], saved["images"]))
            except (OSError, ValueError, KeyError):
                try:
                    pair = clip_embeddings(retriever.towers, captions, shown)
                except KeyboardInterrupt:
                    raise ScoringInterrupted(start, folder, "embeddings") from None
                write_atomically(file, partial(_save, arrays=pair))
                found.append(pair)
            advance(len(captions), 0)
    keys, queries = zip(*found, strict=True)
    return np.concatenate(keys), np.concatenate(queries)


def _save(path: Path, arrays: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]) -> None:
    with path.open("wb") as file:
        np.savez(file, captions=arrays[0], images=arrays[1])


def _write(
    output: Path,
    rows: CaptionRows,
    made: Sequence[Sequence[Sequence[Negative]]],
    kinds: Sequence[str],
    run: dict[str, Any],
) -> dict[str, int]:
    """Writes the rows; returns how many wrong captions of each kind there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts: Counter[str] = Counter(dict.fromkeys(kinds, 0))
    image, *given = rows.kept()
    encoded = not isinstance(next(rows.images()), Path)
    held = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    texts = pa.list_(pa.string())
    types = {"image": held} if encoded else {"file_name": pa.string()}
    types |= {"caption": pa.string()} | {name: pa.string() if name in _KEPT else texts for name in given}
    types |= {f"incorrect_{kind}": texts for kind in kinds}

    def built(row: dict[str, Any], place: int) -> dict[str, Any]:
        caption, value = rows.captions[place], rows.opened(row)
        new: dict[str, Any] = {"caption": caption, **{name: row.get(name) for name in given}}
        for name in given:
            if name not in _KEPT:
                new[name] = [new[name]] if isinstance(new[name], str) else new[name]
        for kind in kinds:
            new[f"incorrect_{kind}"] = list(new.get(f"incorrect_{kind}") or [])
        for negative in (negative for lists in made for negative in lists[place]):
            name = f"incorrect_{negative.category}"
            if comparable(negative.text) != comparable(caption) and negative.text not in (row.get(name) or ()):
                new[name].append(negative.text)
                counts[negative.category] += 1
        if encoded:
            return {"image": {"bytes": encoded_image(value), "path": None}, **new}
        return {"file_name": os.path.relpath(value, output.parent), **new}

    def write(path: Path) -> None:
        schema = pa.schema(types)
        with pq.ParquetWriter(path, schema) as writer:
            records = (built(row, place) for place, row in enumerate(rows.records([image, *given])))
            while some := list(islice(records, _ROWS)):
                writer.write_table(pa.Table.from_pylist(some, schema))
            facts = {"run": run, "rows": len(rows.captions), "counts": counts}
            writer.add_key_value_metadata({"capreward": json.dumps(facts)})

    write_atomically(output, write)
    return dict(counts)
