"""Published data sets to train on: their files, in the layout of their authors, become parts of rows."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from PIL import Image

from reward.errors import DataError
from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.rows import load_rows
from tests.toys.json_lines import write_lines


def load(data, **settings):
    return load_rows(metric_spec("beitscore"), [data], TrainingConfig(test_parts=(), **settings))


def pictures(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def test_foils_are_pairs_and_one_image_in_twenty_is_held_out(tmp_path):
    images = [{"id": number, "file_name": f"COCO_train2014_{number:012}.jpg"} for number in range(60)]
    pictures(tmp_path / "train2014", *(image["file_name"] for image in images[:-1]))
    annotations = [
        {"id": number, "image_id": number, "foil": noun == "cat", "caption": f"A {noun} on box {number}."}
        for number in range(60)
        for noun in ("dog", "cat")
    ]
    whole = json.dumps({"annotations": annotations, "images": images})
    (tmp_path / "foilv1.0_train_2017.json").write_text(whole)
    with pytest.warns(UserWarning, match="foil: 1 rows are left out: no image "):
        parts = load(f"foil={tmp_path}", loss="bce")
    counts = {part: rows.kinds.count(0) for part, rows in parts.items()}
    assert sum(counts.values()) == 59
    assert 1 <= counts["val"] <= 8
    right, wrong = (parts["train"][row]["sample"] for row in (0, 1))
    assert wrong.candidate == right.candidate.replace("dog", "cat")
    assert Path(right.image).stem.endswith(right.candidate.split()[-1].strip(".").zfill(12))


def textcaps(folder):
    pictures(folder / "train_images", "train.jpg", "val.jpg")
    for part in ("train", "val"):
        rows = [{"image_id": part, "caption_str": "A dog runs.", "set_name": part}]
        (folder / f"TextCaps_0.1_{part}.json").write_text(json.dumps({"data": rows, "dataset_type": part}))


def localized_narratives(folder):
    pictures(folder, "mscoco_train2017/000000000139.jpg", "images/0a1b.jpg")
    row = {"dataset_id": "mscoco_train2017", "image_id": "139", "annotator_id": 1, "caption": "A dog runs."}
    write_lines(folder / "coco_train_localized_narratives-00000-of-00004.jsonl", [row])
    row |= {"dataset_id": "open_images_validation", "image_id": "0a1b"}
    write_lines(folder / "open_images_validation_localized_narratives.jsonl", [row])


def pixelprose(folder):
    keys = [f"{number:09}" for number in range(40)]
    pictures(folder, *(f"00000/{key}.jpg" for key in keys))
    captions = ["This image displays: A dog runs."] * 39 + [None]
    pq.write_table(pa.table({"key": keys, "caption": captions}), folder / "00000.parquet")


@pytest.mark.parametrize("make", [textcaps, localized_narratives, pixelprose], ids=lambda make: make.__name__)
def test_captions_of_three_data_sets(make, tmp_path):
    make(tmp_path)
    parts = load(f"{make.__name__.replace('_', '-')}={tmp_path}", loss="bce")
    assert set(parts) == {"train", "val"}
    for rows in parts.values():
        sample = rows[0]["sample"]
        assert (sample.candidate, Path(sample.image).is_file()) == ("A dog runs.", True)


@pytest.mark.parametrize(
    ("name", "targets", "rows"), [("vicr", {0.125}, 2), ("evalmuse-40k", {0.75, 0.0}, 60), ("polaris", {0.25}, 2)]
)
def test_a_caption_s_mean_rating_is_mapped_to_0_to_1(name, targets, rows, tmp_path):
    pictures(tmp_path / "images", "0.jpg", "SD/1.png")
    lines = ["image,caption,subset,ratings,rating_2", "x/0.jpg,A dog.,train,1,2", "x/0.jpg,A cat.,val,5,"]
    (tmp_path / "vicr.csv").write_text("\n".join(lines))
    entry = {"prompt_id": "1", "img_path": "SD/1.png", "element_score": {}}
    scores = [{"prompt": f"A dog, number {n}.", "total_score": [3, 4, 5] if n % 2 else [1]} for n in range(60)]
    (tmp_path / "train_list.json").write_text(json.dumps([entry | score for score in scores]))
    for part in ("train", "validation"):
        row = {"imgid": ["0.jpg"], "cand": [f"A dog of {part}."], "refs": [["A."]], "human_score": [0.25]}
        Dataset.from_dict(row).to_parquet(tmp_path / f"{part}.parquet")
    parts = load(f"{name}={tmp_path}", reference_free_rate=1.0)
    assert {row["target"] for row in parts["train"]} == targets
    assert len(parts["train"]) + len(parts["val"]) == rows
    assert all(Path(row["sample"].image).is_file() for part in parts.values() for row in part)


def test_what_is_missing_is_told(tmp_path):
    (tmp_path / "vicr.csv").write_text("image,caption,ratings\nx/0.jpg,A dog.,1\n")
    with pytest.raises(DataError, match=r"vicr: no image is there, not even .*0\.jpg"):
        load(f"vicr={tmp_path}")
    pictures(tmp_path / "images", "0.jpg")
    with pytest.raises(DataError, match="the same rows to train on and to stop by"):
        load(f"vicr={tmp_path}")
