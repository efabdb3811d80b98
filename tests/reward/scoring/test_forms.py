"""The contract of an input form, a row of FORMS: data in it give the scores of plain rows, in every kind of output."""

import base64
import gzip
import json
import re
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
from tests.toys.tars import write_tar

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
FLICKR30K = "image_name| number| comment\n" + "".join(f"{name}| 0| {caption}\n" for name, caption in ONE_LINE)
Form = Callable[[Path], Any]  # makes data beside the images of a folder


def file(name, content):
    """A file with a text, bytes, or JSON."""

    def make(folder):
        text = content if isinstance(content, (str, bytes)) else json.dumps(content, indent=1)
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
        return folder / name

    return make


def chat(name, caption):
    image = {"type": "image", "image": name}
    asked = [image, {"type": "text", "text": "What?"}]
    said = [{"type": "text", "text": caption}]
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": "Hm."}]
    return [*turns, {"role": "user", "content": "Say it."}, {"role": "assistant", "content": said}]


def data_urls(folder):
    """One picture in each chat, but for a path in the last."""
    urls = [f"data:image/png;base64,{base64.b64encode((folder / name).read_bytes()).decode()}" for name in NAMES[:2]]
    return write_lines(
        folder / "c.jsonl", [{"messages": chat(*both)} for both in zip([*urls, NAMES[2]], CAPTIONS, strict=True)]
    )


def llava(caption):
    return [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": caption}]


def parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "c.parquet", row_group_size=2)
    return folder / "c.parquet"


def parts(folder):
    """A folder such as engines write; in one part a column is all null."""
    (folder / "parts").mkdir()
    for part, rows in enumerate((ROWS[:1], ROWS[1:])):
        named = [{**row, "image": str(folder / row["image"]), "note": (part and "x") or None} for row in rows]
        pq.write_table(pa.Table.from_pylist(named), folder / "parts" / f"part-{part}.parquet")
    return folder / "parts"


def tar(folder):
    return write_shard(folder / "c.tar", BOTH, folder)


def joined_tars(folder):
    """As `cat` puts them together."""
    parts = [write_shard(folder / f"{number}.tar", rows, folder) for number, rows in enumerate((BOTH[:1], BOTH[1:]))]
    (folder / "c.tar").write_bytes(b"".join(part.read_bytes() for part in parts))
    return folder / "c.tar"


def write_shard(path, rows, pictures):
    members = {"README": b"of no row", ".hidden.txt": b"of no row"}
    for name, caption in rows:
        members |= {f"._{name}": b"a Mac's", name: (pictures / name).read_bytes()}
        members |= {f"._{name[0]}.txt": b"a Mac's", f"{name[0]}.txt": caption.encode()}
    return write_tar(path, members)


def shards(folder):
    """Two tars such as img2dataset writes, with statistics beside them."""
    (folder / "shards").mkdir()
    for number, rows in enumerate((BOTH[:2], BOTH[2:])):
        write_shard(folder / "shards" / f"{number:05}.tar", rows, folder)
        (folder / "shards" / f"{number:05}_stats.json").write_text('{"count": 2}')
    (folder / "shards" / "._00000.tar").write_bytes(b"\0\5")
    return folder / "shards"


def braces(folder):
    return f"{shards(folder)}/{{00000..00001}}.tar"


def pattern(folder):
    return f"{shards(folder)}/*.tar"


def pattern_of_lines(folder):
    for number, row in enumerate(ROWS):
        write_lines(folder / f"{number} [x].jsonl", [row])
    return folder / "[0-9] [[]x].jsonl"


def folder_of_lines(folder):
    (folder / "lines [1]").mkdir()
    for number, row in enumerate(ROWS):
        write_lines(folder / "lines [1]" / f"{number}.jsonl", [{**row, "image": str(folder / row["image"])}])
    return folder / "lines [1]"


def files_of_a_split(folder):
    for split, rows in (("train", ROWS[:1]), ("test-0", ROWS[:2]), ("test-1", ROWS[2:])):
        write_lines(folder / f"{split}.jsonl", rows)
    (folder / "._train.jsonl").write_bytes(b"\0\5")
    return folder


