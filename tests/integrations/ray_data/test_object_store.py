"""Shards and parts in an S3-like store on the loopback interface."""

from functools import partial

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


@pytest.fixture(scope="module")
def address():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address, monkeypatch):
    """A file system with the empty bucket `captions`."""
    import fsspec

    names = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}
    for name, value in names.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    type(system).clear_instance_cache()
    system.mkdir("captions")
    yield system
    system.invalidate_cache()
    system.rm("captions", recursive=True)  # the server's memory is that of this process
    type(system).clear_instance_cache()


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_from_bucket_to_bucket(kind, bucket, tmp_path):
    rows = make_rows(tmp_path)
    if kind == "parquet":  # which holds its images
        files = [tmp_path / row["image"] for row in rows]
        rows = [{**row, "image": f.read_bytes() if f.exists() else b"no"} for row, f in zip(rows, files, strict=True)]
    save_rows(rows, tmp_path, kind)
    for file in tmp_path.iterdir():
        bucket.put_file(str(file), f"captions/in/{file.name}")
    options = {"candidate_column": "txt"} if kind == "tar" else {}
    run = partial(score_here, scorer=PictureScorer(), part_rows=8, **options)
    summary = run(f"s3://captions/in/*.{kind}", output="s3://captions/out")
    assert (summary.rows, summary.errors) == (24, {"candidate": 1, "metric": 1, "image": 1})
    assert run(f"s3://captions/in/*.{kind}", output="s3://captions/out").already_done
    bucket.invalidate_cache()
    bucket.get("captions/out/part-*", str(tmp_path / "got") + "/")
    run(str(tmp_path / f"*.{kind}"), output=tmp_path / "out")
    got, here = read_folder(tmp_path / "got"), read_folder(tmp_path / "out")
    assert [(row["brightness"], row["words"]) for row in got] == [(row["brightness"], row["words"]) for row in here]


def test_a_store_without_the_bucket_and_one_that_does_not_answer(bucket, tmp_path, monkeypatch):
    data = str(save_rows(make_rows(tmp_path), tmp_path, "jsonl") / "*.jsonl")
    with pytest.raises(DataError, match=r"s3://none/in cannot be read: .* bucket does not exist"):
        score_here("s3://none/in", "length", tmp_path / "out")
    with pytest.raises(OutputError, match=r"cannot write s3://none/out: .* bucket does not exist"):
        score_here(data, "length", "s3://none/out")
    assert not bucket.exists("none")
    bucket.clear_instance_cache()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(OutputError, match=r"output s3://captions/out cannot be looked at: .*Error"):
        score_here(data, "length", "s3://captions/out")
    with pytest.raises(DataError, match=r"s3://captions/in/\*.jsonl cannot be read: .*Error"):
        score_here("s3://captions/in/*.jsonl", "length", tmp_path / "out")
