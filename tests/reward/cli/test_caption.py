"""`capreward caption` with a small model on this machine and behind a server: killed, resumed, and misused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.decoding.captioners import EMBEDDED_PROMPT
from tests.reward.cli.conftest import Run
from tests.reward.scoring.command import count_kept, wait_until
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import Fault, LoopbackJudge, loopback_judge
from tests.toys.toy_judges import llava

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
ASK = ("--metric", "length", "--n", "4", "--max-tokens", "12")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    return llava()


@pytest.fixture
def server(model: tuple[Any, Any]) -> Iterator[LoopbackJudge]:
    with loopback_judge(*model) as running:
        yield running


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Five images, one of them in a folder with a space in its name, and a file that is none."""
    folder = tmp_path / "my photos"
    (folder / "more of them").mkdir(parents=True)
    for number in range(5):
        place = folder / ("more of them" if number == 4 else "") / f"{number}.png"
        Image.new("RGB", (32, 32), (50 * number, 0, 90)).save(place)
    (folder / "notes.txt").write_text("no image")
    return folder


def each_image_once(server: LoopbackJudge, count: int, images: int = 5) -> bool:
    return len(server.choices) == images and set(server.choices.values()) == {count}


def test_a_model_on_this_machine(run: Run, photos: Path, tmp_path: Path) -> None:
    (photos / "bad.png").write_text("no image")
    line = ("caption", "--model", "embedded", photos, *ASK, "--seed", "3", "--device", "cpu")
    output = tmp_path / "out" / "captions.jsonl"
    _, err = run(*line, "--keep-candidates", "-o", output)
    assert "no caption for 1 of 6 images: image file" in err
    assert "the same command tries 1 of them again" in err
    assert "captioned 5 of 6 images from 20 candidates" in err
    assert "of 20 candidates were cut at --max-tokens" in err
    rows = read_lines(output)
    assert [row["image"] for row in rows] == [
        *(f"../my photos/{n}.png" for n in range(4)),
        "../my photos/bad.png",
        "../my photos/more of them/4.png",
    ]
    kept = {row["image"]: row for row in read_lines(output.with_name("captions.jsonl.candidates.jsonl"))}
    for row in rows[:4]:
        pool = kept[row["image"]]
        assert (row["caption"], row["reward"]) == (pool["candidates"][0], max(pool["rewards"]))
        assert len(pool["candidates"]) == 4
    assert rows[4]["caption"] is None
    assert "not an image" in rows[4]["error"]
    # the broken image is mended: only it is captioned, and the others keep theirs
    Image.new("RGB", (32, 32)).save(photos / "bad.png")
    _, err = run(*line, "--keep-candidates", "-o", output)
    assert "4 questions answered by the model" in err
    assert "captioned 6 of 6 images from 24 candidates (20 of them from an earlier run)" in err
    again = read_lines(output)
    assert again[:4] == rows[:4]
    assert not list(output.parent.glob("*.partial"))
    # a run of one go, in parts, draws others; with the same seed and parts, the same
    run(*line, "--chunk", "3", "-o", tmp_path / "a.jsonl")
    run(*line, "--chunk", "3", "--prompt", EMBEDDED_PROMPT, "-o", tmp_path / "b.jsonl")  # what it was trained on
    first, second = read_lines(tmp_path / "a.jsonl"), read_lines(tmp_path / "b.jsonl")
    assert first == second
    assert [path.name for path in tmp_path.glob("a.jsonl.*")] == ["a.jsonl.summary.json"]


def test_a_model_behind_a_server(run: Run, photos: Path, server: LoopbackJudge, tmp_path: Path) -> None:
    line = ("caption", "--model", server.endpoint, photos, *ASK, "--model-set", "prices=10,20", "--top-p", "0.9")
    output = tmp_path / "captions.jsonl"
    _, err = run(*line, "--prompt", "What is it?", "--keep-candidates", "-o", output)
    assert "5 questions answered by the model" in err
    assert "cost 0.0" in err
    assert each_image_once(server, 4)
    body = server.requests[0]
    assert (body["model"], body["n"], body["top_p"], body["max_tokens"]) == ("tiny", 4, 0.9, 12)
    assert body["messages"][0]["content"][1]["text"] == "What is it?"
    candidates = output.with_name("captions.jsonl.candidates.jsonl")
    for row, pool in zip(read_lines(output), read_lines(candidates), strict=True):
        assert row["reward"] == max(pool["rewards"])
    _, err = run(*line, "--prompt", "What is it?", "--keep-candidates", "-o", output)
    assert "is complete already, from the same images and settings; nothing was asked again" in err
    _, err = run(*line, "-o", output, code=1)
    assert "is not of this run (other images, model, metric or settings)" in err
    assert each_image_once(server, 4)


