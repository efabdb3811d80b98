"""OpenRLHF's queries and labels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward.errors import InvalidSampleError
from reward.functions.queries import read_label, response_of

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
    with pytest.raises(InvalidSampleError, match="data URL"):
        read_label({"image": "data:image/png;base64,???"})
