"""A real Ray cluster that asks for a token: a worker and a node are killed; no row is lost."""

import signal
import time

import pytest

from tests.engines.ray_nodes import RayNodes
from tests.integrations.ray_data.files import read_folder
from tests.toys.json_lines import read_lines, write_lines

pytest.importorskip("ray.data")

ROWS, PART_ROWS = 960, 8


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def data(photos, tmp_path):
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


def parts(folder):
    """{name: time it was written} of the parts."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*.parquet")}


def wait_until(met, run, seconds=200):
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.05)


def test_a_worker_and_a_node_are_killed(data, tmp_path, start, monkeypatch):
    metrics, out, alone = ("-m", "vela", "-m", "length", "--quiet"), tmp_path / "scores", tmp_path / "alone.jsonl"
    with RayNodes(1) as cluster:
        for name, value in cluster.environment.items():  # what a driver must know
            monkeypatch.setenv(name, value)
        cluster.add(1, f"--address={cluster.address}")
        command = ["score", data, *metrics, "-o", out, "--engine", "ray", "--address", cluster.address]
        run = start(*command, "--part-rows", PART_ROWS)
        wait_until(lambda: len(parts(out)) > 5 and len(cluster.workers()) == 2, run)
        at_worker = parts(out)
        cluster.workers()[0].send_signal(signal.SIGKILL)
        wait_until(lambda: len(parts(out)) > len(at_worker) + 8, run)
        at_node = parts(out)
        cluster.kill(1)
        assert run.wait(200) == 0, run.communicate()[0]
    assert len(at_node) < len(parts(out)) == ROWS // PART_ROWS
    for killed, before in (("worker", at_worker), ("node", at_node)):
        again = [name for name, written in before.items() if parts(out)[name] != written]
        print(f"{killed} killed when {len(before)} parts were there; made again: {len(again)}")
        assert len(again) <= 2  # Ray gives an actor two fragments ahead

    run = start("score", tmp_path / "rows.jsonl", *metrics, "-o", alone)
    assert run.wait(200) == 0, run.communicate()[0]
    got, expected = read_folder(out), read_lines(alone)
    assert [row["id"] for row in got] == list(range(ROWS))
    for ours, theirs in zip(got, expected, strict=True):
        for name in theirs.keys() - {"id", "image", "candidate", "references"}:
            value = theirs[name]  # a network's differs by what else was in the batch
            near = pytest.approx(value, rel=0, abs=1e-6) if isinstance(value, float) else value
            assert ours[name] == near, (ours["id"], name)
