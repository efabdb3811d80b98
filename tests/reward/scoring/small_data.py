"""Images of one grey each, data about them, and what is made of data: the rows of the output and the summary."""

import json

import pyarrow.parquet as pq
from PIL import Image

from reward.scoring import score_dataset
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

GREYS = (10, 250, 100)


def save_greys(folder):
    """Saves "0.png" to "2.png", of different sizes and of the brightness GREYS."""
    folder.mkdir(exist_ok=True)
    for number, grey in enumerate(GREYS):
        Image.new("RGB", (4 + number, 4), (grey,) * 3).save(folder / f"{number}.png")
    return folder


def read_rows(path):
    """The rows of a Parquet file or of JSON lines."""
    rows = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else read_lines(path)
    return rows


def make_data(folder, rows):
    """Saves data.jsonl, two rows an image: every seventh image is missing, every fifth caption blank."""
    save_greys(folder)
    lines = []
    for number in range(rows):
        image = "missing.png" if number % 7 == 6 else f"{number // 2 % 3}.png"
        lines.append(json.dumps({"n": number, "image": image, "candidate": f"c{number}" if number % 5 else " "}))
        if number % 11 == 10:
            lines[-1] = lines[-1][:-9]  # not JSON
    path = folder / "data.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def scored(data, output, scorer="length", *, task=score_dataset, **options):
    """The rows of the output and the summary. Rows that are given as a list are saved beside the output first."""
    data = write_lines(output.with_name("data.jsonl"), data) if isinstance(data, list) else data
    summary = task(data, scorer, output, **options)
    return read_rows(output), summary


class Stop(PictureScorer):
    """Raises `error` at the n-th call."""

    def __init__(self, calls, error=None):
        super().__init__()
        self.calls, self.error = calls, error or RuntimeError("out of memory")

    def score(self, samples, **options):
        self.calls -= 1
        if self.calls < 0:
            raise self.error
        return super().score(samples, **options)
