"""Builds, writes and reads pairs in LongCapVLCP's form: long captions with one error, mostly beyond CLIP's context."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.errors import DataError, ImageError, OutputError
from reward.images import image_key, load_image
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, PreferencePair
from reward.metaeval.benchmarks.records import Record, find_file, read_lines
from reward.samples import is_blank

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = [
    "LONGCAPVLCP_CATEGORIES",
    "SPECS",
    "PairBuild",
    "build_pairs",
    "write_pairs",
]

# The categories of LongCapVLCP in the BEiTScore paper. Pairs built here share its form, not its sources or size.
LONGCAPVLCP_CATEGORIES = ("actant swap", "action", "counting", "noun/adjective", "spatial relation", "scene text")
PAIRS_FILE = "pairs.jsonl"
_COLUMNS = ("image", "correct", "incorrect", "category")


@dataclass(frozen=True)
class PairBuild:
    """Pairs that `build_pairs` built.

    Args:
        pairs: a data set with the columns image, correct, incorrect, category and error_token.
        kept: {category: number of pairs}.
        dropped: {reason: number of rows}.
    """

    pairs: Dataset
    kept: dict[str, int]
    dropped: dict[str, int]


def build_pairs(
    rows: Iterable[Mapping[str, Any]],
    *,
    beyond: int = CLIP_TOKENS,
    exempt: Iterable[str] = ("scene text", "scene_text"),
) -> PairBuild:
    """Builds pairs in LongCapVLCP's form, with one error each, past the text that a CLIP reads.

    A pair is kept only if its captions are equal up to token `beyond` of open_clip's tokenizer, counted from 0 at the
    start token.

    Source: the BEiTScore paper, whose pairs all differ after CLIP token 77, except those of scene text.

    Args:
        rows: mappings with image (as for `load_image`), correct (a caption), incorrect (the caption with an error, or
            None if there is none, see
            `reward.training.corruptions.rewrites.rewrite_captions`) and category (of the error).
        beyond: first token at which captions may differ; 0 keeps every pair.
        exempt: categories whose errors may be anywhere.

    Raises:
        DataError: a row lacks a column, or the correct caption or the category is not text.

    Example:
        >>> from PIL import Image
        >>> row = {"image": Image.new("RGB", (8, 8)), "correct": "A red star lies on a beach.", "category": "action"}
        >>> built = build_pairs([{**row, "incorrect": "A red star rolls on a beach."}] * 2, beyond=4)
        >>> built.kept, built.pairs[0]["incorrect"], built.pairs[0]["error_token"]
        ({'action': 2}, 'A red star rolls on a beach.', 4)
    """
    from datasets import Dataset, Features, Image, Value

    texts = {name: Value("string") for name in _COLUMNS[1:]}
    features = Features({"image": Image(), **texts, "error_token": Value("int64")})
    columns: dict[str, list[Any]] = {name: [] for name in features}
    dropped: Counter[str] = Counter()
    free = frozenset(exempt)
    for place, row in enumerate(rows):
        record = Record(row, f"row {place}", Path())
        caption, category = _shown_text(record, "correct"), _shown_text(record, "category")
        (_, image), (_, incorrect) = record.take("image"), record.take("incorrect")
        least = 0 if category in free else beyond
        try:
            load_image(image)
        except ImageError:
            dropped["image cannot be read"] += 1
            continue
        if clip_length(caption) <= least:
            dropped[f"caption ends before token {least}"] += 1
            continue
        token, problem = _first_error(caption, incorrect, least)
        if problem is not None:
            dropped[problem] += 1
            continue
        for name, value in zip(features, (_stored(image), caption, incorrect, category, token), strict=True):
            columns[name].append(value)
    pairs = Dataset.from_dict(columns, features=features)
    return PairBuild(pairs, dict(Counter(columns["category"])), dict(dropped))


def write_pairs(pairs: Dataset, folder: str | os.PathLike[str]) -> Path:
    """Writes `pairs.jsonl`, one pair per line, and the images that it names, each once, into a folder.

    Encoded images are copied byte for byte.

    Args:
        pairs: from `build_pairs` or `reward.scenes.make_pair_dataset`: the column image, and columns of plain values.
        folder: made if absent.

    Returns:
        Path of `pairs.jsonl`, which `load_benchmark("longcapvlcp", folder)` reads.

    Raises:
        OutputError: the folder cannot be written, or holds a `pairs.jsonl` already.
    """
    from datasets import Image
    from PIL import Image as PilImage

    folder = Path(folder)
    path = folder / PAIRS_FILE
    if path.exists():
        raise OutputError(f"{path} exists already; name another folder")
    try:
        (folder / "images").mkdir(parents=True, exist_ok=True)
        lines = []
        for row in pairs.cast_column("image", Image(decode=False)):
            data = row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()
            with PilImage.open(BytesIO(data)) as opened:
                name = f"images/{image_key(data)[:16]}.{str(opened.format).lower()}"
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
            lines.append(json.dumps({**row, "image": name}, ensure_ascii=False))
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        raise OutputError(f"pairs cannot be written to {str(folder)!r}: {error.strerror or error}") from error
    return path


def _first_error(caption: str, incorrect: str | None, least: int) -> tuple[int | None, str | None]:
    """First token in which an incorrect caption differs, and why the pair cannot be kept."""
    if incorrect is None or is_blank(incorrect):
        return None, "no incorrect caption"
    token = first_different_token(caption, incorrect)
    if token is None:
        return None, "caption left unchanged"
    return token, f"error before token {least}" if token < least else None


def _shown_text(row: Record, name: str) -> str:
    """A text that is not blank."""
    text = row.text(name)
    if is_blank(text):
        raise row.error(name, "a text that is not blank")
    return text


def _stored(image: Any) -> Any:
    """A readable image as a `datasets.Image` column takes it; an encoded one stays encoded."""
    if isinstance(image, (str, os.PathLike)):
        return os.path.abspath(os.fsdecode(image))
    if isinstance(image, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(image), "path": None}
    if isinstance(image, dict):
        return {"bytes": image.get("bytes"), "path": image.get("path")}
    return load_image(image)


def _load(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    for row in read_lines(find_file(path, PAIRS_FILE)):
        correct, incorrect, category = (_shown_text(row, name) for name in _COLUMNS[1:])
        if correct == incorrect:
            raise DataError(f"{row.where}: correct and incorrect caption are the same")
        image = (images or row.folder) / row.text("image")
        if not image.is_file():
            raise DataError(f"{row.where}: there is no image file {str(image)!r}")
        image_id = str(image.absolute())
        yield PreferencePair((correct, incorrect), label=0, image=image_id, image_id=image_id, category=category)


SPECS = (
    BenchmarkSpec(
        name="longcapvlcp",
        title="LongCapVLCP",
        form=PreferencePair,
        statistic="accuracy",
        load=_load,
        ties="wrong",  # the paper gives CLIPScore, for which most of its pairs are equal, an accuracy of 0
        headline=OVERALL,  # its "micro avg."
        files="a .jsonl file with image, correct, incorrect and category per line, or a folder with pairs.jsonl; or a "
        ".jsonl file with category, image, captions and label per line",
        origin="the authors of BEiTScore; reward.metaeval.build_pairs makes your own pairs in this form",
    ),
)
