"""Preference data from file to file: reads scored candidates, and writes what DPO trainers read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
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
from reward.scoring.columns import ColumnPlan, find_columns, image_identity
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow
from reward.scoring.summary import summary_beside
from reward.scoring.writers import check_output_name, json_line, write_atomically

_ROWS = 256  # rows of a table; they may hold whole images


def read_candidates(
    data: Any,
    *,
    prompt: str | None = None,
    system: str | None = None,
    prompt_column: str | None = None,
    candidate_column: str | None = None,
    score_column: str | None = None,
    image_column: str | None = None,
    group_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> list[ImageCandidates]:
    """The candidates of each image with their scores, in the order of the data.

    Args:
        data: what `reward.scoring.score_dataset` takes. A row has lists, as `capreward rerank` writes them
            (`candidates`, `rewards`), or one caption, as `capreward score` does (`candidate`, `reward`). Captions of
            one image, and of one prompt, compete. Encoded images are held in memory, each once.
        prompt, system: what the captions answer, and the system message. None: "Describe the image in detail."
        prompt_column: holds the prompt of each row, as text or as whole messages.
        candidate_column, score_column, image_column, group_column: None takes those that were scored, as the summary
            beside the data says, else finds them; see `rerank_dataset`.
        image_root: where relative image paths start; None is where they started when they were scored, else as for
            `score_dataset`.
        split: of a data set with several.

    Raises:
        DataError: the data cannot be read, or lack a column.
        InvalidSampleError: a prompt is neither text nor messages.
    """
    if prompt_column is not None and prompt is not None:
        raise InvalidSampleError("give either a prompt or a prompt column")
    source, summary = open_source(data, split=split), summary_beside(data)
    if prompt_column is not None and prompt_column not in source.columns:
        raise DataError(f"--prompt-column names {prompt_column!r}, which is no column: {join_names(source.columns)}.")
    known = {role: name for role, name in (summary.get("columns") or {}).items() if name in source.columns}
    image = find_column(
        "image", source.columns, image_column or known.get("image"), option="--image-column", needed_by="pairs"
    )
    plan = find_columns(
        source.columns,
        metric_spec("length"),  # which needs no further column
        candidate=candidate_column or known.get("candidate"),
        image=image,
        group=group_column or known.get("group"),
        ranked=source,
    )
    score = score_column or ("rewards" if plan.many else "reward")
    if score not in source.columns:
        raise DataError(
            f"{source.name} has no column {score!r} of scores: name it with --score-column (score_column=), or have "
            f"the captions scored by `capreward rerank`. The columns are: {join_names(source.columns)}."
        )
    assert image is not None
    root = find_root(source, image, image_root, scored_from=summary.get("image_root"))
    groups: dict[str, ImageCandidates] = {}
    asked: Any = PROMPT if prompt is None else prompt
    for number, row in enumerate(source.rows([*plan.names, score, *([prompt_column] if prompt_column else [])])):
        if isinstance(row, BadRow):
            key = f"row {number}"
            groups[key] = ImageCandidates(None, [], problem="a row that cannot be read")
            continue
        if prompt_column:
            asked = parse_list(row.get(prompt_column)) if source.is_csv else row.get(prompt_column)
        messages = _messages(asked, system)
        name = _image_name(row.get(image), root)
        own = [image_identity(row.get(plan.group))] if plan.group not in (None, image) else []
        key = json.dumps([name, *own, messages], ensure_ascii=False, default=str)
        if key not in groups:
            found, problem = _found(row.get(image), root)
            groups[key] = ImageCandidates(found, messages, problem=problem)
        captions, scores = _scored(row, plan, score, number)
        groups[key].captions += captions
        groups[key].scores += scores
    return list(groups.values())


def _messages(asked: Any, system: str | None) -> list[dict[str, Any]]:
    prompt = [{**message, "content": join_texts(message["content"])} for message in as_prompt(asked, system)]
    (shown,) = trl_prompts([prompt], [1])
    for message in shown:
        if not isinstance(message["content"], str):
            raise InvalidSampleError(
                f"the content of a message must be text, and its image comes first, got {asked!r:.200}: write "
                "'<image>' at the beginning of the user's first turn, or nowhere"
            )
    return [{"role": message["role"], "content": message["content"]} for message in shown]


def _scored(row: Mapping[str, Any], plan: ColumnPlan, score: str, number: int) -> tuple[list[Any], list[float | None]]:
    """The captions of a row and their scores."""
    cells = [row.get(plan.caption), row.get(score)]
    if not plan.many:
        return [cells[0]], [_number(cells[1], number, score)]
    try:
        captions, scores = (
            [] if missing_to_none(cell) is None else to_list(parse_list(cell), f"column {name!r}")
            for name, cell in zip((plan.caption, score), cells, strict=True)
        )
    except InvalidSampleError as error:
        raise DataError(f"row {number + 1}: {error}") from None
    if scores and len(captions) != len(scores):
        raise DataError(f"row {number + 1} has {len(captions)} captions and {len(scores)} scores")
    return captions, [_number(value, number, score) for value in scores or [None] * len(captions)]


def _number(value: Any, row: int, column: str) -> float | None:
    try:
        return read_number(value)
    except InvalidSampleError as error:
        raise DataError(f"row {row + 1}: column {column!r} must hold numbers: {error}") from None


def _image_name(cell: Any, root: Path) -> str:
    cell = cell[0] if isinstance(cell, (list, tuple)) and len(cell) == 1 else cell
    return image_identity(cell, root)


def _found(cell: Any, root: Path) -> tuple[Any, str | None]:
    """An image as an absolute path or `{"bytes": ..., "path": ...}`, or what is wrong with it."""
    try:
        cell = one_image(cell)
    except InvalidSampleError:
        return None, "several images in a row"
    held = cell if isinstance(cell, dict) else {"bytes": cell if isinstance(cell, bytes) else None, "path": cell}
    if held.get("bytes") is not None:
        image: Any = {"bytes": held["bytes"], "path": held["path"] if isinstance(held.get("path"), str) else None}
    elif isinstance(held.get("path"), str):
        image = os.path.abspath(image_file(root / held["path"]))
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
    check_output_name(output, ".parquet", ".jsonl")
    if output.exists() and os.path.exists(data) and output.samefile(data):
        raise OutputError(f"output {output} is the input; choose another name")
    if output.exists() and not overwrite:
        raise OutputError(f"{output} exists already: choose another output, or replace it with --overwrite")


def features() -> Any:
    """`datasets.Features` of the rows: the columns that TRL's `DPOTrainer` takes, and the scores."""
    from datasets import Features, Image, List, Value

    messages = List({"role": Value("string"), "content": Value("string")})
    texts = {"prompt": messages, "chosen": messages, "rejected": messages}
    return Features(
        {"images": List(Image()), **texts, **dict.fromkeys(("chosen_score", "rejected_score"), Value("float64"))}
    )


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


