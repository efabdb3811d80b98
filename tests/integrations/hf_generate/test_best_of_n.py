"""BestOfN inside `generate` of tiny real models: decoder-only with one or more images per prompt, encoder-decoder."""

from __future__ import annotations

import copy
import math
from functools import lru_cache
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from transformers import DynamicCache, TextStreamer

from integrations.hf_generate import BestOfN
from integrations.hf_generate.best_of_n import BestOfNDecoderOnlyOutput, BestOfNEncoderDecoderOutput
from reward import load_scorer
from reward.errors import ConfigError, InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from tests import toy_captioners
from tests.toy_scorer import ToyScorer

IMAGES = [Image.new("RGB", (32, 32), "red"), Image.effect_noise((32, 32), 99).convert("RGB")]


class Letters:
    """A reward that tells captions and images apart: letters of the caption, plus a hundred for the second image."""

    def __init__(self, rate=lambda sample: len(sample.candidate) + 100.0 * (sample.image is IMAGES[1])):
        self.samples, self.rate = [], rate

    def rewards(self, samples):
        self.samples += samples
        return [self.rate(sample) for sample in samples]


@lru_cache
def captioner(kind):
    """A model, what decodes its output, its inputs for two prompts, and the length of the prompt in the output."""
    if kind == "llava":
        model, processor = toy_captioners.llava()
        inputs = toy_captioners.llava_inputs(processor, IMAGES, ["Describe it", "Describe"])  # the second is padded
        return model, processor, inputs, inputs["input_ids"].shape[1]
    if kind == "qwen2_vl":
        model, tokens = toy_captioners.qwen2_vl()
        inputs = toy_captioners.qwen2_vl_inputs(tokens, [[1], [1, 2]])
        return model, tokens, inputs, inputs["input_ids"].shape[1]
    if kind == "blip":
        model, pixels = toy_captioners.blip()
        return model, toy_captioners.tokenizer(), {"pixel_values": pixels}, 1
    model, tokens = toy_captioners.vit_bert()
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return model, tokens, {"pixel_values": pixels}, 1


def greedy_texts(kind):
    model, processor, inputs, start = captioner(kind)
    greedy = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    return [text.strip() for text in processor.batch_decode(greedy[:, start:], skip_special_tokens=True)]


KINDS = pytest.mark.parametrize("kind", ["llava", "qwen2_vl", "vit_bert"])


def run(kind, n, reward=None, **options):
    model, processor, inputs, start = captioner(kind)
    names = ("include_greedy", "references", "images", "chunk")
    strategy_options = {name: options.pop(name) for name in names if name in options}
    strategy = BestOfN(reward or Letters(), n, processor, **{"images": IMAGES, **strategy_options})
    torch.manual_seed(3)
    output = model.generate(**inputs, custom_generate=strategy, max_new_tokens=6, **options)
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    texts = [text.strip() for text in processor.batch_decode(sequences[:, start:], skip_special_tokens=True)]
    return output, texts, strategy


@KINDS
@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("chunk", [None, 2])
def test_greedy_is_the_first_candidate_on_request(kind, do_sample, chunk):
    expected = greedy_texts(kind)
    _, _, strategy = run(kind, 5, include_greedy=True, do_sample=do_sample, chunk=chunk)
    assert [captions[0] for captions in strategy.last.captions] == expected
    assert all(len(set(captions)) > 2 for captions in strategy.last.captions)  # the others are sampled
    _, texts, _ = run(kind, 1, include_greedy=True, do_sample=do_sample)
    assert texts == expected


