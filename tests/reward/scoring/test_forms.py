"""The contract of an input form, a row of FORMS: data in it give the scores of plain rows, in every kind of output."""

from __future__ import annotations

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
from reward.scoring import score_dataset
from reward.scoring.readers import open_source
from tests.reward.scoring.small_data import Stop, save_greys, scored
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
KARPATHY = {"images": [{"filename": name, "sentences": [{"raw": text}]} for name, text in BOTH], "dataset": "x"}
FLICKR30K = "image_name| number| comment\n" + "".join(f"{name}| 0| {caption}\n" for name, caption in ONE_LINE)
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
    members = {"README": b"of no row", ".hidden.txt": b"of no row"}
    for name, caption in BOTH:
        members |= {name: (folder / name).read_bytes(), f"{name[0]}.caption": caption.encode()}
    with tarfile.open(folder / "c.tar", "w") as shard:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
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


def splits(folder: Path) -> datasets.DatasetDict:
    """Images inside."""
    named = FRAME.assign(image=[str(folder / name) for name in NAMES])
    table = datasets.Dataset.from_pandas(named).cast_column("image", datasets.Image())
    return datasets.DatasetDict({"train": table.select([0]), "test": table})


def saved(folder: Path) -> Path:
    splits(folder).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def arrow(folder: Path) -> Path:
    datasets.Dataset.from_pandas(FRAME).save_to_disk(str(folder / "one"))
    return next((folder / "one").glob("*.arrow")).rename(folder / "c.arrow")


def folders_of_images(folder: Path) -> Path:
    for split in ("train", "test"):
        photos = folder / "photos" / split
        photos.mkdir(parents=True)
        rows = [{"file_name": name, "caption": caption} for name, caption in BOTH]
        write_lines(save_greys(photos) / "metadata.jsonl", rows)
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
    "Karpathy's split": file("c.json", KARPATHY),
    "data": file("c.json.gz", {"version": 1, "data": ROWS}),
    "to_json": file("c.json", FRAME.to_json()),
    "to_dict": file("c.json", FRAME.to_dict("list")),
    "split of pandas": file("c.json", FRAME.to_json(orient="split")),
    "table of pandas": file("c.json", FRAME.to_json(orient="table")),
    "messages": file("c.jsonl", "".join(json.dumps({"messages": chat(*both)}) + "\n" for both in BOTH)),
    "conversations": file("c.json", [{"image": name, "conversations": llava(caption)} for name, caption in BOTH]),
    "completion": file("c.json", [{"image": name, "completion": llava(caption)[1:]} for name, caption in BOTH]),
    "csv": file("c.csv.gz", FRAME.to_csv(index=False).encode("utf-8-sig")),
    "tabs in csv": file("c.csv", FRAME.to_csv(sep="\t", index=False)),
    "tsv": file("c.tsv", "image\tcaption\n" + "".join(f"{name}\t{caption}\n" for name, caption in ONE_LINE)),
    "index": file("c.csv", FRAME.to_csv()),
    "Excel": file("c.csv", FRAME.to_csv(sep=";", index=False).encode("utf-16")),
    "sep=": file("c.csv", "sep=;\n" + FRAME.to_csv(sep=";", index=False)),
    "capitals and spaces": file("c.csv", "Image, Caption\n" + "".join(f'{name}, "{text}"\n' for name, text in BOTH)),
    "captions.txt": file("captions.txt", FRAME.to_csv(index=False)),
    "text and path": file("c.csv", FRAME.rename(columns={"image": "path", "caption": "text"}).to_csv(index=False)),
    "Flickr8k": file("Flickr8k.token.txt", "".join(f"{name}#0\t{caption}\n" for name, caption in ONE_LINE)),
    "Flickr30k": file("results.csv", FLICKR30K),
    **{each.__name__: each for each in (parquet, parts, tar, metadata, texts, arrow)},
    **{each.__name__: each for each in (splits, saved, folders_of_images)},
}
OPTIONS = {"Flickr30k": {"candidate_column": "comment"}}
OPTIONS |= {name: {"split": "test"} for name in ("splits", "saved", "folders_of_images")}


def records(path: Path) -> list[dict[str, Any]]:
    """The rows of an output, which is data as well."""
    return [row for row in open_source(path).records() if isinstance(row, dict)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return save_greys(tmp_path / "a b")


@pytest.mark.parametrize(("number", "form"), [*enumerate(FORMS)])
def test_every_form_gives_the_scores_of_plain_rows_and_goes_on_after_a_stop(
    number: int, form: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reward.scoring.arrow_sources.TABLE_ROWS", 1)
    data, options = FORMS[form](folder), OPTIONS.get(form, {})
    output = tmp_path / f"out.{('json', 'parquet', 'csv')[number % 3]}"
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(data, Stop(1), output, part_rows=2, **options)
    summary = score_dataset(data, PictureScorer(), output, **options)
    assert (summary.rows, summary.resumed_rows, summary.errors) == (3, 2, {})
    rows = records(output)
    assert [(round(255 * float(row["brightness"])), float(row["words"])) for row in rows] == SCORES
    said = [caption for _, caption in ONE_LINE] if form.startswith(("Flickr", "tsv")) else CAPTIONS
    assert [row[summary.columns["candidate"]] for row in rows] == said
    assert score_dataset(data, PictureScorer(), output, **options).already_done


@pytest.mark.parametrize(
    ("content", "references"),
    [(COCO, 1), ({name[0]: [text, "A star."] for name, text in BOTH}, 2), (FRAME.to_csv(index=False), 1)],
    ids=["COCO", "{image: [references]}", "csv"],
)
def test_annotations_name_images_and_give_references(
    content: Any, references: int, folder: Path, tmp_path: Path
) -> None:
    first = 7 if content is COCO else 0
    results = file("results.json", [{**row, "image_id": row["image_id"] + first} for row in RESULTS[::-1]])(folder)
    known = file("known.csv" if isinstance(content, str) else "known.json", content)(folder)
    rows, summary = scored(open_source(results, annotations=known), tmp_path / "out.jsonl", PictureScorer())
    assert summary.errors == {}
    assert [(round(255 * row["brightness"]), row["words"] - references) for row in rows] == SCORES[::-1]


def test_images_of_one_name_in_two_folders_are_not_taken_for_each_other(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "c.jsonl", [{"image": name, "caption": "x"} for name in ("a/1.png", "b/1.png", "1")])
    write_lines(tmp_path / "refs.jsonl", [{"image": f"{name}/1.png", "references": [name]} for name in "ab"])
    rows = open_source(data, annotations=tmp_path / "refs.jsonl").rows(["references"])
    assert [row["references"] for row in rows if isinstance(row, dict)] == [["a"], ["b"], None]
    other = write_lines(tmp_path / "other.jsonl", [{"image": "other.png", "references": ["A dog."]}])
    with pytest.raises(DataError, match=r"no image of c\.jsonl is in other\.jsonl, which has 'other\.png'"):
        open_source(data, annotations=other)
