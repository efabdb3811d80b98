"""OpenRLHF: the shape of its calls, then its own executor, which loads a file and calls the function in threads."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.openrlhf import make_reward_func
from integrations.openrlhf.queries import read_label, response_of
from reward.errors import InvalidSampleError
from tests.integrations.frameworks import GREY, WHITE, PictureMetric, options

PROMPT = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe.<|im_end|>\n<|im_start|>assistant\n"
QUERY = PROMPT.replace("<|image_pad|>", "<|image_pad|>" * 300) + "A star.<|im_end|>"


TEMPLATES = {
    "qwen": "<|im_start|>user\n<|vision_start|>{}<|vision_end|>Describe.<|im_end|>\n<|im_start|>assistant\n",
    "llava": "USER: {}\nDescribe the image. ASSISTANT:",
    "gemma": "<bos><start_of_turn>user\n{}Describe.<end_of_turn>\n<start_of_turn>model\n",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s>", "<end_of_turn>\n", "<|im_end|><|endoftext|>"])
@given(response=st.text(st.characters(codec="utf-8", exclude_characters="<>|")))
def test_the_response_behind_any_number_of_placeholders(template: str, end: str, response: str) -> None:
    query = template.format("<image>" * 300) + response + end
    found = response_of(query, template.format("<image>"))
    assert found == (response if not end else response.rstrip())


def test_a_response_that_repeats_the_prompt_is_kept_whole_and_a_query_of_another_prompt_refused() -> None:
    prompt = TEMPLATES["qwen"].format("<image>")
    assert response_of(f"{prompt}A star.{prompt}A moon.", prompt) == f"A star.{prompt}A moon."
    for other in ("", "Describe the other image."):
        with pytest.raises(InvalidSampleError, match="apply_chat_template"):
            response_of("USER: Hello. ASSISTANT: A star.", other)


def test_labels() -> None:
    assert read_label(json.dumps({"image": "data:image/png;base64,aGk="}))[:2] == (b"hi", None)
    assert read_label({"references": ["A star."]})[:2] == (None, ["A star."])
    for wrong in ("", "a.png", "3", "[]", "{}", None, "{"):
        with pytest.raises(InvalidSampleError, match="a label must be JSON"):
            read_label(wrong)
    for label in ({"image": 5}, {"references": [3]}, {"references": 3}):
        with pytest.raises(InvalidSampleError, match=r"must be a (text|string|list)"):
            read_label(label)
    for broken in ("data:image/png;base64,???", "data:image/png;base64"):
        with pytest.raises(InvalidSampleError, match="data URL that cannot be read"):
            read_label({"image": broken})


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    WHITE.save(tmp_path / "white.png")
    GREY.save(tmp_path / "grey.png")
    return tmp_path


def label(name: str) -> str:
    return json.dumps({"image": name, "references": ["A red star."]})


@pytest.mark.slow
def test_calls_in_threads_are_scored_together(picture: PictureMetric, photos: Path) -> None:
    reward_func = make_reward_func(image_root=photos, **picture.patient)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(reward_func, [QUERY], [PROMPT], [label(f"{name}.png")]) for name in ("white", "grey") * 2]
        results = [call.result() for call in calls]
    assert [each["rewards"].tolist() for each in results] == [pytest.approx([value]) for value in (1.0, 0.2) * 2]
    assert set(results[0]["extra_logs"]) == {"brightness", "words"}
    assert {(sample.candidate, sample.references) for sample in picture.samples} == {("A star.", ("A red star.",))}
    assert picture.calls < 4


def test_faults_are_logged_and_raised(picture: PictureMetric, caplog: pytest.LogCaptureFixture) -> None:
    reward_func = make_reward_func(**picture.patient)
    with pytest.raises(InvalidSampleError, match="a label must be JSON"):
        reward_func([QUERY], [PROMPT], ["3"])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert reward_func([], [], []) == {"rewards": pytest.approx([]), "scores": pytest.approx([]), "extra_logs": {}}


class Tokenizer:
    """Has the text of the request for tokens."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids)).replace("<|image_pad|>", "<|image_pad|>" * 300)


class Engine:
    """Answers every prompt with the same caption."""

    async def generate(self, *arguments: Any, **options: Any) -> Any:
        output = SimpleNamespace(token_ids=list(map(ord, "A star.<|im_end|>")), finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


FILE = """
from integrations.openrlhf import make_reward_func

reward_func = make_reward_func(**{settings!r}, image_root={root!r})
"""


def test_openrlhf_itself_loads_the_file_and_calls_the_function(picture: PictureMetric, photos: Path) -> None:
    agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF is not installed", exc_type=ImportError)
    file = photos / "caption_reward.py"
    file.write_text(FILE.format(settings=picture.patient, root=str(photos)))
    executor = agent.SingleTurnAgentExecutor([str(file)])
    params = SimpleNamespace(max_tokens=64, logprobs=None)

    async def together() -> list[dict[str, Any]]:
        calls = [
            executor.execute(PROMPT, given, params, 4096, Tokenizer(), Engine())
            for given in (label("white.png"), label("grey.png"), "no JSON")
        ]
        return await asyncio.gather(*calls)

    white, grey, wrong = asyncio.run(together())
    assert [float(each["reward"]) for each in (white, grey)] == pytest.approx([1.0, 0.2])
    assert float(white["scores"]) == 1.0
    assert float(white["extra_logs"]["words"]) == 3.0
    assert wrong["reward"] is None  # OpenRLHF swallows the error, which the adapter has logged


def test_the_options_of_the_docs_are_openrlhfs() -> None:
    openrlhf = pytest.importorskip("openrlhf", reason="OpenRLHF is not installed", exc_type=ImportError)
    source = (Path(openrlhf.__file__).parent / "cli" / "train_ppo_ray.py").read_text(encoding="utf-8")
    known = set(re.findall(r'"(--[\w.]+)"', source))
    assert len(options("OpenRLHF")) > 20
    assert options("OpenRLHF") <= known
