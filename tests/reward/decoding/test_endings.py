"""Where captions end, and candidates that are all the same; over all places that decode captions."""

from __future__ import annotations

import copy
import logging
from functools import lru_cache
from typing import Any

import pytest
import torch
from PIL import Image

from integrations.demo.captioner import write_captions
from integrations.hf_generate import BestOfN
from reward.decoding.captioners import EMBEDDED_PROMPT, LocalCaptioner, Sampling, prompt_inputs
from reward.decoding.captioning import caption_images
from reward.decoding.endings import end_tokens, up_to_end
from reward.decoding.selection import rerank

IMAGE = Image.new("RGB", (64, 64), "red")


@lru_cache
def embedded() -> LocalCaptioner:
    captioner = LocalCaptioner("embedded", device="cpu")
    captioner.check()
    return captioner


def by_captioner(model: Any, processor: Any) -> list[str]:
    captioner = LocalCaptioner("embedded", device="cpu")
    captioner._loaded = model, processor
    sampling = Sampling(prompt=EMBEDDED_PROMPT, max_tokens=12, seed=0)
    return [each.text for _, captions in captioner.sample([(0, IMAGE)], 6, sampling) for each in captions]


def by_best_of_n(model: Any, processor: Any) -> list[str]:
    best, inputs = BestOfN("length", 6, processor), prompt_inputs(processor, [IMAGE], EMBEDDED_PROMPT)
    torch.manual_seed(0)
    model.generate(**inputs, custom_generate=best, max_new_tokens=12)
    return best.last.captions[0]


def by_demo(model: Any, processor: Any) -> list[str]:
    return write_captions(model, processor, [IMAGE], samples=6, max_new_tokens=12)[0]


@pytest.mark.parametrize("write", [by_captioner, by_best_of_n, by_demo])
def test_a_caption_ends_at_its_end_token_also_when_it_is_filled_up_with_a_word(write: Any) -> None:
    loaded, processor = embedded()._loaded or (None, None)
    model = copy.deepcopy(loaded)
    words = processor.tokenizer.convert_tokens_to_ids
    end, filling = processor.tokenizer(".", add_special_tokens=False).input_ids[0], words("star")
    model.generation_config.eos_token_id = [end, processor.tokenizer.eos_token_id]
    model.generation_config.pad_token_id = filling
    captions = write(model, processor)
    assert len({len(caption.split()) for caption in captions}) > 1  # some are filled up
    assert all("." not in caption[:-1] for caption in captions), captions


@pytest.mark.parametrize("ids", [2, [2, 7], (2,), None])
def test_end_tokens_are_those_of_the_tokenizer_and_the_configs(ids: Any) -> None:
    class Holder:
        eos_token_id = ids

    class Tokens:
        eos_token_id = 5

    class Processor:
        tokenizer = Tokens()

    expected = {5} | set(ids if isinstance(ids, (list, tuple)) else [ids]) - {None}
    assert end_tokens(Processor(), Holder()) == end_tokens(Tokens(), Holder()) == expected
    assert up_to_end([[1, 5, 1], [1, 1]], expected) == [([1, 5], True), ([1, 1], False)]


def test_chunks_without_a_seed_are_drawn_anew_also_by_a_run_that_goes_on() -> None:
    sampling, drawn = Sampling(prompt=EMBEDDED_PROMPT, max_tokens=20, temperature=1.5, chunk=2), list[list[str]]()
    for _ in range(2):
        torch.manual_seed(0)  # as torch begins in each process
        ((_, captions),) = embedded().sample([(0, IMAGE)], 6, sampling)
        drawn.append([caption.text for caption in captions])  # type: ignore[union-attr]
    assert len(set(drawn[0])) > 3
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"top_k": 1}, r"has top_k=1: .* Call generate\(\.\.\., top_k=0\)"),
        ({"temperature": 1e-6}, r"temperature=1e-06.* temperature=1\.0"),
        ({"top_k": 1, "top_p": 0.001, "temperature": 0.01}, r"temperature=0\.01, top_k=1, top_p=0\.001"),
        ({"min_p": 0.99}, r"min_p=0\.99"),
        ({"temperature": 0.7, "top_k": 50, "top_p": 0.9}, None),
        ({}, None),
    ],
)
def test_settings_that_make_equal_candidates_are_named_with_their_cure(
    given: dict[str, float], message: str | None, recwarn: pytest.WarningsRecorder
) -> None:
    model, processor = embedded()._loaded or (None, None)
    inputs, best = prompt_inputs(processor, [IMAGE], EMBEDDED_PROMPT), BestOfN("length", 4, processor)
    model.generate(**inputs, custom_generate=best, max_new_tokens=8, **given)  # type: ignore[union-attr]
    told = [str(each.message) for each in recwarn if "nothing to choose from" in str(each.message)]
    if message is None:
        assert not told
    else:
        with pytest.warns(UserWarning, match=message):
            model.generate(**inputs, custom_generate=best, max_new_tokens=8, **given)  # type: ignore[union-attr]
        assert best.last.distinct <= 0.5  # type: ignore[union-attr, operator]


@pytest.mark.filterwarnings("error")
def test_captions_of_a_folder_at_a_temperature_near_0_are_warned_of(tmp_path: Any) -> None:
    sampling = Sampling(temperature=1e-3)
    with pytest.raises(UserWarning, match=r"--temperature 0\.001 .* give --temperature 1\.0"):
        caption_images([], embedded(), tmp_path / "c.jsonl", metric="length", n=2, sampling=sampling)


def test_the_share_of_distinct_candidates_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reward.decoding.selection"):
        rerank(["A star.", "A star.", "A star.", "A dog."], reward="length")
    assert "distinct captions among the candidates: 50 %" in caplog.text
