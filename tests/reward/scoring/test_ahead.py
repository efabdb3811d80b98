"""Images ahead of the scorer: bounded in memory, prepared for networks, at an end with their consumer."""

import threading
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.data.images import encoded_image
from reward.errors import ImageError
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scoring import job as ahead
from reward.scoring import score_dataset
from reward.scoring.columns import RowTask
from tests.reward.scoring.small_data import GREYS, save_greys, scored
from tests.toys.picture_scorer import PictureScorer


def tasks(images):
    return (RowTask(row, candidates=[""], image=image, image_key=image) for row, image in enumerate(images))


class Reader:
    """Counts what it opens."""

    is_needed = True

    def __init__(self):
        self.opened = []

    def read_ahead(self, tasks):
        """Nothing can be done before."""

    def __call__(self, image):
        self.opened.append(image)
        if image == "gone":
            raise OSError("disk gone")
        return Image.new("RGB", (10, 10))


def chunk_sizes(rows, most_rows):
    chunks = ahead.decoded_chunks([tasks(map(str, range(rows)))], Reader(), most_rows)
    return [len(chunk) for chunk, _ in chunks]


def test_the_next_chunk_is_decoded_while_one_is_scored_and_no_more():
    before, reader = threading.active_count(), Reader()
    chunks = ahead.decoded_chunks([tasks(map(str, range(2000)))], reader, 100)
    assert len(next(chunks)[0]) == ahead.FIRST_ROWS
    limit, rows = time.monotonic() + 10, ahead.FIRST_ROWS + 100
    while len(reader.opened) < rows and time.monotonic() < limit:
        time.sleep(0.01)
    chunks.close()
    assert rows <= len(reader.opened) <= rows + ahead.IMAGES_AHEAD
    assert threading.active_count() <= before  # threads of other tests may have ended, too


def test_chunks_double_up_to_their_rows_or_have_as_many_as_their_images_leave_room_for(monkeypatch):
    assert chunk_sizes(1000, 512) == [64, 128, 256, 512, 40]
    assert chunk_sizes(250, 100) == [64, 100, 86]
    assert chunk_sizes(50, 20) == [20, 20, 10]
    monkeypatch.setattr(ahead, "CHUNK_BYTES", 5 * 300)
    sizes = chunk_sizes(90, 1000)
    assert (sum(sizes), max(sizes)) == (90, 5 + ahead.IMAGES_AHEAD)


@pytest.mark.parametrize("place", ["a thread starts", "a chunk is awaited"])
def test_an_interrupt_ends_the_reading_before_it_is_told(place, monkeypatch):
    """Ctrl-C can come in the middle of `Thread.start`: the thread runs, and the pool does not know it."""
    reading, ended, read = threading.Event(), threading.Event(), list[RowTask]()

    def slow_tasks():
        try:
            for task in tasks([None] * 10_000):
                read.append(task)
                reading.set()
                time.sleep(0.01)
                yield task
        finally:
            ended.set()

    def interrupted(*_):
        assert reading.wait(10)
        raise KeyboardInterrupt

    start = threading.Thread.start
    if place == "a thread starts":
        monkeypatch.setattr(threading.Thread, "start", lambda thread: (start(thread), interrupted()))
    else:
        monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(ahead.decoded_chunks([slow_tasks()], Reader(), 10_000))
    assert (ended.is_set(), len(read) < 64) == (True, True)


def test_other_errors_than_those_of_an_image_reach_the_consumer():
    with pytest.raises(OSError, match="disk gone"):
        list(ahead.decoded_chunks([tasks(["a", "gone"])], Reader(), 5))


def test_networks_get_images_that_are_prepared_in_the_background_and_others_plain_ones(tmp_path, monkeypatch):
    """Two captions of each grey, and one of an image that the network does not take."""
    Image.new("RGB", (600, 2)).save(save_greys(tmp_path) / "long.png")
    names = ["0.png", "0.png", "1.png", "1.png", "2.png", "2.png", "long.png"]
    rows = [{"image": name, "candidate": f"A grey field {row}."} for row, name in enumerate(names)]
    scorer, plain, preprocess = load_scorer("clipscore", device="cpu"), PictureScorer(), ClipScorer.preprocess
    table = scorer.score([CaptionSample(row["candidate"], tmp_path / row["image"]) for row in rows])
    threads = []

    def record(self, image):
        threads.append(threading.current_thread().name)
        if image.width == 600:
            raise ImageError("it is too long")
        return preprocess(self, image)

    monkeypatch.setattr(ClipScorer, "preprocess", record)
    got, _ = scored(rows, tmp_path / "out.jsonl", scorer)
    assert [row["clipscore"] for row in got[:-1]] == pytest.approx(table.scores[:-1, 0].tolist(), abs=1e-6)
    assert "it is too long" in got[-1]["error"]
    # each grey once; the long one again by the metric, which says what is wrong with it
    assert [name.startswith("decode") for name in threads].count(True) == len(GREYS) + 1
    assert len(threads) == len(GREYS) + 2
    scored(rows[:1], tmp_path / "both.jsonl", [plain, scorer])
    assert isinstance(plain.samples[0].image, Image.Image)


def test_rows_of_one_image_do_not_each_hold_its_bytes(tmp_path):
    data = encoded_image(Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 250, 3), dtype=np.uint8)))
    rows = [{"image": {"bytes": data, "path": None}, "candidate": f"A star {row}."} for row in range(300)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    tracemalloc.start()
    score_dataset(tmp_path / "data.parquet", PictureScorer(), tmp_path / "out.parquet")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < len(rows) * len(data) / 4
