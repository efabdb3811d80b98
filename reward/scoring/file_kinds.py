"""Opens a data file by the ending of its name: each kind of file is a row of `KINDS`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from reward.scoring.sources import Source

# What opens a path, in a module of this folder that is imported when a file of its kind is read.
KINDS = {
    ".jsonl": "forms.open_json_lines",
    ".ndjson": "forms.open_json_lines",
    ".jsonlines": "forms.open_json_lines",
    ".json": "forms.open_json",
    ".csv": "csv_source.read_csv",
    ".tsv": "csv_source.read_csv",
    ".token": "forms.open_token",
    ".token.txt": "forms.open_token",
    ".txt": "forms.open_text",
    ".parquet": "arrow_sources.open_parquet",
    ".arrow": "transformed_source.open_arrow",
    ".tar": "tar_source.TarSource",
    ".tgz": "tar_source.TarSource",
}
_BINARY = (".parquet", ".arrow", ".tgz")


def kind_of(path: Path) -> str | None:
    """The ending in `KINDS`, perhaps before `.gz`, of a name; None if there is none."""
    name = path.name.lower()
    is_packed = name.endswith(".gz")
    for ending in KINDS:
        if name.removesuffix(".gz").endswith(ending) and not (is_packed and ending in _BINARY):
            return ending
    return None


def open_kind(path: Path, kind: str) -> Source:
    """Opens a file of a kind in `KINDS`."""
    module, _, function = KINDS[kind].partition(".")
    source: Source = getattr(import_module(f"reward.scoring.{module}"), function)(path)
    return source
