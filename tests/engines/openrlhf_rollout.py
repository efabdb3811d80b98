"""OpenRLHF's rollout without its trainer, which needs flash-attn: in its environment, with a JSON file of settings.

Its data set, its samples generator, and its actors in real Ray, each with a vLLM for the CPU and the reward's file.
Ray gets a GPU to count that is not there, as OpenRLHF asks for one. What the trainer would get is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace as Group
from typing import Any

import ray
from openrlhf.datasets import PromptDataset
from openrlhf.datasets.utils import blending_datasets
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray import create_vllm_engines
from openrlhf.utils.utils import get_tokenizer
from torch.utils.data import DataLoader


def rolled_out(model: str, rows: str, reward_file: str) -> list[dict[str, Any]]:
    """One batch of experiences of the rows in a file."""
    data = Group(input_key="prompt", label_key="label", image_key="images", apply_chat_template=True)
    rollout = Group(batch_size=6, n_samples_per_prompt=4, vllm_generate_batch_size=None)
    algo = Group(advantage=Group(is_correction_level="off"), dynamic_filtering_enable=False)
    args = Group(data=data, rollout=rollout, algo=algo, vllm=Group(enable_sleep=False), use_ms=False)
    strategy = Group(args=args, is_rank_0=lambda: True, print=lambda *_: None)

    processor = get_tokenizer(model, None)
    dataset = PromptDataset(blending_datasets(rows, None, strategy), processor, strategy)
    loader = DataLoader(dataset, batch_size=1, collate_fn=dataset.collate_fn)
    engines = create_vllm_engines(
        1, 1, model, 42, False, False, True, 256, None, 0.5, False, None, None, reward_file, 1
    )
    generator = SamplesGenerator(strategy, loader, None, processor, engines)
    experiences = generator.generate_samples(max_len=256, max_new_tokens=90, temperature=1.0)[0]
    return [
        {
            "label": one.labels[0],
            "text": processor.tokenizer.decode(
                one.sequences[0][one.sequences.shape[1] - int(one.response_length[0]) :]
            ),
            "reward": None if one.rewards is None else float(one.rewards[0]),
            "logs": {name: float(value[0]) for name, value in one.info.items()},
        }
        for one in experiences
    ]


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    ray.init(num_cpus=4, num_gpus=1, include_dashboard=False, object_store_memory=200_000_000)
    try:
        print("\n" + json.dumps(rolled_out(**settings)))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