@pytest.mark.parametrize("kind", ["llava", "blip"])
def test_a_soft_choice_is_one_of_the_same_candidates(kind):
    model, processor, inputs, _ = captioner(kind)
    results = {}
    for temperature in (None, 0.0, 1e-9, 1e9):
        given = {} if temperature is None else {"temperature": temperature}
        strategy = BestOfN(Letters(), 8, processor, **given)
        torch.manual_seed(3)
        model.generate(**inputs, custom_generate=strategy, images=IMAGES, max_new_tokens=10)
        results[temperature] = strategy.last
    assert results[0.0] == results[None]
    assert results[1e-9].captions == results[1e9].captions == results[None].captions  # only the choice differs
    for temperature in (None, 1e-9):
        best = [reward for [(_, reward)] in results[temperature].best]
        assert best == [max(filter(None, rewards)) for rewards in results[None].rewards]


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("option", [{"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-4}])
def test_sampling_options_of_the_config_are_respected(option, do_sample):
    expected = greedy_texts("llava")
    _, texts, strategy = run("llava", 5, reward := Letters(), do_sample=do_sample, **option)
    assert strategy.last.captions == [[text] * 5 for text in expected]
    assert texts == expected
    assert len(reward.samples) == 2  # five equal captions of an image are scored once


def test_the_callers_generation_config_is_left_alone():
    model, _, _, _ = captioner("llava")
    config = copy.deepcopy(model.generation_config)
    run("llava", 3, generation_config=config)
    assert not config.do_sample
    assert not model.generation_config.do_sample


def test_output_of_a_decoder_only_model_holds_the_chosen_rows():
    model, _, inputs, start = captioner("llava")
    model.set_attn_implementation("eager")
    output, _, strategy = run(
        "llava",
        4,
        num_return_sequences=2,
        do_sample=True,
        suppress_tokens=[model.config.image_token_id],  # a sampled one would ask for an image in the forward pass below
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        output_attentions=True,
        output_hidden_states=True,
    )
    model.set_attn_implementation("sdpa")
    assert isinstance(output, BestOfNDecoderOnlyOutput)
    best = [strategy.last.rewards[p][i] for p in range(2) for i in strategy.last.chosen[p]]
    assert output.reward_scores.tolist() == best
    steps = output.sequences.shape[1] - start
    assert [len(part) for part in (output.scores, output.logits, output.attentions, output.hidden_states)] == [
        steps
    ] * 4
    assert all(layer.shape[0] == 4 for step in output.attentions + output.hidden_states for layer in step)
    # a plain forward pass over each returned row must give the logits and the cache that were returned for it
    for row in range(4):
        own = {
            "input_ids": output.sequences[row : row + 1, :-1],
            "attention_mask": torch.nn.functional.pad(
                inputs["attention_mask"][row // 2][None], (0, steps - 1), value=1
            ),
            "pixel_values": inputs["pixel_values"][row // 2][None],
        }
        own["position_ids"] = (own["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        forward = model(**own, past_key_values=DynamicCache(), use_cache=True)
        logits = torch.stack([step[row] for step in output.logits])
        torch.testing.assert_close(logits, forward.logits[0, start - 1 :], atol=1e-4, rtol=1e-4)
        kept = own["attention_mask"][0].bool()
        for layer, again in zip(output.past_key_values.layers, forward.past_key_values.layers, strict=True):
            torch.testing.assert_close(layer.keys[row][:, kept], again.keys[0][:, kept], atol=1e-4, rtol=1e-4)


def test_output_of_an_encoder_decoder_holds_the_chosen_rows():
    model, _, inputs, _ = captioner("vit_bert")
    output, _, _ = run(
        "vit_bert",
        4,
        num_return_sequences=2,
        do_sample=True,
        return_dict_in_generate=True,
        output_logits=True,
        output_hidden_states=True,
    )
    assert isinstance(output, BestOfNEncoderDecoderOutput)
    assert output.encoder_hidden_states[0].shape[0] == 2  # one per prompt, as transformers gives it
    pixels = inputs["pixel_values"].repeat_interleave(2, dim=0)
    forward = model(pixel_values=pixels, decoder_input_ids=output.sequences[:, :-1])
    torch.testing.assert_close(torch.stack(output.logits, dim=1), forward.logits, atol=1e-4, rtol=1e-4)
    assert len(output.reward_scores) == 4
    assert output.past_key_values.cross_attention_cache.layers[0].keys.shape[0] == 4


def test_a_caption_that_cannot_be_scored_loses():
    picky = Letters(lambda sample: -1.0 if "red" in sample.candidate else None)
    _, texts, strategy = run("llava", 16, picky)
    assert {"red" in caption for captions in strategy.last.captions for caption in captions} == {True, False}
    assert all("red" in text for text in texts)


def test_nothing_is_chosen_where_nothing_was_scored():
    reward = MetricReward(ToyScorer(), name="toy")
    model, processor, inputs, _ = captioner("llava")
    strategy = BestOfN(reward, 3, processor)
    reason = "image 0 .* The first, '.*': metric 'toy' needs an image"
    with pytest.raises(InvalidSampleError, match=reason):
        model.generate(**inputs, custom_generate=strategy, max_new_tokens=6)
    assert [len(captions) for captions in strategy.last.captions] == [3, 3]  # sampling was not in vain
    assert strategy.last.chosen == [[], []]


def test_an_empty_caption_loses_to_every_other_and_is_no_fault_of_the_reward():
    _, processor, _, _ = captioner("llava")
    red, end = processor.tokenizer.convert_tokens_to_ids(["red", "<eos>"])
    terse = Letters(lambda sample: -float(len(sample.candidate)))
    _, texts, strategy = run("llava", 16, terse, prefix_allowed_tokens_fn=lambda row, ids: [red, end])
    assert any("" in captions for captions in strategy.last.captions)
    assert texts == ["red", "red"]

    options = {"prefix_allowed_tokens_fn": lambda row, ids: [end], "return_dict_in_generate": True}
    output, texts, strategy = run("llava", 3, **options)
    assert texts == ["", ""]
    assert strategy.last.chosen == [[0], [0]]
    assert all(math.isnan(score) for score in output.reward_scores.tolist())


def test_processors_that_know_their_rows_get_more_rows():
    _, processor, _, _ = captioner("llava")
    red, blue = processor.tokenizer.convert_tokens_to_ids(["red", "blue"])
    allowed = {0: [red], 1: [blue]}
    _, texts, _ = run("llava", 3, prefix_allowed_tokens_fn=lambda row, ids: allowed[row], repetition_penalty=1.3)
    assert texts == ["red red red red red red", "blue blue blue blue blue blue"]


def test_references_go_to_their_prompt():
    reward = Letters()
    run("llava", 2, reward, references=[["One."], None])
    assert {sample.references for sample in reward.samples if sample.image is IMAGES[0]} == {("One.",)}
    assert {sample.references for sample in reward.samples if sample.image is IMAGES[1]} == {()}


def test_a_metric_reward_chooses_and_its_aspects_too():
    reward = MetricReward(ToyScorer(), weights={"brev": 1})
    _, texts, strategy = run("llava", 6, reward)
    assert [len(text.split()) for text in texts] == [
        min(len(caption.split()) for caption in captions if caption) for captions in strategy.last.captions
    ]
    _, again, _ = run("llava", 6, MetricReward(ToyScorer()).aspects()[1])
    assert again == texts


def filled_cache():
    model, _, inputs, _ = captioner("llava")
    cache = DynamicCache(config=model.config.get_text_config())
    model(input_ids=inputs["input_ids"][:, :2], past_key_values=cache, use_cache=True)
    return cache


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 2}, "no beams"),
        ({"encoder_repetition_penalty": 1.5}, "encoder_repetition_penalty would reach the first ones only"),
        ({"num_return_sequences": 6, "do_sample": True}, "num_return_sequences=6 asks for more than the n=5"),
        ({"cache_implementation": "static"}, "static cache"),
        ({"past_key_values": filled_cache()}, "filled past_key_values"),
        ({"images": IMAGES[:1]}, "1 images for a batch of 2 prompts"),
        ({"references": [[]] * 3}, "3 references for a batch of 2 prompts"),
        ({"references": [["One."], 3]}, "references"),
        ({"chunk": 1}, "chunk=1 has no room for the 2 rows of this call, num_return_sequences=1"),
        ({"chunk": 5, "num_return_sequences": 3, "do_sample": True}, "chunk=5 has no room for the 6 rows"),
        (
            {"chunk": 4, "return_dict_in_generate": True, "output_logits": True},
            "3 parts .* output_logits cannot be joined",
        ),
    ],
)
def test_what_is_not_possible_is_refused_before_sampling(options, message):
    reward = Letters()
    with pytest.raises((ConfigError, InvalidSampleError), match=message):
        run("llava", 5, reward, **options)
    assert not reward.samples


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streamer": TextStreamer(captioner("llava")[1].tokenizer)}, "nothing to stream"),
        ({"assistant_model": captioner("llava")[0]}, "ask for assisted_generation"),
        ({"prompt_lookup_num_tokens": 2}, "ask for assisted_generation"),
    ],
)
def test_what_generate_keeps_from_strategies_is_refused(options, message):
    model, processor, _, _ = captioner("llava")
    inputs = toy_captioners.llava_inputs(processor, IMAGES[:1], ["Describe"])
    reward = Letters()
    with pytest.raises(ConfigError, match=message):
        model.generate(
            **inputs, custom_generate=BestOfN(reward, 2, processor), images=IMAGES[:1], max_new_tokens=2, **options
        )
    assert not reward.samples


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"n": n}, f"n must be at least 1 and a whole number, got {n!r}") for n in (0, 1.5, True, "4")),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"temperature": -1}, "temperature, of the choice, must be at least 0, got -1"),
        ({"reward": None}, "reward must be a reward such as"),
        ({"reward": MetricReward}, r"write MetricReward\(\)"),
        ({"reward": lambda completions, solution: []}, "needs solution"),
        ({"processor": None}, "processor must be able to batch_decode"),
        *(
            ({"images": one}, f"images must hold one item per prompt, got {type(one).__name__}")
            for one in (IMAGES[0], "a.png", BytesIO(b""), torch.zeros(3, 8, 8))
        ),
        ({"references": "A star."}, "references must hold one item per prompt, got str"),
        ({"references": {"en": ["A star."]}}, "references must hold one item per prompt, got dict"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(options, message):
    with pytest.raises(ConfigError, match=message):
        BestOfN(**{"reward": Letters(), "n": 2, "processor": captioner("llava")[1], **options})


@pytest.mark.parametrize("make", [tuple, pd.Series, lambda values: np.array([*values, None], dtype=object)[:-1]])
def test_images_and_references_may_be_of_any_library(make):
    strategy = BestOfN(Letters(), 2, captioner("llava")[1], images=make(IMAGES[:2]), references=make([["A."], ["B."]]))
    assert strategy.images == IMAGES[:2]
    assert strategy.references == [["A."], ["B."]]


def test_anything_that_rates_captions_chooses():
    def words(completions, image, **kwargs):
        assert len(image) == len(completions)
        return [float(len(text.split())) for text in completions]

    texts = [run("llava", 6, reward)[1] for reward in (MetricReward("length"), "length", load_scorer("length"), words)]
    assert all(text == texts[0] for text in texts)
