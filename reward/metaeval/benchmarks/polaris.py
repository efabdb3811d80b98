"""Polaris and Nebula: captions of ten and more captioners, each rated by people as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.forms import BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.jsonl import read_rated
from reward.metaeval.benchmarks.rated_tables import is_common, rated_split

__all__ = ["SPECS", "load_nebula", "load_polaris"]

_COMMON = "or a .jsonl file with image, candidate, references and ratings a line"

SPECS = (
    BenchmarkSpec(
        name="polaris",
        title="Polaris",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.polaris:load_polaris",
        statistic="tau-c",
        files="polaris_test.csv with the columns imgid, mt, refs and score, beside the folder images; or the Parquet "
        f"files of the Hub, with refs, cand, img and human_score; {_COMMON}",
        origin="the authors of Polos (Wada, Kaneda, Saito, Sugiura 2024), on the Hub and as polaris.zip (see "
        "keio-smilab24/Polos)",
        licence="BSD 3-Clause Clear, says the script of its authors; the card on the Hub says bsd",
        hub="yuwd/Polaris",
        hub_files=("README.md", "data/{split}-*"),
        parts=("test", "validation", "train"),
    ),
    BenchmarkSpec(
        name="nebula",
        title="Nebula",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.polaris:load_nebula",
        statistic="tau-c",
        files="the Parquet files of the Hub, with the columns file_name, image, refs, mt and human_score; or "
        f"nebula_test.csv with imgid, mt, refs and score, beside the folder images; {_COMMON}",
        origin="the authors of DENEB (Matsuda, Wada, Sugiura 2024), on the Hub",
        hub="Ka2ukiMatsuda/Nebula",
        hub_files=("README.md", "data/{split}-*"),
        parts=("test", "valid", "train"),
    ),
)


def load_polaris(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads a part of Polaris; each row is a judgment, and rows of the same image and candidate are merged."""
    return _load(path, images, (part, f"polaris_{'val' if part == 'validation' else part}"))


def load_nebula(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads a part of Nebula, with the scores as they were published; later corrections by others are not applied."""
    return _load(path, images, (part, f"nebula_{part}", f"nebula_{'val' if part == 'valid' else part}"))


def _load(path: Path, images: Path | None, names: tuple[str, ...]) -> Iterator[RatedCaption]:
    if is_common(path):
        return read_rated(path, images)
    return rated_split(path, images, names)
