"""Shards and parts in an S3-like store on the loopback interface."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integrations.ray_data import score_files
from reward.errors import DataError, OutputError
from tests.integrations.ray_data.files import make_rows, read_folder, save_rows
from tests.toys.loopback_http import free_port
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

score_here = partial(score_files, workers=0)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system with the empty bucket `captions`."""
    import fsspec

    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    type(system).clear_instance_cache()
    system.mkdir("captions")
    yield system
    system.invalidate_cache()
    system.rm("captions", recursive=True)  # the server's memory is that of this process
    type(system).clear_instance_cache()
    server.stop()


def read_parts(system: Any, folder: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    system.invalidate_cache()
    rows: list[dict[str, Any]] = []
    for path in system.glob(f"{folder}/part-*.parquet"):
        with system.open(path) as file:
            rows += pq.read_table(file).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_from_bucket_to_bucket(kind: str, bucket: Any, tmp_path: Path) -> None:
    rows = make_rows(tmp_path)
    if kind == "parquet":  # which holds its images
        files = [tmp_path / row["image"] for row in rows]
        rows = [{**row, "image": f.read_bytes() if f.exists() else b"no"} for row, f in zip(rows, files, strict=True)]
    save_rows(rows, tmp_path, kind)
    for name in os.listdir(tmp_path):
        bucket.put_file(str(tmp_path / name), f"captions/in/{name}")
    data = f"s3://captions/in/*.{kind}"
    options: dict[str, Any] = {"candidate_column": "txt"} if kind == "tar" else {}
    summary = score_here(data, PictureScorer(), "s3://captions/out", part_rows=8, **options)
    assert (summary.rows, summary.errors) == (24, {"candidate": 1, "metric": 1, "image": 1})
    score_here(str(tmp_path / f"*.{kind}"), PictureScorer(), tmp_path / "out", part_rows=8, **options)
    got, local = read_parts(bucket, "captions/out"), read_folder(tmp_path / "out")
    assert [(row["brightness"], row["words"]) for row in got] == [(row["brightness"], row["words"]) for row in local]
    assert score_here(data, PictureScorer(), "s3://captions/out", part_rows=8, **options).already_done
    assert not [name for name in bucket.ls("captions/out") if "_unfinished" in name]


def test_a_bucket_that_is_not_there(bucket: Any, tmp_path: Path) -> None:
    data = str(save_rows(make_rows(tmp_path), tmp_path, "jsonl") / "*.jsonl")
    with pytest.raises(DataError, match=r"there is no file s3://none/in|holds no file"):
        score_here("s3://none/in", "length", tmp_path / "out")
    with pytest.raises(OutputError, match=r"cannot write s3://none/out/_run.json: .* bucket does not exist"):
        score_here(data, "length", "s3://none/out")
    assert not bucket.exists("none")


def test_a_store_that_does_not_answer_and_one_without_keys(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(save_rows(make_rows(tmp_path), tmp_path, "jsonl") / "*.jsonl")
    bucket.clear_instance_cache()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(OutputError, match=r"output s3://captions/out cannot be looked at: .*Error"):
        score_here(data, "length", "s3://captions/out")
    with pytest.raises(DataError, match=r"s3://captions/in/\*.jsonl cannot be read: .*Error"):
        score_here("s3://captions/in/*.jsonl", "length", tmp_path / "out")
    bucket.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(OutputError, match="NoCredentialsError: Unable to locate credentials"):
        score_here(data, "length", "s3://captions/out")
