"""`capreward pairs`: from scored candidates to preference data."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset, Image, load_dataset
from PIL import Image as PILImage

from tests.reward.cli.conftest import Run
from tests.toys.json_lines import read_lines, write_lines

LONG, SHORT = "A big red star in the top left.", "A star."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Lists of candidates of three images, with scores."""
    for number in range(3):
        PILImage.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n}.png", "candidates": [SHORT, LONG, "..."], "rewards": [0.1, 0.9, None]} for n in range(3)]
    rows.append({"image": "none.png", "candidates": [SHORT, LONG], "rewards": [0.1, 0.9]})
    rows.append({"image": "0.png", "candidates": ["a  STAR"], "rewards": [0.05]})  # more of the first image
    return write_lines(tmp_path / "scored.jsonl", rows)


def test_pairs_and_counts_of_what_was_dropped(run: Run, data: Path) -> None:
    output = data.parent / "dpo" / "pairs.jsonl"
    out, err = run("pairs", data, "-o", output, "--margin", "0.5", "--prompt", "Describe it.")
    assert out == ""
    rows = read_lines(output)
    assert len(rows) == 3
    assert rows[0]["prompt"] == [{"role": "user", "content": "Describe it."}]
    assert rows[0]["chosen"] == [{"role": "assistant", "content": LONG}]
    assert (rows[0]["chosen_score"], rows[0]["rejected_score"]) == (0.9, 0.1)
    assert {(output.parent / row["images"][0]).resolve() for row in rows} == {
        (data.parent / f"{n}.png").resolve() for n in range(3)
    }
    assert "3 rows of 3 of 4 images" in err
    for line in (
        "1 images left out: no image file where the path says",
        "3 captions left out: without a word",
        "1 captions left out: the same as a better one, or nearly",
        "share of pairs whose chosen caption is longer: 1",
    ):
        assert line in err


def test_a_picture_that_trainers_read_otherwise_goes_into_parquet_as_it_was_scored(run: Run, data: Path) -> None:
    PILImage.new("RGBA", (8, 8), (0, 0, 0, 0)).save(data.parent / "1.png")
    _, err = run("pairs", data, "-o", data.parent / "dpo.jsonl", code=1)
    assert "another picture than was scored" in err
    assert "1.png. Write a .parquet file" in err
    run("pairs", data, "-o", data.parent / "dpo" / "dpo.parquet")
    loaded = load_dataset(str(data.parent / "dpo"), cache_dir=str(data.parent / "cache"))["train"]
    assert {row["images"][0].convert("RGB").getpixel((0, 0)) for row in loaded} == {(0, 0, 0), (255,) * 3, (160, 0, 0)}


def test_parquet_holds_its_images_also_those_of_data_that_hold_them(run: Run, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "dpo" / "pairs.parquet"
    run("pairs", data, "-o", output)
    for number in range(3):
        (tmp_path / f"{number}.png").unlink()
    loaded = load_dataset(str(output.parent), cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.column_names == ["images", "prompt", "chosen", "rejected", "chosen_score", "rejected_score"]
    assert loaded[1]["images"][0].getpixel((0, 0)) == (80, 0, 0)

    # data that hold their images, one caption a row
    rows = {
        "image": [row[0] for row in loaded["images"]] * 2,
        "caption": [LONG, SHORT] * 3,
        "reward": [3, 2, 1, 1, 2, 3],
    }
    Dataset.from_dict(rows).cast_column("image", Image()).to_parquet(tmp_path / "held.parquet")
    arguments = ("pairs", tmp_path / "held.parquet", "-o")
    run(*arguments, tmp_path / "more" / "pairs.parquet")
    more = load_dataset("parquet", data_files=str(tmp_path / "more" / "pairs.parquet"), cache_dir=str(tmp_path / "c"))
    assert [row["chosen"][0]["content"] for row in more["train"]] == [LONG, SHORT]
    _, err = run(*arguments, tmp_path / "other" / "pairs.jsonl", code=1)
    assert "write a .parquet file" in err


@pytest.mark.parametrize("form", ["lists", "rows"])
def test_what_rerank_wrote(run: Run, data: Path, form: str) -> None:
    rows = [{"image": f"{n}.png", "candidates": [SHORT, LONG]} for n in range(3)]
    if form == "rows":
        rows = [{"image": row["image"], "candidate": text} for text in (LONG, SHORT) for row in rows]
    file, scored, output = (data.with_name(f"{name}.jsonl") for name in ("candidates", "ranked", "pairs"))
    run("rerank", write_lines(file, rows), "-m", "length", "-o", scored)
    run("pairs", scored, "-o", output)
    assert [(row["chosen"][0]["content"], row["chosen_score"]) for row in read_lines(output)] == [(LONG, 8.0)] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--margin", "0.95"], 1, "no row can be made of the 4 images: 3 have no two captions whose scores differ"),
        (["--length-ratio", "1.1"], 1, "3 have no two such captions of like length"),
        (["--score-column", "vela"], 1, "has no column 'vela' of scores"),
        (["--near", "2"], 1, "near must be a number of at least 0 and at most 1, got 2.0"),
        (["--prompt-column", "nothing"], 1, "--prompt-column names 'nothing', which is no column"),
        (["--prompt", " "], 1, "a prompt must be text"),
    ],
)
def test_nothing_is_written_where_there_is_nothing(
    run: Run, data: Path, arguments: list[str], code: int, message: str
) -> None:
    _, err = run("pairs", data, "-o", data.parent / "new" / "pairs.jsonl", *arguments, code=code)
    assert message in err
    assert not (data.parent / "new" / "pairs.jsonl").exists()


