"""Captions as published files and other programs hold them: every form gives the scores of plain rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reward.errors import DataError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.readers import open_source
from tests.json_lines import write_lines
from tests.picture_scorer import PictureScorer
from tests.reward.scoring.small_data import read_rows, save_greys

CAPTIONS = ["a red star", "ein Stern, schön", "two words"]
NAMES = ["0.png", "1.png", "2.png"]
SCORES = [(10, 3), (250, 3), (100, 2)]  # brightness of the image, and words


def chat(name: str, caption: str) -> list[dict[str, Any]]:
    asked = [
        {"type": "image", "image": f"file://{name}" if name == "0.png" else name},
        {"type": "text", "text": "What?"},
    ]
    said = [{"type": "text", "text": caption}]
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": "Hm."}]
    return [*turns, {"role": "user", "content": "Say it."}, {"role": "assistant", "content": said}]


def llava(caption: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": caption}]


BOTH = list(zip(NAMES, CAPTIONS, strict=True))
ROWS = [{"image": name, "caption": caption} for name, caption in BOTH]
FRAME = pd.DataFrame(ROWS)
RESULTS = [{"image_id": number, "caption": caption} for number, caption in enumerate(CAPTIONS)]
COCO = {
    "info": {"year": 2014},
    "images": [{"id": 7 + number, "file_name": name} for number, name in enumerate(NAMES)],
    "annotations": [{"image_id": 7 + number, "id": 1, "caption": text} for number, text in enumerate(CAPTIONS)],
}
KARPATHY = {"images": [{"filename": name, "sentences": [{"raw": text}]} for name, text in BOTH], "dataset": "x"}
TABS = "".join(f"{name}#0\t{caption}\n" for name, caption in BOTH)
BARS = "image_name| comment_number| comment\n" + "".join(f"{name}| 0| {caption}\n" for name, caption in BOTH)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
FILES: dict[str, tuple[str, Any]] = {  # {form: (name of the file, its text, bytes or JSON)}
    "{image: caption}": ("c.json", json.dumps(dict(BOTH))),
    "{image without ending: caption}": ("c.json", {name[0]: caption for name, caption in BOTH}),
    "{image: [captions]}": ("c.json", {name: [caption] for name, caption in BOTH}),
    "{image: fields}": ("c.json", {name: {"caption": caption} for name, caption in BOTH}),
    "COCO's results": ("c.json", RESULTS),
    "COCO's annotations": ("c.json", COCO),
    "Karpathy's split": ("c.json", KARPATHY),
    "data": ("c.json", {"version": 1, "data": ROWS}),
    "to_json": ("c.json", FRAME.to_json()),
    "to_dict": ("c.json", FRAME.to_dict("list")),
    "split of pandas": ("c.json", FRAME.to_json(orient="split")),
    "capitals and spaces": ("c.csv", "Image, Caption\n" + "".join(f'{name}, "{text}"\n' for name, text in BOTH)),
    "captions.txt": ("captions.txt", FRAME.to_csv(index=False)),
    "table of pandas": ("c.json", FRAME.to_json(orient="table")),
    "list in jsonl": ("c.jsonl", ROWS),
    "pairs in a list": ("c.json", BOTH),
    "paths of Windows": ("c.json", {f".\\{name}": caption for name, caption in BOTH}),
    "jsonlines": ("c.jsonlines", LINES),
    "UTF-16": ("c.jsonl", LINES.encode("utf-16")),
    "messages": ("c.jsonl", "".join(json.dumps({"messages": chat(*both)}) + "\n" for both in BOTH)),
    "conversations": (
        "c.json",
        [{"id": name, "image": name, "conversations": llava(caption)} for name, caption in BOTH],
    ),
    "completion": (
        "c.json",
        [{"image": name, "prompt": "?", "completion": llava(caption)[1:]} for name, caption in BOTH],
    ),
    "tsv": ("c.tsv", FRAME.to_csv(sep="\t", index=False)),
    "Excel": ("c.csv", FRAME.to_csv(sep=";", index=False).encode("utf-16")),
    "sep=": ("c.csv", "sep=;\n" + FRAME.to_csv(sep=";", index=False)),
    "Flickr8k": ("Flickr8k.token.txt", TABS),
    "Flickr30k": ("results.csv", BARS),
    "no header": ("c.csv", FRAME.to_csv(index=False, header=False)),
    "index": ("c.csv", FRAME.to_csv()),
    "text and path": ("c.csv", FRAME.rename(columns={"image": "path", "caption": "text"}).to_csv(index=False)),
}


@pytest.mark.parametrize("suffix", ["json", "parquet", "csv"])
@pytest.mark.parametrize("form", FILES)
def test_every_published_form_gives_the_scores_of_plain_rows(form: str, suffix: str, tmp_path: Path) -> None:
    name, content = FILES[form]
    data = save_greys(tmp_path) / name
    content = content if isinstance(content, (str, bytes)) else json.dumps(content, indent=1)
    data.write_bytes(content.encode() if isinstance(content, str) else content)
    column = {"candidate_column": "comment"} if form == "Flickr30k" else {}
    summary = score_dataset(data, PictureScorer(), tmp_path / f"out.{suffix}", **column)
    assert (summary.rows, summary.errors) == (3, {})
    rows = list(open_source(tmp_path / f"out.{suffix}").records())
    assert [(round(255 * row["brightness"]), row["words"]) for row in rows] == SCORES
    assert [row[summary.columns["candidate"]] for row in rows] == CAPTIONS
    assert score_dataset(data, PictureScorer(), tmp_path / f"out.{suffix}", **column).already_done


ANNOTATIONS: dict[str, Any] = {
    "COCO": COCO,
    "{image: [references]}": {name[0]: [caption, "A star."] for name, caption in BOTH},
    "csv": "image,caption\n" + "".join(f"{name},{json.dumps(caption)}\n" for name, caption in BOTH),
}


@pytest.mark.parametrize("form", ANNOTATIONS)
def test_annotations_name_images_and_give_references(form: str, tmp_path: Path) -> None:
    results = [{**row, "image_id": row["image_id"] + 7 * (form == "COCO")} for row in RESULTS[::-1]]
    (save_greys(tmp_path) / "results.json").write_text(json.dumps(results))
    known, content = tmp_path / ("known.csv" if form == "csv" else "known.json"), ANNOTATIONS[form]
    known.write_text(content if isinstance(content, str) else json.dumps(content))
    source = open_source(tmp_path / "results.json", annotations=known)
    assert score_dataset(source, PictureScorer(), tmp_path / "out.jsonl").errors == {}
    more = 2 if form.startswith("{") else 1
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(round(255 * row["brightness"]), row["words"] - more) for row in rows] == SCORES[::-1]
    known.write_text(json.dumps({"other.png": ["A dog."]}) if form != "csv" else "image,caption\nother.png,A dog.\n")
    with pytest.raises(DataError, match=r"no image of results.json is in known.\w+, which has 'other.png'; the images"):
        open_source(tmp_path / "results.json", annotations=known)


def test_images_of_one_name_in_two_folders_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", [{"image": name, "caption": "x"} for name in ("a/1.png", "b/1.png", "1")])
    write_lines(tmp_path / "refs.jsonl", [{"image": f"{name}/1.png", "references": [name]} for name in "ab"])
    rows = open_source(tmp_path / "c.jsonl", annotations=tmp_path / "refs.jsonl").rows(["references"])
    assert [row["references"] for row in rows if isinstance(row, dict)] == [["a"], ["b"], None]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("data", ["c.jsonl", "c.parquet", "c.csv"])
def test_a_field_inside_a_column_is_named_with_a_dot(data: str, suffix: str, tmp_path: Path) -> None:
    rows = [{"out": {"texts": [text], "by": {"name": "x"}}, "image": name} for name, text in BOTH]
    save_greys(tmp_path)
    if data == "c.jsonl":
        write_lines(tmp_path / data, rows)
    elif data == "c.parquet":
        pd.DataFrame(rows).to_parquet(tmp_path / data)
    else:
        pd.DataFrame([{**row, "out": json.dumps(row["out"])} for row in rows]).to_csv(tmp_path / data, index=False)
    names = {"candidate_column": "out.texts.0"}
    assert score_dataset(tmp_path / data, PictureScorer(), tmp_path / f"s.{suffix}", **names).errors == {}
    scored = read_rows(tmp_path / f"s.{suffix}") if suffix != "csv" else open_source(tmp_path / "s.csv").records()
    shown = [(row["out.texts.0"], row["words"]) for row in scored if isinstance(row, dict)]
    assert shown == [(text, words) for text, (_, words) in zip(CAPTIONS, SCORES, strict=True)]
    with pytest.raises(DataError, match=r"--candidate-column names 'none.text', which is no column"):
        score_dataset(tmp_path / data, PictureScorer(), tmp_path / "o.csv", candidate_column="none.text")


def test_folders_of_pictures_with_their_captions(tmp_path: Path) -> None:
    for folder in ("texts", "file", "bare"):
        save_greys(tmp_path / folder)
    for name, caption in BOTH:
        (tmp_path / "texts" / name).with_suffix(".txt").write_text(caption + "\n")
    FRAME.to_csv(tmp_path / "file" / "captions.csv", index=False)
    for folder in ("texts", "file"):
        score_dataset(tmp_path / folder, PictureScorer(), tmp_path / f"{folder}.jsonl")
        rows = read_rows(tmp_path / f"{folder}.jsonl")
        assert [(round(255 * row["brightness"]), row["words"]) for row in rows] == SCORES
    with pytest.raises(DataError, match="bare holds pictures and no captions: put "):
        open_source(tmp_path / "bare")


def test_numbers_stay_numbers_and_names_stay_names(tmp_path: Path) -> None:
    text = "id;candidate;rating;zip;tags;kept;none\n1;5;0,5;007;[1, 2];true;\n2;6;;12;;False;\n"
    (tmp_path / "c.csv").write_text(text)
    for name in ("s.csv", "s.jsonl", "t.tsv"):
        score_dataset(tmp_path / ("c.csv" if name != "t.tsv" else "s.csv"), "length", tmp_path / name, prefix=name[0])
        rows = [row for row in open_source(tmp_path / name).records() if isinstance(row, dict)]
        given = [{key: row[key] for key in text.partition("\n")[0].split(";")} for row in rows]
        one = {"id": 1, "candidate": "5", "rating": 0.5, "zip": "007", "tags": [1, 2], "kept": True, "none": ""}
        two = {"id": 2, "candidate": "6", "rating": None, "zip": "12", "tags": None, "kept": False, "none": ""}
        assert given == [one, two]


def test_captions_of_an_image_compete_and_lists_are_for_rerank(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"0": ["one", "one two"], "1": ["three"]}))
    rerank_dataset(tmp_path / "c.json", "length", tmp_path / "out.csv")
    rows = open_source(tmp_path / "out.csv").records()
    assert [(row["image"], row["rank"]) for row in rows if isinstance(row, dict)] == [("0", 2), ("0", 1), ("1", 1)]
    for cell, way in (
        (["one", "two"], "a list of captions: `capreward rerank` scores"),
        ({"a": "b"}, "-column caption.a"),
    ):
        write_lines(tmp_path / "c.jsonl", [{"caption": cell}])
        assert way in score_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.csv").examples["candidate"]


def test_a_text_holds_a_caption_a_line(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("A dog, running.\n\nA cat.\n")
    score_dataset(tmp_path / "c.txt", "length", tmp_path / "out.csv")
    rows = open_source(tmp_path / "out.csv").records()
    assert [row["length"] for row in rows if isinstance(row, dict)] == [3, None, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "c.csv",
            "id,bünd\n1,a\n".encode("cp1252"),
            "c.csv is not UTF-8: .* `iconv -f cp1252 ",
        ),
        ("c.csv", b"1.png,a,5\n", "c.csv begins with data: put a line with the names of its columns in front"),
        ("c.xlsx", b"PK", "save the sheet as CSV UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / name)
