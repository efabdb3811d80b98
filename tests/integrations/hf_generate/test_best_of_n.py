"""BestOfN inside `generate` of tiny real models: its candidates, its choice, its images, and what it refuses."""

import copy
import threading

import pandas as pd
import pytest
import torch
import transformers as tf
from PIL import Image

from integrations.hf_generate import BestOfN
from reward.decoding.selection import rank
from reward.errors import ConfigError, InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from tests.toys.toy_captioners import CAPTIONERS, IMAGES, captioner
from tests.toys.toy_scorer import ToyScorer


class Letters:
    """A reward that tells captions and images apart: letters of the caption, plus a hundred for the second image."""

    def __init__(self):
        self.samples = []

    def rewards(self, samples):
        self.samples += samples
        return [len(sample.candidate) + 100.0 * (sample.image is IMAGES[1]) for sample in samples]


class Watch(tf.LogitsProcessor):
    """Sees how many rows every step of decoding has, and keeps the first scores of each part."""

    def __init__(self):
        self.rows, self.first_scores, self.length = [], [], None

    def __deepcopy__(self, memo):
        return self  # one watch sees all parts

    def __call__(self, input_ids, scores):
        self.rows.append(len(input_ids))
        if self.length is None or input_ids.shape[1] == self.length:
            self.length = input_ids.shape[1]
            self.first_scores.append(scores.clone())
        return scores


def generated(kind, **options):
    """What `generate` gives, and its captions."""
    model, processor, inputs, start = captioner(kind)
    torch.manual_seed(3)
    output = model.generate(**inputs, **{"max_new_tokens": 6, **options})
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    return output, [text.strip() for text in processor.batch_decode(sequences[:, start:], skip_special_tokens=True)]


def run(kind, n, reward=None, *, chunk=None, **options):
    strategy = BestOfN(reward or Letters(), n, captioner(kind)[1], images=IMAGES, chunk=chunk)
    return *generated(kind, custom_generate=strategy, **options), strategy.last


@pytest.mark.parametrize("kind", CAPTIONERS)
def test_candidates_are_what_generate_writes_and_a_single_one_is_the_greedy_caption(kind):
    assert run(kind, 1)[1] == generated(kind, do_sample=False)[1]
    _, sampled = generated(kind, do_sample=True, num_return_sequences=5)
    assert len(set(sampled)) > 3
    last = run(kind, 5)[2]
    assert [caption for captions in last.captions for caption in captions] == sampled


@pytest.mark.parametrize("kind", ["qwen2_vl", "vit_bert"])
def test_the_caller_may_do_without_a_cache(kind):
    assert run(kind, 5, use_cache=False)[2] == run(kind, 5)[2]


def test_prompts_go_through_the_model_once():
    model, _, _, start = captioner("llava")
    shapes = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, args, out: shapes.append(out.shape[:2]))
    run("llava", 4)
    hook.remove()
    assert (shapes[0], set(shapes[1:])) == ((2, start), {(8, 1)})


