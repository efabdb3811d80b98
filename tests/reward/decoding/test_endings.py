"""Where captions end, and candidates that are all the same; over all places that decode captions."""

import copy
from functools import lru_cache

import pytest
import torch
from PIL import Image
from transformers import AddedToken

from integrations.hf_generate import BestOfN
from reward.data.written_captions import caption_in
from reward.decoding.captioners import EMBEDDED_PROMPT, LocalCaptioner, Sampling, prompt_inputs

IMAGE = Image.new("RGB", (64, 64), "red")


@lru_cache
def embedded():
    captioner = LocalCaptioner("embedded", device="cpu")
    captioner.check()
    return captioner


def by_captioner(model, processor):
    captioner = LocalCaptioner("embedded", device="cpu")
    captioner._loaded = model, processor
    sampling = Sampling(prompt=EMBEDDED_PROMPT, max_tokens=30, seed=0)
    return [each.text for _, captions in captioner.sample([(0, IMAGE)], 6, sampling) for each in captions]


def by_best_of_n(model, processor, **options):
    best, inputs = BestOfN("length", 6, processor), prompt_inputs(processor, [IMAGE], EMBEDDED_PROMPT)
    torch.manual_seed(0)
    model.generate(**inputs, custom_generate=best, max_new_tokens=30, **options)
    return best.last.captions[0]


@pytest.mark.parametrize("write", [by_captioner, by_best_of_n])
def test_a_caption_ends_with_its_end_token_also_when_it_is_filled_up_with_a_word(write):
    model, processor = copy.deepcopy(embedded()._loaded)
    words = processor.tokenizer.convert_tokens_to_ids
    end = processor.tokenizer(".", add_special_tokens=False).input_ids[0]
    model.generation_config.eos_token_id = [end, processor.tokenizer.eos_token_id]
    model.generation_config.pad_token_id = words("star")
    captions = write(model, processor)
    assert len({len(caption.split()) for caption in captions}) > 1  # some are filled up
    assert all("." not in caption[:-1] for caption in captions), captions
    assert any(caption.endswith(".") for caption in captions)


@pytest.mark.parametrize("write", [by_captioner, by_best_of_n])
@pytest.mark.parametrize(
    ("special", "text"),
    [
        (["[THINK]", "[/THINK]"], "[THINK]A star?[/THINK]A red star."),
        (["<|channel|>", "<|message|>"], "<|channel|>a<|message|>Hm.<|channel|>final<|message|>A red star."),
    ],
)
def test_reasoning_between_special_tokens_is_no_part_of_a_caption(write, special, text):
    model, processor = copy.deepcopy(embedded()._loaded)
    processor.tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    model.resize_token_embeddings(len(processor.tokenizer))
    ids = processor.tokenizer(f"{text}<|endoftext|>", add_special_tokens=False).input_ids
    config = model.generation_config
    config.sequence_bias = [[ids[: length + 1], 90.0 * (length + 1)] for length in range(len(ids))]
    config.eos_token_id = ids[-1]
    assert {caption_in(written) for written in write(model, processor)} == {"A red star."}


def test_chunks_without_a_seed_are_drawn_anew_also_by_a_run_that_goes_on():
    sampling, drawn = Sampling(prompt=EMBEDDED_PROMPT, max_tokens=20, temperature=1.5, chunk=2), []
    for _ in range(2):
        torch.manual_seed(0)  # as torch begins in each process
        chunks = embedded().sample([(0, IMAGE)], 6, sampling)
        drawn.append([caption.text for _, captions in chunks for caption in captions])
    assert len(set(drawn[0])) > 3
    assert drawn[0] != drawn[1]


def test_candidates_that_are_all_alike_are_named_with_the_cure(recwarn):
    by_best_of_n(*embedded()._loaded, temperature=0.7, top_k=50, top_p=0.9)
    assert not [warning for warning in recwarn if "nothing to choose from" in str(warning.message)]
    with pytest.warns(UserWarning, match=r"the 6 captions .* temperature=1\.0, top_k=0, top_p=1\.0"):
        by_best_of_n(*embedded()._loaded, top_k=1)
