"""worker_for.py: a file of the standard library that serves a function of another environment."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import reward.service.worker_for as worker_for
from reward import CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.cli.chosen import read_metrics
from reward.errors import ServiceError
from reward.scoring.dataset import score_dataset
from tests.toys.json_lines import read_lines
from tests.toys.pictures import png

FILE = Path(worker_for.__file__)
FUNCTIONS = """
import time

def length(samples):
    if any("slow" in sample.caption for sample in samples):
        time.sleep(1)
    return [None if sample.caption == "none" else 1 / (len(sample.caption) - 3) for sample in samples]

def size(samples):
    return [(sample.image.getpixel((0, 0))[0], len(sample.image_bytes), len(sample.references)) for sample in samples]

def few(samples):
    return [1.0]
"""
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a copy of the file beside a file of functions, in a path with a blank; gives the address."""
    folder = tmp_path / "old environment"
    folder.mkdir()
    shutil.copy(FILE, folder / "worker.py")
    (folder / "old metrics.py").write_text(FUNCTIONS)
    (folder / "old.py").write_text(FUNCTIONS)
    processes = []

    def started(place: str, *options: str, python: tuple[str, ...] = (), **variables: str) -> str:
        command = [sys.executable, *python, "worker.py", place, "--port", "0", *options]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | variables
        processes.append(subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True))
        line = processes[-1].stderr.readline()  # type: ignore[union-attr]
        return line.split(" at ")[-1].strip()

    yield started
    for process in processes:
        process.terminate()
        process.communicate()


def ask(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def test_it_needs_only_the_standard_library_of_python_3_8() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 8))
    loaded = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
              for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}  # fmt: skip
    assert {name.partition(".")[0] for name in loaded} <= {*sys.stdlib_module_names}  # type: ignore[union-attr]


@pytest.mark.parametrize("python", [(), ("-S",), ("-I", "-S")])
@pytest.mark.parametrize("place", ["old metrics.py:length", "old:length"])
def test_a_function_behind_it_is_a_metric_here(start: Start, python: tuple[str, ...], place: str) -> None:
    url = start(place, "--needs", "", "--range", "0,1", python=python)
    scorer = load_scorer("length", url)
    table = scorer.score([CaptionSample(text) for text in ("a star", "none", "red", "a star")])
    assert table.column("length").tolist()[::3] == [1 / 3, 1 / 3]
    assert table.errors == {1: "length gave None", 2: "length raised ZeroDivisionError: division by zero"}
    reward = RemoteReward(url)
    assert reward.__name__ == "length"
    assert reward(["Describe."] * 2, ["a star", "..."]) == [1 / 3, 0.0]


def test_images_references_and_several_numbers(start: Start, tmp_path: Path) -> None:
    url = start("old.py:size", "--needs", "image,references", "--aspects", "red,bytes,references", "--name", "polos")
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    row = {"image": "a.png", "candidate": "A star.", "references": ["A red star.", "Red."]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    score_dataset(tmp_path / "rows.jsonl", f"polos={url}", tmp_path / "scores.jsonl", prefix="polos_")
    (scored,) = read_lines(tmp_path / "scores.jsonl")
    assert (scored["polos_red"], scored["polos_references"], scored["polos_bytes"] > 60) == (255, 2, True)
    lacking = MetricReward("polos", url).rewards([CaptionSample("A star.", png("red", (4, 4))), CaptionSample("A")])
    assert lacking == [None, None]


@pytest.mark.slow
def test_a_request_that_comes_again_is_scored_once(start: Start) -> None:
    url = start("old.py:length", "--needs", "")
    [given] = read_metrics([f"length={url}"], ["timeout=0.4", "patience=10"])
    assert given.load().score([CaptionSample("slow star"), CaptionSample("a star")]).errors == {}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"image": "a.png", "caption": "A star."}, 422, 'it looks like {"samples": [{"candidates": ["A dog."]'),
        (b"{", 422, "the body cannot be read (JSONDecodeError"),
        ({"samples": [{"candidates": ["a"], "image": {"path": "a.png"}}]}, 422, "the body cannot be read (KeyError"),
        ({"samples": [{"candidates": ["a"], "image": {"base64": "?"}}]}, 422, "the body cannot be read (Error"),
    ],
)
def test_a_wrong_request_is_told_what_is_right(start: Start, body: Any, status: int, message: str) -> None:
    url = start("old.py:length")
    told, reason = ask(url, "/score", body)
    assert (told, message in reason) == (status, True)
    assert ask(url, "/score", b"{", **{"Content-Length": "32000001"}) == (413, "the body has more than 32000000 bytes")


def test_the_token_is_asked_for_and_a_wrong_count_is_no_score(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    url = start("old.py:few", "--needs", "", CAPREWARD_TOKEN="a long secret".replace(" ", "-"))
    assert ask(url, "/health") == (200, {"status": "ok"})
    assert ask(url, "/info")[0] == 401
    with pytest.raises(ServiceError, match="refuses the token"):
        load_scorer("few", url)
    monkeypatch.setenv("CAPREWARD_TOKEN", "a-long-secret")
    assert load_scorer("few", url).score([CaptionSample("a")]).scores.tolist() == [[1.0]]


def test_another_name_than_the_workers_is_told_and_a_port_in_use(start: Start) -> None:
    url = start("old.py:length", "--needs", "")
    with pytest.raises(ServiceError, match=rf"serves length, and not 'polos': write length={url}"):
        load_scorer("polos", url)
    command = [sys.executable, FILE, "json:dumps", "--port", url.rpartition(":")[2]]
    assert "error: cannot listen at 127.0.0.1" in subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old.py"], "write file.py:function or module:function"),
        (["olf.py:length"], "No module named 'olf'"),
        (["old.py:lenght"], "module 'old' has no attribute 'lenght'"),
        (["old.py:length", "--host", "0.0.0.0"], "set the environment variable CAPREWARD_TOKEN"),
    ],
)
def test_a_wrong_start_is_told_in_a_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(FUNCTIONS)
    environment = {key: value for key, value in os.environ.items() if key != "CAPREWARD_TOKEN"}
    done = subprocess.run(
        [sys.executable, FILE, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert message in done.stderr
    assert "Traceback" not in done.stderr
