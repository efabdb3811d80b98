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


def written(path, lengths, images):
    """Captions of so many words, and these numbers as their rewards."""
    texts = [None if length is None else " ".join(["star"] * length) for length in lengths]
    rows = zip(images, texts, lengths, strict=True)
    return write_lines(path, ({"image": image, "caption": text, "reward": length} for image, text, length in rows))


def side(path, lengths, images=IMAGES):
    return load_captions(written(path, lengths, images))


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
    sides = side(tmp_path / "a.jsonl", LENGTHS), side(tmp_path / "b.jsonl", lengths, images)
    (found,) = compare_captioners(sides, resamples=50)
    assert found.scores.tolist() == [LENGTHS, [2] * 5]
    assert found.difference.value == pytest.approx(np.mean([3, 1, 4, 1, 5]) - 2)
    assert found.difference.low < found.difference.value < found.difference.high
    assert found.win_rate.value == 3 / 5
    assert "5 images are in both" in found.note


def test_what_has_no_score_is_left_out_and_said(tmp_path):
    first = side(tmp_path / "a.jsonl", [*LENGTHS[:4], None])
    (found,) = compare_captioners([first, side(tmp_path / "b.jsonl", [2, 2, 1], IMAGES[2:])], LENGTH)
    assert found.scores.tolist() == [[4, 1], [2, 2]]
    assert (
        "3 images are in both, by path; 2 of them have scores of both; 1 captions of a.jsonl and 0 of b" in found.note
    )
    assert found.unscored == (1, 0)
    bare = load_captions(write_lines(tmp_path / "c.jsonl", [{"image": "x.png", "caption": "star"}]))
    for metrics, message in (([], "no column reward of scores: give --metric"), (LENGTH, "0 images are in both")):
        with pytest.raises(DataError, match=message):
            list(compare_captioners([first, bare], metrics))


def scored(run, data, *line):
    """What `score` makes of captions, beside them."""
    output = data.with_name(f"{data.stem}.{'-'.join(map(str, line))}.jsonl".replace("/", "-"))
    run("score", data, "-o", output, "-q", *line)
    return output


@pytest.mark.parametrize(
    ("first", "second", "compared", "message"),
    [
        ("-m length", "-m length", "", ""),
        ("-m length -m unigram", "-m unigram -m length", "-m length", ""),
        ("-m length -m unigram", "-m length", "-m length", ""),
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
    sides = []
    for name, lengths, line in (("a", LENGTHS, first), ("b", [2] * 5, second)):
        rows = [{"image": image, "caption": "star " * words} for image, words in zip(IMAGES, lengths, strict=True)]
        data = write_lines(tmp_path / f"{name}.jsonl", [{**row, "references": ["a star"]} for row in rows])
        sides.append(scored(run, data, *line.split()))
    if message:
        assert re.search(message, run("compare", *sides, *compared.split(), code=1)[1])
        return
    (row,) = json.loads(run("compare", *sides, *compared.split(), "--json")[0])["rows"]
    assert (row["metric"].removeprefix("column:"), row["scores"]) == (compared[3:] or "reward", [2.8, 2.0])
    assert ("by length" in row["note"]) == (first not in ("-m unigram", "-m length -w length=1"))


def test_scores_that_are_not_of_these_captions_are_scored_anew(run, tmp_path):
    sides = []
    for name in "ab":
        rows = [{"image": image, "caption": "star star", "references": ["star"] * (name == "b")} for image in IMAGES]
        data = write_lines(tmp_path / f"{name}.jsonl", rows)
        sides.append(scored(run, data, "-m", "length", "-m", "unigram"))
    # The first file has no score by unigram at all.
    message = run("compare", *sides, "-m", "unigram", code=1)[1]
    assert "5 captions of a.-m-length-m-unigram.jsonl and 0 of" in message.replace("--", "-")
    sides[0].write_text(sides[0].read_text().replace("star star", "star", 1))
    assert json.loads(run("compare", *sides, "-m", "length", "--json")[0])["rows"][0]["scores"] == [1.8, 2.0]


def test_captions_without_a_score_are_counted_also_when_quiet(run, tmp_path):
    files = [written(tmp_path / f"{name}.jsonl", LENGTHS, IMAGES) for name in "ab"]
    files[1].write_text(files[1].read_text().replace('"reward": 1', '"reward": null'))
    out, err = run("compare", *files, "--json", "-q")
    assert json.loads(out)["rows"][0]["unscored"] == [0, 2]
    assert "0 captions of a.jsonl and 2 of b.jsonl have no score, and do not count" in err
    assert "nothing beside a.jsonl and b.jsonl says which metric" in run("compare", *files)[1]


def test_the_command_prints_a_table_and_writes_one_page(run, tmp_path):
    (tmp_path / "photos").mkdir()
    for image in IMAGES:
        Image.new("RGB", (8, 8), "red").save(tmp_path / image)
    one, other = written(tmp_path / "a.jsonl", LENGTHS, IMAGES), written(tmp_path / "b.jsonl", [2] * 5, IMAGES)
    out, _ = run("compare", f"old={one}", f"new={other}", "-m", "length", "-o", tmp_path / "page" / "index.html")
    assert "old - new" in out
    assert "60.0" in out
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 5
    assert page.index("old is better") < page.index("old (5.000): star") < page.index("new is better")
    assert "compare takes two files, got 1" in run("compare", one, code=2)[1]
