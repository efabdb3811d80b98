"""What OpenRLHF sends: the response behind its prompt, and a label. Its calls are in test_adapters.py."""

import base64
import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.openrlhf import make_reward_func
from integrations.openrlhf.queries import read_label, response_of
from reward.errors import InvalidSampleError
from tests.toys.pictures import png

TEMPLATES = {
    "qwen": "<|im_start|>user\n<|vision_start|>{}<|vision_end|>Describe.<|im_end|>\n<|im_start|>assistant\n",
    "llava": "USER: {}\nDescribe the image. ASSISTANT:",
    "gemma": "<bos><start_of_turn>user\n{}Describe.<end_of_turn>\n<start_of_turn>model\n",
}
ENDS = st.sampled_from(["", "<|im_end|>", "</s>", "<end_of_turn>\n", "<|im_end|><|endoftext|>"])


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@given(response=st.text(st.characters(codec="utf-8", exclude_characters="<>|")), end=ENDS)
def test_the_response_behind_any_number_of_placeholders(template, response, end):
    query = template.format("<image>" * 300) + response + end
    found = response_of(query, template.format("<image>"))
    assert found == (response if not end else response.rstrip())


def test_a_response_that_repeats_the_prompt_is_kept_whole_and_a_query_of_another_prompt_refused():
    prompt = TEMPLATES["qwen"].format("<image>")
    assert response_of(f"{prompt}A star.{prompt}A moon.", prompt) == f"A star.{prompt}A moon."
    for other in ("", "Describe the other image."):
        with pytest.raises(InvalidSampleError, match="apply_chat_template"):
            response_of("USER: Hello. ASSISTANT: A star.", other)


TURN = "USER: {}D\u00e9cris l'image. ASSISTANT:"
TWO_TURNS = {"one image": TURN + " Un chat. " + TURN.format(""), "two images": TURN + " Un chat. " + TURN}


@pytest.mark.parametrize("template", TWO_TURNS.values(), ids=TWO_TURNS)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("response", [" Un chien.", f" Un chat. {TURN.format('')} Un chien."])
def test_earlier_turns_with_the_same_question_are_no_part_of_the_response(template, form, response):
    """The tokenizer may compose letters, and the query has many placeholders where the prompt has one."""
    prompt = unicodedata.normalize(form, template.replace("{}", "<image>"))
    assert response_of(template.replace("{}", "<image>" * 300) + response, prompt) == response


@pytest.mark.parametrize(
    ("label", "message"),
    [
        *((wrong, "a label must be JSON") for wrong in ("", "a.png", "3", "{}", None, "{")),
        ({"image": 5}, "must be a text"),
        ({"references": [3]}, "must be a string"),
    ],
)
def test_what_is_no_label_is_refused(label, message):
    with pytest.raises(InvalidSampleError, match=message):
        read_label(label)


def test_a_label_may_hold_its_image_and_faults_are_logged_and_raised(caplog):
    reward_func = make_reward_func("length")
    label = json.dumps({"image": "data:image/png;base64," + base64.b64encode(png((9, 9, 9))).decode()})
    sees = make_reward_func("beitscore", image_root="photos")
    assert 0 < sees(["Q: A star."], ["Q:"], [label])["rewards"].item() < 1
    assert not caplog.records
    with pytest.raises(InvalidSampleError, match="a label must be JSON"):
        reward_func(["Q: A star."], ["Q:"], ["3"])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert reward_func([], [], []) == {"rewards": pytest.approx([]), "scores": pytest.approx([]), "extra_logs": {}}
