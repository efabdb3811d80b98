"""Step 6: a small LLaVA learns to caption scenes from captions of mixed quality, most of them incomplete."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

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

from examples.embedded.configs import MEAN, STD
from examples.embedded.schedule import fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from examples.embedded.vision import VisionWithLabels, make_clip, pixels
from integrations.demo.captioner import PROMPT
from reward.scenes import Oracle, Scene, Style, describe, drop_facts, make_error, sample_scene
from reward.scenes.edits import ERRORS

__all__ = ["make_captioner", "training_caption"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
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
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            tie_word_embeddings=True,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=36,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    model = LlavaForConditionalGeneration(config)
    _copy_vision(vision, model.model.vision_tower)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    image_processor = CLIPImageProcessor(
        size={"height": 96, "width": 96},
        crop_size={"height": 96, "width": 96},
        do_center_crop=False,
        image_mean=MEAN,
        image_std=STD,
    )
    processor = LlavaProcessor(
        image_processor=image_processor,
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
    state = source.state_dict()
    copied = {
        "embeddings.class_embedding": state["class_embedding"],
        "embeddings.patch_embedding.weight": state["conv1.weight"],
        "embeddings.position_embedding.weight": state["positional_embedding"],
    }
    for ours, theirs in (("ln_pre", "pre_layrnorm"), ("ln_post", "post_layernorm")):
        for part in ("weight", "bias"):
            copied[f"{theirs}.{part}"] = state[f"{ours}.{part}"]
    for layer in range(4):
        old, new = f"transformer.resblocks.{layer}", f"encoder.layers.{layer}"
        for part in ("weight", "bias"):
            for name, piece in zip("qkv", state[f"{old}.attn.in_proj_{part}"].chunk(3), strict=True):
                copied[f"{new}.self_attn.{name}_proj.{part}"] = piece
            for ours, theirs in (
                ("attn.out_proj", "self_attn.out_proj"),
                ("ln_1", "layer_norm1"),
                ("ln_2", "layer_norm2"),
                ("mlp.c_fc", "mlp.fc1"),
                ("mlp.c_proj", "mlp.fc2"),
            ):
                copied[f"{new}.{theirs}.{part}"] = state[f"{old}.{ours}.{part}"]
    names = dict(target.named_parameters())
    prefix = "vision_model." if any(name.startswith("vision_model.") for name in names) else ""
    missing = set(names) ^ {prefix + name for name in copied}
    if missing:
        raise ValueError(f"image towers do not fit: {sorted(missing)[:5]}")
    with torch.no_grad():
        for name, tensor in copied.items():
            names[prefix + name].copy_(tensor)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/captioner/last.pt`, then the model folder `<output>/captioner/model`."""
    options = step_options(__doc__, argv, steps=1200, batch=32, lr=2e-3)
    tokenizer = load_tokenizer(options.output)
    trained = VisionWithLabels(make_clip(len(tokenizer), tokenizer.eos_token_id).visual, 192)
    trained.load_state_dict(torch.load(options.output / "vision" / "last.pt", weights_only=True)["model"])
    model, processor = make_captioner(tokenizer, trained.visual)
    model.model.vision_tower.requires_grad_(False)
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}],
        add_generation_prompt=True,
        tokenize=False,
    )
    prompt_ids = tokenizer(prompt.replace("<image>", "<image>" * 36), add_special_tokens=False).input_ids
    pad = tokenizer.pad_token_id

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"captioner {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.batch)]
        rows = [
            tokenizer(training_caption(scene, rng) + "<|im_end|>", add_special_tokens=False).input_ids
            for scene in scenes
        ]
        longest = max(map(len, rows))
        ids = torch.tensor([prompt_ids + row + [pad] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * (len(prompt_ids) + len(row)) + [0] * (longest - len(row)) for row in rows])
        labels = torch.tensor([[-100] * len(prompt_ids) + row + [-100] * (longest - len(row)) for row in rows])
        output: Any = model(input_ids=ids, attention_mask=mask, pixel_values=pixels(scenes), labels=labels)
        return output.loss, {}

    held_out = [sample_scene(random.Random(f"captioner held out {k}")) for k in range(128)]
    oracle = Oracle()

    def evaluate() -> dict[str, float]:
        figures: dict[str, float] = {}
        ids = torch.tensor([prompt_ids]).expand(len(held_out), -1)
        for name, sampling in (("greedy", {"do_sample": False}), ("sampled", {"do_sample": True, "top_k": 0})):
            torch.manual_seed(0)
            out = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                pixel_values=pixels(held_out),
                max_new_tokens=110,
                **sampling,
            )
            texts = tokenizer.batch_decode(out[:, len(prompt_ids) :], skip_special_tokens=True)
            verdicts = [oracle.score(text, scene) for text, scene in zip(texts, held_out, strict=True)]
            for part in ("recall", "precision", "f1", "faults"):
                figures[f"{name}_{part}"] = sum(getattr(verdict, part) for verdict in verdicts) / len(verdicts)
            figures[f"{name}_words"] = sum(len(text.split()) for text in texts) / len(texts)
        print(texts[0], "|", texts[1], flush=True)
        return figures

    fit(
        model.parameters(),
        step_loss,
        options,
        "captioner",
        state={"model": model},
        evaluate=evaluate,
        evaluate_every=500,
    )
    model.eval().save_pretrained(options.output / "captioner" / "model")
    processor.save_pretrained(options.output / "captioner" / "model")


if __name__ == "__main__":
    main()
