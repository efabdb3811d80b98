"""Background decoding: it runs ahead, is bounded in memory, and stops when its consumer does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from reward.scoring import prefetch as module
from reward.scoring.columns import RowTask
from reward.scoring.prefetch import prefetch


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
    assert threading.active_count() == before


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
