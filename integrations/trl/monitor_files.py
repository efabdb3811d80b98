"""What a monitor keeps beside the checkpoints of a training: the history of its checks, and the best policy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from reward.errors import CheckpointError
from reward.images import load_image

__all__ = ["MonitorFiles", "fingerprint_rows"]


class MonitorFiles:
    """The files in a trainer's output folder; every change is whole or does not happen.

    Args:
        folder: the trainer's `output_dir`.
    """

    def __init__(self, folder: Path) -> None:
        self.history, self.best = folder / "monitor.jsonl", folder / "best-by-monitor"
        self.new, self._old = folder / "best-by-monitor.new", folder / "best-by-monitor.old"

    def write_history(self, header: dict[str, Any], checks: list[dict[str, Any]]) -> None:
        self.history.parent.mkdir(parents=True, exist_ok=True)
        draft = self.history.with_suffix(".new")
        lines = [json.dumps(line, ensure_ascii=False) for line in (header, *checks)]
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(draft, self.history)

    def read_history(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """Header and checks; None if there are none."""
        if not self.history.is_file():
            return None
        try:
            header, *checks = [json.loads(line) for line in self.history.read_text(encoding="utf-8").splitlines()]
            if not all({"step", "rows", "figures", "warned"} <= check.keys() for check in checks):
                raise ValueError("a line lacks step, rows, figures or warned")
        except (ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{str(self.history)!r} cannot be read ({error}): move it away to begin the comparison anew"
            ) from None
        return header, checks

    def read_best(self) -> dict[str, Any] | None:
        """The record of the best policy so far; a swap that was interrupted is finished first."""
        if not self.best.is_dir():
            for left in (self.new, self._old):
                if (left / "monitor.json").is_file():
                    os.rename(left, self.best)
                    break
        record = self.best / "monitor.json"
        return json.loads(record.read_text(encoding="utf-8")) if record.is_file() else None

    def clear_new(self) -> None:
        shutil.rmtree(self.new, ignore_errors=True)

    def finish_best(self, record: dict[str, Any]) -> None:
        """Puts the policy that was saved in `new` in the place of the best one."""
        # written last: without it, the folder is not whole
        (self.new / "monitor.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(self._old, ignore_errors=True)
        if self.best.exists():
            os.rename(self.best, self._old)
        os.rename(self.new, self.best)
        shutil.rmtree(self._old, ignore_errors=True)


def fingerprint_rows(rows: Any) -> str:
    """Hash of the prompts and the images of a data set."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row["prompt"], sort_keys=True).encode())
        for image in row.get("images") or [row["image"]]:
            digest.update(load_image(image).tobytes())
    return digest.hexdigest()[:16]
