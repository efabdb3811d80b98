"""Work and memory at the sizes of papers and policies, counted without a GPU: scoring, and steps of GRPO."""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, Qwen2_5_VLForConditionalGeneration, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

from examples.photos_grpo import LORA
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.clipscore.scorer import ClipScorer
from reward.metrics.vela.scorer import VelaScorer
from tests.benchmarks.measuring import show
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice

ONE_PROMPT = "vela, paper-one-prompt"
SCORERS = {
    "vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16)),
    ONE_PROMPT: lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16, preset="paper-one-prompt")),
    "beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, torch.bfloat16)),
}
SCORING = ("metric", "G", "TFLOP shared", "TFLOP one by one", "ratio", "GiB weights", "GiB peak")
SHARE = ("trained", "metric", "TFLOP policy", "TFLOP reward", "share, %")
PHOTOS = ("policy", "tokens a caption", "weights", "LoRA, AdamW", "reward", "training", "writing", "at most")
WORDS = 140  # of a caption; five references have half
GROUP = 8  # captions of an image in the table of shares
PROMPT = 40  # tokens of the chat besides the photo
START, END, PATCH = 151_652, 151_653, 151_655
# Patches of a photo of 640 x 480 pixels, and of one of 544 x 960: 510 tokens, the most that photos_grpo.py allows.
SMALL_PHOTO, LARGE_PHOTO = (34, 46), (34, 60)
CAPTIONS, BATCH = 64, 8  # of a step of photos_grpo.py, and of them at once in training


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="captions per image (G)")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="also write sizes_*.csv and photos_memory.csv")
    options = parser.parse_args()
    Qwen3VLTextModel._deepstack_process = add_to_photo
    tables = {
        "sizes_scoring": ("G captions of one image, 140 words, five references", SCORING, scoring(options.groups)),
        "sizes_share": ("A GRPO step, 8 captions of a photo of 640 x 480, 140 words each", SHARE, share()),
        "photos_memory": ("GiB of a step of GRPO, 64 captions of 8 photos", PHOTOS, photos()),
    }
    for name, table in tables.items():
        show(*table, options.csv and options.csv / f"{name}.csv")


def scoring(groups):
    """The work of a group, shared and alone, and the memory that it takes."""
    for name, make in SCORERS.items():
        gpu = FakeDevice()
        scorer = make(gpu)
        weights, alone = gpu.bytes, 0
        for count in groups:
            rows = paper_sizes.captions_of_one_image(count, words=WORDS)
            gpu.peak = gpu.bytes
            with gpu.run() as flops:
                scorer.score(rows)
            work = flops()
            alone = alone or work // count
            tera = [f"{work / 1e12:.2f}", f"{count * alone / 1e12:.2f}", f"{count * alone / work:.2f}"]
            yield [name, str(count), *tera, f"{weights / GIB:.2f}", f"{gpu.peak / GIB:.2f}"]


def share():
    """The share of the reward in a GRPO step's work, with Qwen2.5-VL-3B as the policy."""
    rewards = {}
    for name, references in (*((name, 5) for name in SCORERS), (ONE_PROMPT, 0)):
        gpu = FakeDevice()
        scorer = SCORERS[name](gpu)
        with gpu.run() as flops:
            scorer.score(paper_sizes.captions_of_one_image(GROUP, words=WORDS, references=references))
        rewards[name if references else f"{name}, no references"] = flops()
    config = paper_sizes.qwen_vl("3B")
    inputs = inputs_of(1, WORDS, photo=SMALL_PHOTO, patch=14)
    for trained in ("LoRA", "all weights"):
        gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
        policy = gpu.build(lambda lora=trained == "LoRA": policy_of(Qwen2_5_VLForConditionalGeneration, config, lora))
        with gpu.memory(), FlopCounterMode(display=False) as counted:
            with torch.no_grad():  # a caption is written in as much work as one pass over it takes
                policy.eval()(**inputs, logits_to_keep=WORDS)
            learn(policy, inputs, WORDS)
        work = GROUP * counted.get_total_flops()
        for name, reward in rewards.items():
            yield [trained, name, f"{work / 1e12:.0f}", f"{reward / 1e12:.1f}", f"{100 * reward / (work + reward):.1f}"]


