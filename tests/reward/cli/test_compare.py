"""`compare`: captioners on the same images."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.benchmarks.own_captions import load_captions
from reward.metaeval.captioners import compare_captioners
from reward.registry import MetricSource
from tests.toys.json_lines import write_lines
from tests.toys.pages import rows_of

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
    (compared,) = compare_captioners({file.stem: load_captions(file) for file in files}, resamples=50)
    assert compared.scores.tolist() == [LENGTHS, [2] * 5]
    first, second = compared.differences
    assert (compared.best, first.value, second.value) == (0, 0, pytest.approx(2 - np.mean(LENGTHS)))
    assert second.low < second.value < second.high
    assert [share.value for share in compared.wins] == [3 / 5, 2 / 5]
    assert "5 images are in all" in compared.note


@pytest.mark.parametrize(
    ("lengths", "best", "wins"),
    [
        ([LENGTHS, [2] * 5], 0, [3 / 5, 2 / 5]),
        ([LENGTHS, [2] * 5, LENGTHS], 0, [1.5 / 5, 2 / 5, 1.5 / 5]),  # equal ones share an image
        ([[1] * 5, [3] * 5, [2] * 5, [9] * 2], 3, [0, 0, 0, 1]),  # on the two images that all have
    ],
)
def test_any_number_of_captioners_against_the_best(tmp_path, lengths, best, wins):
    captioners = {}
    for number, counts in enumerate(lengths):
        file = write_captions(tmp_path / f"{number}.jsonl", counts, IMAGES[: len(counts)])
        captioners[str(number)] = load_captions(file)
    (compared,) = compare_captioners(captioners, resamples=20)
    images = len(compared.images)
    assert compared.scores.tolist() == [counts[:images] for counts in lengths]
    assert (compared.best, compared.differences[best].value) == (best, 0)
    assert [round(share.value, 9) for share in compared.wins] == wins
    # The same resamples for all: equal captioners differ in none.
    if lengths[-1] == lengths[0]:
        assert (compared.differences[-1].low, compared.differences[-1].high) == (0, 0)


def test_what_has_no_score_is_left_out_and_counted_also_when_quiet(tmp_path, run):
    first = write_captions(tmp_path / "a.jsonl", [*LENGTHS[:4], None])
    second = write_captions(tmp_path / "b.jsonl", [2, 2, 1], IMAGES[2:])
    out, err = run("compare", first, second, "-m", "length", "--json", "-q")
    assert [row["length"] for row in rows_of(json.loads(out)).values()] == [2.5, 2.0]
    note = "3 images are in all, by path; 2 of them have scores of all; captions without a score, which do not count: "
    assert f"{note}1 of a" in err
    assert "nothing beside a and b says which metric" in run("compare", first, second)[1]
    bare = write_lines(tmp_path / "c.jsonl", [{"image": "x.png", "caption": "star"}])
    for metrics, message in (([], "no column reward of scores: give --metric"), (LENGTH, "0 images are in all")):
        with pytest.raises(DataError, match=message):
            list(compare_captioners({"a": load_captions(first), "b": load_captions(bare)}, metrics))


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
        ("-m length --prefix a_", "-m length --prefix b_", "--by a_reward", "has no column a_reward of scores"),
        ("-m length -m unigram", "-m length", "", "choose one of length, unigram by --metric"),
        (
            "-m length -m unigram -w length=1,unigram=1",
            "-m length -m unigram -w length=1,unigram=3",
            "",
            r"by length\+unigram in all, with different weights",
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
    figures = json.loads(run("compare", *files, *compared.split(), "--json")[0])
    assert [row[compared[3:] or "reward"] for row in rows_of(figures).values()] == [2.8, 2.0]
    assert ("by length" in figures["notes"][0]) == (first not in ("-m unigram", "-m length -w length=1"))


def test_scores_that_are_not_of_these_captions_are_scored_anew(run, tmp_path):
    files = []
    for name, references in (("a", []), ("b", ["star"])):
        rows = [{"image": image, "caption": "star star", "references": references} for image in IMAGES]
        files.append(score(run, write_lines(tmp_path / f"{name}.jsonl", rows), "-m", "length", "-m", "unigram"))
    # The first file has no score by unigram at all.
    message = run("compare", *files, "-m", "unigram", code=1)[1]
    assert re.search("do not count: 5 of a[^,]*; the first: ", message)
    files[0].write_text(files[0].read_text().replace("star star", "star", 1))
    rows = rows_of(json.loads(run("compare", *files, "-m", "length", "--json")[0]))
    assert [row["length"] for row in rows.values()] == [1.8, 2.0]


@pytest.fixture
def three(tmp_path):
    """Three captioners of five pictures; old is the longest, and m_1 and old share an image."""
    (tmp_path / "photos").mkdir()
    for image in IMAGES:
        Image.new("RGB", (8, 8), "red").save(tmp_path / image)
    for name, lengths in (("a", LENGTHS), ("b", [2] * 5), ("m_1", [1, 1, 1, 1, 5])):
        write_captions(tmp_path / f"{name}.jsonl", lengths)
    return [f"old={tmp_path / 'a.jsonl'}", f"new={tmp_path / 'b.jsonl'}", tmp_path / "m_1.jsonl"]


def test_a_report_does_not_take_the_place_of_what_is_read(run, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("image,caption,rating\n1.png,a star,1\n2.png,a red star,2\n")
    before = (tmp_path / "a.csv").read_text()
    for line in (("compare", tmp_path / "a.csv", tmp_path / "b.csv"), ("bench", tmp_path / "a.csv")):
        _, err = run(*line, "-m", "length", "-o", tmp_path / "a.csv", code=1)
        assert "a.csv is what is read; name another file" in err
    assert (tmp_path / "a.csv").read_text() == before


@pytest.mark.parametrize(
    ("ending", "texts"),
    [
        (".tex", [r"old & \textbf{2.800} & \textbf{2.800} \\", "m\\_1 & 1.800", r"new & $-$0.800 ["]),
        (".md", ["| old | **2.800** | **2.800** |", "| m_1 | 1.800 |", "| new | -0.800 ["]),
        (".csv", ["captioner,length,reward,Difference from the best: length,Difference from the best: length low"]),
        (".json", ['"captioner": "old"', '"reward": 2.8']),
        (".HTML", ['<td class="best">2.800</td>']),
    ],
)
def test_the_table_is_written_as_its_ending_says(run, tmp_path, three, ending, texts):
    output = tmp_path / "new" / f"table{ending}"
    run("compare", *three, "-m", "length", "--by", "reward", "--by", "reward", "-o", output, "-q")
    written = output.read_text()
    for text in texts:
        assert text in written
    if ending == ".csv":
        table = pd.read_csv(output, index_col=0)
        assert table.shape == (3, 14)
        assert table["length"].tolist() == [2.8, 2.0, 1.8]
        assert table["Images won, %: length"].tolist() == [50, 40, 10]
        assert np.isnan(table.loc["old", "Difference from the best: length"])


def test_one_metric_prints_one_table_and_the_page_has_pictures(run, tmp_path, three):
    out, _ = run("compare", *three, "-m", "length", "-o", tmp_path / "page" / "index.html")
    assert re.search(r"old +│ +2\.800 │ +- │ +50\.0 \[", out)
    page = (tmp_path / "page" / "index.html").read_text()
    # The two images on which old is better than all, and the two on which new is.
    assert page.count("data:image/jpeg;base64,") == 4
    assert page.index("old is better") < page.index("old (4.000): star") < page.index("new is better")


def test_results_of_coco_get_images_and_references_from_annotations(run, tmp_path, three):
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(5)]
    references = [{"id": number, "image_id": number, "caption": "star star"} for number in range(5)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": references}))
    files = []
    for name, lengths in (("x", LENGTHS), ("y", [2] * 5)):
        rows = [{"image_id": number, "caption": "star " * length} for number, length in enumerate(lengths)]
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(rows))
    line = ("--annotations", tmp_path / "captions.json", "--image-root", tmp_path / "photos")
    run("compare", *files, "-m", "unigram", *line, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("data:image/jpeg;base64,") == 5


def test_pictures_of_scored_files_are_where_they_were_scored(run, tmp_path, three):
    files = []
    for name, lengths in (("a", LENGTHS), ("b", [2] * 5)):
        data = tmp_path / "runs" / name / f"{name}.jsonl"
        data.parent.mkdir(parents=True)
        rows = [{"image": f"{number}.png", "caption": "star " * length} for number, length in enumerate(lengths)]
        files.append(score(run, write_lines(data, rows), "-m", "length", f"--image-root={tmp_path / 'photos'}"))
    run("compare", *files, "-o", tmp_path / "page.html", "-q")
    assert (tmp_path / "page.html").read_text().count("data:image/jpeg;base64,") == 5
