"""SugarCrepe: captions of COCO's images beside fluent ones in which something was replaced, swapped or added."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, take
from reward.metaeval.benchmarks.forms import BenchmarkSpec, CaptionPair
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_pairs
from reward.metrics.caparena.files import read_json

__all__ = ["CATEGORIES", "SPECS", "load_sugarcrepe"]

CATEGORIES = ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att")

SPECS = (
    BenchmarkSpec(
        name="sugarcrepe",
        title="SugarCrepe",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.sugarcrepe:load_sugarcrepe",
        statistic="accuracy",
        ties="wrong",
        files=f"a folder with the files {', '.join(f'{name}.json' for name in CATEGORIES)} (also in data/), one of "
        "these files, or a .jsonl file with category, image, captions and label a line; and the folder of COCO's "
        "images val2017 (--images, images=)",
        origin="the repository RAIVNLab/sugar-crepe (Hsieh and others 2023); images from cocodataset.org",
        licence="MIT, by the repository's LICENSE; the images have licences of their own",
    ),
)


def load_sugarcrepe(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Reads the seven files, or one of them; the correct caption comes first.

    Raises:
        DataError: files that are missing or not as they should be.
    """
    if is_jsonl(path):
        yield from read_pairs(path, images)
        return
    if path.is_file() and path.stem not in CATEGORIES:
        raise DataError(
            f"{path} is no file of SugarCrepe; they are: {', '.join(f'{name}.json' for name in CATEGORIES)}"
        )
    categories, folder = ((path.stem,), path.parent) if path.is_file() else (CATEGORIES, path)
    files = {name: find_file(path, f"{name}.json", f"data/{name}.json") for name in categories}
    for category, file in files.items():
        entries = read_json(file)
        if not isinstance(entries, dict):
            raise DataError(f"{file} must hold an object {{number: pair}}, got {type(entries).__name__}")
        for number, entry in entries.items():
            where = f"{file}, pair {number}"
            image = take(entry, "filename", str, where)
            yield CaptionPair(
                captions=(take(entry, "caption", str, where), take(entry, "negative_caption", str, where)),
                label=0,
                image=(images or folder) / image,
                image_id=image,
                category=category,
            )
