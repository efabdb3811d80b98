"""How a scored file was made, as its summary says: metrics, columns, and the folder of the images."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Origin", "read_origin"]


@dataclass(frozen=True)
class Origin:
    """What the summary beside a scored file says; everything is empty without one.

    Args:
        sources: {metric: its source}; None where that is not known.
        columns: {role: column} of candidate, image, references and group, those that were read.
        image_root: where relative paths of images start; None where that is the folder of the scored file.
        run: the settings that it was made with.
    """

    sources: dict[str, str | None] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    image_root: Path | None = None
    run: dict[str, Any] = field(default_factory=dict)


def read_origin(data: str | os.PathLike[str]) -> Origin:
    """Reads the summary of a file that `capreward score`, `rerank` or `caption` wrote, or a manifest.

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
        summary.get("sources") or _sources(run, "source"),
        {"image": "image"} if is_caption else _named(summary.get("columns") or {}),
        None if root is None else path.parent / root,
        run,
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
    return Origin(_sources(run, "checkpoint"), columns, None if root is None else Path(root), run)


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