def photos():
    """Memory of docs/PHOTOS.md. Training and writing take turns, so the larger of them counts."""
    for size in ("4B", "8B"):
        gpu = FakeDevice("cpu")
        config = paper_sizes.qwen3_vl(size)
        policy = gpu.build(lambda config=config: policy_of(Qwen3VLForConditionalGeneration, config, lora=True))
        weights = sum(value.nbytes for value in policy.parameters() if not value.requires_grad)
        trained = [value for value in policy.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(trained)
        with gpu.memory():
            for value in trained:
                value.grad = torch.zeros_like(value)
            optimizer.step()
        adapter, reward = gpu.bytes - weights, bytes_of_reward()
        reading, cache = (CAPTIONS * part for part in bytes_of_reading(gpu, policy))
        for length in (64, 256):
            tokens = LARGE_PHOTO[0] * LARGE_PHOTO[1] // 4 + 2 + PROMPT
            written = cache * (tokens + length) // tokens
            # Each token of the captions writes one layer's part of the cache anew beside the old one.
            writing = max(reading, written + written // policy.config.text_config.num_hidden_layers)
            training = bytes_of_training(gpu, policy, optimizer, length)
            most = weights + adapter + reward + max(training, writing)
            parts = (weights, adapter, reward, training, writing, most)
            yield [f"Qwen3-VL-{size}", length, *(f"{part / GIB:.1f}" for part in parts)]


def policy_of(model_class, config, lora):
    """As `examples/photos_grpo.py` and TRL make it; without LoRA all of it is trained."""
    from trl.trainer.utils import add_fused_lm_head  # of newer versions than the oldest that we support

    model = model_class(config).to(torch.bfloat16)
    model.tie_weights()
    add_fused_lm_head(model)
    if lora:
        model = get_peft_model(model, LoraConfig(**LORA, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model


def inputs_of(rows, completion, *, photo=LARGE_PHOTO, patch=16):
    """Tensors that hold values: how the models cut and place photos depends on them."""
    height, width = photo
    image = height * width // 4
    ids = torch.full((rows, image + 2 + PROMPT + completion), 1000)
    ids[:, : image + 2] = torch.tensor([START, *[PATCH] * image, END])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == PATCH).int(),
        "pixel_values": torch.zeros(rows * height * width, 3 * 2 * patch * patch, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]] * rows),
    }


def learn(policy, inputs, completion):
    """Forward and backward pass of a training step, with gradient checkpointing."""
    policy.train()
    policy.gradient_checkpointing_enable({"use_reentrant": False})
    labels = inputs["input_ids"].clone()
    labels[:, :-completion] = -100
    with torch.autocast("cpu", torch.bfloat16):
        policy(**inputs, labels=labels, fused_lm_head=True).log_probs.mean().backward()


def add_to_photo(_, states, mask, features):
    """Adds features to a photo's tokens as Qwen3-VL does, but by their places: a fake mask has no values."""
    rows, image = len(states), LARGE_PHOTO[0] * LARGE_PHOTO[1] // 4
    places = torch.arange(rows).repeat_interleave(image), torch.arange(1, image + 1).repeat(rows)
    states = states.clone()
    states[places] = states[places] + features.to(states.dtype)
    return states


def bytes_of_reading(gpu, policy):
    """Bytes while the photo and the prompt of one caption are read, and of them those of keys and values."""
    policy.eval()
    policy.gradient_checkpointing_disable()
    cache = DynamicCache(config=policy.config.get_text_config())
    start = gpu.peak = gpu.bytes
    with gpu.memory(), torch.no_grad():
        policy(**inputs_of(1, 0), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return gpu.peak - start, sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def bytes_of_training(gpu, policy, optimizer, length):
    """Bytes that a step of training needs for a moment."""
    start = gpu.peak = gpu.bytes
    inputs = inputs_of(BATCH, length)
    with gpu.memory():
        learn(policy, inputs, length)
        optimizer.step()
    return gpu.peak - start


def bytes_of_reward():
    """Bytes of Long-CLIP L in float32 while it scores the captions of a step."""
    gpu = FakeDevice()
    scorer = ClipScorer(paper_sizes.clip_towers(gpu, torch.float32, context_length=248))
    with gpu.run():
        scorer.score(paper_sizes.captions_of_one_image(CAPTIONS, words=180))
    return gpu.peak


if __name__ == "__main__":
    main()
