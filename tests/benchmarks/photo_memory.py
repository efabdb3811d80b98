"""Memory of the recipe of docs/PHOTOS.md at its real sizes, counted on fake tensors: training, generation, rewards.

python -m examples.research.measure photos_memory
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache, Qwen2_5_VLForConditionalGeneration

from examples.photos_grpo import LORA
from examples.research.stored import Row, write_csv
from reward.metrics.clipscore.scorer import ClipScorer
from tests import paper_sizes
from tests.fake_cuda import GIB, FakeDevice

SIDE = (34, 60)  # patches of a photo of 476 x 840 pixels: 510 tokens, the most that the recipe allows
PROMPT = 40  # tokens of the chat besides the photo
CAPTIONS, BATCH = 64, 8  # of a step, and of them at once in training


@dataclass(frozen=True)
class Memory:
    """GiB on the card; what training and generation add is theirs alone, since they take turns."""

    weights: float
    adapter: float  # LoRA with its gradients and two moments of Adam, in float32
    training: float
    generation: float  # the larger of reading the photos and the cache of keys and values when captions end
    reward: float

    @property
    def peak(self) -> float:
        return self.weights + self.adapter + self.reward + max(self.training, self.generation)


def count(size: str, lengths: Sequence[int], batch: int) -> dict[int, Memory]:
    """{tokens of a caption: memory} of Qwen2.5-VL of "3B" or "7B", with so many captions at once in training."""
    gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
    policy = gpu.build(lambda: make_policy(size))
    weights = sum(value.nbytes for value in policy.parameters() if not value.requires_grad)
    trained = [value for value in policy.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    with gpu.memory():
        for value in trained:
            value.grad = torch.zeros_like(value)
        optimizer.step()
    adapter, reward = gpu.bytes - weights, _reward()
    # A vision tower cuts each photo into dozens of windows, and 64 photos would take minutes; each takes the same.
    read = {rows: _read(gpu, policy, rows) for rows in (1, 2)}
    reading = read[1].peak + (CAPTIONS - 1) * (read[2].peak - read[1].peak)
    found = {}
    for length in lengths:
        cache = CAPTIONS * read[1].cache * (read[1].tokens + length) // read[1].tokens
        # each token of the captions writes one layer's part of the cache anew beside the old one
        writing = cache + cache // policy.config.text_config.num_hidden_layers
        parts = (weights, adapter, _step(gpu, policy, optimizer, length, batch), max(reading, writing), reward)
        found[length] = Memory(*(part / GIB for part in parts))
    return found


def rows(size: str, lengths: Sequence[int], batch: int) -> Iterator[Row]:
    """Rows of the table."""
    for length, found in count(size, lengths, batch).items():
        parts = {"weights": found.weights, "LoRA, AdamW": found.adapter, "reward": found.reward}
        parts |= {"training": found.training, "writing": found.generation, "at most": found.peak}
        row = {"policy": f"Qwen2.5-VL-{size}", "tokens a caption": str(length), "at once": str(batch)}
        yield row | {name: f"{part:.1f}" for name, part in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True, metavar="FILE", help="for the table")
    options = parser.parse_args()
    found = [row for size in ("3B", "7B") for row in rows(size, (64, 256), BATCH)]
    write_csv(options.csv, [*found, *rows("3B", (64,), 1)], "photo_memory")  # the last row is quick to count in a test


def make_policy(size: str, *, lora: bool = True) -> Any:
    """As `examples/photos_grpo.py` and TRL make it; without LoRA all of it is trained."""
    from trl.trainer.utils import add_fused_lm_head  # of newer versions than the oldest that we support

    model = Qwen2_5_VLForConditionalGeneration(paper_sizes.qwen_vl(size)).to(torch.bfloat16)
    model.tie_weights()
    add_fused_lm_head(model)
    if lora:
        model = get_peft_model(model, LoraConfig(**LORA, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model


def make_inputs(rows: int, completion: int, side: tuple[int, int] = SIDE) -> dict[str, torch.Tensor]:
    """Tensors that hold values: how the model cuts photos into windows depends on them."""
    height, width = side
    image = height * width // 4
    ids = torch.full((rows, image + 2 + PROMPT + completion), 1000)
    start, end, patch = 151_652, 151_653, 151_655
    ids[:, : image + 2] = torch.tensor([start, *[patch] * image, end])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == patch).int(),
        "pixel_values": torch.zeros(rows * height * width, 3 * 2 * 14 * 14, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]] * rows),
    }


def _step(gpu: FakeDevice, policy: Any, optimizer: torch.optim.Optimizer, length: int, batch: int) -> int:
    """Bytes that a step of training needs for a moment."""
    start = gpu.peak = gpu.bytes
    with gpu.memory():
        learn(policy, make_inputs(batch, length), length)
        optimizer.step()
    return gpu.peak - start


def learn(policy: Any, inputs: dict[str, torch.Tensor], length: int) -> None:
    """Forward and backward pass of a training step, with gradient checkpointing, on captions of so many tokens."""
    policy.train()
    policy.gradient_checkpointing_enable({"use_reentrant": False})
    labels = inputs["input_ids"].clone()
    labels[:, :-length] = -100
    with torch.autocast("cpu", torch.bfloat16):
        policy(**inputs, labels=labels, fused_lm_head=True).log_probs.mean().backward()


class _Read(NamedTuple):
    peak: int  # bytes while photos and prompts are read
    cache: int  # of them, those of keys and values
    tokens: int  # of a row


def _read(gpu: FakeDevice, policy: Any, rows: int) -> _Read:
    """The start of generation: photos and prompts of all captions."""
    policy.eval()
    policy.gradient_checkpointing_disable()
    inputs, cache = make_inputs(rows, 0), DynamicCache(config=policy.config.get_text_config())
    start = gpu.peak = gpu.bytes
    with gpu.memory(), torch.no_grad():
        policy(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    return _Read(gpu.peak - start, kept, inputs["input_ids"].shape[1])


def make_reward(device: Any) -> ClipScorer:
    """Long-CLIP L in float32."""
    return ClipScorer(paper_sizes.clip_towers(device, torch.float32, "ViT-L-14", context_length=248))


def _reward() -> int:
    """Bytes of the reward while it scores the captions of a step."""
    gpu = FakeDevice()
    scorer = make_reward(gpu)
    with gpu.run():
        scorer.score(paper_sizes.captions_of_one_image(CAPTIONS, words=180))
    return gpu.peak


if __name__ == "__main__":
    main()
