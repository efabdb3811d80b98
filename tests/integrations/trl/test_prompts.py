"""Data sets of images and references become what TRL's trainers take."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict, Features, Image, IterableDataset, IterableDatasetDict, LargeList, List, Value
from PIL import Image as PILImage
from trl.data_utils import is_conversational, prepare_multimodal_messages

from integrations.trl import make_prompt_dataset
from reward.data.images import encoded_image
from reward.errors import DataError, InvalidSampleError

RED, BLUE = (PILImage.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
PNG = encoded_image(RED)


def said(role, content):
    return {"role": role, "content": content}


def text(words):
    return {"type": "text", "text": words}


USER, ANSWER, SYSTEM = said("user", "What is it?"), said("assistant", "A square."), said("system", "Be brief.")
FORMS = {"data set": lambda rows: rows, "stream": Dataset.to_iterable_dataset, "list": list}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
two_forms = pytest.mark.parametrize("form", list(FORMS.values())[:2], ids=list(FORMS)[:2])


def rows(**columns):
    """Two rows with an image and references, and these columns."""
    return Dataset.from_dict({"image": [RED, BLUE], "refs": [["A red square.", "Red."], ["Blue."]], **columns})


def colour(image):
    return image.convert("RGB").getpixel((1, 1))


@pytest.fixture
def red(tmp_path):
    RED.save(tmp_path / "red.png")
    return str(tmp_path / "red.png")


def test_prompt_image_and_references(red):
    data = make_prompt_dataset(rows(score=[0.1, 0.2]), [SYSTEM, USER], references_column="refs")
    assert set(data.column_names) == {"prompt", "image", "references", "score"}
    row = data[1]
    assert row["prompt"] == [SYSTEM, USER]
    assert (row["references"], colour(row["image"])) == (["Blue."], (0, 0, 255))
    assert is_conversational(row)
    messages = prepare_multimodal_messages(row["prompt"], images=[row["image"]])
    assert [block["type"] for block in messages[1]["content"]] == ["image", "text"]
    assert len(make_prompt_dataset(rows().select([]), references_column="refs")) == 0

    given = Dataset.from_dict({"file_name": [red], "refs": ["A red square."]})  # found under the names rewards know
    assert make_prompt_dataset(given)[0]["references"] == ["A red square."]
    with pytest.raises(DataError, match="file_name, img"):
        make_prompt_dataset(given.add_column("img", ["a.png"]))


def test_prompts_differ_from_row_to_row():
    data = make_prompt_dataset(rows(colour=["red", "blue"]), prompt_column="colour")
    assert data["prompt"][:] == [[said("user", "red")], [said("user", "blue")]]
    assert "colour" not in data.column_names


@pytest.mark.parametrize("form", ["list", "pandas"])
def test_lists_of_dicts_and_data_frames_are_taken(form, red):
    given = [{"image": red, "refs": ["A red square."], "colour": "red"}, {"colour": "blue"}]
    (row,) = make_prompt_dataset(given if form == "list" else pd.DataFrame(given), prompt_column="colour")
    assert row["prompt"] == [said("user", "red")]
    assert (row["references"], colour(row["image"])) == (["A red square."], (255, 0, 0))
    with pytest.raises(DataError, match="a list of dicts or a DataFrame, a folder"):
        make_prompt_dataset([] if form == "list" else pd.DataFrame())


@pytest.mark.parametrize(
    "images", [lambda red: Path(red).parent, lambda red: [red], lambda red: [RED], lambda red: [PNG]]
)
def test_a_folder_and_a_list_of_images_are_taken(images, red):
    (row,) = make_prompt_dataset(images(red), "Describe it.")
    assert (row["prompt"], colour(row["image"])) == ([said("user", "Describe it.")], (255, 0, 0))
    with pytest.raises(DataError, match=r'images: of a file give load_dataset\("json", data_files='):
        make_prompt_dataset(red)
    with pytest.raises(DataError, match="a folder or a list of images, got"):
        make_prompt_dataset([3])


@pytest.mark.parametrize("has_features", [True, False])
def test_streams_are_shaped_row_by_row(has_features, red, caplog):
    def generated():
        yield {"picture": None, "caption": "Lost.", "score": 1}
        yield {"picture": RED if has_features else red, "caption": "A red square.", "score": 2}
        yield {"picture": RED, "caption": None, "score": 3}

    stored = Dataset.from_list(list(generated())) if has_features else None
    data = stored.to_iterable_dataset() if has_features else IterableDataset.from_generator(generated)
    names = {"image_column": "picture", "references_column": "caption"}
    data = make_prompt_dataset(data, "Describe it.", **names)
    assert isinstance(data, IterableDataset)
    for _ in range(2):  # it can be read again
        first, second = data
        assert set(first) == {"prompt", "image", "references", "score"}
        assert colour(first["image"]) == (255, 0, 0)
        assert first["prompt"] == [said("user", "Describe it.")]
        assert (first["references"], second["references"]) == (["A red square."], None)
    assert caplog.text.count("no image that can be read in column 'picture'") == 1


@pytest.mark.parametrize("kind", [DatasetDict, IterableDatasetDict])
def test_splits_are_shaped_one_by_one(kind):
    splits = {"train": rows(), "test": rows().select([1])}
    if kind is IterableDatasetDict:
        splits = {name: part.to_iterable_dataset() for name, part in splits.items()}
    data = make_prompt_dataset(kind(splits), "Describe it.")
    assert type(data) is kind
    assert [len(list(part)) for part in data.values()] == [2, 1]
    assert next(iter(data["test"]))["references"] == ["Blue."]


NUMBERS, LISTS = {"score": [1, 2]}, {"images": [["a"], ["b"]]}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"image_column": "picture"}, "'picture', which is no column"),
        (
            {},
            {"references": "refs"},
            "no argument 'references': .* references_column=",
        ),
        ({}, {"refs_column": "refs"}, "no argument 'refs_column'"),
        (NUMBERS, {"prompt_column": "score"}, "must be text"),
        ({}, {"prompt": " "}, "must be text"),
        (NUMBERS, {"prompt": "Describe.", "prompt_column": "score"}, "either prompt or prompt_column"),
        ({"prompt": ["a", "b"]}, {"prompt": "new"}, "use it with prompt_column='prompt', or remove it"),
        (NUMBERS, {"references_column": "score"}, "list of captions"),
        ({"said": [{"en": "A."}] * 2}, {"references_column": "said"}, "list of captions"),
        (NUMBERS, {"image_column": "score"}, "image"),
        ({"picture": ["a", "b"]}, {"image_column": "picture"}, "should become 'image'"),
        (LISTS, {"image_column": "image"}, "TRL would show the column 'images'"),
        ({"pages": [["a"], ["b"]], **LISTS}, {"image_column": "pages"}, "should become 'images'"),
    ],
)
@two_forms
def test_columns_that_do_not_fit(columns, options, message, form):
    with pytest.raises((InvalidSampleError, DataError, TypeError), match=message):
        list(make_prompt_dataset(form(rows(**columns)), **options))


def test_a_format_is_taken_off_and_a_transform_is_refused():
    row = make_prompt_dataset(rows(score=[0.1, 0.2]).with_format("numpy", columns=["image"]))[0]
    assert set(row) == {"image", "prompt", "references", "score"}
    assert isinstance(row["image"], PILImage.Image)
    with pytest.raises(DataError, match="store what it gives with map"):
        make_prompt_dataset(rows().with_transform(lambda batch: batch))


@pytest.mark.parametrize(
    ("references", "feature", "expected"),
    [
        ([["A."], ["B."]], LargeList(Value("large_string")), [["A."], ["B."]]),
        (["['A.', 'B.']", "C."], Value("string"), [["A.", "B."], ["C."]]),
        ([float("nan"), None], Value("float64"), [None, None]),
        ([None, None], Value("null"), [None, None]),
        ([[], []], List(Value("null")), [None, None]),
    ],
)
def test_references_may_be_of_every_type_that_holds_texts(references, feature, expected):
    data = Dataset.from_dict({"image": [RED, BLUE], "refs": references}, Features({"image": Image(), "refs": feature}))
    made = make_prompt_dataset(data)
    assert made["references"][:] == expected
    assert made.features["references"] == List(Value("string"))
    streamed = [row["references"] for row in make_prompt_dataset(data.to_iterable_dataset())]
    assert [row or None for row in streamed] == expected


LLAVA = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A square."}]
INSIDE = [text("What is "), {"type": "image", "text": None}, text(" here?")]
CHATS = {  # what a data set holds: what TRL gets
    "turns": ([SYSTEM, USER, ANSWER, USER, ANSWER], [SYSTEM, USER, ANSWER, USER]),
    "parts": ([said("user", [{"type": "image", "text": None}, text("What is it?")])], [USER]),
    "LLaVA": (LLAVA, [USER]),
    "JSON text": (json.dumps([said("user", "<image>\nWhat is it?"), ANSWER]), [USER]),
    "marker inside": ([said("user", "What is <image> here?"), ANSWER], [said("user", INSIDE)]),
}


@forms
@pytest.mark.parametrize("chat", CHATS)
def test_chats_of_instruction_data_end_with_the_last_turn_of_the_user(chat, form):
    """With the answer in the prompt a policy is trained to go on after it; a marker that stays is text to it."""
    given, wanted = CHATS[chat]
    for row in make_prompt_dataset(form(rows(turns=[given, given])), prompt_column="turns"):
        prompt = [{**message, "content": filled(message["content"])} for message in row["prompt"]]
        assert prompt == wanted
        blocks = prepare_multimodal_messages(row["prompt"], images=[row["image"]])
        assert sum(part.get("image") is row["image"] for message in blocks for part in message["content"]) == 1


def filled(content):
    """The parts as Arrow stores them, with the same keys in each."""
    return content if isinstance(content, str) else [{"text": None, **part} for part in content]


@forms
def test_images_inside_the_messages_become_a_column(form, red):
    """TRL shows the policy what stands in the column `images`, and rewards look there."""
    part = {"type": "image", "path": red}
    answer = ANSWER if form is list else said("assistant", [text("A square.")])  # Arrow takes lists beside lists only
    data = [{"messages": [said("user", [part, text("What is it?")]), answer]}]
    (row,) = make_prompt_dataset(data if form is list else form(Dataset.from_list(data)), prompt_column="messages")
    assert list(map(colour, row["images"])) == [(255, 0, 0)]
    assert row["prompt"] == [USER]


PLACEHOLDERS = ["<|image_pad|>", "<|vision_start|>", "<start_of_image>", "<image_soft_token>", "<|image_1|>"]
PLACEHOLDERS += ["[IMG]", "<IMG_CONTEXT>", "<video>"]


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ([ANSWER], "needs a turn of the user"),
        ([said("user", "<image> and <image>")], "shows 2 images .* its row has 1"),
        ([{"speaker": "A", "text": "Describe it."}], "role None.*LLaVA's"),
        ([said("narrator", "Describe it.")], "role 'narrator'"),
        ([said("user", [{"type": "video", "text": "a.mp4"}])], "part of a message must be"),
        ([said("user", [{"type": "image", "pixels": "a.png"}])], "'pixels', which is not read"),
        ([said("assistant", "<image>"), USER], "the assistant's text has a placeholder"),
        *((f"{token} Describe it.", f"placeholder of a chat template.*{re.escape(token)}") for token in PLACEHOLDERS),
    ],
)
def test_what_would_stop_a_trainer_is_refused_where_the_data_are_made(chat, message):
    for data in (rows(turns=[chat] * 2), rows(turns=[chat] * 2).to_iterable_dataset()):
        with pytest.raises(InvalidSampleError, match=message):
            list(make_prompt_dataset(data, prompt_column="turns"))
