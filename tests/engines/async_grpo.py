"""Asynchronous GRPO of TRL against a running vLLM, in vLLM's environment, with VELA as its reward.

    python -m tests.engines.async_grpo http://127.0.0.1:8000 CAPTIONER OUTPUT

TRL's rollouts are of text, so the captioner writes without the picture. Its adapter (LoRA) reaches vLLM as files. Two
things of TRL 1.16 ask for CUDA and have a stand-in here: the name of the GPU, for a figure of its log, and the kernel
of the attention, Flash Attention 3.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AttentionInterface, AutoTokenizer
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.packing import TREE_ATTENTION

from reward import VelaReward
from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.scenes import make_dataset


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What TRL's `tree_attention` computes, segment by segment: each sees the path from its root, and itself so far."""
    starts, paths = tree_cu_seqlens_q.tolist(), tree_cu_seqlens_k.tolist()
    parts = []
    for first, last, begin, end in zip(starts, starts[1:], paths, paths[1:], strict=False):
        path = tree_kv_index[begin:end]
        seen = torch.ones(last - first, len(path), dtype=torch.bool).tril(len(path) - (last - first))
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                query[:, :, first:last], key[:, :, path], value[:, :, path], seen, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(parts, 2).transpose(1, 2), None


def main(url: str, captioner: str, output: Path) -> None:
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    tokenizer = AutoTokenizer.from_pretrained(captioner)
    content = {"close_pattern": r"<\|im_end\|>\s*", "content": "text"}
    tokenizer.response_template = {  # TRL knows those of well-known chat templates
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": content},
    }
    asked = {"prompt": [{"role": "user", "content": EMBEDDED_PROMPT}]}
    trainer = AsyncGRPOTrainer(
        model=captioner,
        reward_funcs=[VelaReward(device="cpu")],
        train_dataset=make_dataset(16, seed=5).map(lambda row: asked).select_columns(["prompt", "image", "refs"]),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=8, target_modules=r".*language_model.*\.[qkvo]_proj"),
        args=AsyncGRPOConfig(
            output_dir=str(output),
            max_steps=4,
            num_generations=4,
            max_completion_length=60,
            token_budget=256,
            gradient_accumulation_steps=2,
            learning_rate=1e-3,
            vllm_server_base_url=url,
            dtype="float32",
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
        ),
    )
    AttentionInterface.register(TREE_ATTENTION, tree_attention)
    trainer.train()
    (output / "logs.json").write_text(json.dumps([entry for entry in trainer.state.log_history if "reward" in entry]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
