"""LongCap-Arena: long captions rated by people for descriptiveness, relevance and fluency."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.files import MissingFileError
from reward.metaeval.benchmarks.forms import BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.jsonl import read_rated
from reward.metaeval.benchmarks.rated_tables import is_common, merge_rows
from reward.metaeval.benchmarks.tables import find_splits

__all__ = ["ASPECTS", "SPECS", "load_longcap_arena"]

ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_SPLITS = {"TestA": "dci_val", "TestB": "dci_test"}

SPECS = (
    BenchmarkSpec(
        name="longcap-arena",
        title="LongCap-Arena",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.longcap_arena:load_longcap_arena",
        statistic="tau-c",
        files="a folder that save_to_disk wrote, or one with Parquet or JSONL files of the splits <part>.<aspect> "
        "(parts dci_val = TestA, dci_test = TestB, val, test, train; aspects desc, rel, flu), with the columns "
        "file_name, image, refs, cand and score; or a .jsonl file with image, candidate, references and "
        "ratings {aspect: list} a line",
        origin="the authors of VELA (Matsuda, Wada, Hirano, Otsuki, Sugiura 2025), on the Hub",
        licence="BSD 3-Clause Clear, say its paper and its card; its images are of SA-1B, which has its own terms",
        hub="Ka2ukiMatsuda/LongCap-Arena",
        hub_files=("README.md", "{split}.*", "*/{split}.*"),
        parts=("TestA", "TestB", "val", "test", "train"),
        splits=_SPLITS,
    ),
)


def load_longcap_arena(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads one part: the rows of its three splits, one an aspect, merged by image and candidate.

    A file of the common JSONL form is the part, whatever its name.

    Source: the VELA paper; its split dci_val is called TestA there, and dci_test TestB.

    Raises:
        DataError: no split of the part is there, or its rows are not as they should be.
    """
    if is_common(path):
        return read_rated(path, images)
    splits = find_splits(path)
    name = _SPLITS.get(part, part)
    found = {aspect: splits[f"{name}.{short}"] for short, aspect in ASPECTS.items() if f"{name}.{short}" in splits}
    if not found:
        wanted = ", ".join(f"{name}.{short}" for short in ASPECTS)
        there = ", ".join(sorted(splits)[:15]) or "no splits"
        raise MissingFileError(f"{path} holds none of the splits {wanted}, but {there}")
    return merge_rows(found, images)