@pytest.mark.parametrize(
    ("kind", "chunk", "parts"), [("llava", None, [5]), ("qwen2_vl", 4, [2, 2, 1]), ("vit_bert", 4, [2, 2, 1])]
)
def test_every_candidate_is_conditioned_on_its_own_prompt_and_image(kind, chunk, parts):
    expected = generated(kind, do_sample=False, return_dict_in_generate=True, output_logits=True)[0].logits[0]
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)
    run(kind, 5, chunk=chunk, logits_processor=tf.LogitsProcessorList([watch := Watch()]))
    assert [len(scores) // 2 for scores in watch.first_scores] == parts
    for scores in watch.first_scores:
        repeated = expected.repeat_interleave(len(scores) // 2, dim=0)
        torch.testing.assert_close(scores, repeated, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "n", "k", "chunk", "rows"),
    [
        ("llava", 4, 1, 9, {8}),
        ("qwen2_vl", 4, 3, None, {12}),  # 3 divides not 4
        ("llava", 7, 1, 4, {4, 2}),
        ("vit_bert", 5, 2, 7, {4}),
    ],
)
def test_the_k_best_of_n_come_back_prompt_by_prompt_from_at_most_so_many_rows_at_once(kind, n, k, chunk, rows):
    options = {"num_return_sequences": k, "do_sample": True}
    watch = Watch()
    _, texts, last = run(kind, n, chunk=chunk, logits_processor=tf.LogitsProcessorList([watch]), **options)
    assert set(watch.rows) == rows
    for prompt in range(2):
        captions, rewards = last.captions[prompt], last.rewards[prompt]
        assert len(captions) == n
        assert rewards == [len(caption) + 100.0 * prompt if caption else None for caption in captions]
        assert last.chosen[prompt] == rank(rewards)[:k]
        assert texts[prompt * k : (prompt + 1) * k] == [captions[i] for i in last.chosen[prompt]]


@pytest.mark.parametrize("option", [{"temperature": 1e-4}, {"top_k": 1, "do_sample": True}, {"top_p": 1e-4}])
@pytest.mark.filterwarnings("ignore:the 5 captions of each image are alike")
def test_sampling_options_are_respected_and_the_callers_config_is_left_alone(option):
    config = copy.deepcopy(captioner("llava")[0].generation_config)
    _, expected = generated("llava", do_sample=False)
    _, texts, last = run("llava", 5, reward := Letters(), generation_config=config, **option)
    assert last.captions == [[text] * 5 for text in expected]
    assert texts == expected
    assert len(reward.samples) == 2  # five equal captions of an image are scored once
    assert not config.do_sample


@pytest.mark.parametrize("option", ["repetition_penalty", "guidance_scale", "past_key_values"])
@pytest.mark.filterwarnings("ignore:the 5 captions of each image are alike")
def test_with_one_likely_token_a_step_parts_make_no_difference(option):
    """Processors that remember start anew in every part, and every part has a cache of its own."""
    given = {} if option == "past_key_values" else {option: 1.4}
    whole = run("llava", 5, top_k=1, **given)[2]
    if option == "past_key_values":
        given[option] = tf.DynamicCache(config=captioner("llava")[0].config.get_text_config())
        given[option].prefetch_stream = threading.Lock()  # as a stream of CUDA, it cannot be copied
    assert run("llava", 5, chunk=4, top_k=1, **given)[2] == whole


class WordsInTurn(tf.LogitsProcessor):
    """Allows one word a step, and forgets it."""

    def __init__(self, words):
        self.words = words

    def __call__(self, input_ids, scores):
        only = torch.full_like(scores, -torch.inf)
        only[:, self.words.pop(0)] = 0
        return only


class AtMost(tf.StoppingCriteria):
    """Stops after so many steps, whatever their part."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, input_ids, scores, **inputs):
        self.steps -= 1
        return torch.full((len(input_ids),), self.steps <= 0, device=input_ids.device)


@pytest.mark.parametrize(("chunk", "kind"), [(None, "llava"), (2, "llava"), (4, "vit_bert")])
def test_processors_and_criteria_that_remember_begin_anew_in_every_part(chunk, kind):
    processor = captioner(kind)[1]
    tokenizer = getattr(processor, "tokenizer", processor)
    words = tokenizer.convert_tokens_to_ids(["red", "blue", "green", "star", "circle", "square"])
    _, _, last = run(kind, 5, chunk=chunk, logits_processor=tf.LogitsProcessorList([WordsInTurn(words)]))
    assert {caption for captions in last.captions for caption in captions} == {"red blue green star circle square"}
    _, _, last = run(kind, 5, chunk=chunk, stopping_criteria=tf.StoppingCriteriaList([AtMost(2)]))
    assert max(len(caption.split()) for captions in last.captions for caption in captions) == 2


def test_processors_that_know_their_rows_get_more_rows():
    words = captioner("llava")[1].tokenizer.convert_tokens_to_ids(["red", "blue"])
    _, texts, _ = run("llava", 3, prefix_allowed_tokens_fn=lambda row, ids: [words[row]], repetition_penalty=1.3)
    assert texts == ["red red red red red red", "blue blue blue blue blue blue"]


def test_where_nothing_was_scored_it_raises_but_not_where_nothing_was_written():
    strategy = BestOfN(MetricReward(ToyScorer(), name="toy"), 3, captioner("llava")[1])
    with pytest.raises(InvalidSampleError, match=r"image 0 .* The first, '.*': metric 'toy' needs an image"):
        generated("llava", custom_generate=strategy)
    assert [len(captions) for captions in strategy.last.captions] == [3, 3]  # sampling was not in vain
    assert strategy.last.chosen == [[], []]

    end = captioner("llava")[1].tokenizer.eos_token_id
    _, texts, last = run("llava", 3, prefix_allowed_tokens_fn=lambda row, ids: [end])
    assert (texts, last.chosen) == (["", ""], [[0], [0]])


def test_one_strategy_serves_a_data_set():
    strategy = BestOfN(reward := Letters(), 3, captioner("llava")[1], images=["unused.png"] * 2)
    for images, references in ((IMAGES, [["One."], None]), (pd.Series(IMAGES[::-1]), None)):
        reward.samples.clear()
        generated("llava", custom_generate=strategy, images=images, references=references)
        known = {id(image): tuple(own or ()) for image, own in zip(images, references or [None] * 2, strict=True)}
        assert {id(sample.image): sample.references for sample in reward.samples} == known


def test_a_pipeline_takes_an_iterator_over_all_images():
    model, processor, _, _ = captioner("llava")
    captions = tf.pipeline("image-text-to-text", model=model, processor=processor, device="cpu")
    captions.tokenizer.padding_side = "left"
    colours = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue", "white")]
    question = {"type": "text", "text": "Describe it"}
    chats = [[{"role": "user", "content": [{"type": "image", "image": image}, question]}] for image in colours]
    best = BestOfN(reward := Letters(), 3, processor, images=iter(colours))
    options = {"generate_kwargs": {"custom_generate": best, "max_new_tokens": 4}, "batch_size": 2}
    written = captions(chats, **options, return_full_text=False)
    assert list(dict.fromkeys(id(sample.image) for sample in reward.samples)) == list(map(id, colours))
    last = [caption for [(caption, _)] in best.last.best]
    assert [out[0]["generated_text"].strip() for out in written[-2:]] == last
    with pytest.raises(ConfigError, match="has 0 images for a batch of"):
        captions(chats, **options)


def filled_cache():
    model, _, inputs, _ = captioner("llava")
    cache = tf.DynamicCache(config=model.config.get_text_config())
    model(input_ids=inputs["input_ids"][:, :2], past_key_values=cache, use_cache=True)
    return cache


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 2}, "ask for beam_search"),
        ({"num_return_sequences": 6, "do_sample": True}, "num_return_sequences=6 asks for more than the n=5"),
        ({"cache_implementation": "static"}, "static cache"),
        ({"past_key_values": filled_cache}, "filled past_key_values"),
        ({"images": IMAGES[:1]}, r"1 images for a batch of 2 prompts.*images=iter\(...\)"),
        ({"references": [["One."], 3]}, "references"),
        ({"chunk": 1}, "chunk=1 has no room for the 2 rows of this call, num_return_sequences=1"),
        ({"chunk": 4, "eos_token_id": None, "pad_token_id": None}, "set pad_token_id"),
        ({"return_dict_in_generate": True}, "leave out return_dict_in_generate"),
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
        ({"n": 1.5}, "n must be at least 1 and a whole number, got 1.5"),
        ({"processor": None}, "processor must be able to batch_decode"),
        ({"images": "a.png"}, "images must hold one item per prompt, got str"),
        ({"images": torch.zeros(3, 8, 8)}, "images must hold one item per prompt, got Tensor"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(options, message):
    with pytest.raises(ConfigError, match=message):
        BestOfN(**{"reward": Letters(), "n": 2, "processor": captioner("llava")[1], **options})


@pytest.mark.parametrize(("kind", "tower"), [("vit_bert", "encoder"), ("llava", "model.vision_tower")])
def test_images_that_were_encoded_with_dropout_are_refused(kind, tower):
    """`generate` runs encoders before it calls a strategy, in the mode that the model is in."""
    model = CAPTIONERS[kind]()[0]
    part = next(each for each in model.get_submodule(tower).modules() if isinstance(each, torch.nn.Linear))
    part.register_module("dropout", torch.nn.Dropout(0.5).eval())
    _, processor, inputs, _ = captioner(kind)
    asked = {"custom_generate": BestOfN(Letters(), 2, processor, images=IMAGES), "max_new_tokens": 4}
    model.generate(**inputs, **asked)
    with pytest.raises(ConfigError, match=r"model\.eval\(\) first"):
        model.train().generate(**inputs, **asked)
