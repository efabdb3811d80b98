"""How the images of the reward reach BestOfN: with each call, from an iterator, and through a pipeline."""

from __future__ import annotations

import functools
import inspect

import pytest
from PIL import Image
from transformers import pipeline

from integrations.hf_generate import BestOfN
from reward.errors import ConfigError
from reward.samples import is_wordless
from tests.integrations.hf_generate.test_best_of_n import IMAGES, KINDS, Letters, captioner


@KINDS
def test_one_strategy_serves_a_data_set(kind):
    model, processor, inputs, _ = captioner(kind)
    strategy = BestOfN(reward := Letters(), 3, processor, images=["unused.png"] * 2)
    for images, references in ((IMAGES, [["One."], None]), (IMAGES[::-1], None)):
        model.generate(**inputs, custom_generate=strategy, images=images, references=references, max_new_tokens=4)
        assert strategy.last.rewards[0] != strategy.last.rewards[1]
        assert {id(sample.image) for sample in reward.samples} == set(map(id, IMAGES))
        assert {sample.references for sample in reward.samples} <= {("One.",), ()}
        first = [
            None if is_wordless(caption) else len(caption) + 100.0 * (images[0] is IMAGES[1])
            for caption in strategy.last.captions[0]
        ]
        assert strategy.last.rewards[0] == first
    with pytest.raises(ConfigError, match=r"has 1 images for a batch of 2 prompts.*generate\(..., images=...\)"):
        model.generate(**inputs, custom_generate=strategy, images=IMAGES[:1], max_new_tokens=4)


def test_an_input_of_the_model_is_not_taken_from_it(monkeypatch):
    model, processor, inputs, _ = captioner("llava")
    own_forward = functools.partial(model.forward)
    *known, others = inspect.signature(model.forward).parameters.values()
    own = inspect.Parameter("references", inspect.Parameter.KEYWORD_ONLY, default=None)
    own_forward.__signature__ = inspect.Signature([*known, own, others])
    monkeypatch.setattr(model, "forward", own_forward)
    best = BestOfN(reward := Letters(), 2, processor)
    options = {"custom_generate": best, "images": IMAGES, "max_new_tokens": 2}
    model.generate(**inputs, **options)
    reward.samples.clear()
    with pytest.raises(ConfigError, match="LlavaForConditionalGeneration has an input 'references' of its own"):
        model.generate(**inputs, references=[["One."]] * 2, **options)
    assert not reward.samples


def chat(image):
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "Describe it"}]}]


@pytest.fixture
def captions():
    model, processor, _, _ = captioner("llava")
    made = pipeline("image-text-to-text", model=model, processor=processor, device="cpu")
    made.tokenizer.padding_side = "left"
    return made


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_pipeline_takes_an_iterator_over_all_images(captions, batch_size):
    colours = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue", "white")]
    chats = [chat(image) for image in colours]
    options = {"batch_size": batch_size, "return_full_text": False}
    best = BestOfN(reward := Letters(), 3, captions.processor, images=iter(colours))
    written = captions(chats, generate_kwargs={"custom_generate": best, "max_new_tokens": 4}, **options)
    seen = list({id(sample.image): sample.image for sample in reward.samples}.values())
    assert [image.getpixel((0, 0)) for image in seen] == [image.getpixel((0, 0)) for image in colours]
    last = [[group[i] for i in chosen] for group, chosen in zip(best.last.captions, best.last.chosen, strict=True)]
    assert [out[0]["generated_text"].strip() for out in written[-batch_size:]] == [group[0] for group in last]
    with pytest.raises(ConfigError, match="has 0 images for a batch of"):
        captions(chats, generate_kwargs={"custom_generate": best, "max_new_tokens": 4}, **options)


def test_a_pipeline_with_a_list_of_all_images_is_told_of_the_iterator(captions):
    best = BestOfN(reward := Letters(), 2, captions.processor, images=IMAGES)
    with pytest.raises(ConfigError, match=r"has 2 images for a batch of 1 prompts.*images=iter\(...\)"):
        captions([chat(image) for image in IMAGES], generate_kwargs={"custom_generate": best})
    assert not reward.samples
