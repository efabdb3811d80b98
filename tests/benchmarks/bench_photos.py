"""Memory of docs/PHOTOS.md at the sizes of its models, counted without a GPU: training, writing and the reward."""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

from examples.photos_grpo import LORA
from reward.metrics.clipscore.scorer import ClipScorer
from tests.benchmarks.measuring import show
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice

COLUMNS = ("policy", "tokens a caption", "weights", "LoRA, AdamW", "reward", "training", "writing", "at most")
PHOTO = (34, 60)  # patches of a photo of 544 x 960 pixels: 510 tokens, the most that the script allows
PROMPT = 40  # tokens of the chat besides the photo
CAPTIONS, BATCH = 64, 8  # of a step, and of them at once in training
START, END, PATCH = 151_652, 151_653, 151_655


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table")
    options = parser.parse_args()
    Qwen3VLTextModel._deepstack_process = _add_to_photo
    rows = (row for size in ("4B", "8B") for row in memory(size))
    show("GiB of a step of GRPO, 64 captions of 8 photos", COLUMNS, rows, options.csv)


def memory(size):
    """Rows of Qwen3-VL of "4B" or "8B". Training and writing take turns, so the larger of them counts."""
    gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
    policy = gpu.build(lambda: _policy(size))
    weights = sum(value.nbytes for value in policy.parameters() if not value.requires_grad)
    trained = [value for value in policy.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    with gpu.memory():
        for value in trained:
            value.grad = torch.zeros_like(value)
        optimizer.step()
    adapter, reward = gpu.bytes - weights, _reward()
    reading, cache = (CAPTIONS * part for part in _read(gpu, policy))
    for length in (64, 256):
        tokens = _inputs(1, 0)["input_ids"].shape[1]
        written = cache * (tokens + length) // tokens
        # each token of the captions writes one layer's part of the cache anew beside the old one
        writing = max(reading, written + written // policy.config.text_config.num_hidden_layers)
        training = _train(gpu, policy, optimizer, length)
        parts = [weights, adapter, reward, training, writing]
        parts.append(weights + adapter + reward + max(training, writing))
        yield [f"Qwen3-VL-{size}", length, *(f"{part / GIB:.1f}" for part in parts)]


def _policy(size):
    """As `examples/photos_grpo.py` and TRL make it."""
    from trl.trainer.utils import add_fused_lm_head  # of newer versions than the oldest that we support

    model = Qwen3VLForConditionalGeneration(paper_sizes.qwen3_vl(size)).to(torch.bfloat16)
    model.tie_weights()
    add_fused_lm_head(model)
    model = get_peft_model(model, LoraConfig(**LORA, task_type="CAUSAL_LM"))
    model.enable_input_require_grads()
    return model


def _inputs(rows, completion):
    """Tensors that hold values: how the model places photos depends on them."""
    height, width = PHOTO
    image = height * width // 4
    ids = torch.full((rows, image + 2 + PROMPT + completion), 1000)
    ids[:, : image + 2] = torch.tensor([START, *[PATCH] * image, END])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == PATCH).int(),
        "pixel_values": torch.zeros(rows * height * width, 3 * 2 * 16 * 16, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]] * rows),
    }


def _add_to_photo(_, states, mask, features):
    """Adds features to a photo's tokens as Qwen3-VL does, but by their places: a fake mask has no values."""
    rows, image = len(states), PHOTO[0] * PHOTO[1] // 4
    places = torch.arange(rows).repeat_interleave(image), torch.arange(1, image + 1).repeat(rows)
    states = states.clone()
    states[places] = states[places] + features.to(states.dtype)
    return states


def _read(gpu, policy):
    """Bytes while the photo and the prompt of one caption are read, and of them those of keys and values."""
    policy.eval()
    policy.gradient_checkpointing_disable()
    cache = DynamicCache(config=policy.config.get_text_config())
    start = gpu.peak = gpu.bytes
    with gpu.memory(), torch.no_grad():
        policy(**_inputs(1, 0), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return gpu.peak - start, sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def _train(gpu, policy, optimizer, length):
    """Bytes that a step of training needs for a moment, with gradient checkpointing."""
    policy.train()
    policy.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = _inputs(BATCH, length)
    labels = inputs["input_ids"].clone()
    labels[:, :-length] = -100
    start = gpu.peak = gpu.bytes
    with gpu.memory():
        with torch.autocast("cpu", torch.bfloat16):
            policy(**inputs, labels=labels, fused_lm_head=True).log_probs.mean().backward()
        optimizer.step()
    return gpu.peak - start


def _reward():
    """Bytes of Long-CLIP L in float32 while it scores the captions of a step."""
    gpu = FakeDevice()
    scorer = ClipScorer(paper_sizes.clip_towers(gpu, torch.float32, context_length=248))
    with gpu.run():
        scorer.score(paper_sizes.captions_of_one_image(CAPTIONS, words=180))
    return gpu.peak


if __name__ == "__main__":
    main()
