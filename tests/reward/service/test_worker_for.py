"""worker_for.py: a file of the standard library that serves a function of another environment."""

import argparse
import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import reward.service.worker_for as worker_for
from reward import CaptionSample, RemoteReward, load_scorer
from reward.data.images import load_image
from reward.errors import ServiceError
from reward.http_client import http_library
from reward.remote.scorer import RemoteScorer
from tests.toys.pictures import png

FILE = Path(worker_for.__file__)
FUNCTIONS = """
import time

def length(samples):
    if any("slow" in sample.caption for sample in samples):
        time.sleep(0.5)
    return [None if sample.caption == "none" else 1 / (len(sample.caption) - 3) for sample in samples]

def size(samples):
    return [(sample.image.getpixel((0, 0))[0], sample.image.width, len(sample.references)) for sample in samples]

def pixels(samples):
    return [(sample.image.width, *sample.image.getpixel((0, 0))) for sample in samples]

def few(samples):
    return [1.0]
"""
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path):
    """Starts a copy of the file beside a file of functions, in a path with a blank; gives the address."""
    shutil.copy(FILE, tmp_path / "worker.py")
    (tmp_path / "old metrics.py").write_text(FUNCTIONS)
    processes = []

    def started(function, *options, python=(), **variables):
        command = [sys.executable, *python, "worker.py", f"old metrics.py:{function}", "--port", "0", *options]
        environment = {**os.environ, **variables}
        processes.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True))
        return processes[-1].stderr.readline().split(" at ")[-1].strip()

    yield started
    for process in processes:
        process.terminate()
        process.communicate()


def test_it_needs_only_the_standard_library_of_python_3_8():
    imports = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 8)).body
    loaded = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    loaded |= {node.names[0].name for node in imports if isinstance(node, ast.Import)}
    assert {str(name).partition(".")[0] for name in loaded} <= {*sys.stdlib_module_names}


def test_a_function_behind_it_is_a_metric_here(start):
    url = start("length", "--needs", "", "--range", "0,1", python=("-I", "-S"))  # without what is installed
    reward = RemoteReward(url)
    assert reward.__name__ == "length"
    assert reward(["Describe."] * 4, ["a star", "none", "red", "..."]) == [1 / 3, None, None, 0.0]
    table = load_scorer("length", url).score([CaptionSample("none"), CaptionSample("red")])
    assert table.errors == {0: "length gave None", 1: "length raised ZeroDivisionError: division by zero"}


def test_a_reply_waits_for_no_confirmation_of_its_headers(start):
    connection = HTTPConnection(start("length").removeprefix("http://"))
    seconds = []
    for _ in range(20):
        begin = time.monotonic()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.monotonic() - begin)
    assert min(seconds[5:]) < 0.015


def test_images_references_and_several_numbers(start):
    url = start("size", "--needs", "image,references", "--aspects", "red,width,references", "--name", "polos")
    samples = [CaptionSample("A star.", png("red"), ["A red star.", "Red."]), CaptionSample("A star.", png("red"))]
    table = load_scorer("polos", url).score(samples)
    assert table.scores[0].tolist() == [255, 8, 2]
    assert ("needs references" in table.errors[1], table.truncated.any()) == (True, False)
    two = load_scorer("size", start("size", "--aspects", "red,width")).score(samples[:1])
    assert "it gave 3 numbers for the aspects red, width" in two.errors[0]


@pytest.mark.slow
def test_a_request_that_comes_again_is_scored_once(start):
    scorer = RemoteScorer(start("length", "--needs", ""), timeout=0.3, patience=10)
    assert scorer.score([CaptionSample("slow star"), CaptionSample("a star")]).errors == {}


def metric_of(function, *weights):
    told = {"name": "metric", "aspects": None, "needs": "", "range": None}
    options = argparse.Namespace(**told, weights=[str(path) for path in weights])
    return worker_for.Metric(function, b"", options)


def test_a_reply_with_a_failure_is_not_remembered():
    calls = []

    def soon(samples):
        calls.append(len(samples))
        if len(calls) == 1:
            raise MemoryError("CUDA out of memory")
        return [1.0]

    metric, body = metric_of(soon), b'{"samples": [{"candidates": ["a"]}]}'
    told = [metric.answer(body)["samples"][0]["errors"] for _ in range(3)]
    assert told == [["metric raised MemoryError: CUDA out of memory"], [None], [None]]
    assert len(calls) == 2


