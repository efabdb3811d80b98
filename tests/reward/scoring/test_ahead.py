"""Images ahead of the scorer: bounded in memory, in chunks that keep images whole, at an end with their consumer."""

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
from reward.images import THREADS
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scoring import ahead as module
from reward.scoring import score_dataset
from reward.scoring.ahead import decoded_chunks
from reward.scoring.columns import RowTask
from tests.reward.scoring.small_data import GREYS, read_rows, save_greys
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer


def tasks(images: Any) -> Iterator[RowTask]:
    return (
        RowTask(candidates=[str(number)], image=image, image_key=image, row=number)
        for number, image in enumerate(images)
    )


class Reader:
    """Counts what it opens; what is wrong with `images` fails as a disk does."""

    is_needed = True

    def read_ahead(self, tasks: Any) -> None:
        """Nothing can be done before."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def __call__(self, image: Any) -> Image.Image:
        self.opened.append(image)
        if image == "bad":
            raise ImageError("it is bad")
        if image == "gone":
            raise OSError("disk gone")
        return Image.new("RGB", (10, 10))


def rows_of(chunks: Any) -> list[list[RowTask]]:
    return [rows for rows, _ in chunks]


def test_the_next_chunk_is_decoded_while_one_is_scored_until_closed() -> None:
    before, reader = threading.active_count(), Reader()
    chunks: Any = decoded_chunks([tasks(map(str, range(100)))], reader, 5)  # type: ignore[arg-type]
    next(chunks)
    limit = time.monotonic() + 10
    while len(reader.opened) < 10 and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(0.05)
    assert 10 <= len(reader.opened) <= 10 + 1  # nothing is read without end
    chunks.close()
    assert threading.active_count() <= before  # threads of other tests may have ended, too


def test_who_closes_waits_for_no_more_than_is_under_way() -> None:
    go_on = threading.Event()

    class Slow(Reader):
        def __call__(self, image: Any) -> Image.Image:
            if len(self.opened) >= module.FIRST_ROWS:
                go_on.wait(10)
            return super().__call__(image)

    reader = Slow()
    chunks: Any = decoded_chunks([tasks(map(str, range(2000)))], reader, 1000)  # type: ignore[arg-type]
    next(chunks)
    threading.Timer(0.2, go_on.set).start()  # while it is being closed
    chunks.close()
    assert len(reader.opened) <= module.FIRST_ROWS + 4 * THREADS


def test_chunks_share_images_and_keep_blocks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    images = ["a"] * 3 + ["b"] * 4 + ["c", "bad"]
    chunks = rows_of(decoded_chunks([tasks(images), tasks("d")], reader, 5))  # type: ignore[arg-type]
    assert list(map(len, chunks)) == [5, 4, 1]
    assert sorted(reader.opened) == ["a", "b", "bad", "c", "d"]
    assert len({id(task.image) for task in chunks[0][3:] + chunks[1][:2]}) == 1
    assert (chunks[1][3].image, chunks[1][3].image_problem) == (None, "it is bad")
    monkeypatch.setattr(module, "IMAGE_BYTES", 5 * 300)
    sizes = list(map(len, rows_of(decoded_chunks([tasks(map(str, range(40)))], reader, 1000))))  # type: ignore[arg-type]
    assert sum(sizes) == 40
    assert max(sizes) <= 5 + 2 * module.THREADS + 1


@pytest.mark.parametrize("place", ["rows", "decode"])
def test_other_errors_reach_the_consumer(place: str) -> None:
    def rows() -> Iterator[RowTask]:
        yield from tasks("abc")
        raise OSError("disk gone")

    given = rows() if place == "rows" else tasks(["a", "gone"])
    with pytest.raises(OSError, match="disk gone"):
        list(decoded_chunks([given], Reader(), 5))  # type: ignore[arg-type]


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
