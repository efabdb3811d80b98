"""Published data sets to train on: their files, in the layout of their authors, become parts of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from PIL import Image

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.pairs import TablePairs
from reward.training.ratings import Judgements, make_judgements
from reward.training.rows import load_rows
from reward.training.tables import load_tables
from tests.toys.json_lines import write_lines

RATINGS = TrainingConfig(reference_free_rate=1.0, scenes_test=0, test_parts=())
PAIRS = TrainingConfig(loss="bce", test_parts=())


BEITSCORE = metric_spec("beitscore")


def rated(source: str, part: str) -> Judgements:
    found = make_judgements({source: load_tables(source, RATINGS)}, part, BEITSCORE, RATINGS)
    assert found is not None
    return found


def pictures(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value))


def test_foils_are_pairs_and_one_image_in_twenty_is_held_out(tmp_path: Path) -> None:
    names = {number: f"COCO_train2014_{number:012}.jpg" for number in range(60)}
    pictures(tmp_path / "train2014", *list(names.values())[:-1])
    annotations = [
        {"id": number, "image_id": number, "foil": foil, "caption": f"A {'cat' if foil else 'dog'} on box {number}."}
        for number in names
        for foil in (False, True)
    ]
    images = [{"id": number, "file_name": name} for number, name in names.items()]
    write_json(tmp_path / "foilv1.0_train_2017.json", {"annotations": annotations, "images": images})
    with pytest.warns(UserWarning, match="foil: 1 rows are left out: no image "):
        parts = load_rows(BEITSCORE, [f"foil={tmp_path}"], PAIRS)
    counts = {part: rows.kinds.count(0) for part, rows in parts.items()}
    assert sum(counts.values()) == 59
    assert 1 <= counts["val"] <= 8
    right, wrong = (parts["train"][row]["sample"] for row in (0, 1))
    assert wrong.candidate == right.candidate.replace("dog", "cat")
    assert Path(right.image).name in names.values()


def test_captions_of_three_data_sets(tmp_path: Path) -> None:
    texts, narratives, prose = tmp_path / "texts", tmp_path / "narratives", tmp_path / "prose"
    pictures(texts / "train_images", "a.jpg", "b.jpg")
    for part, image in {"train": "a", "val": "b"}.items():
        rows = [{"image_id": image, "caption_str": f"A sign of {part}.", "set_name": part}]
        write_json(texts / f"TextCaps_0.1_{part}.json", {"data": rows, "dataset_type": part})
    pictures(narratives, "mscoco_train2017/000000000139.jpg", "images/0a1b.jpg")
    row = {"dataset_id": "mscoco_train2017", "image_id": "139", "annotator_id": 1, "caption": "In this image a dog."}
    write_lines(narratives / "coco_train_localized_narratives-00000-of-00004.jsonl", [row])
    row |= {"dataset_id": "open_images_validation", "image_id": "0a1b"}
    write_lines(narratives / "open_images_validation_localized_narratives.jsonl", [row])
    pictures(prose, *(f"00000/{number:09}.jpg" for number in range(40)))
    keys = [f"{number:09}" for number in range(40)]
    captions = ["This image displays: A dog."] * 39 + [None]
    pq.write_table(pa.table({"key": keys, "caption": captions}), prose / "00000.parquet")
    expected = {f"textcaps={texts}": "A sign of train.", f"localized-narratives={narratives}": "In this image a dog."}
    for source, first in {**expected, f"pixelprose={prose}": "A dog."}.items():
        splits = load_tables(source, PAIRS)
        assert set(splits) == {"train", "val"}
        assert splits["train"].rows[0]["caption"] == first
        assert isinstance(load_rows(BEITSCORE, [source], PAIRS)["val"], TablePairs)
    both = load_rows(BEITSCORE, [*expected], PAIRS)["train"]
    assert {both[row]["sample"].candidate for row in range(0, len(both), 2)} == set(expected.values())


def test_ratings_of_the_benchmarks_are_mapped_to_one_scale(tmp_path: Path) -> None:
    pictures(tmp_path / "images", "0.jpg", "SD/1.png")
    rows = ["image,caption,subset,ratings,rating_2", "x/0.jpg,A dog.,train,1,2", "x/0.jpg,A cat.,val,5,"]
    (tmp_path / "vicr.csv").write_text("\n".join(rows))
    entry = {"prompt_id": "1", "img_path": "SD/1.png", "total_score": [3, 4, 5], "element_score": {}}
    write_json(tmp_path / "train_list.json", [{**entry, "prompt": f"A dog, number {n}."} for n in range(60)])
    for part in ("train", "validation"):
        row = {"imgid": ["0.jpg"], "cand": [f"A dog of {part}."], "refs": [["A."]], "human_score": [0.25]}
        Dataset.from_dict(row).to_parquet(tmp_path / f"{part}.parquet")
    for name, train in {"vicr": {0.125}, "evalmuse-40k": {0.75}, "polaris": {0.25}}.items():
        parts = {part: rated(f"{name}={tmp_path}", part) for part in ("train", "val")}
        assert {row["target"] for row in parts["train"]} == train
        assert parts["train"][0]["sample"].image is not None
        mean = load_benchmark(name, tmp_path, part="train").rows.ratings.map(lambda each: np.mean(each["overall"]))
        assert len(mean) == len(parts["train"])  # a caption has one number, the mean of its ratings, as in `bench`
    sizes = [len(rated(f"evalmuse-40k={tmp_path}", part)) for part in ("train", "val")]
    assert (sum(sizes), min(sizes) > 0) == (60, True)


def test_columns_and_parts_as_the_hub_names_them(tmp_path: Path) -> None:
    row = {"img": [Image.new("RGB", (8, 8))], "refs": [["A."]], "cand": ["A dog."], "human_score": [0.5]}
    for part in ("train", "validation"):
        Dataset.from_dict(row).to_parquet(tmp_path / "data" / f"{part}-00000-of-00001.parquet")
    [row] = rated(str(tmp_path), "val")
    assert row["target"] == 0.5
    assert row["sample"].image is not None


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no foilv1\.0_train_2017\.json"):
        load_tables(f"foil={tmp_path}", PAIRS)
    (tmp_path / "vicr.csv").write_text("image,caption,ratings\nx/0.jpg,A dog.,1\n")
    pictures(tmp_path / "images", "0.jpg")
    with pytest.raises(DataError, match="the same rows to train on and to stop by"):
        load_tables(f"vicr={tmp_path}", RATINGS)
    (tmp_path / "images" / "0.jpg").unlink()
    with pytest.raises(DataError, match=r"vicr: no image is there, not even .*0\.jpg"):
        load_tables(f"vicr={tmp_path}", RATINGS)