def test_nothing_is_overwritten_unasked(run: Run, data: Path) -> None:
    _, err = run("pairs", data, "-o", data, "--overwrite", code=1)
    assert "is the input" in err
    output = data.parent / "new" / "pairs.jsonl"
    run("pairs", data, "-o", output)
    _, err = run("pairs", data, "-o", output, code=1)
    assert "exists already: choose another output, or replace it with --overwrite" in err


def test_prompts_of_the_rows_keep_captions_apart(run: Run, data: Path) -> None:
    rows = [
        {"image": "0.png", "caption": text, "reward": score, "asked": asked}
        for asked in ("What?", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}])
        for text, score in ((LONG, 0.5), (SHORT, 0.7))
    ]
    write_lines(data, rows)
    output = data.parent / "new" / "pairs.jsonl"
    run("pairs", data, "-o", output, "--prompt-column", "asked")
    assert [row["prompt"][-1]["content"] for row in read_lines(output)] == ["What?", "Where?"]


def test_groups_of_rows_and_rows_that_are_no_good(run: Run, data: Path) -> None:
    output = data.parent / "new" / "pairs.jsonl"
    rows = [
        {"image": "0.png", "caption": text, "reward": score, "view": "a"} for text, score in ((LONG, 1), (SHORT, 0))
    ]
    rows += [{"image": ["0.png", "1.png"], "caption": LONG, "reward": 1, "view": "b"}, {"image": "", "view": "c"}, []]
    write_lines(data, rows)
    _, err = run("pairs", data, "-o", output, "--group-column", "view")
    for problem in ("several images in a row", "no image", "a row that cannot be read"):
        assert f"1 images left out: {problem}" in err
    for row, message in (
        ({"candidates": [SHORT], "rewards": [1, 2]}, "row 1 has 1 captions and 2 scores"),
        ({"candidates": [SHORT], "rewards": 1}, "column 'rewards' must be a list, got int"),
        ({"candidates": [SHORT], "rewards": ["good"]}, "column 'rewards' must hold numbers, got 'good'"),
    ):
        write_lines(data, [{"image": "0.png", **row}])
        _, err = run("pairs", data, "-o", output, "--overwrite", code=1)
        assert message in err, err


def test_pairs_are_made_of_what_score_wrote_elsewhere(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns and folder of images are those that were scored, as the summary beside the scores says."""
    rows = [{"pic": f"{n}", "said": text, "path": "?"} for n in range(3) for text in (SHORT, LONG)]
    rated, scored = write_lines(data.parent / "rated.jsonl", rows), data.parent / "runs" / "scores.csv"
    names = ["--image-column", "pic", "--candidate-column", "said"]
    run("score", rated, "-m", "clipscore", "-o", scored, *names)
    run("pairs", scored, "-o", data.parent / "p.jsonl")
    assert {Path(row["images"][0]).name for row in read_lines(data.parent / "p.jsonl")} == {"0.png", "1.png", "2.png"}
    monkeypatch.chdir(scored.parent)
    scored.with_name("scores.csv.summary.json").unlink()
    _, err = run("pairs", scored, "-o", data.parent / "q.jsonl", *names, code=1)
    assert f"no image of scores.csv is there: '0' is not in {scored.parent}. Name the folder" in err
    assert "--image-root FOLDER" in err
