"""`compare`: two captioners on the same images."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.benchmarks.own_captions import load_captions
from reward.metaeval.two_captioners import compare_captioners
from reward.registry import MetricSource
from tests.toys.json_lines import write_lines

LENGTHS = [3, 1, 4, 1, 5]
LENGTH = [MetricSource("length")]
IMAGES = [f"photos/{number}.png" for number in range(5)]


def write_captions(path, lengths, images=IMAGES):
    """Captions of so many words, and these numbers as their rewards."""
    texts = [None if length is None else " ".join(["star"] * length) for length in lengths]
    rows = zip(images, texts, lengths, strict=True)
    return write_lines(path, ({"image": image, "caption": text, "reward": length} for image, text, length in rows))


@pytest.mark.parametrize(
    ("images", "lengths"),
    [
        (IMAGES[::-1], [2] * 5),  # in another order
        ([f"elsewhere/{number}.png" for number in range(5)], [2] * 5),
        ([str(number) for number in range(6)], [*[2] * 5, 9]),  # names without ending, one more
        (IMAGES * 2, [1] * 5 + [3] * 5),  # two captions an image
    ],
)
def test_images_are_matched_and_compared_in_pairs(tmp_path, images, lengths):
    files = write_captions(tmp_path / "a.jsonl", LENGTHS), write_captions(tmp_path / "b.jsonl", lengths, images)
    (compared,) = compare_captioners([load_captions(file) for file in files], resamples=50)
    assert compared.scores.tolist() == [LENGTHS, [2] * 5]
    assert compared.difference.value == pytest.approx(np.mean(LENGTHS) - 2)
    assert compared.difference.low < compared.difference.value < compared.difference.high
    assert compared.win_rate.value == 3 / 5
    assert "5 images are in both" in compared.note


def test_what_has_no_score_is_left_out_and_counted_also_when_quiet(tmp_path, run):
    first = write_captions(tmp_path / "a.jsonl", [*LENGTHS[:4], None])
    second = write_captions(tmp_path / "b.jsonl", [2, 2, 1], IMAGES[2:])
    out, err = run("compare", first, second, "-m", "length", "--json", "-q")
    [row] = json.loads(out)["rows"]
    assert (row["scores"], row["unscored"]) == ([2.5, 2.0], [1, 0])
    note = "3 images are in both, by path; 2 of them have scores of both; 1 captions of a.jsonl and 0 of b.jsonl have"
    assert f"{note} no score, and do not count" in err
    assert "nothing beside a.jsonl and b.jsonl says which metric" in run("compare", first, second)[1]
    bare = write_lines(tmp_path / "c.jsonl", [{"image": "x.png", "caption": "star"}])
    for metrics, message in (([], "no column reward of scores: give --metric"), (LENGTH, "0 images are in both")):
        with pytest.raises(DataError, match=message):
            list(compare_captioners([load_captions(first), load_captions(bare)], metrics))


def score(run, data, *line):
    """What `score` makes of captions, beside them."""
    output = data.with_name(f"{data.stem}.{'-'.join(line)}.jsonl".replace("/", "-"))
    run("score", data, "-o", output, "-q", *line)
    return output


@pytest.mark.parametrize(
    ("first", "second", "compared", "message"),
    [
        ("-m length", "-m length", "", ""),
        ("-m length -m unigram", "-m unigram -m length", "-m length", ""),
        ("-m length -m unigram -w length=1,unigram=3", "-m length", "-m length", ""),
        ("-m length --prefix a_", "-m length --prefix b_", "", ""),
        ("-m unigram", "-m unigram", "-m length", ""),  # scored now
        ("-m length -w length=1", "-m length -w length=2", "-m length", ""),  # so is what differs in its settings
        ("-m length", "-m unigram", "", "by length in a.* and by unigram in b.*cannot be compared: --metric NAME="),
        ("-m length -m unigram", "-m length", "", "choose one of length, unigram by --metric"),
        (
            "-m length -m unigram -w length=1,unigram=1",
            "-m length -m unigram -w length=1,unigram=3",
            "",
            r"by length\+unigram in both, with different weights",
        ),
    ],
)
def test_scores_are_compared_that_the_same_metric_made(run, tmp_path, first, second, compared, message):
    files = []
    for name, lengths, line in (("a", LENGTHS, first), ("b", [2] * 5, second)):
        rows = [{"image": image, "caption": "star " * words} for image, words in zip(IMAGES, lengths, strict=True)]
        data = write_lines(tmp_path / f"{name}.jsonl", [{**row, "references": ["a star"]} for row in rows])
        files.append(score(run, data, *line.split()))
    if message:
        assert re.search(message, run("compare", *files, *compared.split(), code=1)[1])
        return
    (row,) = json.loads(run("compare", *files, *compared.split(), "--json")[0])["rows"]
    assert (row["metric"].removeprefix("column:"), row["scores"]) == (compared[3:] or "reward", [2.8, 2.0])
    assert ("by length" in row["note"]) == (first not in ("-m unigram", "-m length -w length=1"))


def test_scores_that_are_not_of_these_captions_are_scored_anew(run, tmp_path):
    files = []
    for name in "ab":
        rows = [{"image": image, "caption": "star star", "references": ["star"] * (name == "b")} for image in IMAGES]
        files.append(score(run, write_lines(tmp_path / f"{name}.jsonl", rows), "-m", "length", "-m", "unigram"))
    # The first file has no score by unigram at all.
    message = run("compare", *files, "-m", "unigram", code=1)[1]
    assert "5 captions of a.-m-length-m-unigram.jsonl and 0 of" in message.replace("--", "-")
    files[0].write_text(files[0].read_text().replace("star star", "star", 1))
    assert json.loads(run("compare", *files, "-m", "length", "--json")[0])["rows"][0]["scores"] == [1.8, 2.0]


def test_the_command_prints_a_table_and_writes_one_page(run, tmp_path):
    (tmp_path / "photos").mkdir()
    for image in IMAGES:
        Image.new("RGB", (8, 8), "red").save(tmp_path / image)
    one, other = write_captions(tmp_path / "a.jsonl", LENGTHS), write_captions(tmp_path / "b.jsonl", [2] * 5)
    out, _ = run("compare", f"old={one}", f"new={other}", "-m", "length", "-o", tmp_path / "page" / "index.html")
    assert "old - new" in out
    assert "60.0" in out
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 5
    assert page.index("old is better") < page.index("old (5.000): star") < page.index("new is better")
    assert "compare takes two files, got 1" in run("compare", one, code=2)[1]
