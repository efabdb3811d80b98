"""A name is one picture: which file a path in the data means, where paths start, and which rows share a picture."""

import re
import unicodedata

import pytest
from PIL import Image

from reward.cli.terminal import print_summary
from reward.errors import DataError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.readers import open_source
from tests.reward.scoring.small_data import scored
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer

COMPOSED, DECOMPOSED = "Café", unicodedata.normalize("NFD", "Café")


def save(path, grey=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {".jpf": "JPEG2000", ".jfif": "JPEG"}.get(path.suffix.lower())
    Image.new("RGB", (8, 8), (grey,) * 3).save(path, kind)
    return path


NAMES = [  # (names of files, what the data say, the file that it means or part of the row's error)
    (["1.png", "2.png"], "1", "1.png"),
    (["photo.TIFF"], "photo", "photo.TIFF"),
    (["photo.JPF"], "photo", "photo.JPF"),
    (["photo.jfif"], "photo", "photo.jfif"),
    (["1.png", "1.jpg"], "1", "is not one picture: write 1.jpg or 1.png"),
    (["1.png", "1.jpg"], "1.jpg", "1.jpg"),
    (["1.png", "1.txt", "._1.jpg"], "1", "1.png"),
    (["1.png", "1/2.png"], "1", "1.png"),
    (["1.png"], "1.PNG", "does not exist"),
    (["000000391895.jpg"], 391895, "000000391895.jpg"),
    (["COCO_val2014_000000391895.jpg"], "391895", "COCO_val2014_000000391895.jpg"),
    ([f"{DECOMPOSED}.png"], f"{COMPOSED}.png", f"{DECOMPOSED}.png"),
    ([f"{COMPOSED}.png"], f"{DECOMPOSED}.png", f"{COMPOSED}.png"),
    ([f"{DECOMPOSED}/{DECOMPOSED}.png"], f"{COMPOSED}/{COMPOSED}", f"{DECOMPOSED}/{DECOMPOSED}.png"),
    ([f"{DECOMPOSED}/1.png"], f"{COMPOSED}/1.png", f"{DECOMPOSED}/1.png"),
    (["a [1].png"], "a [1].png", "a [1].png"),
    (["[1].png"], "[1].png", "[1].png"),
    (["100% #2.png"], "100% #2.png", "100% #2.png"),
    (["%41.png", "A.png"], "%41.png", "%41.png"),
    (["two\nlines.png"], "two\nlines.png", "two\nlines.png"),
    (["photos/1.png"], r"photos\1.png", "photos/1.png"),
]


@pytest.mark.parametrize(("files", "name", "meant"), NAMES)
def test_a_name_is_one_picture(files, name, meant, tmp_path):
    greys = {}
    for number, file in enumerate(files, start=1):
        if not file.endswith(".txt"):
            greys[file] = 20 * number
            save(tmp_path / file, greys[file])
    data = [{"image": name, "caption": "x"}, {"image": files[0], "caption": "x"}]
    rows, _ = scored(data, tmp_path / "out.jsonl", PictureScorer(), image_root=tmp_path)
    if meant in files:
        assert rows[0]["brightness"] == pytest.approx(greys[meant] / 255, abs=0.01)
    else:
        assert meant in rows[0]["error"]


@pytest.mark.parametrize(
    "names",
    [
        ["photos/1.png", "./photos/1.png", "{}/photos/1.png", "photos/../photos/1", ["photos/1.png"]],
        [f"{COMPOSED}.png", f"{DECOMPOSED}.png", COMPOSED],
    ],
)
def test_rows_of_one_picture_share_it_however_it_is_written(names, tmp_path):
    save(tmp_path / "photos" / "1.png")
    save(tmp_path / f"{COMPOSED}.png")
    names = [name.replace("{}", str(tmp_path)) if isinstance(name, str) else name for name in names]
    rows = [{"image": name, "caption": "a " * (1 + number)} for number, name in enumerate(names)]
    _, summary = scored(rows, tmp_path / "out.jsonl", PictureScorer())
    assert (summary.images_decoded, summary.errors) == (1, {})
    if names[-1] == COMPOSED:
        (tmp_path / f"{COMPOSED}.png").unlink()  # of names alone, too
        rows.pop()
    ranked, summary = scored(rows, tmp_path / "ranked.jsonl", "length", task=rerank_dataset)
    assert summary.groups == 1
    assert sorted(row["rank"] for row in ranked) == [*range(1, 1 + len(rows))]


def data_in(folder, *names):
    folder.mkdir(exist_ok=True)
    return write_lines(folder / "data.jsonl", [{"image": name, "caption": "x"} for name in names])


def test_paths_start_at_one_folder_for_all_rows(tmp_path, monkeypatch):
    """Pictures of the same names lie in the working folder: none of them is taken where one is beside the data."""
    data = data_in(tmp_path / "data", "missing.png", "1.png", "2.png")
    here = tmp_path / "here"
    for name in ("missing.png", "1.png", "2.png"):
        save(here / name, 250)
    monkeypatch.chdir(here)
    with pytest.warns(UserWarning, match=rf"no image of data\.jsonl is in {tmp_path}/data: paths start at the working"):
        summary = score_dataset(data, PictureScorer(), tmp_path / "here.jsonl")
    assert summary.errors == {}
    save(tmp_path / "data" / "2.png", 10)
    rows, summary = scored(data, tmp_path / "out.jsonl", PictureScorer())
    assert [row["brightness"] for row in rows] == [None, None, pytest.approx(10 / 255)]
    rows, _ = scored(data, tmp_path / "given.jsonl", PictureScorer(), image_root=here)
    assert [row["brightness"] for row in rows] == [pytest.approx(250 / 255)] * 3
    monkeypatch.chdir(tmp_path / "data")
    message = rf"'missing.png' is not in {tmp_path}/data\. Name the folder that the paths start from: --image-root FO"
    data = data_in(tmp_path / "data", "missing.png")
    with pytest.raises(DataError, match=message):
        score_dataset(data, PictureScorer(), tmp_path / "missing.csv")
    assert score_dataset(data, "length", tmp_path / "length.csv", image_column="image").scored == 1


@pytest.mark.parametrize("address", ["https://host/1.jpg", "s3://bucket/1.jpg"])
def test_data_of_addresses_alone_are_refused_before_a_model_is_loaded(address, tmp_path):
    data = data_in(tmp_path, address, address)
    message = re.escape(f"the images of data.jsonl are at addresses such as {address!r}, and nothing is downloaded")
    with pytest.raises(DataError, match=message):
        score_dataset(data, "vela", tmp_path / "out.jsonl", source=tmp_path / "no model")
    assert score_dataset(data, "length", tmp_path / "length.jsonl").scored == 2
    save(tmp_path / "1.png")
    data = data_in(tmp_path, address, "1.png")
    assert score_dataset(data, PictureScorer(), tmp_path / "mixed.jsonl").errors == {"image": 1}


JOINS = [  # (images of the data, images of the annotations, whose references each row gets)
    (["a/1.png", "b/1.png", "1"], ["a/1.png", "b/1.png"], ["a/1.png", "b/1.png", None]),
    (["a/1.png", "b/1.png"], ["c/1.png"], None),
    (["a/1.png", "b/1.png", "x.png"], ["a/1.png", "x.jpg"], ["a/1.png", None, "x.jpg"]),
    (["./photos/1.png"], ["photos/1.png"], ["photos/1.png"]),
    (["{}/photos/1.png"], ["photos/1.png"], ["photos/1.png"]),
    ([f"{COMPOSED}.png"], [f"{DECOMPOSED}.png"], [f"{DECOMPOSED}.png"]),
    ([r"a\1.png", "b/1.png"], ["a/1.png", r"b\1.png"], ["a/1.png", r"b\1.png"]),
    (["photos/1.png", "photos/1.png"], ["1"], ["1", "1"]),
    (["image007.png"], ["image7.png"], None),
    ([391895], ["COCO_val2014_000000391895.jpg"], ["COCO_val2014_000000391895.jpg"]),
]


@pytest.mark.parametrize(("images", "annotated", "joined"), JOINS)
def test_annotations_join_by_path_and_by_a_bare_name_that_is_one(images, annotated, joined, tmp_path):
    rows = [{"image": str(image).replace("{}", str(tmp_path)), "caption": "x"} for image in images]
    data = write_lines(tmp_path / "data.jsonl", rows)
    known = write_lines(tmp_path / "known.jsonl", [{"image": name, "references": [name]} for name in annotated])
    if joined is None:
        with pytest.raises(DataError, match=r"no image of data\.jsonl is in known\.jsonl, which has "):
            open_source(data, annotations=known)
        return
    references = [row["references"] for row in open_source(data, annotations=known).rows(["references"])]
    assert references == [None if name is None else [name] for name in joined]


def test_a_run_says_in_one_line_what_it_took(tmp_path, capsys):
    save(tmp_path / "1.png")
    summary = score_dataset(data_in(tmp_path, "1.png", "1"), PictureScorer(), tmp_path / "scores" / "out.jsonl")
    print_summary(summary, quiet=False, verb="scored")
    said = " ".join(capsys.readouterr().err.split())
    assert f"columns read: candidate = caption, image = image; 2 rows; image paths start at {tmp_path}" in said
