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
from reward.scoring.image_root import image_root
from reward.scoring.kept import Kept
from reward.scoring.progress import progress_bar
from reward.scoring.sources import BadRow, Source
from reward.scoring.writers import check_output_name, write_atomically
from reward.training.corruptions.prompts import RewritePrompts, load_prompts
from reward.training.corruptions.retrieval import BANDS, clip_embeddings, retrieve_negatives
from reward.training.corruptions.rewrites import rewrite_captions
from reward.training.corruptions.sampler import WORD_LEVEL, Negative, comparable

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
    columns = caption_and_image(source, caption_column, image_column)
    run = {
        **{"data": source.fingerprint(), "columns": [*columns], "words": sorted(words), "seed": seed},
        "rewrites": [judge.name, prompts.digest, sorted(rewrites)] if judge else None,
        "retrieved": [retriever.name, retriever.per_band] if retriever else None,
    }
    if (done := _finished(output, run)) is not None and not overwrite:
        return done
    rows = CaptionRows(source, *columns, image_root)
    output.parent.mkdir(parents=True, exist_ok=True)
    saved = {what: output.with_name(f".{output.name}.{what}") for what in ("embeddings", "answers")}
    made: dict[tuple[str, ...], Sequence[Sequence[Negative]]] = {}  # {kinds of errors: wrong captions of each row}
    if words:
        made[tuple(words)] = _by_words(rows.captions, words, seed)
    if retriever is not None:
        keys, queries = _embeddings(rows, retriever, saved["embeddings"], overwrite, progress)
        found = retrieve_negatives(*(rows.captions, rows.image_ids, keys, queries), cap=retriever.per_band, seed=seed)
        made[tuple(f"retrieved_{band}" for band in BANDS)] = found
    if judge is not None:
        how: dict[str, Any] = {"categories": rewrites, "prompts": prompts, "overwrite": overwrite, "progress": progress}
        written = rewrite_captions(rows.captions, judge, saved["answers"], **how)
        made[tuple(rewrites)] = written.negatives
        for category, reasons in written.counts.items():
            rows.dropped.update(
                {f"{category}: {reason}": count for reason, count in reasons.items() if reason != "kept"}
            )
    counts = _write(output, rows, made, run)
    saved["embeddings"].unlink(missing_ok=True)
    return Corrupted(output, len(rows.captions), counts, dict(rows.dropped))


def caption_and_image(source: Source, caption: str | None, image: str | None) -> tuple[str, str]:
    """The columns of the caption and of the image: those given, else those that `capreward score` would take."""
    caption, image = (
        find_column(role, source.columns, name, option=f"--{role}-column", needed_by="making wrong captions")
        for role, name in (("candidate", caption), ("image", image))
    )
    return str(caption), str(image)  # without the column, `find_column` raised


