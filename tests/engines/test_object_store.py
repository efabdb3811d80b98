"""A moto server as the object store: the run is killed at any time, and the same command goes on."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toys.loopback_http import free_port

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

ROWS, FILE_ROWS, KILLS = 480, 8, 4


@pytest.fixture
def store(monkeypatch):
    """A file system with the empty bucket `captions`, of a server in a process of its own."""
    import fsspec

    port = free_port()
    server = subprocess.Popen([Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)])
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    system = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
    for _ in range(100):
        try:
            system.mkdir("captions")
            break
        except Exception:  # botocore's, until the server listens
            time.sleep(0.2)
    yield system
    server.kill()
    server.wait()


def parts(system):
    system.invalidate_cache()
    return [path for path in system.find("captions/scores") if path.endswith(".parquet")]


def test_killed_at_any_time(store, photos, tmp_path, start):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pictures = [path.read_bytes() for path in sorted(photos.iterdir())]
    rows = [
        {"id": row, "image": {"bytes": pictures[row % len(pictures)], "path": None}, "candidate": f"{row} red stars."}
        for row in range(ROWS)
    ]
    for first in range(0, ROWS, FILE_ROWS):
        path = tmp_path / f"{first:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[first : first + FILE_ROWS]), path)
        store.put_file(str(path), f"captions/rows/{path.name}")
    command = ["score", "s3://captions/rows", "-m", "vela", "--quiet", "-o", "s3://captions/scores"]
    command += ["--engine", "ray", "--workers", 0]

    for kill in range(KILLS):
        before = len(parts(store))
        run = start(*command)
        while len(parts(store)) == before and run.poll() is None:
            time.sleep(0.05)
        time.sleep(random.Random(kill).random())
        run.kill()
        run.wait()
        print(f"killed with {len(parts(store))} parts")
    assert len(parts(store)) < ROWS / FILE_ROWS
    run = start(*command)
    assert run.wait(200) == 0, run.communicate()[0]

    written = []
    for path in parts(store):
        with store.open(path) as file:
            written += pq.read_table(file, columns=["id", "reward"]).to_pylist()
    assert sorted(row["id"] for row in written) == list(range(ROWS))
    assert all(row["reward"] is not None for row in written)
