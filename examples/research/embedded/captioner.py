"""Step 6: a small LLaVA learns to caption scenes from captions of mixed quality, most of them incomplete."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from examples.research.embedded.configs import MEAN, STD
from examples.research.embedded.schedule import START, fit, padded, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from examples.research.embedded.vision import VisionWithLabels, make_clip, pixels
from integrations.demo.captioner import PROMPT, load_captioner
from reward.backbones.language import pad_rows
from reward.scenes import Scene, Style, describe, drop_facts, make_error, sample_scene
from reward.scenes.edits import ERRORS

__all__ = ["make_captioner", "training_caption"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# {part of a name in open_clip's image tower: in transformers'}
RENAMED = {
    "class_embedding": "embeddings.class_embedding",
    "conv1": "embeddings.patch_embedding",
    "positional_embedding": "embeddings.position_embedding.weight",
    "ln_pre": "pre_layrnorm",
    "ln_post": "post_layernorm",
    "transformer.resblocks": "encoder.layers",
    "attn": "self_attn",
    "ln_": "layer_norm",
    "c_fc": "fc1",
    "c_proj": "fc2",
}
# Share of training captions that state everything; most captions of the web do not, and no more do ours.
COMPLETE = 0.25


def training_caption(scene: Scene, rng: random.Random) -> str:
    """A caption as a captioner finds them: a quarter complete and true, the rest with facts left out or one wrong."""
    style = Style(order="scene")
    if rng.random() < COMPLETE:
        return describe(scene, rng, style=style).text
    belief = scene
    if rng.random() < 0.2:
        belief = make_error(scene, rng.choice(ERRORS), rng) or scene
    facts = drop_facts(belief, rng.uniform(0.15, 0.55), rng)
    return describe(belief, rng, facts=facts, style=style).text


def make_captioner(
    tokenizer: PreTrainedTokenizerFast, vision: nn.Module
) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """An untrained LLaVA around a copy of the trained image tower, and its processor with a chat template."""
    tokenizer.eos_token = "<|im_end|>"
    ends = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    size = {"height": 96, "width": 96}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=192,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=6,
            image_size=96,
            patch_size=16,
            hidden_act="gelu",
            projection_dim=192,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=144,
            intermediate_size=432,
            num_hidden_layers=3,
            num_attention_heads=6,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            **ends,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=36,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    model = LlavaForConditionalGeneration(config)
    _copy_vision(vision, model.model.vision_tower)
    model.generation_config.update(**ends)
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size=size, crop_size=size, do_center_crop=False, image_mean=MEAN, image_std=STD
        ),
        tokenizer=tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
        image_token="<image>",
    )
    return model, processor


def _copy_vision(source: nn.Module, target: nn.Module) -> None:
    """Copies an open_clip image tower into transformers' CLIPVisionModel: same network, other names."""
    copied: dict[str, torch.Tensor] = {}
    for name, tensor in source.state_dict().items():
        for ours, theirs in RENAMED.items():
            name = name.replace(ours, theirs)
        if "in_proj" in name:
            for letter, piece in zip("qkv", tensor.chunk(3), strict=True):
                copied[name.replace("in_proj_", f"{letter}_proj.")] = piece
        elif name != "proj":  # LLaVA reads the states before the projection
            copied[name] = tensor
    prefix = "vision_model." if any(name.startswith("vision_model.") for name in target.state_dict()) else ""
    target.load_state_dict({prefix + name: tensor for name, tensor in copied.items()})


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/captioner/last.pt`, then the model folder `<output>/captioner/model`."""
    options = step_options(__doc__, argv, steps=1200, batch=32, lr=2e-3, start=START)
    tokenizer = load_tokenizer(options.output)
    trained = VisionWithLabels(make_clip(len(tokenizer), tokenizer.eos_token_id).visual, 192)
    trained.load_state_dict(torch.load(options.output / "vision" / "last.pt", weights_only=True)["model"])
    model, processor = make_captioner(tokenizer, trained.visual)
    if options.start:
        before = load_captioner(options.start)[0].state_dict()
        tower = {name: tensor for name, tensor in model.state_dict().items() if "vision_tower" in name}
        model.load_state_dict(before | tower)
    model.model.vision_tower.requires_grad_(False)
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}],
        add_generation_prompt=True,
        tokenize=False,
    )
    prompt_ids = tokenizer(prompt.replace("<image>", "<image>" * 36), add_special_tokens=False).input_ids

    def losses(step: int) -> dict[str, torch.Tensor]:
        rng = random.Random(f"captioner {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.batch)]
        texts = [training_caption(scene, rng) + "<|im_end|>" for scene in scenes]
        rows = tokenizer(texts, add_special_tokens=False).input_ids
        ids, mask = pad_rows([prompt_ids + row for row in rows], value=tokenizer.pad_token_id)
        labels = padded([[-100] * len(prompt_ids) + row for row in rows], -100)
        return {"language": model(input_ids=ids, attention_mask=mask, pixel_values=pixels(scenes), labels=labels).loss}

    fit(losses, options, "captioner", {"model": model}, bfloat16=False)
    model.eval().save_pretrained(options.output / "captioner" / "model")
    processor.save_pretrained(options.output / "captioner" / "model")


if __name__ == "__main__":
    main()
