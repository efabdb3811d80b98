"""From the arguments of trainers to rows: every shape of completion, image and references."""

from __future__ import annotations

import base64
import copy

import pytest
from PIL import Image

from reward.errors import InvalidSampleError
from reward.images import load_image
from reward.metrics.base import MetricSpec
from reward.rewards.completions import completion_text, read_rows
from reward.samples import CaptionSample

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
ANY = MetricSpec("any", "any:Any", ("score",), needs_image=False)
SEES = MetricSpec("sees", "sees:Sees", ("score",))


def read(prompt="p", completion="A star.", columns=(), spec=ANY, **options):
    """The row of one completion; `columns` have one value each."""
    (row,) = read_rows(
        [prompt], [completion], {name: [value] for name, value in dict(columns).items()}, spec, **options
    )
    return row


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
        *((wrong, None) for wrong in (None, 3, b"A star.", [], {"role": "assistant"})),
        ([{"role": "user", "content": "hello"}], None),
        ([assistant([{"type": "text", "text": 5}])], None),
        ([assistant(5)], None),
    ],
)
def test_text_of_a_completion(completion, text):
    if text is not None:
        assert completion_text(completion) == text
        return
    with pytest.raises(InvalidSampleError, match=r"completion|message"):
        completion_text(completion)
    assert read(completion=completion).kind == "no caption"


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
                ({"image": "a.png"}, None, "a.png"),
                ({"images": ["a.png"]}, None, "a.png"),
                ({"images": ["a.png"], "image": "b.png"}, None, "a.png"),
                ({"images": None, "image": "b.png"}, None, "b.png"),
                ({"images": [], "image": None}, None, RED),
                ({}, None, RED),
                ({"picture": "c.png", "image": "a.png"}, "picture", "c.png"),
                ({"picture": None, "image": "a.png"}, "picture", None),  # a named column is the only source
                ({"image": "a.png", "file_name": "b.png"}, None, "a.png"),
                ({"file_name": "b.png"}, None, RED),  # what the policy saw goes before a path beside it
                ({"file_name": "b.png", "img": "c.png"}, None, RED),
            ]
        ),
        ("p", {"file_name": "b.png"}, None, "b.png"),
        ("p", {"image_path": ["b.png"]}, None, "b.png"),
        ("p", {"file_name": "b.png", "img": "c.png"}, None, None),  # unclear
    ],
)
def test_where_the_image_comes_from(prompt, columns, image_column, expected):
    assert read(prompt, columns=columns, image_column=image_column).image == expected
    if expected is None:
        reason = read(prompt, columns=columns, image_column=image_column, spec=SEES)
        assert (reason.kind, reason.by_policy) == ("no image", False)
        assert "column 'picture' holds None" in reason.message or "file_name, img: choose one" in reason.message


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
    row = read(completion=text)
    assert row.is_wordless if not caption else row.candidate == caption
    assert read(completion=text, strip_thinking=False).candidate == text


@pytest.mark.parametrize("columns", [{"images": ["a.png", "b.png"]}, {}])
def test_several_images_are_a_problem_not_a_guess(columns):
    reason = read(conversation(RED, BLUE), columns=columns)
    assert (reason.kind, "image_column" in reason.message) == ("several images", True)


@pytest.mark.parametrize(
    ("cell", "references"),
    [
        (["One."], ("One.",)),
        *((missing, ()) for missing in (None, [], [""])),
        ("One string.", ("One string.",)),
        (["One.", "", None], ("One.",)),
        (["One.", 2], None),
    ],
)
@pytest.mark.parametrize("name", ["references", "refs"])
def test_references_of_a_row(name, cell, references):
    row = read(columns={name: cell})
    assert row.references == references if isinstance(row, CaptionSample) else row.kind == "bad references"
    assert isinstance(row, CaptionSample) == (references is not None)


@pytest.mark.parametrize(
    ("prompts", "columns", "options", "message"),
    [
        (2, {"image": [None] * 2}, {"image_column": "picture"}, "image_column= names 'picture', which is no column"),
        (2, {}, {"references_column": "refs"}, "names 'refs', which is no column.*Leave remove_unused_columns=False"),
        (2, {"picture": ["a"] * 2}, {"image_column": "pictur"}, r"'picture'\? The columns are: picture\.$"),
        (1, {}, {}, "1 prompts and 2 completions"),
        (2, {"image": ["a.png"]}, {}, "2 completions"),
        (2, {"references": [[]]}, {}, "2 completions"),
    ],
)
def test_columns_must_be_there_and_of_one_length(prompts, columns, options, message):
    with pytest.raises(InvalidSampleError, match=message):
        read_rows(["p"] * prompts, ["c", "d"], {**columns, "trainer_state": object()}, ANY, **options)


def test_nothing_given_is_changed():
    prompts = [conversation(RED, BLUE)]
    completions = [[{"role": "assistant", "content": [{"type": "text", "text": "A"}]}]]
    columns = {"image": ["a.png"], "references": [["One."]]}
    before = copy.deepcopy((prompts, completions, columns))
    read_rows(prompts, completions, columns, ANY)
    assert (prompts, completions, columns) == before


PARTS = {
    "path": lambda path, text, url: {"path": str(path)},
    "file url": lambda path, text, url: {"url": path.as_uri()},
    "data url": lambda path, text, url: {"url": url},
    "base64": lambda path, text, url: {"base64": text},
    "base64 in lines": lambda path, text, url: {"base64": "\n".join(text[at : at + 76] for at in range(0, 999, 76))},
    "image that is base64": lambda path, text, url: {"image": text},
    "image that is an address": lambda path, text, url: {"image": path.as_uri()},
    "undecoded": lambda path, text, url: {"image": {"bytes": path.read_bytes(), "path": None}},
    "null beside": lambda path, text, url: {"image": None, "url": url, "text": None},
    "OpenAI": lambda path, text, url: {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    "OpenAI's text": lambda path, text, url: {"type": "image_url", "image_url": path.as_uri()},
    "OpenAI's responses": lambda path, text, url: {"type": "input_image", "image_url": url},
    "Qwen": lambda path, text, url: {"image": str(path), "min_pixels": 4, "max_pixels": 99},
}


@pytest.mark.parametrize("form", PARTS)
def test_images_in_prompts_are_read_as_trainers_formats_have_them(form, tmp_path):
    path = tmp_path / "red.png"
    RED.save(path)
    text = base64.b64encode(path.read_bytes()).decode()
    part = {"type": "image", **PARTS[form](path, text, f"data:image/png;base64,{text}")}
    row = read([{"role": "user", "content": [part, {"type": "text", "text": "Describe."}]}], spec=SEES)
    assert load_image(row.image).tobytes() == RED.tobytes()


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
    bad, good = read_rows(prompts, ["A star.", "A star."], {}, SEES)
    assert message in bad.message
    assert good.image == RED
