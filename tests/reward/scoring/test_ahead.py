"""Images ahead of the scorer: bounded in memory, in chunks that keep images whole, at an end with their consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward import CaptionSample, ScoreTable, load_scorer
from reward.errors import ImageError
from reward.images import THREADS
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scoring import ahead
from reward.scoring.columns import RowTask
from tests.reward.scoring.small_data import GREYS, save_greys, scored
from tests.toys.picture_scorer import PictureScorer


def tasks(images: Any) -> Iterator[RowTask]:
    return (RowTask(row, candidates=[""], image=image, image_key=image) for row, image in enumerate(images))


class Reader:
    """Counts what it opens; calls `before` first."""

    is_needed = True

    def __init__(self, before: Callable[[Any], object] = lambda image: None) -> None:
        self.opened: list[Any] = []
        self.before = before

    def read_ahead(self, tasks: Any) -> None:
        """Nothing can be done before."""

    def __call__(self, image: Any) -> Image.Image:
        self.opened.append(image)
        self.before(image)
        return Image.new("RGB", (10, 10))


def fail(image: str) -> None:
    if image == "bad":
        raise ImageError("it is bad")
    if image == "gone":
        raise OSError("disk gone")


def chunks_of(blocks: Sequence[Iterator[RowTask]], reader: Reader, most_rows: int) -> Any:
    return ahead.decoded_chunks(blocks, reader, most_rows)  # type: ignore[arg-type]


def test_the_next_chunk_is_decoded_while_one_is_scored_until_closed() -> None:
    before, reader = threading.active_count(), Reader()
    chunks = chunks_of([tasks(map(str, range(100)))], reader, 5)
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
    reader = Reader(lambda image: int(image) >= ahead.FIRST_ROWS and go_on.wait(10))
    chunks = chunks_of([tasks(map(str, range(2000)))], reader, 1000)
    next(chunks)
    threading.Timer(0.2, go_on.set).start()  # while it is being closed
    chunks.close()
    assert len(reader.opened) <= ahead.FIRST_ROWS + 4 * THREADS


def test_chunks_share_images_and_keep_blocks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(fail)
    images = ["a"] * 3 + ["b"] * 4 + ["c", "bad"]
    chunks = [rows for rows, _ in chunks_of([tasks(images), tasks("d")], reader, 5)]
    assert [len(rows) for rows in chunks] == [5, 4, 1]
    assert sorted(reader.opened) == ["a", "b", "bad", "c", "d"]
    assert len({id(task.image) for task in chunks[0][3:] + chunks[1][:2]}) == 1
    assert (chunks[1][3].image, chunks[1][3].image_problem) == (None, "it is bad")
    monkeypatch.setattr(ahead, "IMAGE_BYTES", 5 * 300)
    sizes = [len(rows) for rows, _ in chunks_of([tasks(map(str, range(40)))], reader, 1000)]
    assert sum(sizes) == 40
    assert max(sizes) <= 5 + 2 * THREADS + 1


def test_other_errors_reach_the_consumer() -> None:
    def rows() -> Iterator[RowTask]:
        yield from tasks("abc")
        raise OSError("disk gone")

    for given in (rows(), tasks(["a", "gone"])):
        with pytest.raises(OSError, match="disk gone"):
            list(chunks_of([given], Reader(fail), 5))


def test_networks_get_images_that_are_prepared_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two captions of each grey, and one of an image that the network does not take."""
    Image.new("RGB", (600, 2)).save(save_greys(tmp_path) / "long.png")
    names = ["0.png", "0.png", "1.png", "1.png", "2.png", "2.png", "long.png"]
    rows = [{"image": name, "candidate": f"A grey field {row}."} for row, name in enumerate(names)]
    scorer, threads, preprocess = load_scorer("clipscore", device="cpu"), list[str](), ClipScorer.preprocess
    table = scorer.score([CaptionSample(row["candidate"], tmp_path / row["image"]) for row in rows])
    pixels, score = list[Any](), scorer.score

    def record(self: ClipScorer, image: Image.Image) -> Any:
        threads.append(threading.current_thread().name)
        if image.width == 600:
            raise ImageError("it is too long")
        return preprocess(self, image)

    def score_and_look(samples: Sequence[CaptionSample], **options: Any) -> ScoreTable:
        pixels.extend(sample.image.image for sample in samples)  # type: ignore[union-attr]
        return score(samples, **options)

    monkeypatch.setattr(ClipScorer, "preprocess", record)
    monkeypatch.setattr(scorer, "score", score_and_look)
    got, _ = scored(rows, tmp_path / "out.jsonl", scorer)
    assert [row["clipscore"] for row in got[:-1]] == pytest.approx(table.scores[:-1, 0].tolist(), abs=1e-6)
    assert "it is too long" in got[-1]["error"]
    # each grey once; the long one again by the metric, which says what is wrong with it
    assert [name.startswith("decode") for name in threads].count(True) == len(GREYS) + 1
    assert len(threads) == len(GREYS) + 2
    assert [pixel is None for pixel in pixels] == [True] * 6 + [False]  # what is prepared is not kept


def test_scorers_that_are_no_networks_get_plain_images(tmp_path: Path) -> None:
    save_greys(tmp_path)
    scorer = PictureScorer()
    scored([{"image": "0.png", "candidate": "a"}], tmp_path / "out.jsonl", [scorer, "clipscore"], device="cpu")
    assert [isinstance(sample.image, Image.Image) for sample in scorer.samples] == [True]
