"""Judgments of one's own, in the common JSONL forms: rated captions, pairs, and quadruples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.files import MissingFileError
from reward.metaeval.benchmarks.forms import BenchmarkSpec, CaptionPair, Quadruple, RatedCaption
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_pairs, read_quadruples, read_rated

__all__ = ["SPECS", "load_pairs", "load_quadruples", "load_ratings"]

_ORIGIN = "yourself; capreward judge and capreward score add columns to such a file, which --score-column names"

SPECS = (
    BenchmarkSpec(
        name="ratings",
        title="Your ratings",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.yours:load_ratings",
        statistic="tau-c",
        files="a .jsonl file with image, candidate, references, ratings (numbers, one a rater, or {aspect: numbers}) "
        "and perhaps category a line; further numbers are score columns",
        origin=_ORIGIN,
        licence="yours",
    ),
    BenchmarkSpec(
        name="pairs",
        title="Your pairs",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.yours:load_pairs",
        statistic="accuracy",
        files="a .jsonl file with image, captions (two), label (0, 1, or null for a tie), references and perhaps "
        "category a line; further lists of two numbers are score columns",
        origin=_ORIGIN,
        licence="yours",
    ),
    BenchmarkSpec(
        name="quadruples",
        title="Your quadruples",
        form=Quadruple,
        loader="reward.metaeval.benchmarks.yours:load_quadruples",
        statistic="group",
        files="a .jsonl file with images (two), captions (two, caption k of image k) and perhaps category a line; "
        "further lists of four numbers are score columns",
        origin=_ORIGIN,
        licence="yours",
    ),
)


def load_ratings(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads rated captions, see `read_rated`.

    Raises:
        DataError: no .jsonl file, or a line that is not as it should be.
    """
    return read_rated(_checked(path), images)


def load_pairs(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Reads pairs, see `read_pairs`; errors as in `load_ratings`. Equal scores count half."""
    return read_pairs(_checked(path), images)


def load_quadruples(path: Path, part: str, images: Path | None) -> Iterator[Quadruple]:
    """Reads quadruples, see `read_quadruples`; errors as in `load_ratings`."""
    return read_quadruples(_checked(path), images)


def _checked(path: Path) -> Path:
    if not is_jsonl(path):
        raise MissingFileError(f"{path} is no .jsonl file")
    return path
