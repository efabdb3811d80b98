"""`capreward caption` with a small model on this machine and behind a server; kills are in `test_part_engine.py`."""

import os

import pytest
from PIL import Image

from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import Fault, loopback_judge
from tests.toys.toy_judges import llava

pytestmark = pytest.mark.slow

ASK = ("--metric", "length", "--n", "4", "--max-tokens", "12")
HERE = ("--model", "embedded", "--device", "cpu")


@pytest.fixture(scope="module")
def model():
    return llava()


@pytest.fixture
def server(model, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with loopback_judge(*model) as running:
        yield running


@pytest.fixture
def photos(tmp_path):
    """Three images, one of them in a folder with a space in its name, and a file that is none."""
    folder = tmp_path / "my photos"
    (folder / "more of them").mkdir(parents=True)
    for number, place in enumerate(("0.png", "1.png", "more of them/2.png")):
        Image.new("RGB", (32, 32), (50 * number, 0, 90)).save(folder / place)
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_model_on_this_machine_and_a_broken_image_that_is_mended(run, photos, tmp_path):
    (photos / "bad.png").write_text("no image")
    output = tmp_path / "out" / "captions.jsonl"
    line = ("caption", *HERE, photos, *ASK, "--seed", "3", "--keep-candidates", "-o", output)
    _, err = run(*line)
    for said in (
        "no caption for 1 of 4 images: image file",
        "the same command tries 1 of them again",
        "captioned 3 of 4 images from 12 candidates",
        "of 12 candidates were cut at --max-tokens",
    ):
        assert said in err
    *good, bad, last = read_lines(output)
    assert (bad["image"], last["image"]) == ("../my photos/bad.png", "../my photos/more of them/2.png")
    kept = read_lines(output.with_name("captions.jsonl.candidates.jsonl"))
    for row, pool in zip((*good, last), kept, strict=True):
        assert (row["caption"], row["reward"]) == (pool["candidates"][0], max(pool["rewards"]))
        assert len(pool["candidates"]) == 4
    assert (bad["caption"], "not an image" in bad["error"]) == (None, True)
    Image.new("RGB", (32, 32)).save(photos / "bad.png")
    assert "captioned 4 of 4 images from 16 candidates (12 of them from an earlier run)" in run(*line)[1]
    assert read_lines(output)[:2] == good
    assert not list(output.parent.glob("*.partial"))


def test_captions_without_a_metric_can_be_scored_by_one(run, photos, tmp_path):
    output = tmp_path / "captions.jsonl"
    _, err = run("caption", photos, *HERE, "-n", "1", "--seed", "3", "-o", output)
    assert "captioned 3 of 3 images from 3 candidates" in err
    assert [sorted(row) for row in read_lines(output)] == [["caption", "image"]] * 3
    run("score", output, "-m", "length", "-o", tmp_path / "scores.jsonl", "-q")
    assert all(row["reward"] > 0 for row in read_lines(tmp_path / "scores.jsonl"))


def test_the_same_seed_and_chunks_draw_the_same_and_the_weighted_mean_of_metrics_chooses(run, photos, tmp_path):
    line = ("caption", photos / "0.png", *HERE, "-m", "vela", "-m", "length", "--weights", "vela=1,length=0")
    line += ("--n", "3", "--max-tokens", "9", "--chunk", "2", "--seed", "1", "-o")
    run(*line, tmp_path / "a.jsonl")
    run(*line, tmp_path / "b.jsonl", "--prompt", "Describe the picture.")  # what the embedded model is asked by default
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()
    assert 0 < read_lines(tmp_path / "a.jsonl")[0]["reward"] < 1
    assert [path.name for path in tmp_path.glob("a.jsonl.*")] == ["a.jsonl.summary.json"]


def test_a_model_behind_a_server(run, photos, server, tmp_path):
    output = tmp_path / "captions.jsonl"
    line = ("caption", "--model", server.endpoint, photos, *ASK, "--model-set", "prices=[10,20]", "-o", output)
    asked = ("--top-p", "0.9", "--prompt", "What is it?", "--model-set", 'extra_body={"min_p": 0}')
    _, err = run(*line, *asked)
    assert "3 questions answered by the model" in err
    assert "cost 0.0" in err
    body = server.requests[0]
    fields = ("model", "n", "top_p", "max_tokens", "min_p")
    assert [body[name] for name in fields] == ["tiny", 4, 0.9, 12, 0]
    assert body["messages"][0]["content"][1]["text"] == "What is it?"
    assert "is complete already, from the same images and settings; nothing was asked again" in run(*line, *asked)[1]
    for others in (asked[:-2], ()):
        assert "is not of this run (other images, model, metric or settings)" in run(*line, *others, code=1)[1]
    assert [*server.choices.values()] == [4, 4, 4]


def test_a_server_that_writes_one_caption_a_reply_and_the_same_each_time(run, photos, server, tmp_path):
    """As transformers serve; two requests are tried again by the client of the judges."""
    server.most_choices, server.samples = 1, False
    server.faults.extend([None, None, Fault("status", 503), Fault("drop")])
    _, err = run("caption", "--model", server.endpoint, photos, *ASK, "-o", tmp_path / "c.jsonl")
    assert not any("top_p" in body for body in server.requests)
    assert "captioned 3 of 3 images from 12 candidates" in err
    assert [*server.choices.values()] == [4, 4, 4]
    assert server.requests[0]["messages"][0]["content"][1]["text"] == "Describe the image in detail."
    assert "distinct among the candidates of an image: 25%, so there is little to choose from" in err


def test_a_later_chunk_that_fails_loses_no_caption(run, photos, server, tmp_path):
    server.faults.extend([None, Fault("status", 400)])
    line = ("caption", "--model", server.endpoint, photos / "0.png", *ASK, "--chunk", "2", "-o", tmp_path / "c.jsonl")
    _, err = run(*line, "--model-set", "concurrency=1")
    assert "captioned 1 of 1 images from 2 candidates" in err
    assert "the same command tries 1 of them again" in err
    [row] = read_lines(tmp_path / "c.jsonl")
    assert (bool(row["caption"]), "the server refuses the question" in row["error"]) == (True, True)
    assert "captioned 1 of 1 images from 4 candidates (2 of them from an earlier run)" in run(*line)[1]
    assert read_lines(tmp_path / "c.jsonl")[0]["error"] is None
    assert [*server.choices.values()] == [4]


def test_a_bad_row_of_a_data_file_costs_its_image_alone(run, photos, tmp_path):
    rows = [
        {"file": "my photos/0.png", "refs": ["a star"]},
        {"file": None, "refs": []},
        {"file": "my photos/9.png"},
        {"file": "my photos/1.png", "refs": [5]},
        {"file": ["my photos/1.png", "my photos/2.png"]},
    ]
    whys = ("", "the row has no image in column 'file'", "does not exist", "references[0] must be a string", "2 images")
    data = write_lines(tmp_path / "images.jsonl", rows)
    line = ("caption", *HERE, data, "-m", "unigram", "--n", "2", "--max-tokens", "9")
    run(*line, "--image-column", "file", "-o", tmp_path / "c.jsonl")
    for found, why in zip(read_lines(tmp_path / "c.jsonl"), whys, strict=True):
        assert (found["caption"] is None, why in (found["error"] or "")) == (bool(why), True)


def test_a_name_that_is_not_utf8_costs_its_image_alone(run, photos, tmp_path):
    try:
        os.rename(photos / "0.png", os.fsencode(photos) + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    _, err = run("caption", *HERE, photos, *ASK, "-o", tmp_path / "c.jsonl")
    assert "no caption for 1 of 3 images: the name of the image file is not UTF-8" in err
    (bad,) = [row for row in read_lines(tmp_path / "c.jsonl") if row["caption"] is None]
    assert (bad["image"], r"caf\udce9.png'; rename it" in bad["error"]) == (None, True)
