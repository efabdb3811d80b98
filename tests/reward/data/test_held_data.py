"""Data as people hold them: each form gives the same samples, and each mistake a message with the right call."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from datasets import Image as ImageFeature
from PIL import Image

import reward
from reward import CaptionSample, MetricReward, load_scorer, metric_spec
from reward.data.held_data import as_samples
from reward.data.images import image_key
from reward.errors import InvalidSampleError

CAPTIONS, REFERENCES = ["A red page.", "A blue page.", "A page."], [["Red."], ["Blue.", "Sky."], []]
PICTURES = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "white")]
PATHS = ["0.png", "1.png", "2.png"]
COLUMNS = {"image": PICTURES, "caption": CAPTIONS, "references": REFERENCES}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
BY_PATH = [{**row, "image": path} for row, path in zip(ROWS, PATHS, strict=True)]
VELA = metric_spec("vela")
TABLES = {"dict": dict, "pandas": pd.DataFrame, "Arrow": pa.table, "Dataset": Dataset.from_dict}


class FrameOfPolars:
    """What `as_samples` uses of a polars DataFrame."""

    columns = tuple(COLUMNS)

    def collect(self):
        return self

    def to_dicts(self):
        return ROWS


FORMS = {
    "images and captions": ((PICTURES, CAPTIONS), {"references": REFERENCES}),
    "by name": ((), {"images": PICTURES, "captions": CAPTIONS, "refs": REFERENCES}),
    "generators": ((iter(PICTURES), iter(CAPTIONS)), {"references": iter(REFERENCES)}),
    "Series": ((pd.Series(PATHS), pd.Series(CAPTIONS)), {"references": pd.Series(REFERENCES)}),
    "arrays of Arrow": ((pa.array(PATHS), pa.array(CAPTIONS)), {"references": pa.array(REFERENCES)}),
    "arrays": ((np.stack([np.asarray(each) for each in PICTURES]), CAPTIONS), {"references": REFERENCES}),
    "tuples": (([*zip(PATHS, CAPTIONS, REFERENCES, strict=True)],), {}),
    "dicts": ((ROWS,), {}),
    "rows, references beside them": ((zip(PATHS, CAPTIONS, strict=True),), {"references": REFERENCES}),
    "named columns": (
        ([{"a": row["image"], "b": row["caption"], "refs": row["references"]} for row in BY_PATH],),
        {"image_column": "a", "caption_column": "b"},
    ),
    "a dict of columns": ((COLUMNS,), {}),
    **{
        f"columns named without _column: {kind}": (
            (make({"a": PATHS, "b": CAPTIONS, "c": REFERENCES, "text": ["no"] * 3}), "b"),
            {"images": "a", "references": "c"},
        )
        for kind, make in TABLES.items()
    },
    "a table of images, captions beside it": ((pd.DataFrame({"photo": PATHS}), CAPTIONS), {"references": REFERENCES}),
    "a dict of images, captions beside it": (({"photo": PATHS, "text": ["no"] * 3}, CAPTIONS), {"refs": REFERENCES}),
    "pandas": ((pd.DataFrame(BY_PATH),), {}),
    "polars": ((FrameOfPolars(),), {}),
    "Arrow": ((pa.Table.from_pylist(BY_PATH),), {}),
    "Dataset of images": ((Dataset.from_dict(COLUMNS).cast_column("image", ImageFeature()),), {}),
    "samples": (([CaptionSample(**row) for row in ROWS],), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_samples(form, tmp_path, monkeypatch):
    for path, picture in zip(PATHS, PICTURES, strict=True):
        picture.save(tmp_path / path)
    monkeypatch.chdir(tmp_path)
    args, columns = FORMS[form]
    held = as_samples(*args, spec=VELA, **columns)
    assert [sample.caption for sample in held.samples] == CAPTIONS
    assert [list(sample.references) for sample in held.samples] == REFERENCES
    shown = [Image.open(s.image) if isinstance(s.image, str) else s.image for s in held.samples]
    assert len({image_key(image) for image in shown}) == 3
    assert held.errors == {}


@pytest.mark.parametrize(
    ("args", "references", "expected"),
    [
        (("a.png", "A."), ["C.", "D."], [("a.png", "A.", ("C.", "D."))]),
        (("a.png", ["A.", "B."]), ["C.", "D."], [("a.png", "A.", ("C.", "D.")), ("a.png", "B.", ("C.", "D."))]),
        ((["a.png", "b.png"], "A."), None, [("a.png", "A.", ()), ("b.png", "A.", ())]),
        ((["a.png", "b.png"], ["A.", "B."]), ["C.", "D."], [("a.png", "A.", ("C.",)), ("b.png", "B.", ("D.",))]),
        ((("a.png", "A."),), None, [("a.png", "A.", ())]),
        ((BY_PATH[0],), None, [("0.png", "A red page.", ("Red.",))]),
        (({"image": "a.png", "caption": ["A.", "B."]},), None, [("a.png", "A.", ()), ("a.png", "B.", ())]),
    ],
)
def test_one_of_something_goes_with_several_of_another(args, references, expected):
    held = as_samples(*args, spec=VELA, references=references)
    assert [(sample.image, sample.caption, sample.references) for sample in held.samples] == expected


def test_metrics_of_words_take_texts():
    scorer = load_scorer("unigram")
    for table in (
        scorer.score(["A star.", "A dog."], references=[["A star."], ["Night."]]),
        scorer.score(captions=["A star.", "A dog."], references=["A star.", "Night."]),
        scorer.score(predictions=["A star.", "A dog."], references=["A star.", "Night."]),
    ):
        assert table.scores[:, 0].tolist() == [1.0, 0.0]
    for captions, references in ((["A star."], ["A star."]), (["A star."], [["A star."]])):
        with pytest.raises(InvalidSampleError, match=r"references=[\[.]"):
            scorer.score(captions, references)
    assert load_scorer("length_avg").score("A red star.").mean() == 3
    assert MetricReward("length").score(captions=["A red star."]).mean() == 3


@pytest.mark.parametrize(
    ("args", "columns", "message"),
    [
        ((CAPTIONS, PATHS), {}, r"captions\[0\] is '0.png', an image: images come first"),
        (([("A.", "a.png")],), {}, r"put the image first, \(image, caption\)"),
        ((PATHS,), {}, r"metric 'vela' looks at images, and there are none: score\(images, captions\)"),
        ((PICTURES[0],), {}, r"captions are missing.*score\(images, captions\)"),
        (([*ROWS, "A."],), {}, r"samples\[3\] is no row, but a str: give score\(images, captions\)"),
        ((dict(zip(PATHS, CAPTIONS, strict=True)),), {}, "needs a column with the candidate.*The columns are: 0.png"),
        (({"shot": PATHS, "caption": CAPTIONS},), {}, "needs a column with the image.*The columns are: shot, caption"),
        ((PATHS, CAPTIONS), {"prompts": ["Describe."] * 3}, r"give the trainer MetricReward\(scorer\)"),
        (([CaptionSample("A.", "a.png")],), {"references": ["B."]}, "CaptionSample holds.*leave out references"),
        ((PATHS, CAPTIONS[:2]), {}, "got 3 images and 2 captions"),
        ((PATHS, [CAPTIONS] * 3), {}, r"captions\[0\] holds 3 captions of one image: call score\(image, captions\)"),
        ((PATHS, CAPTIONS), {"references": ["One."]}, r"references of 1 captions for 3.*references=\[\[...\]"),
        ((PATHS, CAPTIONS), {"batchsize": 8}, "score takes no 'batchsize'"),
        (([{"shot": "a.png", "caption": "A."}],), {}, "image_column="),
        (([{"image": "a.png", "captions": ["A.", "B."]}],), {}, r"call score\(image, captions\)"),
        ((__file__,), {}, "capreward score"),
        ((DatasetDict({"train": Dataset.from_list(BY_PATH)}),), {}, "the splits train: score one of them"),
        ((["a.png"], [" "]), {}, "nothing can be scored: candidate is empty"),
        ((ROWS, "text"), {}, "candidate_column= names 'text', which is no column. The columns are: image, caption"),
        ((pd.DataFrame(BY_PATH),), {"images": "shot"}, "image_column= names 'shot', which is no column"),
    ],
)
def test_mistakes_are_told_with_the_right_call(args, columns, message):
    with pytest.raises(InvalidSampleError, match=message):
        as_samples(*args, spec=VELA, **columns)


def test_rows_without_a_caption_keep_their_place():
    frame = pd.DataFrame({"caption": ["A red star.", None, "", "A star."]}, index=["a", "b", "c", "d"])
    table = load_scorer("length").score(frame)
    assert table["length"].tolist() == pytest.approx([3, np.nan, np.nan, 2], nan_ok=True)
    assert (table.mean(), len(table), list(table.errors)) == (2.5, 4, [1, 2])
    assert frame.join(table.to_pandas())["reward"].tolist()[::3] == [3, 2]
    assert pd.DataFrame(table)["error"].notna().tolist() == [False, True, True, False]
    assert [row["length"] for row in table[::3]] == [3, 2]
    assert "2 of them without a score" in repr(table)
    assert "row 1: candidate must be" in repr(table)
    with pytest.raises(AttributeError, match=r"no 'to_csv'.*to_pandas"):
        table.to_csv("scores.csv")
    assert len(repr(load_scorer("length").score(["A star."] * 1000)).splitlines()) < 15


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("list_metric", "did you mean 'list_metrics'"),
        ("ClipScorer", r"it has AsyncReward, .*function, load_scorer\(my"),
    ],
)
def test_a_name_that_is_not_there_names_what_is(name, message):
    assert not hasattr(reward, name)
    with pytest.raises(AttributeError, match=f"reward has no name {name!r}: {message}"):
        getattr(reward, name)