def metadata(folder):
    FRAME.rename(columns={"image": "file_name"}).to_csv(folder / "metadata.csv", index=False)
    write_lines(folder / "scores.jsonl", [{"an": "output"}])
    return folder


def captions_beside_metadata(folder):
    FRAME.to_csv(folder / "captions.csv", index=False)
    FRAME[["image"]].assign(width=4).to_csv(folder / "metadata.csv", index=False)
    return folder


def texts(folder):
    for name, caption in ONE_LINE:
        (folder / name).with_suffix(".txt").write_text(caption + "\n")
        (folder / f"._{name}").with_suffix(".txt").write_bytes(b"\0\5\xff\xff")  # as a Mac leaves them
        (folder / f"._{name}").write_bytes(b"\0\5\xff\xff")
    (folder / "README.md").write_text("no data")
    return folder


def splits(folder):
    """Images inside."""
    named = FRAME.assign(image=[str(folder / name) for name in NAMES])
    table = datasets.Dataset.from_pandas(named).cast_column("image", datasets.Image())
    return datasets.DatasetDict({"train": table.select([0]), "test": table})


def saved(folder):
    splits(folder).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def arrow(folder):
    datasets.Dataset.from_pandas(FRAME).save_to_disk(str(folder / "one"))
    return next((folder / "one").glob("*.arrow")).rename(folder / "c.arrow")


def folders_of_images(folder):
    for split in ("train", "test"):
        photos = folder / "photos" / split
        photos.mkdir(parents=True)
        rows = [{"file_name": name, "caption": caption} for name, caption in BOTH]
        write_lines(save_greys(photos) / "metadata.jsonl", rows)
    return folder / "photos"


FORMS = {
    "jsonl": file("d a t a.jsonl", "\ufeff" + LINES),
    "JSONL.GZ": file("c.JSONL.GZ", LINES),
    "UTF-16": file("c.jsonl", LINES.encode("utf-16")),
    "{image: caption}": file("c.json", json.dumps(dict(BOTH))),
    "{image without ending: caption}": file("c.json", {name[0]: caption for name, caption in BOTH}),
    "{image: [captions]}": file("c.json", {name: [caption] for name, caption in BOTH}),
    "paths of Windows": file("c.json", {f".\\{name}": caption for name, caption in BOTH}),
    "COCO's results": file("c.json", RESULTS),
    "COCO's annotations": file("c.json", COCO),
    "messages": file("c.jsonl", "".join(json.dumps({"messages": chat(*both)}) + "\n" for both in BOTH)),
    "pictures in messages": data_urls,
    "conversations": file("c.json", [{"image": name, "conversations": llava(caption)} for name, caption in BOTH]),
    "completion": file("c.json", [{"image": name, "completion": llava(caption)[1:]} for name, caption in BOTH]),
    "csv": file("c.csv.gz", FRAME.to_csv(index=False).encode("utf-8-sig")),
    "tabs in csv": file("c.csv", FRAME.to_csv(sep="\t", index=False)),
    "tsv": file("c.tsv", "image\tcaption\n" + "".join(f"{name}\t{caption}\n" for name, caption in ONE_LINE)),
    "index": file("c.csv", FRAME.to_csv()),
    "Excel": file("c.csv", FRAME.to_csv(sep=";", index=False).encode("utf-16")),
    "capitals and spaces": file("c.csv", "Image, Caption\n" + "".join(f'{name}, "{text}"\n' for name, text in BOTH)),
    "captions.txt": file("captions.txt", FRAME.to_csv(index=False)),
    "text and path": file("c.csv", FRAME.rename(columns={"image": "path", "caption": "text"}).to_csv(index=False)),
    "Flickr30k": file("results.csv", FLICKR30K),
}
for form in (parquet, parts, tar, joined_tars, metadata, texts, arrow, shards, braces, pattern, pattern_of_lines):
    FORMS[form.__name__] = form
