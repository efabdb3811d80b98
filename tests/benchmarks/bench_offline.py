"""`capreward score` from Parquet with the pictures inside, beside the bare scorer: rate, start and memory.

The embedded checkpoints score drawings, in a process of their own as a user would start it. Before and after it, the
bare scorer is given the first rows with decoded images.
"""

import argparse
import functools
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reward import CaptionSample, load_scorer
from reward.data.images import load_image
from reward.scenes import make_dataset
from tests.benchmarks.measuring import DEVICE, ROOT, Scoring, measure_seconds, show

DRAWINGS = 200  # different ones, which come back in turns
GROUP = 8  # captions of a picture
BARE = 1000  # rows that the bare scorer is given
MEMORY = ("MiB at 10 %", "MiB at 90 %", "MiB while writing")
COLUMNS = ("metric", "rows", "rows/s", "share, %", "start, s", *MEMORY, "differ")


@functools.cache
def drawings(size):
    """Encoded pictures with their references and a caption."""
    drawn = []
    for row in make_dataset(DRAWINGS, seed=1):
        jpeg = io.BytesIO()
        row["image"].convert("RGB").resize(size).save(jpeg, "JPEG", quality=90)
        drawn.append({"image": {"bytes": jpeg.getvalue(), "path": None}, "refs": row["refs"], "cand": row["cand"]})
    return drawn


def write_rows(file, *, rows, group=GROUP, size=(640, 480)):
    """A Parquet file whose rows hold encoded pictures, `group` captions of a picture one after another."""
    drawn = drawings(size)
    kinds = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "references": pa.list_(pa.string())}
    with pq.ParquetWriter(file, pa.schema({"candidate": pa.string(), **kinds})) as writer:
        for start in range(0, rows, 1000):
            part = []
            for number in range(start, min(start + 1000, rows)):
                picture, caption = number // group, number % group
                row = drawn[picture % DRAWINGS]
                candidate = f"{drawn[(picture + caption) % DRAWINGS]['cand']} {number:06d}"  # as long in every row
                part.append({"image": row["image"], "references": row["refs"], "candidate": candidate})
            writer.write_table(pa.Table.from_pylist(part, schema=writer.schema))


def samples_of(file, count):
    """The first rows with decoded images, each picture once."""
    rows = pq.ParquetFile(file).read_row_group(0).slice(0, count).to_pylist()
    images = {data: load_image(data) for data in dict.fromkeys(row["image"]["bytes"] for row in rows)}
    return [CaptionSample(row["candidate"], images[row["image"]["bytes"]], row["references"]) for row in rows]


def compare(metric, folder, device):
    """A row of the table."""
    data, output = folder / "data.parquet", folder / f"{metric}.parquet"
    scorer, samples = load_scorer(metric, device=device), samples_of(data, BARE)
    bare = {"bare": lambda: scorer.score(samples)}
    scores = scorer.score(samples).scores
    words = ("-m", metric, "--device", device)
    _, start, _, _ = Scoring(ROOT, (folder / "first.parquet", *words), output.with_suffix(".first.parquet")).run()
    [before] = measure_seconds(bare, 1, device)["bare"]
    seconds, first, saved, mebibytes = Scoring(ROOT, (data, *words), output).run()
    [after] = measure_seconds(bare, 1, device)["bare"]
    alone = len(samples) * (1 / before + 1 / after) / 2
    table = pq.read_table(output)
    rate = (len(table) - saved) / (seconds - first)
    written = np.array([table.column(aspect)[: len(samples)] for aspect in scorer.spec.aspects]).T
    places = (len(mebibytes) // 10, 9 * len(mebibytes) // 10, max(0, len(mebibytes) - 2))
    held = [f"{mebibytes[place]:.0f}" for place in places]
    rates = [f"{rate:.1f}", f"{100 * rate / alone:.1f}", f"{start:.1f}"]
    return [metric, str(len(table)), *rates, *held, f"{np.abs(written - scores).max():.0e}"]


def main():
    """Prints a row for each metric."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--metrics", nargs="+", default=["vela", "beitscore", "clipscore"])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name) / "data.parquet", rows=options.rows)
        write_rows(Path(name) / "first.parquet", rows=64)
        rows = (compare(metric, Path(name), options.device) for metric in options.metrics)
        show("JPEG of 640 x 480", COLUMNS, rows, options.csv)


if __name__ == "__main__":
    main()