class CaptionRows:
    """The rows of a source that have a caption and an image that opens, as its header shows.

    Args:
        source: the data.
        caption, image: names of the columns.
        root: folder in which relative image paths start; None is that of the data.

    Attributes:
        captions: of the rows that are left.
        image_ids: of each, equal for equal images.
        given: columns of wrong captions that the data hold.
        dropped: {reason: number of rows that are left out}.
    """

    def __init__(self, source: Source, caption: str, image: str, root: str | os.PathLike[str] | None = None) -> None:
        there = source.columns
        self.given = [name for name in there if name in _KEPT and set(_KEPT) <= set(there)]
        self.given += [name for name in there if name.startswith("incorrect_")]
        self._source, self._image, self._root = source, image, image_root(source, image, root)
        self.captions: list[str] = []
        self.image_ids: list[str] = []
        self.dropped: Counter[str] = Counter()
        self._places: set[int] = set()
        for place, row in enumerate(source.rows([caption, image])):
            if isinstance(row, BadRow):
                self.dropped["row cannot be read"] += 1
            elif not isinstance(row.get(caption), str) or is_blank(row[caption]):
                self.dropped["no caption"] += 1
            elif (name := self._name(row)) is None:
                self.dropped["image cannot be read"] += 1
            else:
                self.captions.append(row[caption])
                self.image_ids.append(name)
                self._places.add(place)
        if not self.captions:
            reasons = "; ".join(f"{reason}: {count} rows" for reason, count in self.dropped.items())
            raise DataError(f"{source.name} has no caption with an image ({reasons or 'no rows'})")

    def _name(self, row: dict[str, Any]) -> str | None:
        """What equal images share; None if the image does not open."""
        try:
            value = self._opened(row)
            with Image.open(value if isinstance(value, Path) else BytesIO(encoded_image(value))) as opened:
                if not min(opened.size):
                    return None
        except (OSError, ImageError, InvalidSampleError):
            return None
        return str(value) if isinstance(value, Path) else image_key(value)

    def _opened(self, row: dict[str, Any]) -> Any:
        """The image of a row: its path, or the image itself where the data hold it."""
        value = one_image(row.get(self._image))
        if isinstance(value, dict) and value.get("bytes") is None:
            value = value.get("path")
        return Path(image_file(self._root / value)) if isinstance(value, str) else value

    def images(self) -> Iterator[Any]:
        """The image of each row, read again."""
        return (image for image, _ in self.records([]))

    def records(self, columns: Sequence[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The image of each row and columns of it, read again."""
        for place, row in enumerate(self._source.rows([self._image, *columns])):
            if place in self._places and not isinstance(row, BadRow):
                yield self._opened(row), row


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
    rows: CaptionRows, retriever: Retriever, path: Path, overwrite: bool, progress: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Embeddings (N, D) of the captions and of the image of each, in chunks that are kept as they are made."""
    images, found, size = rows.images(), [], len(rows.captions)
    with (
        Kept(path, {"what": "embeddings of captions and images"}, overwrite=overwrite, what="embeddings") as kept,
        progress_bar(progress, done=0, total=size, doing="embedding") as advance,
    ):
        done = {each["key"]: each["vectors"] for each in kept}
        for start in range(0, size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            shown = list(islice(images, len(rows.captions[chunk])))
            read = json.dumps([retriever.name, rows.captions[chunk], rows.image_ids[chunk]])
            key = hashlib.sha256(read.encode()).hexdigest()
            if key not in done:
                pair = clip_embeddings(retriever.towers, rows.captions[chunk], shown)
                done[key] = base64.b64encode(np.stack(pair).astype("<f4").tobytes()).decode()
                kept.add([{"key": key, "vectors": done[key]}])
            found.append(np.frombuffer(base64.b64decode(done[key]), "<f4").reshape(2, len(shown), -1))
            advance(len(shown), 0)
    keys, queries = np.concatenate(found, axis=1)
    return keys, queries


def _write(
    output: Path, rows: CaptionRows, made: dict[tuple[str, ...], Sequence[Sequence[Negative]]], run: dict[str, Any]
) -> dict[str, int]:
    """Writes the rows; returns how many wrong captions of each kind there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds, given = [kind for those in made for kind in those], rows.given
    counts: Counter[str] = Counter(dict.fromkeys(kinds, 0))
    encoded = not isinstance(next(rows.images()), Path)
    texts = pa.list_(pa.string())
    shown = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})} if encoded else {"file_name": pa.string()}
    types = shown | {"caption": pa.string()} | {name: pa.string() if name in _KEPT else texts for name in given}
    schema = pa.schema(types | {f"incorrect_{kind}": texts for kind in kinds})

    def built(place: int, image: Any, row: dict[str, Any]) -> dict[str, Any]:
        caption = rows.captions[place]
        new: dict[str, Any] = {name: row.get(name) for name in given}
        new |= {name: [text] for name, text in new.items() if isinstance(text, str) and name not in _KEPT}
        new |= {f"incorrect_{kind}": list(new.get(f"incorrect_{kind}") or []) for kind in kinds}
        for negative in (negative for lists in made.values() for negative in lists[place]):
            name = f"incorrect_{negative.category}"
            if comparable(negative.text) != comparable(caption) and negative.text not in (row.get(name) or ()):
                new[name].append(negative.text)
                counts[negative.category] += 1
        if encoded:
            return {"image": {"bytes": encoded_image(image), "path": None}, "caption": caption, **new}
        return {"file_name": os.path.relpath(image, output.parent), "caption": caption, **new}

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, schema) as writer:
            records = (built(place, *record) for place, record in enumerate(rows.records(given)))
            while some := list(islice(records, _ROWS)):
                writer.write_table(pa.Table.from_pylist(some, schema))
            facts = {"run": run, "rows": len(rows.captions), "counts": counts}
            writer.add_key_value_metadata({"capreward": json.dumps(facts)})

    write_atomically(output, write)
    return dict(counts)