for form in (folder_of_lines, files_of_a_split, captions_beside_metadata, splits, saved, folders_of_images):
    FORMS[form.__name__] = form
OPTIONS = {"Flickr30k": {"candidate_column": "comment"}}
OPTIONS |= {name: {"split": "test"} for name in ("splits", "saved", "folders_of_images", "files_of_a_split")}


def records(path):
    """The rows of an output, which is data as well."""
    return [row for row in open_source(path).records() if isinstance(row, dict)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return save_greys(tmp_path / "a b")


@pytest.mark.parametrize(("number", "form"), [*enumerate(FORMS)])
def test_every_form_gives_the_scores_of_plain_rows_and_goes_on_after_a_stop(
    number, form, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("reward.scoring.arrow_sources.TABLE_ROWS", 1)
    data, options = FORMS[form](folder), OPTIONS.get(form, {})
    output = tmp_path / f"out.{('json', 'parquet', 'csv')[number % 3]}"
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(data, Stop(1), output, part_rows=2, **options)
    summary = score_dataset(data, PictureScorer(), output, **options)
    assert (summary.rows, summary.resumed_rows, summary.errors) == (3, 2, {})
    rows = records(output)
    assert [(round(255 * float(row["brightness"])), float(row["words"])) for row in rows] == SCORES
    said = [caption for _, caption in ONE_LINE] if form.startswith(("Flickr", "texts", "tsv")) else CAPTIONS
    assert [row[summary.columns["candidate"]] for row in rows] == said
    assert score_dataset(data, PictureScorer(), output, **options).already_done


@pytest.mark.parametrize(
    ("content", "references"),
    [(COCO, 1), ({name[0]: [text, "A star."] for name, text in BOTH}, 2), (FRAME.to_csv(index=False), 1)],
    ids=["COCO", "{image: [references]}", "csv"],
)
def test_annotations_name_images_and_give_references(content, references, folder, tmp_path):
    first = 7 if content is COCO else 0
    results = file("results.json", [{**row, "image_id": row["image_id"] + first} for row in RESULTS[::-1]])(folder)
    known = file("known.csv" if isinstance(content, str) else "known.json", content)(folder)
    rows, summary = scored(open_source(results, annotations=known), tmp_path / "out.jsonl", PictureScorer())
    assert summary.errors == {}
    assert [(round(255 * row["brightness"]), row["words"] - references) for row in rows] == SCORES[::-1]


def several_lines(folder):
    (texts(folder) / "1.txt").write_text("A dog.\nA pet.\n")
    return folder


def two_pictures(folder):
    (texts(folder) / "1.jpg").write_bytes(b"")
    return folder


def tars_and_parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS), shards(folder) / "00000.parquet")
    return folder / "shards"


def lines_and_parquet(folder):
    write_lines(parts(folder) / "rows.jsonl", ROWS)
    return folder / "parts"


