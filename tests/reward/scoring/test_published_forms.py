"""Captions as published files and other programs hold them: every form gives the scores of plain rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reward.scoring import score_dataset
from reward.scoring.readers import open_source
from tests.picture_scorer import PictureScorer
from tests.reward.scoring.small_data import save_greys

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
    "table of pandas": ("c.json", FRAME.to_json(orient="table")),
    "list in jsonl": ("c.jsonl", ROWS),
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


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
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