def test_a_server_that_writes_one_caption_a_reply_and_the_same_each_time(
    run: Run, photos: Path, server: LoopbackJudge, tmp_path: Path
) -> None:
    """As transformers serve; two requests are tried again by the client of the judges."""
    server.most_choices, server.samples = 1, False
    server.faults.extend([None, None, Fault("status", 503), Fault("drop")])
    line = ("caption", "--model", server.endpoint, photos, *ASK, "-o", tmp_path / "c.jsonl")
    _, err = run(*line, "--model-set", 'extra_body={"top_k": 0, "min_p": 0}')
    assert {(body["top_k"], body["min_p"], "top_p" in body) for body in server.requests} == {(0, 0, False)}
    assert "captioned 5 of 5 images from 20 candidates" in err
    assert each_image_once(server, 4)
    assert server.requests[0]["messages"][0]["content"][1]["text"] == "Describe the image in detail."
    assert "distinct among the candidates of an image: 25%, so there is little to choose from" in err
    _, err = run(*line, "--model-set", 'extra_body={"top_k": 5}', code=1)
    assert "settings); nothing was asked" in err  # candidates of other settings are others
    for wrong in ("extra_body=top_k", "prices=2"):
        assert "is not " in run(*line, "--model-set", wrong, code=2)[1]


class Process:
    """The command in a process of its own, asking one request at a time."""

    def __init__(self, server: LoopbackJudge, photos: Path, output: Path) -> None:
        server.delay = 0.3
        self.line = ["caption", "--model", server.endpoint, str(photos), *ASK, "--model-set", "concurrency=1"]
        self.line += ["-o", str(output)]
        self.kept = output.with_name(output.name + ".partial")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "reward.cli.main", *self.line]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def stop_after(self, replies: int, how: int) -> tuple[int, str]:
        """Exit code and stderr, once so many replies are saved."""
        wait_until(self.process, lambda: count_kept(self.kept) >= replies)
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed(run: Run, photos: Path, server: LoopbackJudge, tmp_path: Path, how: int) -> None:
    output = tmp_path / "captions.jsonl"
    command = Process(server, photos, output)
    code, err = command.stop_after(2, how)
    if how == signal.SIGINT:
        assert (code, "run the same again to go on" in err, "Traceback" in err) == (130, True, False)
    assert not output.exists()
    stored = count_kept(command.kept)
    time.sleep(2 * server.delay)  # the reply that was under way is counted by now, though nobody heard it
    server.delay = 0
    _, err = run(*command.line)
    assert f"captioned 5 of 5 images from 20 candidates ({4 * stored} of them from an earlier run)" in err
    counts = sorted(server.choices.values())
    assert counts[:4] == [4, 4, 4, 4]
    assert counts[4] in (4, 8)  # only what was under way is asked again


def test_a_bad_row_of_a_data_file_costs_its_image_alone(run: Run, photos: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"file": "my photos/0.png", "refs": ["a star"]}, {"file": None, "refs": []}]
    rows += [{"file": "my photos/9.png"}, {"file": "my photos/1.png", "refs": [5]}]
    rows += [{"file": ["my photos/1.png", "my photos/2.png"], "refs": ["a star"]}]
    data = write_lines(tmp_path / "images.jsonl", rows)
    line = ("caption", "--model", "embedded", data, "-m", "unigram", "--n", "2", "--max-tokens", "9")
    run(*line, "--image-column", "file", "-o", tmp_path / "c.jsonl")
    found = read_lines(tmp_path / "c.jsonl")
    assert [row["caption"] is None for row in found] == [False, True, True, True, True]
    assert [row["image"] for row in found] == ["my photos/0.png", None, "my photos/9.png", None, None]
    whys = ("the row has no image in column 'file'", "", "references[0] must be a string", "2 images")
    assert all(why in row["error"] for row, why in zip(found[1:], whys, strict=True))


def test_a_name_that_is_not_utf8_costs_its_image_alone(run: Run, photos: Path, tmp_path: Path) -> None:
    try:
        os.rename(photos / "0.png", os.fsencode(photos) + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    output = tmp_path / "captions.jsonl"
    _, err = run("caption", "--model", "embedded", photos, *ASK, "--device", "cpu", "-o", output)
    assert "no caption for 1 of 5 images: the name of the image file is not UTF-8" in err
    (bad,) = [row for row in read_lines(output) if row["caption"] is None]
    assert bad["image"] is None
    assert r"caf\udce9.png'; rename it" in bad["error"]


def test_the_weighted_mean_of_several_metrics_chooses(run: Run, photos: Path, tmp_path: Path) -> None:
    line = ("caption", photos / "0.png", "-m", "vela", "-m", "length", "--weights", "vela=1,length=0", "--n", "2")
    run(*line, "--max-tokens", "9", "--model", "embedded", "--device", "cpu", "-o", tmp_path / "several.jsonl")
    assert 0 < read_lines(tmp_path / "several.jsonl")[0]["reward"] < 1


def test_what_a_server_refuses(run: Run, photos: Path, server: LoopbackJudge, tmp_path: Path) -> None:
    line = ("caption", photos, *ASK, "-o", tmp_path / "c.jsonl", "--model")
    _, err = run(*line, f"{server.endpoint}#huge", code=1)
    assert "error: no model 'huge' at" in err
    server.refuse = "Describe"
    _, err = run(*line, server.endpoint, code=1)
    assert "error: no image could be captioned; the first: the server refuses the question (" in err
    assert "if these are too many at once, give a smaller --chunk, such as 1" in err
    _, err = run(*line, server.endpoint.replace("/v1", "/v2"), code=1)
    assert "needs the model's name, as it does not list its models: give http://" in err
    started = time.monotonic()
    _, err = run(*line, "http://127.0.0.1:9/v1", code=1)
    assert "error: no server can be asked at http://127.0.0.1:9/v1: no connection" in err
    assert time.monotonic() - started < 10
    assert not list(tmp_path.glob("c.jsonl*"))
