"""Data sets of images and references become what TRL's trainers take."""

from __future__ import annotations

import base64
import json
import re

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict, Features, Image, IterableDataset, IterableDatasetDict, LargeList, List, Value
from PIL import Image as PILImage
from trl.data_utils import is_conversational, prepare_multimodal_messages

from integrations.trl import make_prompt_dataset
from reward.errors import DataError, InvalidSampleError
from reward.images import encoded_image

RED, BLUE = (PILImage.new("RGB", (4, 4), colour) for colour in ("red", "blue"))


def rows(**columns):
    columns.setdefault("image", [RED, BLUE])
    columns.setdefault("refs", [["A red square.", "Red."], ["A blue square."]])
    features = {"image": Image(), "refs": List(Value("string"))}
    guessed = Dataset.from_dict({name: values for name, values in columns.items() if name not in features})
    return Dataset.from_dict(columns, Features({**features, **guessed.features}))


def test_prompt_image_and_references(tmp_path):
    data = make_prompt_dataset(rows(score=[0.1, 0.2]), "Describe it.", system="Be brief.", references_column="refs")
    assert set(data.column_names) == {"prompt", "image", "references", "score"}
    row = data[1]
    assert row["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Describe it."}]
    assert row["references"] == ["A blue square."]
    assert row["image"].getpixel((0, 0)) == (0, 0, 255)
    assert is_conversational(row)
    messages = prepare_multimodal_messages(row["prompt"], images=[row["image"]])
    assert [block["type"] for block in messages[1]["content"]] == ["image", "text"]
    assert len(make_prompt_dataset(rows().select([]), references_column="refs")) == 0

    RED.save(tmp_path / "red.png")  # columns are found under the names that rewards know
    given = Dataset.from_dict({"file_name": [str(tmp_path / "red.png")], "refs": ["A red square."]})
    data = make_prompt_dataset(given)
    assert set(data.column_names) == {"prompt", "image", "references"}
    assert data[0]["references"] == ["A red square."]
    with pytest.raises(DataError, match="file_name, img"):
        make_prompt_dataset(given.add_column("img", ["a.png"]))


def test_a_prompt_column_of_the_users_own_is_used_or_refused_but_never_replaced():
    given = rows(prompt=["What is red?", "What is blue?"])
    with pytest.raises(InvalidSampleError, match="use it with prompt_column='prompt', or remove it"):
        make_prompt_dataset(given, "new")
    data = make_prompt_dataset(given, prompt_column="prompt", system="Be brief.")
    assert [message["content"] for message in data[1]["prompt"]] == ["Be brief.", "What is blue?"]
    assert given[1]["prompt"] == "What is blue?"


def test_prompts_differ_from_row_to_row():
    given = rows(colour=["red", "blue"])
    by_function = make_prompt_dataset(given, lambda row: f"What is {row['colour']}, {row['refs'][0]}")
    questions = ["What is red, A red square.", "What is blue, A blue square."]
    assert [row[0]["content"] for row in by_function["prompt"]] == questions
    by_column = make_prompt_dataset(given, prompt_column="colour")
    assert [row[0]["content"] for row in by_column["prompt"]] == ["red", "blue"]
    assert "colour" not in by_column.column_names
    alone = make_prompt_dataset(given.select_columns("image"), lambda row: f"Describe it, {len(row)}")
    assert alone["prompt"][1] == [{"role": "user", "content": "Describe it, 0"}]


def said(role, content):
    return {"role": role, "content": content}


