"""Rated captions, in the forms that people hold them in, become the same training rows."""

import pytest
from datasets import ClassLabel, Dataset, DatasetDict
from PIL import Image

from reward.errors import DataError
from reward.metrics.base import MetricSpec
from reward.metrics.vela import SPEC
from reward.training.config import TrainingConfig
from reward.training.judgements import make_judgements
from reward.training.rows import load_rows
from reward.training.splits import as_splits, load_splits
from tests.toys.json_lines import write_lines

ONE = MetricSpec(name="one", scorer="x:Y", aspects=("overall",))


def rows(n=3, **columns):
    """A split in the form of LongCap-Arena; a column None is left out."""
    data = {
        "image": [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(n)],
        "refs": [[f"reference {i} {k}" for k in range(4)] for i in range(n)],
        "cand": [f"candidate {i}" for i in range(n)],
        "score": [i / n for i in range(n)],
        **columns,
    }
    return Dataset.from_dict({name: values for name, values in data.items() if values is not None})


def judged(splits, part="val", spec=SPEC, **settings):
    return make_judgements({"data": as_splits(splits, None)}, part, spec, TrainingConfig(**settings))


def targets(judgements):
    return [(row["aspect"], row["target"]) for row in judgements]


def test_split_per_aspect_column_per_aspect_and_the_plain_score_mean_the_same():
    scores = {"desc": [0.0, 0.5, 1.0], "flu": [1.0, 0.25, 0.0]}
    by_split = judged({f"val.{name}": rows(score=values) for name, values in scores.items()})
    by_column = judged({"val": rows(**scores)})
    for found in (by_split, by_column):
        assert targets(found) == [(0, 0.0), (0, 0.5), (0, 1.0), (2, 1.0), (2, 0.25), (2, 0.0)]
        assert found[4]["sample"].candidate == "candidate 1"
        assert found[4]["sample"].references[3] == "reference 1 3"
    assert targets(judged({"val": rows()}, spec=ONE)) == [(0, 0), (0, 1 / 3), (0, 2 / 3)]


def test_one_score_takes_every_rating_of_any_aspect_unless_it_is_rated_itself():
    one = SPEC.with_aspects(["overall"])
    of_aspects = {"val.desc": rows(score=[0.0, 0.5, 1.0]), "val.flu": rows(score=[1.0, 0.25, 0.0])}
    assert [target for _, target in targets(judged(of_aspects, spec=one))] == [0, 0.5, 1, 1, 0.25, 0]
    both = {"val": rows(overall=[0.5] * 3, fluency=[0.0] * 3)}
    assert targets(judged(both, spec=one)) == [(0, 0.5)] * 3


def test_references_are_left_out_and_chosen_anew_each_epoch_but_repeatably():
    settings = {"reference_free_rate": 0.4, "max_references": 2}
    splits = {"train.desc": rows(200), "val.desc": rows(200)}

    def shown(epoch):
        judgements = judged(splits, "train", **settings)
        judgements.epoch = epoch
        return [tuple(row["sample"].references) for row in judgements]

    first, second = shown(0), shown(1)
    assert first == shown(0) != second
    assert {len(references) for references in first} == {0, 2}
    assert 0.3 < sum(not references for references in first) / len(first) < 0.5
    assert len({tuple(text[-1] for text in references) for references in first if references}) == 6  # 4 choose 2
    assert all(list(references) == sorted(references) for references in first)
    held_out = judged(splits, **settings)
    assert {tuple(text[-1] for text in row["sample"].references) for row in held_out} == {("0", "1")}
    assert not any(row["sample"].references for row in held_out.without_references())