def write_preferences(preferences: Preferences, output: Path) -> None:
    """Writes the rows, the file complete or not at all.

    Parquet holds the images themselves, so that `datasets.load_dataset` reads it anywhere. JSON Lines hold paths,
    relative to the output's folder.

    Args:
        preferences: what was chosen.
        output: `.parquet` or `.jsonl` file, free by `check_free`.

    Raises:
        OutputError: the file cannot be written, or encoded images, or images that trainers read otherwise than the
            metric, are to go into JSON Lines.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error
    made = with_plain_images(preferences.rows)
    if output.suffix.lower() == ".parquet":
        write_atomically(output, partial(_parquet, made))
        return
    for row, given in zip(made, preferences.rows, strict=True):
        (image,) = given["images"]
        if isinstance(image, dict):
            raise OutputError(f"the data hold the images themselves, which {output.name} cannot: write a .parquet file")
        if row["images"] != [image]:
            raise OutputError(
                "trainers would show a policy another picture than was scored (16-bit grey, transparency): "
                f"{image}. Write a .parquet file, which holds the pictures themselves"
            )
    write_atomically(output, partial(_json_lines, made, folder=output.parent))


def _json_lines(rows: list[dict[str, Any]], path: Path, *, folder: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            images = [Path(os.path.relpath(image, folder)).as_posix() for image in row["images"]]
            file.write(json_line({**row, "images": images}))


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    def with_bytes(image: Any) -> dict[str, Any]:
        return image if isinstance(image, dict) else {"bytes": Path(image).read_bytes(), "path": Path(image).name}

    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, remaining = features().arrow_schema, iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while some := list(islice(remaining, _ROWS)):
            whole = [{**row, "images": [with_bytes(image) for image in row["images"]]} for row in some]
            writer.write_table(pa.Table.from_pylist(whole, schema=schema))
