"""BestOfN inside `generate` of tiny real models: its candidates, its choice, its images, and what it refuses."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, pipeline

from integrations.hf_generate import BestOfN
from reward import load_scorer
from reward.decoding.selection import rank
from reward.errors import ConfigError, InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from reward.samples import is_wordless
from tests.integrations.hf_generate.captioners import IMAGES, KINDS, captioner
from tests.toys import toy_captioners
from tests.toys.toy_scorer import ToyScorer

ALL = pytest.mark.parametrize("kind", KINDS)
SOME = pytest.mark.parametrize("kind", ["llava", "qwen2_vl", "vit_bert"])


class Letters:
    """A reward that tells captions and images apart: letters of the caption, plus a hundred for the second image."""

    def __init__(self, rate=lambda sample: len(sample.candidate) + 100.0 * (sample.image is IMAGES[1])):
        self.samples, self.rate = [], rate

    def rewards(self, samples):
        self.samples += samples
        return [self.rate(sample) for sample in samples]


class Watch(LogitsProcessor):
    """Sees how many rows every step of decoding has, and keeps the first scores of each part."""

    def __init__(self):
        self.rows, self.first_scores, self.length = [], [], None

    def __call__(self, input_ids, scores):
        self.rows.append(len(input_ids))
        if self.length is None or input_ids.shape[1] == self.length:
            self.length = input_ids.shape[1]
            self.first_scores.append(scores.clone())
        return scores


def plain(kind, **options):
    """What `generate` writes by itself."""
    model, processor, inputs, start = captioner(kind)
    torch.manual_seed(3)
    sequences = model.generate(**inputs, max_new_tokens=6, **options)
    return [text.strip() for text in processor.batch_decode(sequences[:, start:], skip_special_tokens=True)]


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


@ALL
def test_candidates_are_what_generate_writes_and_the_first_is_the_greedy_caption_on_request(kind):
    greedy = plain(kind, do_sample=False)
    for chunk in (None, 2):
        _, _, strategy = run(kind, 5, include_greedy=True, chunk=chunk)
        assert [captions[0] for captions in strategy.last.captions] == greedy
        assert all(len(set(captions)) > 2 for captions in strategy.last.captions)  # the others are sampled
    assert run(kind, 1, include_greedy=True)[1] == greedy
    _, _, strategy = run(kind, 5)
    sampled = plain(kind, do_sample=True, num_return_sequences=5)
    assert [caption for captions in strategy.last.captions for caption in captions] == sampled
    assert len(set(sampled)) > 3


@pytest.mark.parametrize("kind", ["llava", "qwen2_vl", "gemma3", "lfm2"])
def test_prompts_go_through_the_model_once(kind):
    model, _, _, start = captioner(kind)
    rows = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, args, out: rows.append(out.shape[:2]))
    try:
        run(kind, 4)
    finally:
        hook.remove()
    assert rows[0] == (2, start)
    assert set(rows[1:]) == {(8, 1)}


@SOME
@pytest.mark.parametrize(("chunk", "parts"), [(None, [5]), (4, [2, 2, 1])])
def test_every_candidate_is_conditioned_on_its_own_prompt_and_image(kind, chunk, parts):
    model, _, inputs, _ = captioner(kind)
    options = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(**inputs, max_new_tokens=6, **options).logits[0]
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)
    run(kind, 5, chunk=chunk, logits_processor=LogitsProcessorList([watch := Watch()]))
    assert [len(scores) // 2 for scores in watch.first_scores] == parts
    for scores in watch.first_scores:
        repeated = expected.repeat_interleave(len(scores) // 2, dim=0)
        torch.testing.assert_close(scores, repeated, atol=1e-4, rtol=1e-4)


@SOME
@pytest.mark.parametrize(
    ("n", "k", "chunk", "rows"),
    [(4, 1, None, {8}), (4, 3, None, {12}), (7, 1, 4, {4, 2}), (5, 2, 7, {4}), (4, 1, 9, {8})],  # 3 divides not 4
)
def test_the_k_best_of_n_come_back_prompt_by_prompt_from_at_most_so_many_rows_at_once(kind, n, k, chunk, rows):
    reward, watch = Letters(), Watch()
    options = {"num_return_sequences": k, "do_sample": True, "logits_processor": LogitsProcessorList([watch])}
    output, texts, strategy = run(kind, n, reward, chunk=chunk, return_dict_in_generate=True, **options)
    assert set(watch.rows) == rows
    for prompt in range(2):
        captions, rewards = strategy.last.captions[prompt], strategy.last.rewards[prompt]
        assert len(captions) == n
        assert rewards == [len(caption) + 100.0 * prompt if caption else None for caption in captions]
        assert strategy.last.chosen[prompt] == rank(rewards)[:k]
        assert texts[prompt * k : (prompt + 1) * k] == [captions[i] for i in strategy.last.chosen[prompt]]
    assert output.reward_scores.tolist() == [reward for group in strategy.last.best for _, reward in group]
    assert set(output.keys()) == {"sequences", "reward_scores"}


@pytest.mark.parametrize("kind", ["llava", "blip"])
def test_a_soft_choice_is_one_of_the_same_candidates(kind):
    model, processor, inputs, _ = captioner(kind)
    results = {}
    for temperature in (None, 0.0, 1e-9, 1e9):
        strategy = BestOfN(Letters(), 8, processor, **({} if temperature is None else {"temperature": temperature}))
        torch.manual_seed(3)
        model.generate(**inputs, custom_generate=strategy, images=IMAGES, max_new_tokens=10)
        results[temperature] = strategy.last
    assert results[0.0] == results[None]
    assert results[1e-9].captions == results[1e9].captions == results[None].captions  # only the choice differs
    best = [reward for [(_, reward)] in results[1e-9].best]
    assert best == [max(filter(None, rewards)) for rewards in results[None].rewards]


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("option", [{"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-4}])
@pytest.mark.filterwarnings("ignore:the generation config has")
def test_sampling_options_of_the_config_are_respected(option, do_sample):
    expected = plain("llava", do_sample=False)
    _, texts, strategy = run("llava", 5, reward := Letters(), do_sample=do_sample, **option)
    assert strategy.last.captions == [[text] * 5 for text in expected]
    assert texts == expected
    assert len(reward.samples) == 2  # five equal captions of an image are scored once


@pytest.mark.parametrize(
    "option", [{}, {"repetition_penalty": 1.3}, {"guidance_scale": 1.5}, {"past_key_values": "own"}]
)
@pytest.mark.filterwarnings("ignore:the generation config has")
def test_with_one_likely_token_a_step_parts_make_no_difference(option):
    """Processors that remember start anew in every part, and every part has a cache of its own."""
    model, _, _, _ = captioner("llava")
    _, _, strategy = run("llava", 5, top_k=1, **{k: v for k, v in option.items() if v != "own"})
    if "past_key_values" in option:
        option = {"past_key_values": DynamicCache(config=model.config.get_text_config())}
        option["past_key_values"].prefetch_stream = threading.Lock()  # as a stream of CUDA, it cannot be copied
    _, _, again = run("llava", 5, chunk=4, top_k=1, **option)
    assert again.last == strategy.last


def test_parts_draw_from_the_same_distribution():
    model, processor, inputs, _ = captioner("llava")
    asked = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    logits = model.generate(**inputs, **asked).logits[0]
    strategy = BestOfN(Letters(), 400, processor, images=IMAGES, chunk=150)
    torch.manual_seed(0)
    model.generate(**inputs, custom_generate=strategy, max_new_tokens=1, top_k=0)
    special = set(processor.tokenizer.all_special_ids)
    words = ["" if i in special else processor.tokenizer.convert_ids_to_tokens(i) for i in range(logits.shape[1])]
    for captions, probabilities in zip(strategy.last.captions, logits.softmax(-1).tolist(), strict=True):
        expected = Counter()
        for word, probability in zip(words, probabilities, strict=True):
            expected[word] += 400 * probability
        drawn = Counter(captions)
        often = [word for word in expected if expected[word] >= 5]
        assert len(often) > 5
        assert sum((drawn[word] - expected[word]) ** 2 / expected[word] for word in often) < 2.5 * len(often)


def test_the_callers_generation_config_is_left_alone():
    model, _, _, _ = captioner("llava")
    config = copy.deepcopy(model.generation_config)
    run("llava", 3, generation_config=config)
    assert not config.do_sample
    assert not model.generation_config.do_sample


def test_a_caption_that_cannot_be_scored_loses():
    picky = Letters(lambda sample: -1.0 if "red" in sample.candidate else None)
    _, texts, strategy = run("llava", 16, picky)
    assert {"red" in caption for captions in strategy.last.captions for caption in captions} == {True, False}
    assert all("red" in text for text in texts)


def test_nothing_is_chosen_where_nothing_was_scored():
    model, processor, inputs, _ = captioner("llava")
    strategy = BestOfN(MetricReward(ToyScorer(), name="toy"), 3, processor)
    with pytest.raises(InvalidSampleError, match=r"image 0 .* The first, '.*': metric 'toy' needs an image"):
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
    assert (texts, strategy.last.chosen) == (["", ""], [[0], [0]])
    assert all(math.isnan(score) for score in output.reward_scores.tolist())


def test_processors_that_know_their_rows_get_more_rows():
    _, processor, _, _ = captioner("llava")
    red, blue = processor.tokenizer.convert_tokens_to_ids(["red", "blue"])
    allowed = {0: [red], 1: [blue]}
    _, texts, _ = run("llava", 3, prefix_allowed_tokens_fn=lambda row, ids: allowed[row], repetition_penalty=1.3)
    assert texts == ["red red red red red red", "blue blue blue blue blue blue"]


def test_anything_that_rates_captions_chooses():
    def words(completions, image, **kwargs):
        assert len(image) == len(completions)
        return [float(len(text.split())) for text in completions]

    texts = [run("llava", 6, reward)[1] for reward in (MetricReward("length"), "length", load_scorer("length"), words)]
    assert all(text == texts[0] for text in texts)
    aspects = [MetricReward(ToyScorer(), weights={"brev": 1}), MetricReward(ToyScorer()).aspects()[1]]
    assert run("llava", 6, aspects[0])[1] == run("llava", 6, aspects[1])[1]


@SOME
def test_one_strategy_serves_a_data_set(kind):
    model, processor, inputs, _ = captioner(kind)
    strategy = BestOfN(reward := Letters(), 3, processor, images=["unused.png"] * 2)
    for images, references in ((IMAGES, [["One."], None]), (IMAGES[::-1], None)):
        reward.samples.clear()
        model.generate(**inputs, custom_generate=strategy, images=images, references=references, max_new_tokens=4)
        known = {id(image): tuple(own or ()) for image, own in zip(images, references or [None] * 2, strict=True)}
        assert {id(sample.image): sample.references for sample in reward.samples} == known
        first = [
            None if is_wordless(caption) else len(caption) + 100.0 * (images[0] is IMAGES[1])
            for caption in strategy.last.captions[0]
        ]
        assert strategy.last.rewards[0] == first


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_pipeline_takes_an_iterator_over_all_images(batch_size):
    model, processor, _, _ = captioner("llava")
    captions = pipeline("image-text-to-text", model=model, processor=processor, device="cpu")
    captions.tokenizer.padding_side = "left"
    colours = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue", "white")]
    question = {"type": "text", "text": "Describe it"}
    chats = [[{"role": "user", "content": [{"type": "image", "image": image}, question]}] for image in colours]
    options = {"batch_size": batch_size, "return_full_text": False}
    best = BestOfN(reward := Letters(), 3, processor, images=iter(colours))
    written = captions(chats, generate_kwargs={"custom_generate": best, "max_new_tokens": 4}, **options)
    seen = list({id(sample.image): sample.image for sample in reward.samples}.values())
    assert [image.getpixel((0, 0)) for image in seen] == [image.getpixel((0, 0)) for image in colours]
    last = [caption for [(caption, _)] in best.last.best]
    assert [out[0]["generated_text"].strip() for out in written[-batch_size:]] == last
    with pytest.raises(ConfigError, match="has 0 images for a batch of"):
        captions(chats, generate_kwargs={"custom_generate": best, "max_new_tokens": 4}, **options)


def filled_cache():
    model, _, inputs, _ = captioner("llava")
    cache = DynamicCache(config=model.config.get_text_config())
    model(input_ids=inputs["input_ids"][:, :2], past_key_values=cache, use_cache=True)
    return cache


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 2}, "ask for beam_search"),
        ({"prompt_lookup_num_tokens": 2}, "ask for assisted_generation"),
        ({"num_return_sequences": 6, "do_sample": True}, "num_return_sequences=6 asks for more than the n=5"),
        ({"cache_implementation": "static"}, "static cache"),
        ({"past_key_values": filled_cache}, "filled past_key_values"),
        ({"images": IMAGES[:1]}, r"1 images for a batch of 2 prompts.*images=iter\(...\)"),
        ({"references": [[]] * 3}, "3 references for a batch of 2 prompts"),
        ({"references": [["One."], 3]}, "references"),
        ({"chunk": 1}, "chunk=1 has no room for the 2 rows of this call, num_return_sequences=1"),
        ({"chunk": 4, "eos_token_id": None, "pad_token_id": None}, "set pad_token_id"),
        ({"return_dict_in_generate": True, "output_logits": True}, "not output_logits: leave that out"),
    ],
)
def test_what_is_not_possible_is_refused_before_sampling(options, message, monkeypatch):
    model, reward = captioner("llava")[0], Letters()
    for name in {"eos_token_id", "pad_token_id"} & options.keys():
        monkeypatch.setattr(model.generation_config, name, None)
    given = {key: value() if callable(value) else value for key, value in options.items()}
    with pytest.raises((ConfigError, InvalidSampleError), match=message):
        run("llava", 5, reward, **given)
    assert not reward.samples


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"n": n}, f"n must be at least 1 and a whole number, got {n!r}") for n in (0, 1.5, True, "4")),
        ({"temperature": -1}, "temperature, of the choice, must be at least 0, got -1"),
        ({"reward": None}, "reward must be a reward such as"),
        ({"reward": lambda completions, solution: []}, "needs solution"),
        ({"processor": None}, "processor must be able to batch_decode"),
        *(
            ({"images": one}, f"images must hold one item per prompt, got {type(one).__name__}")
            for one in (IMAGES[0], "a.png", BytesIO(b""), torch.zeros(3, 8, 8), {"en": ["A star."]})
        ),
    ],
)
def test_what_cannot_work_is_refused_at_construction(options, message):
    with pytest.raises(ConfigError, match=message):
        BestOfN(**{"reward": Letters(), "n": 2, "processor": captioner("llava")[1], **options})


@pytest.mark.parametrize("make", [tuple, pd.Series, lambda values: np.array([*values, None], dtype=object)[:-1]])
def test_images_and_references_may_be_of_any_library(make):
    strategy = BestOfN(Letters(), 2, captioner("llava")[1], images=make(IMAGES[:2]), references=make([["A."], ["B."]]))
    assert (strategy.images, strategy.references) == (IMAGES[:2], [["A."], ["B."]])


@pytest.mark.parametrize(("kind", "tower"), [("vit_bert", "encoder"), ("llava", "model.vision_tower")])
def test_images_that_were_encoded_with_dropout_are_refused(kind, tower):
    """`generate` runs encoders before it calls a strategy, in the mode that the model is in."""
    model = toy_captioners.llava()[0] if kind == "llava" else toy_captioners.vit_bert()[0]
    part = next(each for each in model.get_submodule(tower).modules() if isinstance(each, torch.nn.Linear))
    part.register_module("dropout", torch.nn.Dropout(0.5).eval())
    _, processor, inputs, _ = captioner(kind)
    asked = {"custom_generate": BestOfN(Letters(), 2, processor, images=IMAGES), "max_new_tokens": 4}
    model.generate(**inputs, **asked)
    with pytest.raises(ConfigError, match=r"model\.eval\(\) first"):
        model.train().generate(**inputs, **asked)