PNG = encoded_image(RED)
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
USER, ANSWER = said("user", "What is it?"), said("assistant", "A square.")
SHOWN = [{"type": "image", "text": None}, {"type": "text", "text": "What is it?"}]
CHATS = {  # what a data set holds: what TRL gets
    "answer": ([USER, ANSWER], [USER]),
    "turns": (
        [said("system", "Be brief."), USER, ANSWER, USER, ANSWER],
        [said("system", "Be brief."), USER, ANSWER, USER],
    ),
    "marker": ([said("user", "<image>\nWhat is it?"), ANSWER], [USER]),
    "parts": ([said("user", SHOWN), said("assistant", [{"type": "text", "text": "A square."}])], [USER]),
    "LLaVA": ([{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A square."}], [USER]),
    "JSON text": (json.dumps([said("user", "<image>\nWhat is it?"), ANSWER]), [USER]),
    "marker inside": (
        [said("user", "What is <image> here?"), ANSWER],
        [
            said(
                "user",
                [
                    {"type": "text", "text": "What is "},
                    {"type": "image", "text": None},
                    {"type": "text", "text": " here?"},
                ],
            )
        ],
    ),
}


@pytest.mark.parametrize("form", ["data set", "stream", "list"])
@pytest.mark.parametrize("chat", CHATS)
def test_chats_of_instruction_data_end_with_the_last_turn_of_the_user(chat, form):
    """With the answer in the prompt a policy is trained to go on after it; a marker that stays is text to it."""
    given, wanted = CHATS[chat]
    data = rows(turns=[given, given])
    if form != "data set":
        data = data.to_iterable_dataset() if form == "stream" else list(data)
    for row in make_prompt_dataset(data, prompt_column="turns"):
        prompt = [{**message, "content": filled(message["content"])} for message in row["prompt"]]
        assert prompt == wanted
        blocks = prepare_multimodal_messages(row["prompt"], images=[row["image"]])
        assert sum(part.get("image") is row["image"] for message in blocks for part in message["content"]) == 1


def filled(content):
    """The parts as Arrow stores them, with the same keys in each."""
    return content if isinstance(content, str) else [{"text": None, **part} for part in content]


def test_whole_messages_have_their_own_system_message():
    with pytest.raises(InvalidSampleError, match="whole messages already"):
        make_prompt_dataset(rows(turns=[[USER], [USER]]), prompt_column="turns", system="Be brief.")


@pytest.mark.parametrize("form", ["data set", "stream", "list"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image", "base64": DATA_URL.partition(",")[2]},
        {"type": "image", "image": {"bytes": PNG, "path": None}},
        {"type": "image", "url": "file://{folder}/red.png"},
        {"type": "image", "path": "{folder}/red.png"},
    ],
)
def test_images_inside_the_messages_become_a_column(part, form, tmp_path):
    """TRL shows the policy what stands in the column `images`, and rewards look there."""
    RED.save(tmp_path / "red.png")
    part = {
        key: value.replace("{folder}", str(tmp_path)) if isinstance(value, str) else value
        for key, value in part.items()
    }
    shown = said("user", [part, {"type": "text", "text": "What is it?"}])
    data = [{"messages": [shown, ANSWER]}]  # which Arrow takes only if all contents are lists
    if form != "list":
        data = Dataset.from_list([{"messages": [shown, said("assistant", [{"type": "text", "text": "A square."}])]}])
    (row,) = make_prompt_dataset(data.to_iterable_dataset() if form == "stream" else data, prompt_column="messages")
    assert [image.getpixel((1, 1)) for image in row["images"]] == [(255, 0, 0)]
    assert row["prompt"] == [USER]


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ([ANSWER], "needs a turn of the user"),
        ([said("user", "<image> and <image>")], "shows 2 images .* its row has 1"),
        ([{"speaker": "A", "text": "Describe it."}], "role None.*LLaVA's"),
        ([said("narrator", "Describe it.")], "role 'narrator'"),
        ([said("user", [{"type": "video", "text": "a.mp4"}])], "part of a message must be"),
        ([said("user", [{"type": "image", "pixels": "a.png"}])], "'pixels', which is not read"),
        *(
            ([said("user", f"{token} Describe it.")], f"placeholder of a chat template.*{re.escape(token)}")
            for token in (
                *("<|image_pad|>", "<|vision_start|>", "<start_of_image>", "<image_soft_token>", "<|image_1|>"),
                *("[IMG]", "<IMG_CONTEXT>", "<video>"),
            )
        ),
        ([said("assistant", "<image>"), USER], "the assistant's text has a placeholder"),
    ],
)
def test_what_would_stop_a_trainer_is_refused_where_the_data_are_made(chat, message):
    for data in (rows(turns=[chat] * 2), rows(turns=[chat] * 2).to_iterable_dataset()):
        with pytest.raises(InvalidSampleError, match=message):
            list(make_prompt_dataset(data, prompt_column="turns"))
    text = chat[-1].get("content")
    if isinstance(text, str) and chat[-1]["role"] == "user" and len(chat) == 1:
        with pytest.raises(InvalidSampleError):
            make_prompt_dataset(rows(), text)


@pytest.mark.parametrize("form", ["list", "pandas"])
def test_lists_of_dicts_and_data_frames_are_taken(form, tmp_path):
    RED.save(tmp_path / "red.png")
    given = [{"image": str(tmp_path / "red.png"), "refs": ["A red square."], "colour": "red"}, {"image": None}]
    data = make_prompt_dataset(given if form == "list" else pd.DataFrame(given), lambda row: row["colour"])
    (row,) = data
    assert row["prompt"] == [said("user", "red")]
    assert (row["references"], row["image"].getpixel((0, 0))) == (["A red square."], (255, 0, 0))
    (row,) = make_prompt_dataset([{"image": RED}] if form == "list" else pd.DataFrame({"image": [RED]}))
    assert row["image"].getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(DataError, match="a list of dicts or a DataFrame"):
        make_prompt_dataset([] if form == "list" else pd.DataFrame())


def stream(kind, tmp_path):
    RED.save(tmp_path / "red.png")
    columns = {"picture": [None, RED, BLUE], "caption": ["Lost.", "A red square.", None], "score": [1, 2, 3]}
    if kind == "features":
        return Dataset.from_dict(
            columns, Features({"picture": Image(), "caption": Value("string"), "score": Value("int64")})
        ).to_iterable_dataset()
    columns["picture"][1] = str(tmp_path / "red.png") if kind == "paths" else RED
    return IterableDataset.from_generator(
        lambda: (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    )


@pytest.mark.parametrize("kind", ["features", "paths", "objects"])
def test_streams_are_shaped_row_by_row(kind, tmp_path, caplog):
    data = make_prompt_dataset(
        stream(kind, tmp_path),
        lambda row: f"Describe {row['score']}.",
        image_column="picture",
        references_column="caption",
    )
    assert isinstance(data, IterableDataset)
    for _ in range(2):  # it can be read again
        first, second = data
        assert set(first) == {"prompt", "image", "references", "score"}
        assert first["image"].getpixel((0, 0)) == (255, 0, 0)
        assert first["prompt"] == [{"role": "user", "content": "Describe 2."}]
        assert first["references"] == ["A red square."]
        assert second["references"] is None
    assert caplog.text.count("no image in column 'picture'") == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_splits_are_shaped_one_by_one(streamed):
    splits = DatasetDict(train=rows(), test=rows().select([1]))
    if streamed:
        splits = IterableDatasetDict({name: part.to_iterable_dataset() for name, part in splits.items()})
    data = make_prompt_dataset(splits, "Describe it.")
    assert type(data) is type(splits)
    assert [len(list(part)) for part in data.values()] == [2, 1]
    assert next(iter(data["test"]))["references"] == ["A blue square."]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"image_column": "picture"}, "'picture', which is no column"),
        ({}, {"references_column": "captions"}, "'captions', which is no column"),
        ({}, {"prompt_column": "question"}, "'question', which is no column"),
        ({"score": [1, 2]}, {"prompt_column": "score"}, "must be text"),
        ({"score": [1, 2]}, {"prompt": lambda row: " "}, "must be text"),
        ({"score": [1, 2]}, {"prompt": "Describe.", "prompt_column": "score"}, "either prompt or prompt_column"),
        ({"score": [1, 2]}, {"references_column": "score"}, "list of captions"),
        ({"picture": ["a", "b"]}, {"image_column": "picture"}, "should become 'image'"),
        ({"images": [["a"], ["b"]]}, {"image_column": "image"}, "TRL would show the column 'images'"),
        ({"pages": [["a"], ["b"]], "images": [["a"], ["b"]]}, {"image_column": "pages"}, "should become 'images'"),
    ],
)
def test_columns_that_do_not_fit(columns, options, message):
    for data in (rows(**columns), rows(**columns).to_iterable_dataset()):
        with pytest.raises((InvalidSampleError, DataError), match=message):
            list(make_prompt_dataset(data, **options))


