"""The report of a scored data set: its figures against other ways to compute them, and the page."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, OutputError
from reward.metaeval.bootstrap import bootstrap_weights, percentile_interval, resampled_mean
from reward.metaeval.scored import WORDS, drift, mean_of, population_stability_index, read_scored
from tests.json_lines import write_lines
from tests.reward.cli.conftest import Run, run  # noqa: F401  # a fixture
from tests.reward.scoring.small_data import save_greys

pytest.importorskip("matplotlib")
from reward.metaeval.scored_report import write_scored_report


def rows_of(folder: Path, *, count: int = 90, shift: float = 0.0) -> Path:
    """Scored rows of three images, a caption length and a source each; every tenth has an error."""
    numbers = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for row in range(count):
        failed = row % 10 == 9
        rows.append(
            {
                "image": f"greys/{row % 3}.png",
                "candidate": "a <b> & dog " * (1 + row % 7),
                "source": ["coco", "cc12m"][row % 2],
                "relevance": None if failed else row / count + shift,
                "reward": None if failed else float(numbers.normal(0.5, 0.1)) + shift,
                "error": f"cannot read 'x{row}.png': {row} bytes" if failed else None,
            }
        )
    save_greys(folder / "greys")
    path = folder / f"scores{shift:g}.jsonl"
    write_lines(path, rows)
    return path


class Page(HTMLParser):
    """Pictures, addresses and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe")
        if tag == "img":
            self.pictures.append(values["src"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_needs_nothing_else_and_shows_everything(tmp_path: Path, run: Run) -> None:  # noqa: F811
    now, before = rows_of(tmp_path, shift=0.2), rows_of(tmp_path)
    (tmp_path / "greys" / "2.png").unlink()
    output = tmp_path / "new" / "report.html"
    _, told = run("report", now, "--against", before, "--per", "source", "-o", output, "--examples", "4")
    assert "9 of 90 rows have no reward" in told
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://", text)
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"#0[1-4]0[1-4]0[1-4]", text)  # all colours of the plots are the page's
    shown = " ".join(page.texts)
    for part in ("Drift from scores0.jsonl", "Caption length: reward", "By source: reward", "Errors: 1 kinds", "Best,"):
        assert part in shown
    assert "cannot read …: … bytes 9 10.00 row 10: cannot read 'x9.png': 9 bytes" in " ".join(shown.split())
    assert "a <b> & dog" in shown
    missing = shown.count("no picture: ")
    assert len(page.pictures) + missing == 8
    assert missing > 0
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.pictures)
    with pytest.raises(OutputError, match="is there already"):
        write_scored_report(now, output)


def test_best_and_worst_are_of_all_rows_and_figures_of_a_sample_of_whole_images(tmp_path: Path) -> None:
    data = tmp_path / "scores.jsonl"
    rows = [{"image": f"{row // 4}", "candidate": "a b", "reward": ((row * 7919) % 9001) / 9001} for row in range(9000)]
    write_lines(data, rows)
    found = read_scored(data, examples=3, sample=1000)
    assert (found.rows, found.sampled) == (9000, 1000)
    order = sorted(range(9000), key=lambda row: rows[row]["reward"])
    assert [one["row"] - 1 for one in found.best] == order[:-4:-1]
    assert [one["row"] - 1 for one in found.worst] == order[:3]
    _, sizes = np.unique(found.images, return_counts=True)
    assert sorted(sizes.tolist())[-249:] == [4] * 249
    assert found.values["reward"].mean() == pytest.approx(0.5, abs=0.05)
    write_lines(tmp_path / "again.jsonl", rows[::-1])
    again = read_scored(tmp_path / "again.jsonl", sample=1000)
    assert len(set(found.images.tolist()) & set(again.images.tolist())) >= 249  # both sets keep the same images


def test_intervals_are_those_of_the_bootstrap_over_images() -> None:
    numbers = np.random.default_rng(3)
    images = np.repeat(np.arange(200), 4)
    values = numbers.normal(size=200)[images] + numbers.normal(scale=0.3, size=800)
    found = mean_of(values, images)
    weights = bootstrap_weights(800, resamples=4000, clusters=images.tolist())
    expected = percentile_interval(values.mean(), resampled_mean(values, weights))
    assert found.value == pytest.approx(values.mean())
    assert (found.high - found.low) == pytest.approx(expected.high - expected.low, rel=0.06)
    assert (found.high - found.low) > 1.5 * 2 * 1.96 * values.std() / 800**0.5  # rows are not independent
    assert math.isnan(mean_of(values[:4], images[:4]).low)  # one image says nothing of others


def test_drift_of_a_shift_is_paired_by_image(tmp_path: Path) -> None:
    before, now = read_scored(rows_of(tmp_path)), read_scored(rows_of(tmp_path, shift=0.2))
    found = drift(now, before)
    assert set(found) == {"reward", "relevance", WORDS}
    assert found["reward"].difference.value == pytest.approx(0.2)
    # the same captions, shifted: without pairing the interval would be about 0.06 wide
    assert found["reward"].difference.high - found["reward"].difference.low < 1e-6
    assert found["reward"].psi > 0.25
    assert found["reward"].ks > 0.6
    same = drift(before, before)["reward"]
    assert (same.psi, same.ks, same.difference.value) == (0, 0, 0)
    write_lines(tmp_path / "other.jsonl", [{"score": 0.1, "image": "a", "candidate": "a"}])
    with pytest.raises(DataError, match="share no column of scores"):
        drift(now, read_scored(tmp_path / "other.jsonl", by="score"))


def test_population_stability_index_by_hand() -> None:
    expected, actual = np.array([1, 2, 3, 4] * 25), np.array([1] * 40 + [2] * 30 + [3] * 20 + [4] * 10)
    by_hand = sum((q - 0.25) * math.log(q / 0.25) for q in (0.4, 0.3, 0.2, 0.1))
    assert population_stability_index(expected, actual, bins=4) == pytest.approx(by_hand)
    assert population_stability_index(expected, expected) == 0
