"""The contract of an input form, a row of FORMS: data in it give the scores of plain rows, in every output."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward.errors import DataError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.readers import open_source
from tests.reward.scoring.small_data import read_rows, save_greys
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer

CAPTIONS = ["a red star", "ein Stern,\nschön", "two words"]
NAMES = ["0.png", "1.png", "2.png"]
SCORES = [(10, 3), (250, 3), (100, 2)]  # brightness of the image, and words
BOTH = list(zip(NAMES, CAPTIONS, strict=True))
ROWS = [{"image": name, "caption": caption} for name, caption in BOTH]
FRAME = pd.DataFrame(ROWS)
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
ONE_LINE = [(name, caption.replace("\n", " ")) for name, caption in BOTH]  # where a caption is a line
RESULTS = [{"image_id": number, "caption": caption} for number, caption in enumerate(CAPTIONS)]
COCO = {
    "info": {"year": 2014},
    "images": [{"id": 7 + number, "file_name": name} for number, name in enumerate(NAMES)],
    "annotations": [{"image_id": 7 + number, "id": 1, "caption": text} for number, text in enumerate(CAPTIONS)],
}
Form = Callable[[Path], Any]  # makes data beside the images of a folder


def file(name: str, content: Any) -> Form:
    """A file with a text, bytes, or JSON."""

    def make(folder: Path) -> Path:
        text = content if isinstance(content, (str, bytes)) else json.dumps(content, indent=1)
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
        return folder / name

    return make


def chat(name: str, caption: str) -> list[dict[str, Any]]:
    image = {"type": "image", "image": f"file://{name}" if name == "0.png" else name}
    asked = [image, {"type": "text", "text": "What?"}]
    said = [{"type": "text", "text": caption}]
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": "Hm."}]
    return [*turns, {"role": "user", "content": "Say it."}, {"role": "assistant", "content": said}]


def llava(caption: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": caption}]


def parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "c.parquet", row_group_size=2)
    return folder / "c.parquet"


def parts(folder: Path) -> Path:
    """A folder such as engines write; in one part a column is all null."""
    (folder / "parts").mkdir()
    for part, rows in enumerate((ROWS[:1], ROWS[1:])):
        named = [{**row, "image": str(folder / row["image"]), "note": (part and "x") or None} for row in rows]
        pq.write_table(pa.Table.from_pylist(named), folder / "parts" / f"part-{part}.parquet")
    return folder / "parts"


def tar(folder: Path) -> Path:
    with tarfile.open(folder / "c.tar", "w") as shard:
        for name, caption in BOTH:
            for ending, content in (("png", (folder / name).read_bytes()), ("caption", caption.encode())):
                member = tarfile.TarInfo(f"{name[0]}.{ending}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    return folder / "c.tar"


def metadata(folder: Path) -> Path:
    FRAME.rename(columns={"image": "file_name"}).to_csv(folder / "metadata.csv", index=False)
    write_lines(folder / "scores.jsonl", [{"an": "output"}])
    return folder


def texts(folder: Path) -> Path:
    for name, caption in BOTH:
        (folder / name).with_suffix(".txt").write_text(caption + "\n")
    return folder


def table(folder: Path) -> datasets.Dataset:
    """Images inside."""
    named = FRAME.assign(image=[str(folder / name) for name in NAMES])
    return datasets.Dataset.from_pandas(named).cast_column("image", datasets.Image())


def splits(folder: Path) -> datasets.DatasetDict:
    return datasets.DatasetDict({"train": table(folder).select([0]), "test": table(folder)})


def saved(folder: Path) -> Path:
    splits(folder).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def folders_of_images(folder: Path) -> Path:
    for split in ("train", "test"):
        photos = folder / "photos" / split
        photos.mkdir(parents=True)
        write_lines(
            save_greys(photos) / "metadata.jsonl", [{"file_name": name, "caption": caption} for name, caption in BOTH]
        )
    return folder / "photos"


FORMS: dict[str, Form] = {
    "jsonl": file("d a t a.jsonl", "\ufeff" + LINES),
    "JSONL.GZ": file("c.JSONL.GZ", LINES),
    "lines in json": file("c.json", LINES),
    "list in jsonl": file("c.jsonl", ROWS),
    "UTF-16": file("c.jsonl", LINES.encode("utf-16")),
    "[[image, caption]]": file("c.json", BOTH),
    "{image: caption}": file("c.json", json.dumps(dict(BOTH))),
    "{image without ending: caption}": file("c.json", {name[0]: caption for name, caption in BOTH}),
    "{image: [captions]}": file("c.json", {name: [caption] for name, caption in BOTH}),
    "{image: fields}": file("c.json", {name: {"caption": caption} for name, caption in BOTH}),
    "paths of Windows": file("c.json", {f".\\{name}": caption for name, caption in BOTH}),
    "COCO's results": file("c.json", RESULTS),
    "COCO's annotations": file("c.json", COCO),
    "Karpathy's split": file(
        "c.json", {"images": [{"filename": name, "sentences": [{"raw": text}]} for name, text in BOTH], "dataset": "x"}
    ),
    "data": file("c.json.gz", {"version": 1, "data": ROWS}),
    "to_json": file("c.json", FRAME.to_json()),
    "to_dict": file("c.json", FRAME.to_dict("list")),
    "split of pandas": file("c.json", FRAME.to_json(orient="split")),
    "table of pandas": file("c.json", FRAME.to_json(orient="table")),
    "messages": file("c.jsonl", "".join(json.dumps({"messages": chat(*both)}) + "\n" for both in BOTH)),
    "conversations": file("c.json", [{"image": name, "conversations": llava(caption)} for name, caption in BOTH]),
    "completion": file("c.json", [{"image": name, "completion": llava(caption)[1:]} for name, caption in BOTH]),
    "csv": file("c.csv.gz", FRAME.to_csv(index=False).encode("utf-8-sig")),
    "tsv": file("c.tsv", FRAME.to_csv(sep="\t", index=False)),
    "index": file("c.csv", FRAME.to_csv()),
    "Excel": file("c.csv", FRAME.to_csv(sep=";", index=False).encode("utf-16")),
    "sep=": file("c.csv", "sep=;\n" + FRAME.to_csv(sep=";", index=False)),
    "no header": file("c.csv", FRAME.to_csv(index=False, header=False)),
    "capitals and spaces": file("c.csv", "Image, Caption\n" + "".join(f'{name}, "{text}"\n' for name, text in BOTH)),
    "captions.txt": file("captions.txt", FRAME.to_csv(index=False)),
    "text and path": file("c.csv", FRAME.rename(columns={"image": "path", "caption": "text"}).to_csv(index=False)),
    "Flickr8k": file("Flickr8k.token.txt", "".join(f"{name}#0\t{caption}\n" for name, caption in ONE_LINE)),
    "Flickr30k": file(
        "results.csv",
        "image_name| number| comment\n" + "".join(f"{name}| 0| {caption}\n" for name, caption in ONE_LINE),
    ),
    **{each.__name__: each for each in (parquet, parts, tar, metadata, texts)},
    **{each.__name__: each for each in (table, splits, saved, folders_of_images)},
}
WITH_SPLITS = ("splits", "saved", "folders_of_images")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return save_greys(tmp_path / "a b")


@pytest.mark.parametrize("suffix", ["json", "parquet", "csv"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_scores_of_plain_rows(form: str, suffix: str, folder: Path, tmp_path: Path) -> None:
    data, output = FORMS[form](folder), tmp_path / f"out.{suffix}"
    options = {"candidate_column": "comment"} if form == "Flickr30k" else {}
    options |= {"split": "test"} if form in WITH_SPLITS else {}
    summary = score_dataset(data, PictureScorer(), output, **options)
    assert (summary.rows, summary.errors) == (3, {})
    rows = [row for row in open_source(output).records() if isinstance(row, dict)]
    assert [(round(255 * row["brightness"]), row["words"]) for row in rows] == SCORES
    said = [caption for _, caption in ONE_LINE] if form.startswith("Flickr") else CAPTIONS
    assert [row[summary.columns["candidate"]] for row in rows] == said
    assert score_dataset(data, PictureScorer(), output, **options).already_done


@pytest.mark.parametrize("form", WITH_SPLITS)
def test_splits_are_named(form: str, folder: Path) -> None:
    data = FORMS[form](folder)
    for split, problem in ((None, "has several splits"), ("val", "has no split 'val'")):
        names = r"(test, train|train, test)$"
        with pytest.raises(DataError, match=rf"{problem}; choose one with --split \(split=\): {names}"):
            open_source(data, split=split)


ANNOTATIONS: dict[str, tuple[str, Any]] = {
    "COCO": ("known.json", COCO),
    "{image: [references]}": ("known.json", {name[0]: [caption, "A star."] for name, caption in BOTH}),
    "csv": ("known.csv", FRAME.to_csv(index=False)),
}


@pytest.mark.parametrize("form", ANNOTATIONS)
def test_annotations_name_images_and_give_references(form: str, folder: Path, tmp_path: Path) -> None:
    rows = [{**row, "image_id": row["image_id"] + 7 * (form == "COCO")} for row in RESULTS[::-1]]
    results, known = file("results.json", rows)(folder), file(*ANNOTATIONS[form])(folder)
    source = open_source(results, annotations=known)
    assert score_dataset(source, PictureScorer(), tmp_path / "out.jsonl").errors == {}
    more = 2 if form.startswith("{") else 1
    got = [(round(255 * row["brightness"]), row["words"] - more) for row in read_rows(tmp_path / "out.jsonl")]
    assert got == SCORES[::-1]
    other = file("other.json", {"other.png": ["A dog."]})(folder)
    with pytest.raises(DataError, match=r"no image of results\.json is in other\.json, which has 'other\.png'"):
        open_source(results, annotations=other)


def test_images_of_one_name_in_two_folders_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", [{"image": name, "caption": "x"} for name in ("a/1.png", "b/1.png", "1")])
    write_lines(tmp_path / "refs.jsonl", [{"image": f"{name}/1.png", "references": [name]} for name in "ab"])
    rows = open_source(tmp_path / "c.jsonl", annotations=tmp_path / "refs.jsonl").rows(["references"])
    assert [row["references"] for row in rows if isinstance(row, dict)] == [["a"], ["b"], None]


@pytest.mark.parametrize(("data", "suffix"), [("c.jsonl", "csv"), ("c.parquet", "jsonl"), ("c.csv", "parquet")])
def test_a_field_inside_a_column_is_named_with_a_dot(data: str, suffix: str, folder: Path) -> None:
    rows = [{"out": {"texts": [text], "by": {"name": "x"}}, "image": name} for name, text in BOTH]
    if data == "c.jsonl":
        write_lines(folder / data, rows)
    elif data == "c.parquet":
        pd.DataFrame(rows).to_parquet(folder / data)
    else:
        pd.DataFrame([{**row, "out": json.dumps(row["out"])} for row in rows]).to_csv(folder / data, index=False)
    output = folder / f"s.{suffix}"
    assert score_dataset(folder / data, PictureScorer(), output, candidate_column="out.texts.0").errors == {}
    shown = [(row["out.texts.0"], row["words"]) for row in open_source(output).records() if isinstance(row, dict)]
    assert shown == [(text, words) for text, (_, words) in zip(CAPTIONS, SCORES, strict=True)]
    with pytest.raises(DataError, match=r"--candidate-column names 'none.text', which is no column"):
        score_dataset(folder / data, PictureScorer(), output, candidate_column="none.text")


@pytest.mark.slow
def test_numbers_stay_numbers_and_names_stay_names(tmp_path: Path) -> None:
    text = "id;candidate;rating;zip;tags;kept;none;long\n1;5;0,5;007;[1, 2];true;;12345678901234567890\n"
    (tmp_path / "c.csv").write_text(text + "2;6;;12;;False;;1\n")
    for name in ("s.csv", "s.jsonl", "t.tsv"):
        score_dataset(tmp_path / ("c.csv" if name != "t.tsv" else "s.csv"), "length", tmp_path / name, prefix=name[0])
        rows = [row for row in open_source(tmp_path / name).records() if isinstance(row, dict)]
        given = [{key: row[key] for key in text.partition("\n")[0].split(";")} for row in rows]
        one = {"id": 1, "candidate": "5", "rating": 0.5, "zip": "007", "tags": [1, 2], "kept": True, "none": ""}
        two = {"id": 2, "candidate": "6", "rating": None, "zip": "12", "tags": None, "kept": False, "none": ""}
        assert given == [{**one, "long": "12345678901234567890"}, {**two, "long": "1"}]


def test_a_text_holds_a_caption_a_line(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("A dog, running.\n\nA cat.\n")
    score_dataset(tmp_path / "c.txt", "length", tmp_path / "out.jsonl")
    assert [row["length"] for row in read_rows(tmp_path / "out.jsonl")] == [3, None, 2]


@pytest.mark.parametrize("meta", [{}, [{"a": {}}], {"a": {}, "b": 1}])
@pytest.mark.parametrize("form", ["jsonl", "dataset"])
def test_objects_without_a_field_become_json_text_in_parquet(tmp_path: Path, meta: Any, form: str) -> None:
    """Parquet has no type for them; the run ended in a traceback once all rows were scored."""
    rows = [{"caption": "a red star", "meta": meta}, {"caption": "a star", "meta": None}]
    data: Any = write_lines(tmp_path / "data.jsonl", rows)
    data = data if form == "jsonl" else datasets.Dataset.from_list(rows)
    score_dataset(data, "length", tmp_path / "scores.parquet")
    first, second = read_rows(tmp_path / "scores.parquet")
    assert (json.loads(first["meta"]), second["meta"]) == (meta, None)
    assert (first["length"], second["length"]) == (3, 2)


@pytest.mark.slow
def test_candidates_of_an_image_or_a_group_compete(folder: Path, tmp_path: Path) -> None:
    data = file("c.json", {"0": ["one", "one two"], "1": ["three"]})(folder)
    summary = rerank_dataset(data, PictureScorer(), tmp_path / "out.csv", weights={"words": 1})
    with (tmp_path / "out.csv").open() as lines:
        assert [(row["image"], row["rank"]) for row in csv.DictReader(lines)] == [("0", "2"), ("0", "1"), ("1", "1")]
    assert (summary.groups, summary.columns["group"]) == (2, "image")
    texts = ["one two", "one", "one two three", "", "one", "two one"]
    rows = [{"id": group, "cand": text} for group, text in zip(["x", "y", "x", "y", None, "x"], texts, strict=True)]
    write_lines(tmp_path / "c.jsonl", rows)
    output = tmp_path / "out.parquet"
    summary = rerank_dataset(tmp_path / "c.jsonl", "length", output, group_column="id", part_rows=2, prefix="p_")
    got = read_rows(output)
    assert [row["p_rank"] for row in got] == [2, 1, 1, None, None, 3]  # a tie keeps the order
    assert [row["p_reward"] for row in got] == [2, 1, 3, None, None, 2]
    assert [{name: row[name] for name in rows[0]} for row in got] == rows
    assert (summary.rows, summary.captions, summary.scored, summary.groups) == (6, 6, 4, 2)
    assert summary.examples["group"] == "row 5: the row has nothing in column 'id', by which rows are ranked"
    again = rerank_dataset(tmp_path / "c.jsonl", "length", output, group_column="id", prefix="p_")
    assert (again.already_done, again.groups) == (True, 2)
    with pytest.raises(DataError, match=r"--group-column names 'ids', which is no column\. Did you mean 'id'\?"):
        rerank_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.jsonl", group_column="ids")
    with pytest.raises(DataError, match="each row has one candidate, and no column names the image: name the"):
        rerank_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.jsonl")


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (["a", "a b"], {}, [2, 1]),
        ([None, "a b"], {"group_column": "pic"}, [None, 1]),
        ([["a"], ["b c", "d"], "e" * 90], {}, ["a", "b c", None]),
        ([1, 2.5], {}, "column 'own' holds float, neither lists of captions nor one a row"),
        ([["a"]], {"group_column": "pic"}, "compete: leave out --group-column"),
    ],
)
def test_the_type_of_the_column_tells_what_competes(
    values: list[Any], options: dict[str, str], expected: Any, tmp_path: Path
) -> None:
    data, output = tmp_path / "c.jsonl", tmp_path / "o.jsonl"
    write_lines(data, [{"pic": "i.png", "caption": "x", "own": value} for value in values])
    options = {"image_column": "pic", "candidates_column": "own", **options}
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            rerank_dataset(data, "length", output, **options)
        assert not list(tmp_path.glob("o.jsonl*"))
        return
    rerank_dataset(data, "length", output, **options)
    assert [row.get("rank", row.get("best")) for row in read_rows(output)] == expected


@pytest.mark.parametrize(
    ("cell", "way"),
    [(["one", "two"], "a list of captions: `capreward rerank` scores"), ({"a": "b"}, "column caption.a")],
)
def test_lists_and_objects_are_no_captions(cell: Any, way: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", [{"caption": cell}])
    assert way in score_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.csv").examples["candidate"]
