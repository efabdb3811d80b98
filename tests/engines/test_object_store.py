"""A moto server as the object store: the run is killed in the middle of uploads, and the same command goes on."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toys.loopback_http import free_port

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

ROWS, PART_ROWS = 480, 8


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


def names(system):
    system.invalidate_cache()
    return [path.rpartition("/")[2] for path in system.find("captions/scores")]


def test_killed_in_the_middle_of_uploads(store, photos, tmp_path, start):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pictures = [path.read_bytes() for path in sorted(photos.iterdir())]
    rows = [
        {"id": row, "image": {"bytes": pictures[row % len(pictures)], "path": None}, "candidate": f"{row} red stars."}
        for row in range(ROWS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=PART_ROWS)
    store.put_file(str(tmp_path / "rows.parquet"), "captions/rows.parquet")
    command = ["score", "s3://captions/rows.parquet", "-m", "vela", "--quiet", "-o", "s3://captions/scores"]
    command += ["--engine", "ray", "--workers", 0, "--part-rows", PART_ROWS]

    kills = cut_off = 0  # a kill may also come just before or after an upload
    while kills < 4 or not cut_off:
        run = start(*command)
        while run.poll() is None:
            written = names(store)
            parts = sum(name.startswith("part-") for name in written)
            if parts > 2 * kills and (half := [name for name in written if "unfinished" in name]):
                run.kill()
                run.wait()
                kills += 1
                cut_off += any(name in half for name in names(store))
                print(f"killed with {parts} parts and {len(half)} uploads")
        assert run.returncode != 0, f"{kills} kills, none of them within an upload"
    run = start(*command)
    assert run.wait(200) == 0, run.communicate()[0]

    written = names(store)
    assert all(name.startswith(("part-", "_run")) for name in written)
    got = []
    for name in written:
        if name.startswith("part-"):
            with store.open(f"captions/scores/{name}") as file:
                got += pq.read_table(file).to_pylist()
    assert sorted(row["id"] for row in got) == list(range(ROWS))
    assert all(row["reward"] is not None for row in got)
