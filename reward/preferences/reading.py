"""Reads scored candidates from data files and data sets, and scores those that have no scores yet."""

from __future__ import annotations

import json
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward.errors import ConfigError, DataError, ImageError, InvalidSampleError, OutputError
from reward.image_files import image_file
from reward.images import image_key, load_image
from reward.metrics.base import Scorer
from reward.preferences.selection import ImageCandidates
from reward.registry import MetricSource
from reward.rewards.chats import PROMPT, as_prompt, trl_prompts
from reward.samples import find_column, named, one_image
from reward.scoring import rerank_dataset
from reward.scoring.columns import ColumnPlan, find_columns, image_identity
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import BadRow, Source, open_source
from reward.scoring.several import Metrics
from reward.scoring.summary import summary_beside
from reward.values import listed, or_none, values_of

__all__ = ["read_candidates"]

Ask = Callable[[Mapping[str, Any]], list[dict[str, Any]]]


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
    prefix: str = "",
    metric: str | Scorer | Sequence[str | MetricSource] | None = None,
    scores_file: Path | None = None,
    overwrite: bool = False,
    **scoring: Any,
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
        prefix: put before the name of the score column, if that is not given.
        metric: scores the captions, if they have no scores; or several with weights, as for `rerank_dataset`.
        scores_file: where those scores are kept, so that a run that was stopped goes on; None keeps them nowhere.
        overwrite: replace a `scores_file` of other data or another metric; those of the same are kept in any case.
        scoring: further arguments of `rerank_dataset`, such as `source` and `device`; with a metric only.

    Raises:
        DataError: the data cannot be read, or lack a column.
        InvalidSampleError: a prompt is neither text nor messages.
        ConfigError: an argument of scoring without a metric.
    """
    if metric is None and scoring:
        raise ConfigError(f"{', '.join(scoring)}: no such argument, or one that needs metric=")
    fields = [prompt_column, candidate_column, score_column, image_column, group_column]
    source, summary = open_source(data, split=split, fields=fields), summary_beside(data)
    known = {role: name for role, name in (summary.get("columns") or {}).items() if name in source.columns}
    candidate_column, image_column = candidate_column or known.get("candidate"), image_column or known.get("image")
    group_column = group_column or known.get("group")
    ask = _ask(source, prompt, system, prompt_column)
    image = find_column("image", source.columns, image_column, option="--image-column", needed_by="preference data")
    # without a metric, any that needs no further column
    specs = Metrics.of(metric or "length", scoring.get("source", "embedded")).specs
    plan = find_columns(
        source.columns, specs, candidate=candidate_column, image=image, group=group_column, ranked=source
    )
    root = find_root(source, image, image_root, scored_from=summary.get("image_root"))
    reward = "rewards" if plan.many else "reward"
    if metric is None:
        name = score_column or prefix + reward
        if name not in source.columns:
            raise DataError(
                f"{source.name} has no column {name!r} of scores: name it with --score-column (score_column=), or have "
                f"the captions scored with --metric (metric=). The columns are: {named(source.columns)}."
            )
        needed = [*plan.names, name, *([prompt_column] if prompt_column else [])]
        same = ((row, row) for row in source.rows(needed))
        return _grouped(same, plan, name, ask, root)
    if score_column is not None:
        raise DataError("give a score column or a metric, not both")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scores.jsonl" if scores_file is None else scores_file
        columns = {"candidates_column": candidate_column, "image_column": image_column, "group_column": group_column}
        options: dict[str, Any] = {**columns, "image_root": image_root, "split": split, "prefix": prefix, **scoring}
        try:
            rerank_dataset(data, metric, file, **options)
        except OutputError:
            if not overwrite:
                raise
            rerank_dataset(data, metric, file, **options, overwrite=True)
        scored = open_source(file)
        # the scored file has the same rows in the same order, but not the encoded images
        rows = zip(source.rows(source.columns), scored.rows([plan.caption, prefix + reward]), strict=True)
        return _grouped(rows, plan, prefix + reward, ask, root)


def _ask(source: Source, prompt: str | None, system: str | None, column: str | None) -> Ask:
    """Makes a row's prompt, as messages."""
    if column is not None and prompt is not None:
        raise InvalidSampleError("give either a prompt or a prompt column")
    if column is not None and column not in source.columns:
        raise DataError(f"--prompt-column names {column!r}, which is no column: {named(source.columns)}.")

    def messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        asked = row.get(column) if column else PROMPT if prompt is None else prompt
        asked = listed(asked) if column and source.is_csv else asked
        (shown,) = trl_prompts([as_prompt(asked, system)], [1])
        for message in shown:
            if not isinstance(message["content"], str):
                raise InvalidSampleError(
                    f"the content of a message must be text, and its image comes first, got {asked!r:.200}: write "
                    "'<image>' at the beginning of the user's first turn, or nowhere"
                )
        return [{"role": message["role"], "content": message["content"]} for message in shown]

    return messages


