"""A real Ray cluster: workers, a node and the driver are killed; no row is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.conftest import Run
from tests.engines.ray_nodes import RayNodes
from tests.integrations.ray_data.files import read_folder
from tests.toys.json_lines import read_lines, write_lines

pytest.importorskip("ray.data")

ROWS, PART_ROWS = 960, 8


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def data(photos: Path, tmp_path: Path) -> Path:
    """Parquet with captions of the drawings and references, 120 parts; some rows cannot be scored."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = sorted(map(str, photos.glob("*.png")))
    rows = [
        {
            "id": row,
            "image": images[row % len(images)],
            "candidate": "a red star on grass " * (1 + row % 4) if row % 50 else " ",
            "references": ["a red star", f"{row % 7} boxes"],
        }
        for row in range(ROWS)
    ]
    write_lines(tmp_path / "rows.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=PART_ROWS)
    return tmp_path / "rows.parquet"


@contextmanager
def connected(nodes: RayNodes, patch: pytest.MonkeyPatch) -> Iterator[RayNodes]:
    """The cluster, with what a driver must know in this process's variables."""
    with nodes:
        for name, value in nodes.environment.items():
            patch.setenv(name, value)
        yield nodes


def parts(folder: Path) -> dict[str, int]:
    """{name: time it was written} of the parts."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


def wait_until(met: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.05)


def score_alone(start: Run, folder: Path, *metrics: str) -> Path:
    """What one process makes of the same rows, without Ray."""
    run = start("score", folder / "rows.jsonl", *metrics, "-o", folder / "alone.jsonl")
    assert run.wait(200) == 0, run.communicate()[0]
    return folder / "alone.jsonl"


def check_equal(folder: Path, alone: Path) -> None:
    """Every row is there once, with the scores of one process; a network's differ by what else was in the batch."""
    got, expected = read_folder(folder), read_lines(alone)
    assert [row["id"] for row in got] == list(range(ROWS))
    added = [name for name in expected[0] if name not in ("id", "image", "candidate", "references")]
    for name in added:
        for row, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            near = pytest.approx(theirs[name], rel=0, abs=1e-6) if isinstance(theirs[name], float) else theirs[name]
            assert ours[name] == near, (row, name)


def test_workers_a_node_and_the_driver_are_killed(
    data: Path, tmp_path: Path, start: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, out = ("-m", "vela", "-m", "length", "--quiet"), tmp_path / "scores"
    alone = score_alone(start, tmp_path, *metrics)
    with connected(RayNodes(1), monkeypatch) as cluster:
        cluster.add(1, f"--address={cluster.address}")
        command = ["score", data, *metrics, "-o", out, "--engine", "ray", "--address", cluster.address]
        command += ["--part-rows", PART_ROWS]
        run = start(*command)
        wait_until(lambda: len(parts(out)) > 5, run)
        run.kill()
        run.wait()
        at_driver = parts(out)

        run = start(*command)
        wait_until(lambda: len(parts(out)) > len(at_driver) + 8 and len(cluster.workers()) == 2, run)
        at_worker = parts(out)
        cluster.workers()[0].send_signal(signal.SIGKILL)
        wait_until(lambda: len(parts(out)) > len(at_worker) + 8, run)
        at_node = parts(out)
        cluster.kill(1)
        assert run.wait(200) == 0, run.communicate()[0]
    check_equal(out, alone)
    assert len(at_node) < len(parts(out)) == ROWS // PART_ROWS
    for killed, before in (("driver", at_driver), ("worker", at_worker), ("node", at_node)):
        again = [name for name, written in before.items() if parts(out)[name] != written]
        print(f"{killed} killed when {len(before)} parts were there; made again: {len(again)}")
        assert len(again) <= (0 if killed == "driver" else 2)  # Ray gives an actor two fragments ahead
