"""GenAI-Bench: every image of every generator is an item, with its prompt as the caption."""

from __future__ import annotations

from pathlib import Path

from reward.metaeval.benchmarks import RatedCaption, load_benchmark
from tests.reward.metaeval.small_benchmarks import write_files

DATA = {
    "00000": {"id": "00000", "prompt": "A red ball.", "models": {"DALLE_3": [5, 4, 5], "SDXL_Base": [1, None, 2]}},
    "00001": {"id": "00001", "prompt": "Two cats.", "models": {"DALLE_3": [3, 3, 3], "SDXL_Base": [None]}},
}


def test_images_of_generators(tmp_path: Path) -> None:
    write_files(tmp_path, {"genai_image.json": DATA, "SDXL_Base/00000.png": b"", "elsewhere/x": b""})
    for data, images in ((tmp_path, None), (tmp_path / "genai_image.json", None), (tmp_path, tmp_path / "elsewhere")):
        items = load_benchmark("genai-bench", data, images=images).items
        found = [item for item in items if isinstance(item, RatedCaption)]
        rows = [(item.candidate, item.ratings["overall"], item.category, item.image_id, item.image) for item in found]
        root, ending = images or tmp_path, "jpeg" if images else "png"
        assert rows == [
            ("A red ball.", (5, 4, 5), "DALLE_3", "DALLE_3/00000", root / "DALLE_3" / "00000.jpeg"),
            ("A red ball.", (1, 2), "SDXL_Base", "SDXL_Base/00000", root / "SDXL_Base" / f"00000.{ending}"),
            ("Two cats.", (3, 3, 3), "DALLE_3", "DALLE_3/00001", root / "DALLE_3" / "00001.jpeg"),
        ]