def _grouped(
    rows: Iterator[tuple[Any, Any]], plan: ColumnPlan, score: str, ask: Ask, root: Path
) -> list[ImageCandidates]:
    """Groups of the captions that compete; `rows` are those of the data and of the scores."""
    groups: dict[str, ImageCandidates] = {}
    for number, (row, scored) in enumerate(rows):
        if isinstance(row, BadRow) or isinstance(scored, BadRow):
            key = f"row {number}"
            groups[key] = ImageCandidates(key, None, [], problem="a row that cannot be read")
            continue
        captions, scores = scored.get(plan.caption), scored.get(score)
        if plan.many:
            try:
                captions, scores = (
                    [] if or_none(cell) is None else values_of(listed(cell), f"column {name!r}")
                    for name, cell in ((plan.caption, captions), (score, scores))
                )
            except InvalidSampleError as error:
                raise DataError(f"row {number + 1}: {error}") from None
            if scores and len(captions) != len(scores):
                raise DataError(f"row {number + 1} has {len(captions)} captions and {len(scores)} scores")
            scores = scores or [None] * len(captions)
        else:
            captions, scores = [captions], [scores]
        cell = row.get(plan.image)
        prompt = ask(row)
        name = _image_key(cell)
        own = [image_identity(row.get(plan.group))] if plan.group not in (None, plan.image) else []
        key = json.dumps([name, *own, prompt], ensure_ascii=False, default=str)
        if key not in groups:
            image, problem, content = _found(cell, root)
            groups[key] = ImageCandidates(content or name, image, prompt, problem=problem)
        groups[key].captions += captions
        groups[key].scores += [_number(value, number, score) for value in scores]
    return list(groups.values())


def _image_key(cell: Any) -> str:
    cell = cell[0] if isinstance(cell, (list, tuple)) and len(cell) == 1 else cell
    if isinstance(cell, dict) and cell.get("bytes") is None:
        cell = cell.get("path")
    return image_identity(posixpath.normpath(cell) if isinstance(cell, str) else cell)


def _found(cell: Any, root: Path) -> tuple[Any, str | None, str | None]:
    """An image as an absolute path or `{"bytes": ..., "path": ...}`, or what is wrong with it; a key of its pixels."""
    try:
        cell = one_image(cell)
    except InvalidSampleError:
        return None, "several images in a row", None
    if isinstance(cell, dict):
        cell = cell.get("path") if cell.get("bytes") is None else {"bytes": cell["bytes"], "path": cell.get("path")}
    if cell is None:
        return None, "no image", None
    if isinstance(cell, (dict, bytes)):
        image: Any = cell if isinstance(cell, dict) else {"bytes": cell, "path": None}
    else:
        image = os.path.abspath(image_file(root / cell)) if isinstance(cell, str) else ""
        if not os.path.isfile(image):
            return None, "no image file where the path says", None
    try:
        content = image_key(load_image(image))  # read here, and not in the middle of a training
    except ImageError:
        return None, "an image that cannot be read", None
    return image, None, content


def _number(value: Any, row: int, column: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"row {row + 1}: column {column!r} must hold numbers, got {value!r:.80}") from None
