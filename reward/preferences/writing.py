"""Writes preference data: files that trainers read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.images import plain_image
from reward.preferences.selection import Preferences
from reward.scoring.writers import check_output_name, write_atomically

__all__ = ["check_free", "features", "split_files", "with_plain_images", "write_preferences"]

_ROWS = 256  # rows of a table; they may hold whole images


def split_files(output: Path, holdout: float) -> dict[str, Path]:
    """{split: file}: the output and, of held-out images, one with `.test` before its suffix.

    Example:
        >>> [file.name for file in split_files(Path("pairs.jsonl"), 0.1).values()]
        ['pairs.jsonl', 'pairs.test.jsonl']
    """
    held = {"test": output.with_name(f"{output.stem}.test{output.suffix}")} if holdout else {}
    return {"train": output, **held}


def check_free(output: Path, holdout: float, data: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Checks, before anything is scored, that the output can be written.

    Raises:
        OutputError: a wrong name, the input itself, or a file that is there already.
    """
    check_output_name(output, ".parquet", ".jsonl")
    for file in split_files(output, holdout).values():
        if file.exists() and os.path.exists(data) and file.samefile(data):
            raise OutputError(f"output {file} is the input; choose another name")
        if file.exists() and not overwrite:
            raise OutputError(f"{file} exists already: choose another output, or replace it with --overwrite")
    earlier = split_files(output, 1)["test"]
    if not holdout and earlier.exists():
        raise OutputError(f"{earlier} holds images of an earlier run, which would be in {output.name} too: delete it")


def features(kind: str) -> Any:
    """`datasets.Features` of the rows: the columns that TRL's trainers take, and the scores."""
    from datasets import Features, Image, List, Value

    messages = List({"role": Value("string"), "content": Value("string")})
    shared = {"images": List(Image()), "prompt": messages}
    if kind == "pairs":
        scores = {name: Value("float64") for name in ("chosen_score", "rejected_score")}
        return Features({**shared, "chosen": messages, "rejected": messages, **scores})
    label = {"label": Value("bool")} if kind == "labels" else {}
    return Features({**shared, "completion": messages, "score": Value("float64"), **label})


def with_plain_images(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the pictures that were scored, see `plain_image`; the rows of an image share it."""
    plain: dict[int, Any] = {}
    made = []
    for row in rows:
        (image,) = row["images"]
        if id(image) not in plain:
            plain[id(image)] = plain_image(image)
        made.append({**row, "images": [plain[id(image)]]})
    return made


def write_preferences(preferences: Preferences, output: Path, *, holdout: float) -> None:
    """Writes the rows, each file complete or not at all.

    Parquet holds the images themselves, so that `datasets.load_dataset` reads it anywhere. JSON Lines hold paths,
    relative to the output's folder.

    Args:
        preferences: what was chosen.
        output: `.parquet` or `.jsonl` file, free by `check_free`.
        holdout: as in `Preferences.choose`.

    Raises:
        OutputError: a file cannot be written, or encoded images, or images that trainers read otherwise than the
            metric, are to go into JSON Lines.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error
    is_parquet = output.suffix.lower() == ".parquet"
    if not is_parquet and any(isinstance(row["images"][0], dict) for rows in preferences.rows.values() for row in rows):
        raise OutputError(f"the data hold the images themselves, which {output.name} cannot: write a .parquet file")
    made = {split: with_plain_images(rows) for split, rows in preferences.rows.items()}
    for split, rows in made.items():
        for row, given in zip(rows, preferences.rows[split], strict=True):
            if not is_parquet and row["images"] != given["images"]:
                raise OutputError(
                    f"trainers would show a policy another picture than was scored (16-bit grey, transparency): "
                    f"{given['images'][0]}. Write a .parquet file, which holds the pictures themselves"
                )
    files = split_files(output, holdout)
    write = _parquet if is_parquet else _json_lines
    for split, rows in made.items():
        write_atomically(files[split], partial(write, rows, preferences.rules.kind, output.parent))


def _json_lines(rows: list[dict[str, Any]], kind: str, folder: Path, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            images = [Path(os.path.relpath(image, folder)).as_posix() for image in row["images"]]
            file.write(json.dumps({**row, "images": images}, ensure_ascii=False, allow_nan=False) + "\n")


def _parquet(rows: list[dict[str, Any]], kind: str, folder: Path, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def with_bytes(image: Any) -> dict[str, Any]:
        return image if isinstance(image, dict) else {"bytes": Path(image).read_bytes(), "path": Path(image).name}

    schema = features(kind).arrow_schema
    remaining: Iterator[dict[str, Any]] = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while some := list(islice(remaining, _ROWS)):
            whole = [{**row, "images": [with_bytes(image) for image in row["images"]]} for row in some]
            writer.write_table(pa.Table.from_pylist(whole, schema=schema))
