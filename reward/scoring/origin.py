"""How a scored file was made, as its summary says: metric, source, columns, and the folder of the images."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reward.scoring.runs import write_json
from reward.scoring.writers import output_facts

__all__ = ["Origin", "read_origin", "write_origin"]


@dataclass(frozen=True)
class Origin:
    """What the summary beside a scored file says; everything is empty without one.

    Args:
        path: the summary.
        sources: {metric: its source}; None where that is not known.
        prefix: of the columns that were added.
        columns: {role: column} of candidate, image, references and group, those that were read.
        image_root: where relative paths of images start; None where that is the folder of the scored file.
        run: the settings that it was made with.
        captioning: the run and its summary, of a file that `capreward caption` wrote.
        out_of_domain: captions that are unlike what the checkpoint was trained on, of how many; None where that is
            not known.
    """

    path: Path | None = None
    sources: dict[str, str | None] = field(default_factory=dict)
    prefix: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    image_root: Path | None = None
    run: dict[str, Any] = field(default_factory=dict)
    captioning: dict[str, Any] = field(default_factory=dict)
    out_of_domain: tuple[int | None, int | None] = (None, None)


def read_origin(data: str | os.PathLike[str]) -> Origin:
    """Reads the summary of a file that `capreward score`, `rerank`, `caption` or `filter` wrote, or a manifest.

    A summary that is damaged, or belongs to another content of the file, counts as none.

    Args:
        data: the scored file or folder.

    Example:
        >>> import tempfile
        >>> from reward.scoring.dataset import score_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows, scored = Path(folder) / "rows.jsonl", Path(folder) / "scores.jsonl"
        ...     _ = rows.write_text('{"text": "a red star"}\\n')
        ...     _ = score_dataset(rows, "length", scored, candidate_column="text")
        ...     origin = read_origin(scored)
        >>> origin.sources, origin.columns
        ({'length': 'embedded'}, {'candidate': 'text'})
    """
    data = Path(data)
    if data.is_dir():
        return _of_folder(data / "_manifest.json")
    candidates = data.name.endswith(".candidates.jsonl")  # of `caption --keep-candidates`, which has one summary
    output = data.with_name(data.name.removesuffix(".candidates.jsonl")) if candidates else data
    path = output.with_name(output.name + ".summary.json")
    record = _json(path)
    run, summary, written = (record.get(name) for name in ("run", "summary", "output"))
    if not (isinstance(run, dict) and isinstance(summary, dict) and isinstance(written, dict) and output.is_file()):
        return Origin()
    if written.get("bytes") != output.stat().st_size:
        return Origin()
    is_caption, root = run.get("task") == "caption", summary.get("image_root")
    return Origin(
        path,
        summary.get("sources") or _sources(run, "source"),
        run.get("prefix") or "",
        {"image": "image"} if is_caption else _named(summary.get("columns") or {}),
        None if root is None else path.parent / root,
        run,
        {**run, **summary} if is_caption else {},
        (summary.get("out_of_domain"), summary.get("captions")),
    )


def _of_folder(path: Path) -> Origin:
    """Of the manifest of a run on Ray; without a folder of its own, images start at that of their data."""
    manifest = _json(path)
    run = manifest.get("run")
    if not isinstance(run, dict):
        return Origin()
    folders = {os.path.dirname(file["path"]) for file in manifest.get("files", ())}
    root = run.get("image_root") or (folders.pop() if len(folders) == 1 else None)
    columns = _named({role: run.get(f"{role}_column") for role in ("candidate", "image", "references")})
    sources = _sources(run, "checkpoint")
    return Origin(path, sources, run.get("prefix") or "", columns, None if root is None else Path(root), run)


def write_origin(output: Path, origin: Origin, folder: Path) -> None:
    """Leaves beside rows of a scored file what its summary says of all of them; nothing if there is no summary.

    Args:
        output: the rows.
        origin: of the scored file.
        folder: of the scored file; relative paths of images start there, if its summary names no other.
    """
    if origin.path is None:
        return
    root = os.path.relpath(origin.image_root or folder, output.parent)
    summary = {"columns": origin.columns, "sources": origin.sources, "image_root": root}
    record = {"run": {**origin.run, "task": "filter"}, "summary": summary, "output": output_facts(output)}
    write_json(output.with_name(output.name + ".summary.json"), record)


def _sources(run: dict[str, Any], name: str) -> dict[str, str | None]:
    """{metric: fingerprint of its checkpoint}; a run of several metrics has them in that form."""
    source = run.get(name)
    return source if isinstance(source, dict) else {str(run.get("metric")): source}


def _named(columns: dict[str, Any]) -> dict[str, str]:
    return {role: column for role, column in columns.items() if isinstance(column, str)}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, damaged, or another tool's file
        return {}
    return found if isinstance(found, dict) else {}
