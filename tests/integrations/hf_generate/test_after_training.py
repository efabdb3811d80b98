"""A policy that comes from a trainer, in training mode and with checkpointing on, decodes as it does in eval mode."""

import pytest
import torch
from peft import LoraConfig

from integrations.demo.captioner import write_captions
from integrations.hf_generate import BestOfN
from integrations.trl import load_policy, make_prompt_dataset
from reward import VelaReward
from reward.decoding.captioners import EMBEDDED_PROMPT, LocalCaptioner, Sampling, prompt_inputs
from reward.errors import ConfigError
from reward.scenes import make_dataset
from tests.integrations.short_training import make_trainer

pytestmark = pytest.mark.slow

TEXT_ONLY = LoraConfig(target_modules=r".*language_model.*_proj", r=4, lora_dropout=0.3)


@pytest.fixture(scope="module")
def scenes():
    return make_dataset(4, seed=3)


@pytest.fixture(scope="module", params=[None, TEXT_ONLY], ids=["full", "lora"])
def trained(request, scenes, tmp_path_factory):
    """A trainer after a step of GRPO with TRL's own choice of checkpointing, and its reward."""
    reward, folder = VelaReward(), tmp_path_factory.mktemp("out")
    data = make_prompt_dataset(scenes, EMBEDDED_PROMPT, references_column="refs")
    options = {"peft_config": request.param, "gradient_checkpointing": True, "generation_kwargs": None}
    options |= {"learning_rate": 1e-4, "max_steps": 1}
    trainer = make_trainer(load_policy("embedded"), [reward], data, folder, **options)
    trainer.train()
    assert trainer.model.training
    assert not trainer.model.config.use_cache  # Trainer switches it off, and generate does not ask
    # a frozen part, say; it must not come back in training mode
    getattr(trainer.model, "get_base_model", lambda: trainer.model)().model.vision_tower.eval()
    return trainer, reward


def state_of(model):
    flags = ("training", "gradient_checkpointing", "_gradient_checkpointing_func")
    return [(name, [vars(module).get(flag) for flag in flags]) for name, module in model.named_modules()]


def written(policy, trainer, image, reward, **options):
    inputs = prompt_inputs(trainer.processing_class, [image], EMBEDDED_PROMPT)
    strategy = BestOfN(reward, n=3, processor=trainer.processing_class, chunk=2)
    torch.manual_seed(5)
    return policy.generate(**inputs, custom_generate=strategy, images=[image], **options).tolist(), strategy.last


def test_best_of_n(trained, scenes):
    (trainer, reward), image = trained, scenes[0]["image"]
    policy = trainer.model
    before = state_of(policy)
    sequences, last = written(policy, trainer, image, reward, max_new_tokens=90)
    assert state_of(policy) == before
    assert max(value for value in last.rewards[0] if value is not None) > 0.5  # .02 to .3 without a cache
    policy.eval().gradient_checkpointing_disable()
    assert written(policy, trainer, image, reward, max_new_tokens=90) == (sequences, last)
    policy.train().gradient_checkpointing_enable()


def test_the_state_comes_back_after_an_error(trained, scenes):
    before = state_of(trained[0].model)
    with pytest.raises(ConfigError, match="raised ZeroDivisionError"):
        written(trained[0].model, trained[0], scenes[0]["image"], lambda completions: 1 / 0, max_new_tokens=5)
    assert state_of(trained[0].model) == before


@pytest.mark.parametrize("trained", [None], ids=["full"], indirect=True)
def test_a_local_captioner_loads_what_was_trained(trained, scenes, tmp_path):
    trainer, image = trained[0], scenes[0]["image"]
    trainer.save_model(tmp_path)
    sampling = Sampling(prompt=EMBEDDED_PROMPT, temperature=0)
    ((_, [caption]),) = LocalCaptioner(tmp_path).sample([(0, image)], 1, sampling)
    [[expected]] = write_captions(trainer.model, trainer.processing_class, [image], greedy=True, max_new_tokens=256)
    assert (caption.text, caption.truncated) == (expected, False)