def test_other_weights_are_another_metric(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    identities = [metric_of(len).identity]
    for name, content in (("a", b"1"), ("a", b"2"), ("b", b"2")):
        for file in folder.iterdir():
            file.unlink()
        (folder / name).write_bytes(content)
        identities += [metric_of(len, folder).identity, metric_of(len, folder / name).identity]
    assert len(set(identities)) == 6  # the same file under another name is the same weights
    assert metric_of(len, folder.rename(tmp_path / "moved")).identity == identities[-2]


HOLED = Image.new("RGBA", (3, 2), (255, 0, 0, 128))
DEEP = Image.fromarray(np.full((2, 3), 30_000, np.uint16))
TURNED = Image.new("RGB", (3, 2), "red")
TURNED.putpixel((0, 0), (0, 0, 255))


@pytest.mark.parametrize("picture", [HOLED, DEEP, TURNED], ids=["alpha", "16 bits", "orientation"])
def test_it_sees_the_pixels_that_all_metrics_see(picture, start, tmp_path):
    path = tmp_path / "picture.png"
    exif = Image.Exif()
    if picture is TURNED:
        exif[0x0112] = 6
    picture.save(path, exif=exif)
    scorer = load_scorer("pixels", start("pixels", "--needs", "", "--aspects", "width,red,green,blue"))
    with Image.open(path) as opened:
        table = scorer.score([path, path.read_bytes(), opened], "A star.")
    seen = load_image(path)
    assert table.scores.tolist() == [[seen.width, *seen.getpixel((0, 0))]] * 3


def test_a_wrong_request_is_told_what_is_right(start):
    url = start("length")
    image = {"samples": [{"candidates": ["a"], "image": {"path": "a.png"}}]}
    jpeg = {"samples": [{"candidates": ["a"], "image": {"base64": "/9j/4AAQSkZJRgABAQ=="}}]}
    for body, status, message in (
        (b'{"caption": "A star."}', 422, 'it looks like {"samples": [{"candidates": ["A dog."]'),
        (b"{", 422, "the body cannot be read (JSONDecodeError"),
        (json.dumps(image).encode(), 422, "the body cannot be read (KeyError"),
        (json.dumps(jpeg).encode(), 422, "an image must be a PNG of mode RGB with 8 bits a channel"),
    ):
        reply = http_library().post(f"{url}/score", content=body)
        assert (reply.status_code, message in reply.json()["error"]) == (status, True)
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", "/score", headers={"Content-Length": "256000001"})
    large = connection.getresponse()
    assert (large.status, b"the body has more than 256000000 bytes" in large.read()) == (413, True)


def test_the_token_is_asked_for_and_a_wrong_count_is_no_score(start, monkeypatch):
    url = start("few", "--needs", "", CAPREWARD_TOKEN="a-long-secret")
    assert http_library().get(f"{url}/health").json() == {"status": "ok"}
    with pytest.raises(ServiceError, match="refuses the token"):
        load_scorer("few", url)
    monkeypatch.setenv("CAPREWARD_TOKEN", "a-long-secret")
    with pytest.raises(ServiceError, match=rf"serves few, and not 'polos': write few={url}"):
        load_scorer("polos", url)
    table = load_scorer("few", url).score([CaptionSample("a"), CaptionSample("b")])
    assert table.scores.tolist() == [[1.0], [1.0]]  # one by one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old.py"], "write file.py:function or module:function"),
        (["olf.py:length"], "No module named 'olf'"),
        (["old:lenght"], "module 'old' has no attribute 'lenght'"),
        (["old.py:length", "--host", "0.0.0.0"], "set the environment variable CAPREWARD_TOKEN"),
        (["old.py:length", "--weights", "absent.pt"], "--weights: there is no file or folder absent.pt"),
        (["old.py:length", "--port", "PORT"], "cannot listen at 127.0.0.1"),
    ],
)
def test_a_wrong_start_is_told_in_a_line(arguments, message, tmp_path):
    (tmp_path / "old.py").write_text(FUNCTIONS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, FILE, *arguments]
        command[-1] = command[-1].replace("PORT", str(taken.getsockname()[1]))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (message in done.stderr, "Traceback" in done.stderr) == (True, False)