def test_a_format_is_taken_off_and_a_transform_is_refused():
    data = rows(score=[0.1, 0.2]).with_format("numpy", columns=["image"])
    row = make_prompt_dataset(data)[0]
    assert set(row) == {"image", "prompt", "references", "score"}
    assert isinstance(row["image"], PILImage.Image)
    with pytest.raises(DataError, match="store what it gives with map"):
        make_prompt_dataset(rows().with_transform(lambda batch: batch))


NULLS = [None, None]


@pytest.mark.parametrize(
    ("references", "feature", "expected"),
    [
        ([["A."], ["B."]], LargeList(Value("large_string")), [["A."], ["B."]]),
        ([["A."], ["B."]], List(Value("large_string")), [["A."], ["B."]]),
        (["A.", "B."], Value("large_string"), [["A."], ["B."]]),
        (["['A.', 'B.']", "C."], Value("string"), [["A.", "B."], ["C."]]),
        ([float("nan"), None], Value("float64"), NULLS),
        (NULLS, Value("null"), NULLS),
        ([[], []], List(Value("null")), NULLS),
    ],
)
def test_references_may_be_of_every_type_that_holds_texts(references, feature, expected):
    data = Dataset.from_dict({"image": [RED, BLUE], "refs": references}, Features({"image": Image(), "refs": feature}))
    made = make_prompt_dataset(data)
    assert made["references"][:] == expected
    assert made.features["references"] == List(Value("string"))
    streamed = [row["references"] for row in make_prompt_dataset(data.to_iterable_dataset())]
    assert [row or None for row in streamed] == [row or None for row in expected]


@pytest.mark.parametrize("references", [{"text": ["A."]}, {"en": "A.", "de": "Eins."}])
def test_a_dict_is_no_list_of_references(references):
    data = Dataset.from_dict({"image": [RED], "refs": [references]}).cast_column("image", Image())
    with pytest.raises(InvalidSampleError, match="must hold a list of captions"):
        make_prompt_dataset(data)
    with pytest.raises(InvalidSampleError, match="must hold a list of captions"):
        next(iter(make_prompt_dataset(data.to_iterable_dataset())))
