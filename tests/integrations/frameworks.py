"""What the tests of all frameworks share: pictures, a metric of them, and the launch commands of the docs."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from tests.toys.picture_scorer import PictureScorer

ROOT = Path(__file__).resolve().parents[2]
WHITE, GREY, BLACK = (Image.new("RGB", (4, 4), (level,) * 3) for level in (255, 51, 0))  # 1.0, 0.2 and 0.0


def own_settings() -> dict[str, Any]:
    """The reward is the image's brightness. The name is new: rewards of equal settings are kept for the process."""
    return {"metric": "picture", "weights": {"bright": 1}, "name": uuid.uuid4().hex}


@dataclass
class PictureMetric:
    """Settings of a reward by brightness, and the scorers that were loaded for it."""

    settings: dict[str, Any] = field(default_factory=own_settings)
    scorers: list[PictureScorer] = field(default_factory=list)

    @property
    def patient(self) -> dict[str, Any]:
        """The same settings, with a wait that a busy machine cannot spoil."""
        return {**self.settings, "wait": 0.5}

    @property
    def calls(self) -> int:
        return sum(len(scorer.batch_sizes) for scorer in self.scorers)

    @property
    def samples(self) -> list[Any]:
        return [sample for scorer in self.scorers for sample in scorer.samples]


def snippet(title: str, language: str) -> str:
    """The last block of a language below a heading of `docs/FRAMEWORKS.md`."""
    page = (ROOT / "docs" / "FRAMEWORKS.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return str(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1])


def launch(title: str) -> str:
    """The launch command below a heading, without line breaks."""
    return snippet(title, "bash").replace("\\\n", " ").strip()


def options(title: str) -> set[str]:
    """The options of that command, such as `--data.label_key`."""
    return set(re.findall(r"(?<= )--[\w.-]+", launch(title)))
