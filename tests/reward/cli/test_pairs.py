"""`capreward pairs`: from scored candidates to preference data; the rules of choice are in `test_preferences.py`."""

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Image, load_dataset
from PIL import Image as PILImage

from tests.toys.json_lines import write_lines
from tests.toys.pictures import png

LONG, SHORT = "A big red star in the top left.", "A star."


@pytest.fixture
def folder(tmp_path):
    """Three images; lists.jsonl: scored candidates of these, of an image that is not there, and more of the first."""
    for number in range(3):
        PILImage.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n}.png", "candidates": [SHORT, LONG, "..."], "rewards": [0.1, 0.9, None]} for n in range(3)]
    rows.append({"image": "none.png", "candidates": [SHORT, LONG], "rewards": [0.1, 0.9]})
    rows.append({"image": "0.png", "candidates": ["a  STAR"], "rewards": [0.05]})
    write_lines(tmp_path / "lists.jsonl", rows)
    return tmp_path


def one_a_row(images, **more):
    """A worse and a better caption of each image, one a row."""
    texts = ((SHORT, 1.0), (LONG, 2.0))
    return [{"image": image, "caption": text, "reward": score, **more} for image in images for text, score in texts]


def rows_in(file):
    return pq.read_table(file).to_pylist()


def loaded(file):
    return load_dataset("parquet", data_files=str(file), cache_dir=str(file.parent / "cache"))["train"]


def test_pairs_and_counts_of_what_was_dropped(run, folder):
    output = folder / "dpo" / "pairs.parquet"
    line = ("pairs", folder / "lists.jsonl", "--margin", "0.5", "--prompt", "Describe it.", "-o", output)
    _, err = run(*line)
    first, *others = rows_in(output)
    assert {**first, "images": first["images"][0]["path"]} == {
        "images": "0.png",
        "prompt": [{"role": "user", "content": "Describe it."}],
        "chosen": [{"role": "assistant", "content": LONG}],
        "rejected": [{"role": "assistant", "content": SHORT}],
        "chosen_score": 0.9,
        "rejected_score": 0.1,
    }
    assert [row["images"][0]["path"] for row in others] == ["1.png", "2.png"]
    for told in (
        "3 rows of 3 of 4 images",
        "1 images left out: no image file where the path says",
        "3 captions left out: without a word",
        "1 captions left out: the same as a better one, or nearly",
        "share of pairs whose chosen caption is longer: 1",
    ):
        assert told in err
    more = run("pairs", folder / "lists.jsonl", "--margin", "0.9", "-o", folder / "p.parquet", code=1)[1]
    assert "no row can be made" in more
    assert "exists already: choose another output, or replace it with --overwrite" in run(*line, code=1)[1]


def test_parquet_holds_its_images_as_they_were_scored(run, folder):
    PILImage.new("RGBA", (8, 8), (0, 0, 0, 0)).save(folder / "1.png")
    run("pairs", folder / "lists.jsonl", "-o", folder / "dpo" / "p.parquet")
    for number in range(3):
        (folder / f"{number}.png").unlink()
    rows = loaded(folder / "dpo" / "p.parquet")
    pixels = [row["images"][0].convert("RGB").getpixel((0, 0)) for row in rows]
    assert pixels == [(0, 0, 0), (255, 255, 255), (160, 0, 0)]


def test_data_may_hold_their_images(run, folder):
    rows = one_a_row({"bytes": png((80 * n, 0, 0)), "path": None} for n in range(3))
    Dataset.from_list(rows).cast_column("image", Image()).to_parquet(folder / "held.parquet")
    run("pairs", folder / "held.parquet", "-o", folder / "new" / "p.parquet")
    assert [row["images"][0].getpixel((0, 0))[0] for row in loaded(folder / "new" / "p.parquet")] == [0, 80, 160]
    line = ("pairs", folder / "held.parquet", "-o", folder / "held.parquet", "--overwrite")
    assert "is the input" in run(*line, code=1)[1]


@pytest.mark.parametrize("form", ["lists", "rows"])
def test_what_rerank_wrote(run, folder, form):
    rows = [{"image": f"{n}.png", "candidates": [SHORT, LONG]} for n in range(3)]
    if form == "rows":
        rows = [{"image": row["image"], "candidate": text} for text in (LONG, SHORT) for row in rows]
    data, scored, output = write_lines(folder / "c.jsonl", rows), folder / "ranked.jsonl", folder / "pairs.parquet"
    run("rerank", data, "-m", "length", "-o", scored)
    run("pairs", scored, "-o", output)
    assert [(row["chosen"][0]["content"], row["chosen_score"]) for row in rows_in(output)] == [(LONG, 8.0)] * 3


def test_columns_and_folder_are_those_that_were_scored(run, folder, monkeypatch):
    """The summary beside the scores says which."""
    rows = [{"pic": f"{n}", "said": text, "path": "?"} for n in range(3) for text in (SHORT, LONG)]
    rated, scored = write_lines(folder / "rated.jsonl", rows), folder / "runs" / "scores.csv"
    names = ["--image-column", "pic", "--candidate-column", "said"]
    run("score", rated, "-m", "clipscore", "-o", scored, *names)
    run("pairs", scored, "-o", folder / "p.parquet")
    assert {row["images"][0]["path"] for row in rows_in(folder / "p.parquet")} == {"0.png", "1.png", "2.png"}
    monkeypatch.chdir(scored.parent)
    scored.with_name("scores.csv.summary.json").unlink()
    _, err = run("pairs", scored, "-o", folder / "q.parquet", *names, code=1)
    assert f"no image of scores.csv is there: '0' is not in {scored.parent}. Name the folder" in err


def test_prompts_and_groups_of_the_rows_keep_captions_apart(run, folder):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    rows = one_a_row(["0.png"], asked="What?", view="a") + one_a_row(["0.png"], asked=messages, view="b")
    rows += [{**rows[0], "image": ["0.png", "1.png"], "view": "c"}, {"image": "", "asked": "What?", "view": "d"}]
    data = write_lines(folder / "asked.jsonl", [*rows, []])
    run("pairs", data, "--prompt-column", "asked", "-o", folder / "p.parquet")
    assert [row["prompt"][-1]["content"] for row in rows_in(folder / "p.parquet")] == ["What?", "Where?"]
    _, err = run("pairs", data, "--prompt-column", "asked", "-o", folder / "q.parquet")
    for problem in ("several images in a row", "no image", "a row that cannot be read"):
        assert f"1 images left out: {problem}" in err


@pytest.mark.parametrize(
    ("row", "line", "message"),
    [
        ({}, "--score-column vela", "has no column 'vela' of scores"),
        ({}, "--prompt-column nothing", "--prompt-column names 'nothing', which is no column"),
        ({"rewards": [1]}, "", "row 1 has 2 captions and 1 scores"),
        ({"rewards": [1, "good"]}, "", "column 'rewards' must hold numbers: 'good' is no number"),
    ],
)
def test_what_cannot_be_is_refused(row, line, message, run, folder):
    row = {"image": "0.png", "candidates": [SHORT, LONG], "rewards": [0.1, 0.9], **row}
    data = write_lines(folder / "data.jsonl", [row])
    options = f"{line} -o {folder}/new/p.parquet".split()
    assert message in run("pairs", data, *options, code=1)[1]
    assert not (folder / "new" / "p.parquet").exists()