WRITE_ROWS = "write its rows as a list of objects"
KARPATHY = {"images": [{"filename": name, "sentences": [{"raw": text}]} for name, text in BOTH], "dataset": "x"}
REFUSED = {  # {what a reader would have to guess: (data, part of the message)}
    "lines in .json": (file("c.json", LINES), "c.json holds an object a line, and no JSON document: name it .jsonl"),
    "a document in .jsonl": (file("c.jsonl", ROWS), "c.jsonl is one JSON document and not an object a line: name it"),
    "pairs": (file("c.json", BOTH), f"a list of list: {WRITE_ROWS}"),
    "texts": (file("c.json", CAPTIONS), f"a list of str: {WRITE_ROWS}"),
    "one text": (file("c.json", '"A dog."'), f"one str: {WRITE_ROWS}"),
    "one row": (file("c.json", ROWS[0]), "an object with the names of columns, image, caption: write"),
    "fields by image": (file("c.json", {"0.png": {"caption": "x"}}), "field '0.png' is dict, no caption: write"),
    "numbers": (file("c.json", {"0.png": 3}), "field '0.png' is int, no caption: write"),
    "facts beside captions": (file("c.json", {"0.png": "A dog.", "model": "x"}), "and 'model', which names no picture"),
    "Karpathy's split": (file("c.json", KARPATHY), "an object with a list of objects, 'images': write its rows"),
    "rows in a field": (file("c.json.gz", {"version": 1, "data": ROWS}), "a list of objects, 'data': write its rows"),
    "columns": (file("c.json", FRAME.to_dict("list")), "the names of columns, image, caption: write its rows"),
    "to_json": (file("c.json", FRAME.to_json()), "the names of columns, image, caption: write its rows"),
    "an image twice": (file("c.json", '{"1.png": "a",\n"1.png": "b"}'), "'1.png' is there twice; which one is meant?"),
    "no header in csv": (file("c.csv", FRAME.to_csv(index=False, header=False)), "c.csv begins with data: put a line"),
    "no header in txt": (file("c.txt", "0.png\tA dog.\n"), "names of pictures beside captions and no header: put a"),
    "an unknown header": (file("c.txt", "img,nr,comment\n0.png,1,A dog\n"), "names of pictures beside captions and no"),
    "no such shard": (lambda folder: f"{shards(folder)}/{{00000..00002}}.tar", "no file {}/shards/00002.tar"),
    "a pattern of nothing": (lambda folder: folder / "*.tar", "there is no file {}/*.tar"),
    "a pattern of several kinds": (lambda folder: f"{shards(folder)}/*", "several kinds, .tar and .json: name"),
    "several lines": (
        several_lines,
        "1.txt has 2 lines, and a text beside a picture is one caption: for several,",
    ),
    "two pictures": (two_pictures, "1.txt is beside 1.jpg and 1.png: keep one of them, or write captions.csv"),
    "texts in a folder below": (
        lambda folder: texts(folder).parent,
        "has pictures and their texts in folders of its own: name one, {}",
    ),
    "tars and Parquet": (tars_and_parquet, "shards means files of several kinds, .parquet and .tar: name those of"),
    "lines and Parquet": (lines_and_parquet, "parts means files of several kinds, .parquet and .jsonl: name those of"),
}


@pytest.mark.parametrize("situation", REFUSED)
def test_what_a_reader_would_have_to_guess_is_refused_with_what_to_write(situation, folder):
    form, message = REFUSED[situation]
    data = form(folder)
    with pytest.raises(DataError, match=re.escape(message.replace("{}", str(folder)))):
        open_source(data)


def rows_in(data):
    source = open_source(data)
    return list(source.rows(source.columns))


def test_a_line_of_a_text_is_a_header_only_if_it_consists_of_names_of_columns(folder):
    lines = {"Caption\nA dog, running.\n": ["A dog, running."], "Photo, sharp\nA dog.\n": ["Photo, sharp", "A dog."]}
    for text, captions in lines.items():
        assert [list(row.values()) for row in rows_in(file("c.txt", text)(folder))] == [[it] for it in captions]
    assert rows_in(file("c.txt", "image|refs\n0.png|A dog\n")(folder)) == [{"image": "0.png", "refs": "A dog"}]


def test_a_picture_without_a_text_keeps_its_row_and_an_output_is_no_data(folder):
    (texts(folder) / "2.txt").unlink()
    assert [row["caption"] for row in rows_in(folder)] == [*(caption for _, caption in ONE_LINE[:2]), None]
    data = write_lines(parts(folder).parent / "captions.jsonl", ROWS)
    score_dataset(data, "length", folder / "captions.scores.parquet")
    assert [row["caption"] for row in rows_in(folder)] == CAPTIONS


def test_a_tar_that_is_cut_off_is_refused(folder):
    path = tar(folder)
    whole, sizes = path.read_bytes(), []
    with tarfile.open(path) as shard:
        sizes = [member.offset for member in shard][3:]
    end = whole.rstrip(b"\0")
    for size in (*sizes, sizes[-1] + 300, len(end) // 512 * 512 + 512):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"c\.tar cannot be read: "):
            open_source(path)
    path.write_bytes(whole[: len(end) // 512 * 512 + 1024])  # the zeros at the end hold nothing
    assert len(rows_in(path)) == 3
