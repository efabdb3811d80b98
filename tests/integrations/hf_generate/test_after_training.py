"""A policy that comes from a trainer, in training mode and with checkpointing on, decodes as it does in eval mode."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig

from integrations.demo.captioner import write_captions
from integrations.hf_generate import BestOfN
from integrations.trl import load_policy, make_prompt_dataset
from reward import VelaReward
from reward.decoding.captioners import EMBEDDED_PROMPT, LocalCaptioner, Sampling
from reward.errors import ConfigError
from reward.scenes import make_dataset
from tests.integrations.short_training import make_trainer

SCENES = make_dataset(16, seed=3)
ROWS = make_prompt_dataset(SCENES, EMBEDDED_PROMPT, references_column="refs")
IMAGE = SCENES[0]["image"]
REWARD = VelaReward()
VISION = "model.vision_tower"
TEXT_ONLY = LoraConfig(target_modules=r".*language_model.*_proj", r=4, lora_dropout=0.3)


@pytest.fixture(scope="module", params=[None, TEXT_ONLY], ids=["full", "lora"])
def trained(request, tmp_path_factory):
    """A trainer after two steps of GRPO with TRL's own choice of checkpointing."""
    trainer = make_trainer(
        load_policy("embedded"),
        [REWARD],
        ROWS,
        tmp_path_factory.mktemp("out"),
        peft_config=request.param,
        gradient_checkpointing=True,
        max_completion_length=90,
        generation_kwargs=None,
        learning_rate=1e-4,
    )
    trainer.train()
    assert trainer.model.training
    assert not trainer.model.config.use_cache  # Trainer switches it off, and generate does not ask
    inner_model(trainer).get_submodule(VISION).eval()  # a frozen part, say; it must not come back in training mode
    return trainer


def inner_model(trainer):
    return getattr(trainer.model, "get_base_model", lambda: trainer.model)()


def state_of(model):
    flags = ("training", "gradient_checkpointing", "_gradient_checkpointing_func")
    return [(name, [vars(module).get(flag) for flag in flags]) for name, module in model.named_modules()]


def check_as_in_eval_mode(model, write):
    """What is written now, and by a model that is in eval mode, with checkpointing off."""
    before = state_of(model)
    assert any(flags[0] and flags[1] for _, flags in before)
    torch.manual_seed(5)
    written = write()
    assert state_of(model) == before
    flags_of = [
        (module, module.training, getattr(module, "gradient_checkpointing", None)) for module in model.modules()
    ]
    try:
        model.eval()
        model.gradient_checkpointing_disable()
        torch.manual_seed(5)
        assert write() == written
    finally:
        for module, training, checkpointing in flags_of:
            module.training = training
            if checkpointing is not None:
                module.gradient_checkpointing = checkpointing
    return written


def inputs_of(processor, images=(IMAGE,)):
    chats = [
        [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": EMBEDDED_PROMPT}]}]
        for image in images
    ]
    return processor.apply_chat_template(
        chats, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"include_greedy": True, "chunk": 2}])
def test_best_of_n(trained, given):
    policy, processor = trained.model, trained.processing_class
    strategy = BestOfN(REWARD, n=3, processor=processor, **given)
    asked = {"custom_generate": strategy, "images": [IMAGE], "max_new_tokens": 90}
    check_as_in_eval_mode(policy, lambda: policy.generate(**inputs_of(processor), **asked).tolist())
    assert max(reward for reward in strategy.last.rewards[0] if reward is not None) > 0.5  # .02 to .3 without a cache


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_caller_may_do_without_a_cache(trained, use_cache):
    policy, processor = trained.model, trained.processing_class
    inner = inner_model(trained)
    caches = []
    hook = inner.get_submodule("model.language_model.layers.0").register_forward_pre_hook(
        lambda _, args, kwargs: caches.append(kwargs["past_key_values"]), with_kwargs=True
    )
    asked = {"custom_generate": BestOfN(REWARD, n=2, processor=processor), "images": [IMAGE], "max_new_tokens": 20}
    try:
        check_as_in_eval_mode(
            policy, lambda: inner.generate(**inputs_of(processor), **asked, use_cache=use_cache).tolist()
        )
    finally:
        hook.remove()
    assert all((cache is not None) == use_cache for cache in caches)


@pytest.mark.parametrize("trained", [None], ids=["full"], indirect=True)
def test_a_local_captioner_loads_what_was_trained(trained, tmp_path):
    policy, processor = trained.model, trained.processing_class
    trained.save_model(tmp_path)
    captioner = LocalCaptioner(tmp_path)
    ((_, [caption]),) = captioner.sample([(0, IMAGE)], 1, Sampling(prompt=EMBEDDED_PROMPT, temperature=0))
    [[expected]] = write_captions(policy, processor, [IMAGE], greedy=True, max_new_tokens=256)
    assert caption.text == expected


def test_the_state_comes_back_after_an_error(trained):
    policy, processor = trained.model, trained.processing_class
    before = state_of(policy)
    strategy = BestOfN(lambda completions: 1 / 0, n=2, processor=processor)
    with pytest.raises(ConfigError, match="raised ZeroDivisionError"):
        policy.generate(**inputs_of(processor), custom_generate=strategy, max_new_tokens=5)
    assert state_of(policy) == before
