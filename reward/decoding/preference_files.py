"""Preference data from file to file: reads scored candidates, and writes what DPO trainers read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reward.data.cells import missing_to_none, parse_list, read_number, to_list
from reward.data.chats import PROMPT, as_prompt, join_texts, trl_prompts
from reward.data.image_files import image_file
from reward.data.images import load_image, plain_image
from reward.data.samples import find_column, join_names, one_image
from reward.decoding.preferences import ImageCandidates, Preferences
from reward.errors import DataError, ImageError, InvalidSampleError, OutputError
from reward.registry import metric_spec
from reward.scoring.columns import ColumnPlan, find_columns
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow, image_identity
from reward.scoring.sources import image_root as find_root
from reward.scoring.summary import summary_beside
from reward.scoring.writers import check_output_name, write_atomically

_ROWS = 256  # rows of a table; they may hold whole images


def read_candidates(
    data: Any,
    *,
    prompt: Any = None,
    prompt_column: str | None = None,
    candidate_column: str | None = None,
    score_column: str | None = None,
    image_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> list[ImageCandidates]:
    """The candidates of each image with their scores, in the order of the data.

    Args:
        data: what `reward.scoring.score_dataset` takes. A row has lists, as `capreward rerank` writes them
            (`candidates`, `rewards`), or one caption, as `capreward score` does (`candidate`, `reward`). Captions of
            one image, and of one prompt, compete. Encoded images are held in memory, each once.
        prompt: what the captions answer, as text or as whole messages. None: "Describe the image in detail."
        prompt_column: holds the prompt of each row, as text or as whole messages.
        candidate_column, score_column, image_column: None takes those that were scored, as the summary beside the data
            says, else finds them; see `rerank_dataset`.
        image_root: where relative image paths start; None is where they started when they were scored, else as for
            `score_dataset`.
        split: of a data set with several.

    Raises:
        DataError: the data cannot be read, or lack a column.
        InvalidSampleError: a prompt is neither text nor messages.
    """
    if prompt_column is not None and prompt is not None:
        raise InvalidSampleError("give either a prompt or a prompt column")
    reader = open_source(data, split=split)
    summary = summary_beside(data)
    if prompt_column is not None and prompt_column not in reader.columns:
        raise DataError(f"--prompt-column names {prompt_column!r}, which is no column: {join_names(reader.columns)}.")
    scored_columns = {role: name for role, name in (summary.get("columns") or {}).items() if name in reader.columns}
    image = find_column(
        "image", reader.columns, image_column or scored_columns.get("image"), option="--image-column", needed_by="pairs"
    )
    plan = find_columns(
        reader.columns,
        metric_spec("length"),  # which needs no further column
        candidate=candidate_column or scored_columns.get("candidate"),
        image=image,
        group=scored_columns.get("group"),
        ranked=reader,
    )
    score = score_column
    if score is None:
        score = "rewards" if plan.many else "reward"
    if score not in reader.columns:
        raise DataError(
            f"{reader.name} has no column {score!r} of scores: name it with --score-column (score_column=), or have "
            f"the captions scored by `capreward rerank`. The columns are: {join_names(reader.columns)}."
        )
    assert image is not None
    root = find_root(reader, image, image_root, scored_from=summary.get("image_root"))
    columns = [*plan.names, score]
    if prompt_column is not None:
        columns.append(prompt_column)
    groups: dict[str, ImageCandidates] = {}
    for number, row in enumerate(reader.rows(columns)):
        if isinstance(row, BadRow):
            key = f"row {number}"
            groups[key] = ImageCandidates(None, [], problem="a row that cannot be read")
            continue
        question: Any = PROMPT if prompt is None else prompt
        if prompt_column is not None:
            question = row.get(prompt_column)
            if reader.is_csv:
                question = parse_list(question)
        messages = _messages(question)
        facts: list[Any] = [_image_name(row.get(image), root), messages]
        if plan.group not in (None, image):
            facts.append(image_identity(row.get(plan.group)))
        key = json.dumps(facts, ensure_ascii=False, default=str)
        if key not in groups:
            picture, problem = _picture(row.get(image), root)
            groups[key] = ImageCandidates(picture, messages, problem=problem)
        captions, scores = _scored(row, plan, score, number)
        groups[key].captions += captions
        groups[key].scores += scores
    return list(groups.values())


def _messages(question: Any) -> list[dict[str, Any]]:
    """A prompt as the messages that trainers take, with texts as their contents."""
    prompt = [{**message, "content": join_texts(message["content"])} for message in as_prompt(question)]
    [messages] = trl_prompts([prompt], [1])
    for message in messages:
        if not isinstance(message["content"], str):
            raise InvalidSampleError(
                f"the content of a message must be text, and its image comes first, got {question!r:.200}: write "
                "'<image>' at the beginning of the user's first turn, or nowhere"
            )
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _scored(row: Mapping[str, Any], plan: ColumnPlan, score: str, number: int) -> tuple[list[Any], list[float | None]]:
    """The captions of a row and their scores."""
    if not plan.many:
        return [row.get(plan.caption)], [_number(row.get(score), number, score)]
    try:
        captions = _list_in(row, plan.caption)
        scores = _list_in(row, score)
    except InvalidSampleError as error:
        raise DataError(f"row {number + 1}: {error}") from None
    if scores and len(captions) != len(scores):
        raise DataError(f"row {number + 1} has {len(captions)} captions and {len(scores)} scores")
    return captions, [_number(value, number, score) for value in scores or [None] * len(captions)]


def _list_in(row: Mapping[str, Any], column: str) -> list[Any]:
    cell = row.get(column)
    if missing_to_none(cell) is None:
        return []
    return to_list(parse_list(cell), f"column {column!r}")


def _number(value: Any, row: int, column: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        return read_number(value)
    except InvalidSampleError as error:
        raise DataError(f"row {row + 1}: column {column!r} must hold numbers: {error}") from None


def _image_name(cell: Any, root: Path) -> str:
    if isinstance(cell, (list, tuple)) and len(cell) == 1:
        cell = cell[0]
    return image_identity(cell, root)


def _picture(cell: Any, root: Path) -> tuple[Any, str | None]:
    """An image as an absolute path or `{"bytes": ..., "path": ...}`, or what is wrong with it."""
    try:
        cell = one_image(cell)
    except InvalidSampleError:
        return None, "several images in a row"
    encoded, path = (cell, None) if isinstance(cell, bytes) else (None, cell)
    if isinstance(cell, dict):
        encoded, path = cell.get("bytes"), cell.get("path")
    if not isinstance(path, str):
        path = None
    if encoded is not None:
        image: Any = {"bytes": encoded, "path": path}
    elif path is not None:
        image = os.path.abspath(image_file(root / path))
        if not os.path.isfile(image):
            return None, "no image file where the path says"
    else:
        return None, "no image"
    try:
        load_image(image)  # read here, and not in the middle of a training
    except ImageError:
        return None, "an image that cannot be read"
    return image, None


def check_free(output: Path, data: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Checks that the output can be written.

    Raises:
        OutputError: a wrong name, the input itself, or a file that is there already.
    """
    check_output_name(output, ".parquet")
    if output.exists() and os.path.exists(data) and output.samefile(data):
        raise OutputError(f"output {output} is the input; choose another name")
    if output.exists() and not overwrite:
        raise OutputError(f"{output} exists already: choose another output, or replace it with --overwrite")


