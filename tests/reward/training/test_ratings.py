"""Data sets in LongCap-Arena's layout and in the scenes' layout become the same kind of training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from PIL import Image

from reward.errors import DataError
from reward.metrics.base import MetricSpec
from reward.metrics.vela import SPEC
from reward.training.config import TrainingConfig
from reward.training.ratings import Judgements, make_judgements
from reward.training.rows import load_rows
from reward.training.tables import load_tables, tables_of
from tests.toys.json_lines import write_lines


def rows(n: int = 3, **columns: Any) -> Dataset:
    data: dict[str, Any] = {
        "file_name": [f"{i}.png" for i in range(n)],
        "image": [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(n)],
        "refs": [[f"reference {i} {k}" for k in range(4)] for i in range(n)],
        "cand": [f"candidate {i}" for i in range(n)],
        "score": [i / n for i in range(n)],
        **columns,
    }
    return Dataset.from_dict({name: values for name, values in data.items() if values is not None})


def arena(n: int = 3, **columns: Any) -> DatasetDict:
    return DatasetDict(
        {f"{part}.{aspect}": rows(n, **columns) for part in ("train", "val") for aspect in ("desc", "flu")}
    )


def judged(splits: Any, part: str, spec: MetricSpec = SPEC, root: Path | None = None, **settings: Any) -> Judgements:
    found = make_judgements({"data": tables_of(splits, root)}, part, spec, TrainingConfig(**settings))
    assert found is not None
    return found


def test_split_per_aspect_column_per_aspect_and_the_plain_score_mean_the_same() -> None:
    scores = {"desc": [0.0, 0.5, 1.0], "flu": [1.0, 0.25, 0.0]}
    found = []
    for splits in ({f"val.{name}": rows(score=values) for name, values in scores.items()}, {"val": rows(**scores)}):
        judgements = judged(splits, "val")
        assert {rating.aspect for rating in judgements.ratings} == {0, 2}
        samples = [row["sample"] for row in judgements]
        texts = [(sample.candidate, sample.references) for sample in samples]
        found.append([(row["aspect"], row["target"], *each) for row, each in zip(judgements, texts, strict=True)])
    assert found[0] == found[1]
    assert [row[:2] for row in found[0]] == [(0, 0.0), (0, 0.5), (0, 1.0), (2, 1.0), (2, 0.25), (2, 0.0)]
    spec = MetricSpec(name="one", scorer="x:Y", aspects=("overall",))
    plain = judged({"val": rows()}, "val", spec)
    assert [row["target"] for row in plain] == [0, 1 / 3, 2 / 3]


def test_one_score_takes_every_rating_of_any_aspect_unless_it_is_rated_itself(tmp_path: Path) -> None:
    of_aspect = {"desc": rows(score=[0.0, 0.5, 1.0]), "flu": rows(score=[1.0, 0.25, 0.0])}
    parts, one = ("train", "val", "dci_val"), SPEC.with_aspects(["overall"])
    DatasetDict({f"{part}.{name}": own for part in parts for name, own in of_aspect.items()}).save_to_disk(tmp_path)
    found = load_rows(one, [str(tmp_path)], TrainingConfig())
    for part in parts:
        assert [(row["aspect"], row["target"]) for row in found[part]] == [(0, y) for y in (0, 0.5, 1, 1, 0.25, 0)]
    own = judged({"val": rows(overall=[0.5] * 3, fluency=[0.0] * 3)}, "val", one)
    assert [row["target"] for row in own] == [0.5] * 3


def test_references_are_left_out_and_chosen_anew_each_epoch_but_repeatably() -> None:
    settings: dict[str, Any] = {"reference_free_rate": 0.4, "max_references": 2}
    splits = arena(n=200)

    def shown(epoch: int) -> list[tuple[str, ...]]:
        judgements = judged(splits, "train", **settings)
        judgements.epoch = epoch
        return [tuple(judgements[item]["sample"].references) for item in range(len(judgements))]

    first, second = shown(0), shown(1)
    assert first == shown(0) != second
    assert {len(references) for references in first} == {0, 2}
    assert 0.3 < sum(not references for references in first) / len(first) < 0.5
    assert len({tuple(text[-1] for text in references) for references in first if references}) == 6  # 4 choose 2
    assert all(list(references) == sorted(references) for references in first)
    held_out = judged(splits, "val", **settings)
    assert {tuple(text[-1] for text in row["sample"].references) for row in held_out} == {("0", "1")}
    assert not any(row["sample"].references for row in held_out.without_references())
    bare = judged(splits, "val", reference_free_rate=1.0)
    assert not any(row["sample"].references for row in bare)


def test_without_references_none_need_be_there() -> None:
    found = judged({"train.desc": rows(refs=None)}, "train", reference_free_rate=1.0)
    assert [row["sample"].references for row in found] == [()] * 3
    assert found.lengths() == [len("candidate 0")] * 3
    assert found.texts() == [f"candidate {i}" for i in range(3)]
    uneven = judged({"val.rel": rows(n=2, cand=["a", "b"], refs=[["x"], None])}, "val")
    assert (uneven.lengths(), uneven.texts()) == ([2, 1], ["a", "b", "x"])
    with pytest.raises(DataError, match="lacks the columns cand"):
        judged({"train.desc": rows(refs=None, cand=None)}, "train", reference_free_rate=1.0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": None}, "'val.desc' lacks the columns score"),
        ({"cand": None, "refs": None}, "lacks the columns refs, cand"),
        ({"image": None, "file_name": None}, r"lacks the columns image \(or file_name\)"),
        ({"score": [0.0, 1.5, 1.0]}, r"row 1: score must be a number in \[0, 1\], got 1.5"),
        ({"score": [0.0, 0.5, float("nan")]}, "row 2: score must be a number"),
        ({"score": [0.0, None, 1.0]}, "row 1: score must be a number"),
        ({"score": ["a", "b", "c"]}, "row 0: score must be a number"),
        ({"cand": ["a", "  ", "c"]}, "row 1: candidate is empty"),
        ({"cand": ["a", None, "c"]}, "row 1: candidate must be a string"),
        ({"n": 0}, r"split 'val\.desc' is empty"),
    ],
)
def test_bad_columns_name_split_and_row(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        judged({"val.desc": rows(**columns)}, "val")


def test_one_text_is_one_reference() -> None:
    assert [row["sample"].references for row in judged({"val.desc": rows(refs=["ab", "b", ""])}, "val")] == [
        ("ab",),
        ("b",),
        (),
    ]


def save_images(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        Image.new("RGB", (8, 8)).save(folder / f"{number}.png")


def test_folders_are_read_and_image_paths_start_in_them(tmp_path: Path) -> None:
    saved = tmp_path / "saved data"
    arena(image=None).save_to_disk(saved)
    with pytest.raises(
        DataError, match=r"'train\.desc', row 0: file_name names '0\.png', and there is no .*saved data"
    ):
        make_judgements({"": load_tables(saved, TrainingConfig())}, "train", SPEC, TrainingConfig())
    save_images(saved)
    found = make_judgements({"": load_tables(saved, TrainingConfig())}, "train", SPEC, TrainingConfig())
    assert found is not None
    assert found[1]["sample"].image == saved / "1.png"


@pytest.mark.parametrize("name", ["{}", "longcap-arena={}"])
def test_tables_with_encoded_images(name: str, tmp_path: Path) -> None:
    (tmp_path / "files" / "data").mkdir(parents=True)
    for split, table in arena().items():
        table.to_parquet(tmp_path / "files" / "data" / f"{split}-00000-of-00001.parquet")
    splits = load_tables(name.format(tmp_path / "files"), TrainingConfig())
    assert set(splits) == {"train.desc", "train.flu", "val.desc", "val.flu"}
    found = make_judgements({"": splits}, "val", SPEC, TrainingConfig())
    assert found is not None
    image = found[2]["sample"].image
    assert isinstance(image, dict)  # encoded still
    assert image["bytes"][:4] == b"\x89PNG"


@pytest.mark.parametrize("names", [("candidate", "references", "rating"), ("caption", "reference", "human_score")])
def test_usual_names_of_columns_are_found_and_rows_of_several_sets_are_taken_together(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    """Files such as people have: train.jsonl and val.jsonl beside their images."""
    save_images(tmp_path / "mine")
    for part in ("train", "val"):  # `datasets` calls the split of val.jsonl "validation"
        cells = [(f"A dog, {n}.", [f"Dog {n}."], n / 2) for n in range(3)]
        lines = [{"image": f"{n}.png", **dict(zip(names, cells[n], strict=True))} for n in range(3)]
        write_lines(tmp_path / "mine" / f"{part}.jsonl", lines)
    spec = MetricSpec(name="one", scorer="x:Y", aspects=("overall",))
    DatasetDict({"train": rows()}).save_to_disk(tmp_path / "other")
    sources = [str(tmp_path / "other"), str(tmp_path / "mine")]
    parts = load_rows(spec, sources, TrainingConfig())
    assert {part: len(found) for part, found in parts.items()} == {"train": 6, "val": 3}
    assert [row["target"] for row in parts["train"]] == [0, 1 / 3, 2 / 3, 0, 0.5, 1]
    sample = parts["train"][4]["sample"]
    assert (sample.candidate, sample.references) == ("A dog, 1.", ("Dog 1.",))
    assert sample.image == tmp_path / "mine" / "1.png"
    (tmp_path / "mine" / "1.png").unlink()
    with pytest.raises(DataError, match=r"split 'train of .*mine', row 1: image names '1\.png', and there is no "):
        load_rows(spec, sources, TrainingConfig())
    DatasetDict({"test": rows(), "val": rows()}).save_to_disk(tmp_path / "bad")
    with pytest.raises(DataError, match=r"data set '.*bad' has no part 'train'.*there are test, val"):
        load_rows(spec, [sources[0], str(tmp_path / "bad")], TrainingConfig())
    with pytest.raises(DataError, match=r"data set '.*other' has no part 'val': expected splits val\.overall, or"):
        load_rows(spec, sources[:1], TrainingConfig())


def test_a_copy_that_is_not_there_is_told_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"is not a folder\. .*`hf download Ka2ukiMatsuda/LongCap-Arena --repo-type data"
    ):
        load_tables(f"longcap-arena={tmp_path / 'absent'}", TrainingConfig())


def test_scenes_are_held_apart_and_cost_only_what_is_asked() -> None:
    splits = load_tables("scenes", TrainingConfig(scenes_train=3, scenes_val=2, scenes_test=0))
    assert {name: len(split.rows) for name, split in splits.items()} == {"train": 3, "val": 2}
    assert not set(splits["train"].rows["scene"]) & set(splits["val"].rows["scene"])


def test_sources_that_cannot_be_loaded_say_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between its retries
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")  # not what other tests loaded
    for name, files in {"empty": (), "blank": ("train.jsonl", "val.jsonl")}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    rows().save_to_disk(tmp_path / "single")
    for source, message in (
        ("nobody/nothing", r"cannot load the data set 'nobody/nothing'[^\n]*\nGive 'scenes', a folder"),
        ("longcap-arena", r"\n.*`hf download Ka2ukiMatsuda/LongCap-Arena .* and give longcap-arena=FOLDER"),
        ("./nowhere", r"folder '\./nowhere' does not exist"),
        (tmp_path / "empty", "cannot load the data set"),
        (tmp_path / "blank", "a file in it is empty"),
        (tmp_path / "single", "is one table"),
    ):
        with pytest.raises(DataError, match=message):
            load_tables(source, TrainingConfig())
