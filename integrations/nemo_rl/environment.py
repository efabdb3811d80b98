"""CaptionEnvironment, CaptionDataset and their registration with NeMo RL, which must be installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ray
import torch
from nemo_rl.data import processors
from nemo_rl.data.datasets.raw_dataset import RawDataset
from nemo_rl.data.datasets.utils import load_dataset_from_path
from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
from nemo_rl.environments import utils
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from integrations.nemo_rl import rate_conversations

__all__ = ["CaptionDataset", "CaptionEnvironment", "CaptionEnvironmentActor", "caption_data_processor", "register"]


class CaptionEnvironment(EnvironmentInterface):
    """Rewards a caption with a metric; every conversation ends after one answer.

    Args:
        config: metric, source, weights, missing and further settings of `rate_conversations`, from the section `env` of
            NeMo RL's configuration.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.settings = {name: value for name, value in config.items() if name != "num_workers"}

    def step(self, message_log_batch: list[Any], metadata: list[Any], *options: Any) -> EnvironmentReturn:
        """Rewards of N conversations, a float tensor (N,)."""
        rewards = torch.tensor(rate_conversations(message_log_batch, metadata, **self.settings), dtype=torch.float32)
        count = len(message_log_batch)
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""}] * count,
            metadata=metadata,
            next_stop_strings=[None] * count,
            rewards=rewards,
            terminateds=torch.ones(count),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """The batch as it is, and the mean reward."""
        return batch, {"mean_reward": float(batch["rewards"].float().mean())}

    def shutdown(self) -> None:
        """Nothing to end."""


CaptionEnvironmentActor = ray.remote(CaptionEnvironment)


class CaptionDataset(RawDataset):
    """Rows of a JSON Lines or Parquet file: `image` (a path, from the file's folder), `references`, perhaps `prompt`.

    Args:
        data_path: the file.
        prompt: asked where a row has none.
        split_validation_size, seed: of the part that is held out.
    """

    def __init__(
        self,
        data_path: str,
        prompt: str = "Describe the image.",
        split_validation_size: float = 0,
        seed: int = 42,
        **options: Any,
    ) -> None:
        self.task_name = "captions"
        self.val_dataset = None
        folder = Path(data_path).absolute().parent

        def row(data: dict[str, Any]) -> dict[str, Any]:
            return {
                "image": str(folder / data["image"]),
                "prompt": data.get("prompt") or prompt,
                "references": data.get("references") or [],
                "task_name": self.task_name,
            }

        loaded = load_dataset_from_path(data_path, None, None)
        self.dataset = loaded.map(row, remove_columns=loaded.column_names)
        self.split_train_validation(split_validation_size, seed)


def caption_data_processor(datum: dict[str, Any], spec: Any, processor: Any, max_length: int, idx: int) -> Any:
    """Makes a row what NeMo RL trains on, with image and references for the environment."""
    question = [{"type": "image", "image": datum["image"]}, {"type": "text", "text": datum["prompt"]}]
    answer = json.dumps(datum["references"], ensure_ascii=False)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    # NeMo RL's function knows a fixed list of tasks; rows of "avqa" are taken with the messages that they have.
    known = {"messages": messages, "task_name": "avqa"}
    made = processors.vlm_hf_data_processor(known, spec, processor, max_length, idx)
    made["task_name"] = datum["task_name"]
    made["extra_env_info"] = {"image": datum["image"], "references": datum["references"]}
    return made


def register() -> None:
    """Makes environment and processor known; call it before the training script of NeMo RL starts.

    NeMo RL's script for vision-language models makes every environment from the entry "vlm" of its registry, whatever
    the configuration calls it. So this entry is replaced, and the built-in one is not there in this process.
    """
    name = f"{__name__}.CaptionEnvironmentActor"
    utils.ENV_REGISTRY["vlm"] = {"actor_class_fqn": name}
    ACTOR_ENVIRONMENT_REGISTRY[name] = PY_EXECUTABLES.SYSTEM
    if "caption_data_processor" not in processors.PROCESSOR_REGISTRY:
        processors.register_processor("caption_data_processor", caption_data_processor)
