"""From the arguments of trainers and OpenRLHF to rows: every shape of completion, image, references and label."""

from __future__ import annotations

import base64
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward.errors import InvalidSampleError
from reward.images import load_image
from reward.rewards.completions import completion_text, read_rows
from reward.rewards.queries import read_label, response_of

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("A star.", "A star."),
        ([assistant("A star.")], "A star."),
        ([assistant([{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B"}])], "A\nB"),
        ([assistant("no"), {"role": "tool", "content": "5"}, assistant("yes")], "yes"),
        ([assistant("yes"), {"role": "tool", "content": "5"}], "yes"),
        ([assistant(None, tool_calls=[{}])], ""),
        ([assistant([{"type": "text", "text": None}, {"type": "text", "text": "A"}])], "A"),
        ("", ""),
    ],
)
def test_text_of_a_completion(completion, text):
    assert completion_text(completion) == text


@pytest.mark.parametrize(
    "completion",
    [
        *(None, 3, b"A star.", [], {"role": "assistant"}),
        [{"role": "user", "content": "hello"}],
        [assistant([{"type": "text", "text": 5}])],
    ],
)
def test_what_is_no_completion_is_refused(completion):
    with pytest.raises(InvalidSampleError, match=r"completion|message"):
        completion_text(completion)


def conversation(*images):
    blocks = [{"type": "image", "image": image} for image in images]
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [*blocks, {"type": "text", "text": "Describe."}]},
    ]


@pytest.mark.parametrize(
    ("prompt", "columns", "image_column", "expected"),
    [
        *(
            (conversation(RED), columns, image_column, expected)
            for columns, image_column, expected in [
                ({"image": ["a.png"]}, None, "a.png"),
                ({"images": [["a.png"]]}, None, "a.png"),
                ({"images": [["a.png"]], "image": ["b.png"]}, None, "a.png"),
                ({"images": [None], "image": ["b.png"]}, None, "b.png"),
                ({"images": [[]], "image": [None]}, None, RED),
                ({}, None, RED),
                ({"picture": ["c.png"], "image": ["a.png"]}, "picture", "c.png"),
                ({"picture": [None], "image": ["a.png"]}, "picture", None),  # a named column is the only source
                ({"image": ["a.png"], "file_name": ["b.png"]}, None, "a.png"),
                ({"file_name": ["b.png"]}, None, RED),  # what the policy saw goes before a path beside it
                ({"file_name": ["b.png"], "img": ["c.png"]}, None, RED),
            ]
        ),
        ("p", {"file_name": ["b.png"]}, None, "b.png"),
        ("p", {"image_path": [["b.png"]]}, None, "b.png"),
        ("p", {"file_name": ["b.png"], "img": ["c.png"]}, None, None),  # unclear
    ],
)
def test_where_the_image_comes_from(prompt, columns, image_column, expected):
    row = read_rows([prompt], ["A star."], columns, image_column=image_column)[0]
    assert (row.image, row.problem) == (expected, None)
    assert ("image could be any of file_name, img" in (row.image_from or "")) == (prompt == "p" and len(columns) == 2)


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("<think>red?</think> A star.", "A star."),
        ("red?</think>\n\nA star.", "A star."),  # the chat template had opened it
        ("<think>a</think>A <think>b\nc</think>star.", "A star."),
        ("<think>never ended", ""),
        ("A star <think>red?", "A star"),
        ("  A star. I think> so. ", "  A star. I think> so. "),
        ("<thinking>A star.</thinking>", "<thinking>A star.</thinking>"),
    ],
)
def test_reasoning_is_no_part_of_the_caption(text, caption):
    row = read_rows(["p"], [text], {})[0]
    assert row.is_wordless if not caption else row.sample.candidate == caption
    assert read_rows(["p"], [text], {}, strip_thinking=False)[0].sample.candidate == text


@pytest.mark.parametrize("columns", [{"images": [["a.png", "b.png"]]}, {}])
def test_several_images_are_a_problem_not_a_guess(columns):
    row = read_rows([conversation(RED, BLUE)], ["A star."], columns)[0]
    assert row.problem.kind == "several images"
    assert "image_column" in row.problem.message


def test_references_of_a_row():
    columns = {"references": [["One."], None, [], "One string.", [""], ["One.", "", None], ["One.", 2]]}
    rows = read_rows(["p"] * 7, ["c"] * 7, columns)
    assert [row.sample.references for row in rows[:6]] == [("One.",), (), (), ("One string.",), (), ("One.",)]
    assert rows[6].problem.kind == "bad references"
    assert read_rows(["p"], ["c"], {"refs": ["One."]})[0].sample.references == ("One.",)


@pytest.mark.parametrize(
    ("prompts", "columns", "options", "message"),
    [
        (2, {"image": [None] * 2}, {"image_column": "picture"}, "image_column= names 'picture', which is no column"),
        (2, {}, {"references_column": "refs"}, "references_column= names 'refs', which is no column"),
        (2, {"picture": ["a"] * 2}, {"image_column": "pictur"}, r"'picture'\? The columns are: picture\.$"),
        (1, {}, {}, "1 prompts and 2 completions"),
        (2, {"image": ["a.png"]}, {}, "2 completions"),
        (2, {"references": [[]]}, {}, "2 completions"),
    ],
)
def test_columns_must_be_there_and_of_one_length(prompts, columns, options, message):
    with pytest.raises(InvalidSampleError, match=message):
        read_rows(["p"] * prompts, ["c", "d"], {**columns, "trainer_state": object()}, **options)


