"""Offline scoring: writes a small data set of images and captions as files, and scores it as `capreward score` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from reward.metrics.base import Scorer
from reward.scoring import ScoringSummary, score_dataset

__all__ = ["OfflinePart", "score_files", "write_captions_file"]


@dataclass
class OfflinePart:
    """A scored file.

    Args:
        captions, scores: names of input and output in the report's folder.
        command: what does the same from a shell.
        summary: counts, rate and distributions, see `reward.scoring.ScoringSummary`.
        rows: the first rows of the output.
    """

    captions: str
    scores: str
    command: str
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def write_captions_file(
    folder: Path,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]],
    captions: Sequence[Sequence[str]],
) -> Path:
    """Writes `captions.jsonl`, one row a caption, and the images it names, into a folder.

    Args:
        folder: made if absent.
        images, references: of N scenes.
        captions: N lists of captions.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for index, (image, known, group) in enumerate(zip(images, references, captions, strict=True)):
        name = f"images/scene_{index:03d}.png"
        image.save(folder / name)
        lines += [
            json.dumps({"image": name, "candidate": text, "references": list(known)}) for text in group if text.strip()
        ]
    path = folder / "captions.jsonl"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def score_files(captions: Path, scorer: Scorer, *, shown: int = 6) -> OfflinePart:
    """Scores the file into `scores.parquet` beside it."""
    import pyarrow.parquet

    output = captions.with_name("scores.parquet")
    summary: ScoringSummary = score_dataset(captions, scorer, output, overwrite=True)
    rows = pyarrow.parquet.read_table(output).slice(0, shown).to_pylist()
    command = f"capreward score {captions.name} --metric {scorer.spec.name} --output {output.name}"
    return OfflinePart(captions.name, output.name, command, summary.to_json(), rows)
