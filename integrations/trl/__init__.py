"""What TRL's trainers take: data sets of images and references, policies from checkpoints, and a monitor."""

from integrations.trl.log import readable_log
from integrations.trl.monitor import RewardMonitor
from integrations.trl.policy import ResumeWeights, load_policy
from integrations.trl.preference_dataset import make_preference_dataset
from integrations.trl.prompt_dataset import make_prompt_dataset
from reward.training.trainer import last_checkpoint

__all__ = [
    "ResumeWeights",
    "RewardMonitor",
    "last_checkpoint",
    "load_policy",
    "make_preference_dataset",
    "make_prompt_dataset",
    "readable_log",
]
