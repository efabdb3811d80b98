"""NeMo RL's data and rollout, with a JSON file of settings: what a batch holds afterwards is printed as JSON.

Its data set, processor and environment actor come from `setup_response_data`, with the configuration of the docs. The
policy is a captioner that transformers runs in this process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import torch
from nemo_rl.algorithms.utils import get_tokenizer
from nemo_rl.data.collate_fn import rl_collate_fn
from nemo_rl.data.utils import setup_response_data
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.experience.rollouts import run_multi_turn_rollout
from nemo_rl.utils.config import load_config, register_omegaconf_resolvers
from omegaconf import OmegaConf
from transformers import AutoModelForImageTextToText

from integrations.nemo_rl.environment import register


class Policy:
    """Writes captions, a row at a time, in the form of NeMo RL's generation workers."""

    def __init__(self, folder: str, most: int) -> None:
        self.model, self.most = AutoModelForImageTextToText.from_pretrained(folder), most
        self.cfg: dict[str, Any] = {}

    @torch.inference_mode()
    def generate(self, data: Any, greedy: bool = False) -> Any:
        pixels = data["pixel_values"].as_tensor()
        rows = []
        for ids, length, image in zip(data["input_ids"], data["input_lengths"], pixels, strict=True):
            prompt = ids[:length][None]
            kinds = {"attention_mask": torch.ones_like(prompt), "pixel_values": image[None]}
            rows.append(self.model.generate(prompt, **kinds, max_new_tokens=self.most, do_sample=not greedy)[0])
        lengths = torch.tensor([len(row) for row in rows])
        return BatchedDataDict(
            {
                "output_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
                "generation_lengths": lengths - data["input_lengths"],
                "unpadded_sequence_lengths": lengths,
            }
        )


def main() -> None:
    settings = SimpleNamespace(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    register_omegaconf_resolvers()
    config = OmegaConf.to_container(load_config(settings.config), resolve=True)
    register()
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=200_000_000)
    try:
        processor = get_tokenizer({"name": settings.model}, get_processor=True)
        dataset, held_out, environments, _ = setup_response_data(processor, config["data"], config["env"], is_vlm=True)
        batch = rl_collate_fn([dataset[row] for row in range(len(dataset))]).repeat_interleave(settings.generations)
        policy = Policy(settings.model, settings.most)
        batch, metrics = run_multi_turn_rollout(policy, batch, processor.tokenizer, environments, max_seq_len=512)
        found = [
            {"image": facts["image"], "references": facts["references"], "text": log[1]["content"], "reward": reward}
            for facts, log, reward in zip(
                batch["extra_env_info"], batch["message_log"], batch["total_reward"].tolist(), strict=True
            )
        ]
        print("\n" + json.dumps({"rows": found, "held_out": len(held_out), "metrics": metrics}))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