def features() -> Any:
    """`datasets.Features` of the rows: the columns that TRL's `DPOTrainer` takes, and the scores."""
    from datasets import Features, Image, List, Value

    messages = List({"role": Value("string"), "content": Value("string")})
    return Features(
        {
            "images": List(Image()),
            "prompt": messages,
            "chosen": messages,
            "rejected": messages,
            "chosen_score": Value("float64"),
            "rejected_score": Value("float64"),
        }
    )


def with_plain_images(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the pictures that were scored, see `plain_image`; the rows of an image share it."""
    plain_images: dict[int, Any] = {}
    plain_rows = []
    for row in rows:
        [image] = row["images"]
        if id(image) not in plain_images:
            plain_images[id(image)] = plain_image(image)
        plain_rows.append({**row, "images": [plain_images[id(image)]]})
    return plain_rows


def write_preferences(preferences: Preferences, output: Path) -> None:
    """Writes the rows with their images, so that `datasets.load_dataset` reads them anywhere: all of them or no file.

    Args:
        preferences: what was chosen.
        output: `.parquet` file, free by `check_free`.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error
    write_atomically(output, partial(_write_parquet, with_plain_images(preferences.rows)))


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = features().arrow_schema
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, len(rows), _ROWS):
            table_rows = []
            for row in rows[first : first + _ROWS]:
                [image] = row["images"]
                if not isinstance(image, dict):
                    image = {"bytes": Path(image).read_bytes(), "path": Path(image).name}
                table_rows.append({**row, "images": [image]})
            writer.write_table(pa.Table.from_pylist(table_rows, schema=schema))
