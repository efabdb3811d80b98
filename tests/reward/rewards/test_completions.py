"""From the arguments of trainers to rows: every shape of completion, image and references."""

import base64

import pytest
from PIL import Image

from reward import MetricReward
from reward.data.chats import completion_text
from reward.data.images import load_image
from reward.errors import InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.rewards.completions import RowReader
from tests.toys.picture_scorer import PictureScorer
from tests.toys.pictures import png
from tests.toys.toy_scorer import ToyScorer

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
SEES = MetricSpec("sees", "sees:Sees", ("score",))


def assistant(content):
    return {"role": "assistant", "content": content}


def showing(*parts):
    """A prompt with parts of images."""
    user = {"role": "user", "content": [*parts, {"type": "text", "text": "Describe."}]}
    return [{"role": "system", "content": "Be brief."}, user]


SHOWS_RED = showing({"type": "image", "image": RED})


def test_text_of_a_completion():
    assert completion_text([assistant("no"), assistant("yes"), {"role": "tool", "content": "5"}]) == "yes"
    assert completion_text([assistant(None)]) == ""  # it called a tool and said nothing
    assert completion_text([assistant([{"type": "text", "text": None}, {"type": "text", "text": "A"}])]) == "A"


@pytest.mark.parametrize(
    ("prompt", "columns", "image_column", "expected"),
    [
        (SHOWS_RED, {"images": ["a.png"], "image": "b.png"}, None, "a.png"),
        (SHOWS_RED, {"images": [], "image": None}, None, RED),
        (SHOWS_RED, {"picture": "c.png", "image": "a.png"}, "picture", "c.png"),
        (SHOWS_RED, {"file_name": "b.png", "img": "c.png"}, None, RED),  # what the policy saw goes first
        ("p", {"image": "a.png", "file_name": "b.png"}, None, "a.png"),
        ("p", {"image_path": ["b.png"]}, None, "b.png"),
    ],
)
def test_where_the_image_comes_from(prompt, columns, image_column, expected):
    lists = {name: [value] for name, value in columns.items()}
    (row,) = RowReader(SEES, image_column=image_column).read([prompt], ["A star."], lists)
    assert row.image == expected


BASE64 = base64.b64encode(png(RED)).decode()
URL = f"data:image/png;base64,{BASE64}"


@pytest.mark.parametrize(
    "part",
    [
        {"path": "PATH", "min_pixels": 4, "text": None},
        {"url": "file://PATH"},
        {"base64": BASE64[:40] + "\n" + BASE64[40:]},
        {"image": {"bytes": png(RED), "path": None}},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "input_image", "image_url": URL},
    ],
)
def test_images_in_prompts_are_read_as_trainers_formats_have_them(part, tmp_path):
    (tmp_path / "red.png").write_bytes(png(RED))
    path = str(tmp_path / "red.png")
    part = {key: value.replace("PATH", path) if isinstance(value, str) else value for key, value in part.items()}
    (row,) = RowReader(SEES).read([showing({"type": "image", **part})], ["A star."], {})
    assert load_image(row.image).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image", "source": {"data": "aGk="}}, "'source', which is not read: give the image under 'image'"),
        ({"type": "image_url", "image_url": {"url": "data:nothing"}}, "'image_url' of an image in the messages"),
    ],
)
def test_an_image_in_a_prompt_that_is_not_read_is_named_and_ends_no_other_row(part, message):
    bad, good = RowReader(SEES).read([showing(part), SHOWS_RED], ["A star.", "A star."], {})
    assert message in bad.message
    assert good.image == RED


@pytest.mark.parametrize(
    ("prompts", "columns", "options", "message"),
    [
        (2, {"image": [None] * 2}, {"image_column": "picture"}, "image_column= names 'picture', which is no column"),
        (2, {}, {"references_column": "refs"}, "names 'refs', which is no column.*Leave remove_unused_columns=False"),
        (2, {"picture": ["a"] * 2}, {"image_column": "pictur"}, r"'picture'\? The columns are: picture\.$"),
        (1, {}, {}, "1 prompts and 2 completions"),
    ],
)
def test_columns_must_be_there_and_of_one_length(prompts, columns, options, message):
    reward = MetricReward("length", **options)
    with pytest.raises(InvalidSampleError, match=message):
        reward(["p"] * prompts, ["c", "d"], trainer_state=object(), **columns)


@pytest.mark.parametrize(
    ("metric", "completion", "columns", "options", "message"),
    [
        (ToyScorer, "red", {"shot": "a.png"}, {}, r"holds no image and no .* images, image.* or path \(the.*: shot\)"),
        (ToyScorer, "red", {"images": ["a.png", "b.png"]}, {}, "column 'images': the row has 2 images.*image_column="),
        (ToyScorer, "red", {"file_name": "a.png", "img": "b.png"}, {}, "any of file_name, img: choose one"),
        # a named column is the only source
        (ToyScorer, "red", {"mine": None, "image": RED}, {"image_column": "mine"}, "column 'mine' holds None"),
        (ToyScorer, "red", {"image": RED, "refs": ["a", 5]}, {}, r"column 'refs': references\[1\] must be a string"),
        (PictureScorer, "red", {"image": "absent.png"}, {}, "absent.png"),
        (PictureScorer, "...", {"image": "absent.png"}, {}, "absent.png"),  # not hidden by captions without a word
        ("unigram", "red", {"refs": [" "]}, {}, r"column 'refs' holds \[' '\]. Name the column with references_colum"),
        ("unigram", "red", {"captions": "a"}, {}, r"no column is named references, refs, reference or ref \(the col"),
        ("length", None, {}, {}, "a completion must be a string or a list of messages, got NoneType"),
        ("length", [{"role": "user", "content": "A"}], {}, {}, "has no assistant message among its 1 messages"),
        ("length", [assistant(5)], {}, {}, "the content of a message"),
    ],
)
def test_a_fault_of_every_row_of_the_first_call_names_column_value_and_way_out(
    metric, completion, columns, options, message
):
    reward = MetricReward(metric if isinstance(metric, str) else metric(), name="caption", **options)
    lists = {name: [value] * 2 for name, value in columns.items()}
    with pytest.raises(InvalidSampleError, match=f"caption: none of the 2 rows of the first call.*{message}"):
        reward(["Describe."] * 2, [completion] * 2, **lists)