def test_nothing_given_is_changed():
    prompts = [conversation(RED, BLUE)]
    completions = [[{"role": "assistant", "content": [{"type": "text", "text": "A"}]}]]
    columns = {"image": ["a.png"], "references": [["One."]]}
    before = copy.deepcopy((prompts, completions, columns))
    read_rows(prompts, completions, columns)
    assert (prompts, completions, columns) == before


# OpenRLHF: queries and labels

TEMPLATES = {
    "qwen": "<|im_start|>user\n<|vision_start|>{}<|vision_end|>Describe.<|im_end|>\n<|im_start|>assistant\n",
    "llava": "USER: {}\nDescribe the image. ASSISTANT:",
    "gemma": "<bos><start_of_turn>user\n{}Describe.<end_of_turn>\n<start_of_turn>model\n",
}
texts = st.text(st.characters(codec="utf-8", exclude_characters="<>|"))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s>", "<end_of_turn>\n", "<|im_end|><|endoftext|>"])
@given(response=texts)
def test_the_response_behind_any_number_of_placeholders(template: str, end: str, response: str) -> None:
    query = template.format("<image>" * 300) + response + end
    found = response_of(query, template.format("<image>"))
    assert found == (response if not end else response.rstrip())


def test_a_response_that_repeats_the_prompt_is_kept_whole() -> None:
    prompt = TEMPLATES["qwen"].format("<image>")
    assert response_of(f"{prompt}A star.{prompt}A moon.", prompt) == f"A star.{prompt}A moon."


@pytest.mark.parametrize("prompt", ["", "Describe the other image."])
def test_a_query_of_another_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(InvalidSampleError, match="apply_chat_template"):
        response_of("USER: Hello. ASSISTANT: A star.", prompt)


def test_labels() -> None:
    assert read_label(json.dumps({"image": "data:image/png;base64,aGk="})) == (b"hi", None)
    assert read_label({"references": ["A star."]}) == (None, ["A star."])
    for wrong in ("", "a.png", "3", "[]", "{}", None, "{"):
        with pytest.raises(InvalidSampleError, match="a label must be JSON"):
            read_label(wrong)
    for label in ({"image": 5}, {"references": [3]}, {"references": 3}):
        with pytest.raises(InvalidSampleError, match="must be a text"):
            read_label(label)
    for broken in ("data:image/png;base64,???", "data:image/png;base64"):
        with pytest.raises(InvalidSampleError, match="data URL that cannot be read"):
            read_label({"image": broken})


def part_of(form, folder):
    """A part of a message with the image red.png."""
    path = folder / "red.png"
    RED.save(path)
    text = base64.b64encode(path.read_bytes()).decode()
    url = f"data:image/png;base64,{text}"
    parts = {
        "path": {"path": str(path)},
        "file url": {"url": path.as_uri()},
        "data url": {"url": url},
        "base64": {"base64": text},
        "base64 in lines": {"base64": "\n".join(text[at : at + 76] for at in range(0, len(text), 76))},
        "image that is base64": {"image": text},
        "image that is an address": {"image": path.as_uri()},
        "undecoded": {"image": {"bytes": path.read_bytes(), "path": None}},
        "null beside": {"image": None, "url": url, "text": None},
        "OpenAI": {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        "OpenAI's text": {"type": "image_url", "image_url": path.as_uri()},
        "OpenAI's responses": {"type": "input_image", "image_url": url},
        "Qwen": {"image": str(path), "min_pixels": 4, "max_pixels": 99},
    }
    return {"type": "image", **parts[form]}


@pytest.mark.parametrize(
    "form",
    [
        *("path", "file url", "data url", "base64", "base64 in lines", "image that is base64", "null beside", "OpenAI"),
        *("image that is an address", "undecoded", "OpenAI's text", "OpenAI's responses", "Qwen"),
    ],
)
def test_images_in_prompts_are_read_as_trainers_formats_have_them(form, tmp_path):
    part = part_of(form, tmp_path)
    (row,) = read_rows([[{"role": "user", "content": [part, {"type": "text", "text": "Describe."}]}]], ["A star."], {})
    assert load_image(row.image).tobytes() == RED.tobytes()
    assert row.image_from == "the prompt"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image", "pixels": "a.png"}, "'pixels', which is not read: give the image under 'image', 'path'"),
        ({"type": "image", "source": {"data": "aGk="}}, "'source', which is not read"),
        ({"type": "image", "base64": "?"}, "'base64' of an image in the messages: the image is not base64"),
        ({"type": "image_url", "image_url": {"url": "data:nothing"}}, "'image_url' of an image in the messages"),
    ],
)
def test_an_image_in_a_prompt_that_is_not_read_is_named_and_ends_no_other_row(part, message):
    prompts = [[{"role": "user", "content": [each]}] for each in (part, {"type": "image", "image": RED})]
    bad, good = read_rows(prompts, ["A star.", "A star."], {})
    assert message in bad.problem.message
    assert (good.problem, good.image) == (None, RED)