def test_without_references_none_need_be_there_and_one_text_is_one_reference():
    bare = judged({"train.desc": rows(refs=None)}, "train", reference_free_rate=1.0)
    assert [row["sample"].references for row in bare] == [()] * 3
    assert (bare.lengths(), bare.texts()) == ([len("candidate 0")] * 3, [f"candidate {i}" for i in range(3)])
    texts = judged({"val.desc": rows(refs=["ab", None, ""])})
    assert [row["sample"].references for row in texts] == [("ab",), (), ()]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"cand": None, "image": None}, r"'val.desc' lacks the columns cand, image \(or file_name\)"),
        ({"score": [0.0, 1.5, 1.0]}, r"row 1: score must be a number in \[0, 1\], got 1.5"),
        ({"score": [True, False, True]}, "row 0: score must be a number"),
        ({"cand": ["a", "  ", "c"]}, "row 1: candidate is empty"),
        ({"n": 0}, r"split 'val\.desc' is empty"),
    ],
)
def test_bad_columns_name_split_and_row(columns, message):
    with pytest.raises(DataError, match=message):
        judged({"val.desc": rows(**columns)})


def test_places_of_classes_are_no_ratings():
    good, bad = range(2)
    split = rows(score=[good, bad, bad]).cast_column("score", ClassLabel(names=["good", "bad"]))
    with pytest.raises(DataError, match="score is a ClassLabel, whose numbers are only places"):
        judged({"val.desc": split})


@pytest.mark.parametrize("names", [("candidate", "references", "rating"), ("caption", "reference", "human_score")])
def test_files_beside_their_images_are_taken_together_with_other_sets(names, tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8)).save(mine / f"{number}.png")
    cells = [(f"A dog, {n}.", [f"Dog {n}."], n / 2) for n in range(3)]
    lines = [{"image": f"{n}.png", **dict(zip(names, own, strict=True))} for n, own in enumerate(cells)]
    for part in ("train", "val"):  # `datasets` calls the split of val.jsonl "validation"
        write_lines(mine / f"{part}.jsonl", lines)
    DatasetDict({"train": rows()}).save_to_disk(other)
    parts = load_rows(ONE, [str(other), str(mine)], TrainingConfig())
    assert targets(parts["train"]) == [(0, score) for score in (0, 1 / 3, 2 / 3, 0, 0.5, 1)]
    assert len(parts["val"]) == 3
    sample = parts["train"][4]["sample"]
    assert (sample.candidate, sample.references) == ("A dog, 1.", ("Dog 1.",))
    assert sample.image == mine / "1.png"
    (mine / "1.png").unlink()
    with pytest.raises(DataError, match=r"split 'train of .*mine', row 1: image names '1\.png', and there is no "):
        load_rows(ONE, [str(other), str(mine)], TrainingConfig())


@pytest.mark.parametrize(
    ("splits", "spec", "message"),
    [
        ({"test": rows(), "val": rows()}, ONE, r"data set '.*data' has no part 'train'.*there are test, val"),
        ({"train": rows()}, ONE, r"data set '.*data' has no part 'val': expected splits val\.overall, or"),
        ({"train.rel": rows(), "val.rel": rows()}, SPEC, r"not rate descriptiveness, fluency.*aspects: \[relevance\]"),
        ({"train": rows(score=[0.5] * 3), "val": rows()}, ONE, "all ratings of the part 'train' are equal"),
    ],
)
def test_what_cannot_be_trained_on_or_stopped_by_is_told(splits, spec, message, tmp_path):
    DatasetDict(splits).save_to_disk(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        load_rows(spec, [str(tmp_path / "data")], TrainingConfig())


def test_sources_that_cannot_be_loaded_say_what_to_give(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")  # not what other tests loaded
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "train.jsonl").touch()
    rows().save_to_disk(tmp_path / "single")
    for source, message in (
        ("nobody/nothing", r"cannot load the data set 'nobody/nothing'[^\n]*\nGive 'scenes', a folder"),
        ("longcap-arena", r"\n.*`hf download Ka2ukiMatsuda/LongCap-Arena .* and give longcap-arena=FOLDER"),
        (f"longcap-arena={tmp_path / 'absent'}", r"is not a folder\. .*`hf download Ka2ukiMatsuda/LongCap-Arena"),
        ("./nowhere", r"folder '\./nowhere' does not exist"),
        (tmp_path / "blank", "a file in it is empty"),
        (tmp_path / "single", "is one table"),
        (tmp_path / "blank" / "train.jsonl", "is one file"),
    ):
        with pytest.raises(DataError, match=message):
            load_splits(source, TrainingConfig())
