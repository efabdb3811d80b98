"""The record of a run, `training.json` in its folder: settings at first, figures at the end, checked when resuming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.scoring.runs import write_json
from reward.scoring.writers import refuse_address

RECORD_FILE = "training.json"
STAGES, STATES = "stages", "checkpoints"  # folders in that of the run


def check_run_folder(output: Path, record: Mapping[str, Any], *, resume: bool) -> None:
    """Checks that the folder is empty, or with `resume`, that it holds a run with the same settings."""
    refuse_address(output)
    path = output / RECORD_FILE
    if resume:
        if not path.is_file():
            raise OutputError(f"there is no run to resume in {output}")
        previous = json.loads(path.read_text(encoding="utf-8"))
        changes = []
        for name in dict.fromkeys([*record, "init"]):  # a record without it is of a run from new weights
            changes += differences(name, previous.get(name), record.get(name))
        if changes:
            raise OutputError(f"cannot resume in {output} with other settings: {', '.join(changes)}")
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        hint = "resume the run in it, or give another folder" if path.is_file() else "give another folder"
        raise OutputError(f"the output folder {output} is not empty: {hint}")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write to the output folder {output}: {error.strerror}") from error


def read_record(output: Path) -> dict[str, Any] | None:
    """The record of the run in a folder, or None."""
    path = output / RECORD_FILE
    record: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return record


def is_complete(output: Path) -> bool:
    """Whether a folder holds a finished run."""
    record = read_record(output)
    return record is not None and "figures" in record and not (output / STATES).exists()


def differences(name: str, was: Any, now: Any) -> list[str]:
    """In which plain values two settings of that name differ, in words."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        changes = []
        for key in dict.fromkeys([*was, *now]):
            changes += differences(f"{name}.{key}", was.get(key), now.get(key))
        return changes
    return [] if was == now else [f"{name} was {was!r} and is {now!r}"]


def write_record(output: Path, record: Mapping[str, Any]) -> None:
    """Replaces the record of the run in a folder; an interruption never leaves half of one."""
    write_json(output / RECORD_FILE, record)
