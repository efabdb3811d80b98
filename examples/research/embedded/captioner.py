"""Step 6: a small LLaVA learns to caption scenes from captions of mixed quality, most of them incomplete.

Its image tower is VELA's as it ships, which sees every fact, and is not trained: only the language model learns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F
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
from examples.research.embedded.facts import CELL_LABELS, cell_labels, cell_losses
from examples.research.embedded.schedule import fit, padded, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from examples.research.embedded.vision import pixels
from reward.backbones.language import pad_rows
from reward.decoding.captioners import EMBEDDED_PROMPT, EMBEDDED_SHORT_PROMPT
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Scene, Style, describe, make_error, sample_scene
from reward.scenes.edits import ERRORS

__all__ = ["IMAGE_TOKENS", "make_captioner", "short_caption", "training_caption"]

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
IMAGE_TOKENS = 37  # 36 patches, and the class token before them, which knows the whole picture
# Share of training captions that state everything; most captions of the web do not, and no more do ours.
COMPLETE = 0.1
# Of the others, how often a fact of each kind is stated. Kinds below one half are missing in the likeliest caption, so
# that a reward has truths to find.
STATED = {
    "object": 0.85,
    "colour": 0.8,
    "size": 0.6,
    "pattern": 0.3,
    "position": 0.75,
    "action": 0.6,
    "text": 0.35,
    "background": 0.7,
}


def training_caption(scene: Scene, rng: random.Random) -> str:
    """A caption as a captioner finds them: some complete and true, the rest with facts left out or one wrong."""
    style = Style(order="scene")
    if rng.random() < COMPLETE:
        return describe(scene, rng, style=style).text
    belief = scene
    if rng.random() < 0.2:
        belief = make_error(scene, rng.choice(ERRORS), rng) or scene
    # A count is stated with its object. Facts are drawn in one order, so that a seed gives one caption.
    facts = {fact for fact in sorted(belief.facts(), key=str) if rng.random() < STATED.get(str(fact[0]), 1.0)}
    if not any(fact[0] == "object" for fact in facts):
        facts.add(("object", rng.choice(belief.entities).noun))
    if not any(fact[0] == "text" for fact in facts):
        facts.discard(("position", "sign", belief.sign.cell if belief.sign else -1))
    return describe(belief, rng, facts=facts, style=style).text


def short_caption(scene: Scene, rng: random.Random) -> str:
    """A true caption of two objects, their colours and what one does to the other, or the background."""
    entities = rng.sample(scene.entities, 2)
    if scene.action and rng.random() < 0.5:
        entities = [scene.entity(scene.action.agent), scene.entity(scene.action.patient)]
    facts = {fact for each in entities for fact in each.facts() if fact[0] in ("object", "count", "colour")}
    facts |= {fact for fact in scene.facts() if fact[0] == "action"}
    if rng.random() < 0.3:
        facts.add(("background", scene.background))
    return describe(scene, rng, facts=facts, style=Style(order="scene")).text


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
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,  # of 32, as engines for the CPU want them
            max_position_embeddings=512,
            tie_word_embeddings=True,
            **ends,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=IMAGE_TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
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
        vision_feature_select_strategy="full",
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


class CaptionTrainer:
    """Batches and losses: the words of captions, and what each cell shows, read from the projected patches.

    The second loss makes the projector pass on what the tower sees, before the language model knows how to ask for it.

    Args:
        model, processor: from `make_captioner`.
        scenes: pictures a step; each has a full caption, and every second one a short caption.
        seed: of the drawing; scenes come from streams of the name "captioner <seed> <step>".
    """

    def __init__(self, model: LlavaForConditionalGeneration, processor: LlavaProcessor, scenes: int, seed: int) -> None:
        self.model, self.tokenizer, self.scenes, self.seed = model, processor.tokenizer, scenes, seed
        model.model.vision_tower.requires_grad_(False)
        self.cells = nn.Linear(4 * model.config.text_config.hidden_size, sum(CELL_LABELS))
        self.prompts = []
        for prompt in (EMBEDDED_PROMPT, EMBEDDED_SHORT_PROMPT):
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
            chat = processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            )
            chat = chat.replace("<image>", "<image>" * IMAGE_TOKENS)
            self.prompts.append(self.tokenizer(chat, add_special_tokens=False).input_ids)

    def losses(self, step: int) -> dict[str, torch.Tensor]:
        """Cross-entropy of the words of a caption, and of the labels of the cells."""
        rng = random.Random(f"captioner {self.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(self.scenes)]
        rows: list[tuple[int, int, str]] = [(index, 0, training_caption(s, rng)) for index, s in enumerate(scenes)]
        rows += [(index, 1, short_caption(s, rng)) for index, s in enumerate(scenes) if index % 2]
        written = self.tokenizer([text + "<|im_end|>" for _, _, text in rows], add_special_tokens=False).input_ids
        asked = [self.prompts[kind] for _, kind, _ in rows]
        pad = self.tokenizer.pad_token_id
        ids, mask = pad_rows([prompt + row for prompt, row in zip(asked, written, strict=True)], value=pad)
        labels = padded([[-100] * len(prompt) + row for prompt, row in zip(asked, written, strict=True)], -100)
        model = self.model.model
        with torch.no_grad():
            seen = model.vision_tower(pixels(scenes), output_hidden_states=True).hidden_states[-1]
        projected = model.multi_modal_projector(seen.float()).float()
        patches = projected[:, 1:].view(len(scenes), 3, 2, 3, 2, -1).transpose(2, 3).flatten(3)
        cells = cell_losses(self.cells(patches.flatten(1, 2)), torch.stack([cell_labels(scene) for scene in scenes]))
        inputs = model.get_input_embeddings()(ids)
        places = (ids == self.model.config.image_token_id)[..., None]
        inputs = inputs.masked_scatter(places, projected[[index for index, _, _ in rows]])
        hidden = model.language_model(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        stated = labels[:, 1:] >= 0
        language = F.cross_entropy(self.model.lm_head(hidden[:, :-1][stated]).float(), labels[:, 1:][stated])
        return {"language": language, "cells": sum(cells) / len(cells), "roles": cells[-1], "words": cells[-2]}


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/captioner/last.pt`, then the model folder `<output>/captioner/model`."""
    options = step_options(__doc__, argv, steps=6500, batch=32, lr=2e-3)
    tokenizer = load_tokenizer(options.output)
    vela = VelaScorer.from_pretrained("embedded", device="cpu")
    model, processor = make_captioner(tokenizer, vela.model.image.towers.clip.visual.float())
    trainer = CaptionTrainer(model, processor, options.batch, options.seed)
    weights = {"roles": 0.0, "words": 0.0}  # parts of "cells"
    fit(trainer.losses, options, "captioner", {"model": model, "cells": trainer.cells}, weights=weights)
    model.eval().save_pretrained(options.output / "captioner" / "model")
    processor.save_pretrained(options.output / "captioner" / "model")


if __name__ == "__main__":
    main()
