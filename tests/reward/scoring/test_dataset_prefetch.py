"""Background decoding: it runs ahead, is bounded in memory, and stops when its consumer does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward import CaptionSample, ScoreTable, load_scorer
from reward.errors import ImageError
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scoring import prefetch as module
from reward.scoring import score_dataset
from reward.scoring.columns import RowTask
from reward.scoring.prefetch import prefetch
from tests.json_lines import write_lines
from tests.picture_scorer import PictureScorer
from tests.reward.scoring.small_data import GREYS, read_rows, save_greys


def tasks(images: Any) -> Iterator[RowTask]:
    return (RowTask(candidates=[str(number)], image=image) for number, image in enumerate(images))


def decode(image: Any) -> Image.Image:
    return Image.new("RGB", (10, 10))


def test_next_chunks_are_decoded_while_one_is_scored_until_closed() -> None:
    opened: list[Any] = []

    def record(image: Any) -> Image.Image:
        opened.append(image)
        return decode(image)

    before = threading.active_count()
    chunks = prefetch(tasks(map(str, range(100))), record, lambda: 5)
    next(chunks)
    limit = time.monotonic() + 10
    while len(opened) < 15 and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(0.05)
    # One chunk handed out, one waiting, one complete, and the first rows of none: nothing is read without end.
    assert 15 <= len(opened) <= 15 + 2 * module.THREADS
    assert threading.active_count() > before
    chunks.close()
    assert threading.active_count() <= before  # threads of other tests may have ended, too


def test_large_images_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGE_BYTES", 5 * 300)
    chunks = list(prefetch(tasks(map(str, range(40))), decode, lambda: 1000))
    assert sum(map(len, chunks)) == 40
    assert max(map(len, chunks)) <= 5 + 2 * module.THREADS + 1


@pytest.mark.parametrize("place", ["rows", "decode"])
def test_other_errors_reach_the_consumer(place: str) -> None:
    def rows() -> Iterator[RowTask]:
        yield from tasks("abc")
        raise OSError("disk gone")

    def fail(image: Any) -> Image.Image:
        raise OSError("disk gone")

    chunks = prefetch(rows(), decode, lambda: 1) if place == "rows" else prefetch(tasks("abc"), fail, lambda: 1)
    with pytest.raises(OSError, match="disk gone"):
        list(chunks)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two captions of each grey, and one of an image that no network takes."""
    save_greys(tmp_path)
    Image.new("RGB", (600, 2)).save(tmp_path / "long.png")
    names = [f"{number}.png" for number in range(len(GREYS)) for _ in range(2)] + ["long.png"]
    rows = [{"image": name, "candidate": f"A grey field {row}."} for row, name in enumerate(names)]
    write_lines(tmp_path / "data.jsonl", rows)
    return tmp_path / "data.jsonl"


def test_networks_get_images_that_are_prepared_in_the_background(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, threads, preprocess = load_scorer("clipscore", device="cpu"), list[str](), ClipScorer.preprocess
    samples = [CaptionSample(row["candidate"], data.parent / row["image"]) for row in read_rows(data)]
    table = scorer.score(samples)

    def record(self: ClipScorer, image: Image.Image) -> Any:
        threads.append(threading.current_thread().name)
        if image.width == 600:
            raise ImageError("it is too long")
        return preprocess(self, image)

    pixels, score = list[Any](), scorer.score

    def scored(samples: Sequence[CaptionSample], **options: Any) -> ScoreTable:
        pixels.extend(sample.image.image for sample in samples)  # type: ignore[union-attr]
        return score(samples, **options)

    monkeypatch.setattr(ClipScorer, "preprocess", record)
    monkeypatch.setattr(scorer, "score", scored)
    score_dataset(data, scorer, data.with_name("scores.jsonl"))
    rows = read_rows(data.with_name("scores.jsonl"))
    assert [row["clipscore"] for row in rows[:-1]] == pytest.approx(table.scores[:-1, 0].tolist(), abs=1e-6)
    assert "it is too long" in rows[-1]["error"]
    # each grey once; the long one again by the metric, which says what is wrong with it
    assert [name.startswith("decode") for name in threads].count(True) == len(GREYS) + 1
    assert len(threads) == len(GREYS) + 2
    assert [pixel is None for pixel in pixels] == [True] * (len(rows) - 1) + [False]  # what is prepared is not kept


@pytest.mark.parametrize("beside", [[], ["clipscore"]])
def test_scorers_that_are_no_networks_get_plain_images(data: Path, beside: list[str]) -> None:
    scorer = PictureScorer()
    score_dataset(data, [scorer, *beside], data.with_name("scores.jsonl"), device="cpu" if beside else None)
    assert scorer.samples
    assert all(isinstance(sample.image, Image.Image) for sample in scorer.samples)
