"""GenAI-Bench: every image of every generator is an item, with its prompt as the caption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reward.metaeval.benchmarks import RatedCaption, load_benchmark

DATA: dict[str, Any] = {
    "00000": {"id": "00000", "prompt": "A red ball.", "models": {"DALLE_3": [5, 4, 5], "SDXL_Base": [1, None, 2]}},
    "00001": {"id": "00001", "prompt": "Two cats.", "models": {"DALLE_3": [3, 3, 3], "SDXL_Base": [None]}},
}


def test_images_of_generators(tmp_path: Path) -> None:
    (tmp_path / "genai_image.json").write_text(json.dumps(DATA))
    (tmp_path / "SDXL_Base").mkdir()
    (tmp_path / "SDXL_Base" / "00000.png").write_bytes(b"")
    for data in (tmp_path, tmp_path / "genai_image.json"):
        benchmark = load_benchmark("genai-bench", data)
        found = [item for item in benchmark.items if isinstance(item, RatedCaption)]
        assert [(item.candidate, item.ratings["overall"], item.category) for item in found] == [
            ("A red ball.", (5, 4, 5), "DALLE_3"),
            ("A red ball.", (1, 2), "SDXL_Base"),
            ("Two cats.", (3, 3, 3), "DALLE_3"),
        ]
        assert [item.image for item in found][:2] == [
            tmp_path / "DALLE_3" / "00000.jpeg",
            tmp_path / "SDXL_Base" / "00000.png",
        ]
        assert len({item.image_id for item in found}) == 3
    (tmp_path / "elsewhere").mkdir()
    first = load_benchmark("genai-bench", tmp_path, images=tmp_path / "elsewhere").items[0]
    assert first.image == tmp_path / "elsewhere" / "DALLE_3" / "00000.jpeg"  # type: ignore[union-attr]
    assert benchmark.spec.judgments == "mean"
