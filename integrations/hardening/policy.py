"""What writes the captions of a hardening: a captioner, perhaps trained a little against the metric as it stands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from integrations.demo.captioner import MAX_NEW_TOKENS, PROMPT, write_captions
from integrations.demo.grpo import train_with_grpo
from integrations.trl import load_policy
from reward import MetricReward
from reward.images import load_image

__all__ = ["Policy"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Writes captions for `integrations.hardening.rounds.harden`.

    Args:
        metric: name of the metric that is hardened.
        source: the captioner: `"embedded"`, a folder or a Hub id; see `integrations.trl.load_policy`.
        samples: captions an image.
        steps: of GRPO against the metric in each round, from the captioner's own weights; 0 for none.
        learning_rate: of GRPO.
        max_new_tokens: longest caption.
        prompt: what the captioner is asked.
    """

    metric: str
    source: str | os.PathLike[str] = "embedded"
    samples: int = 8
    steps: int = 0
    learning_rate: float = 1e-4
    max_new_tokens: int = MAX_NEW_TOKENS
    prompt: str = PROMPT

    def __call__(self, checkpoint: str, folder: Path, rows: Sequence[Mapping[str, Any]], seed: int) -> list[list[str]]:
        """Captions of each image. The trainer's last state stays in `<folder>/policy`, where a killed run goes on."""
        from datasets import Dataset, Image

        model, processor = load_policy(self.source)
        if torch.accelerator.is_available():
            model.to(torch.accelerator.current_accelerator())
        if self.steps:
            columns = {"image": [row["image"] for row in rows], "refs": [list(row["references"]) for row in rows]}
            train_with_grpo(
                model,
                processor,
                MetricReward(self.metric, checkpoint),
                Dataset.from_dict(columns).cast_column("image", Image()),
                folder / "policy",
                steps=self.steps,
                prompts=min(8, len(rows)),
                learning_rate=self.learning_rate,
                max_new_tokens=self.max_new_tokens,
                seed=seed,
                save_steps=min(25, self.steps),
                measures=(),
                prompt=self.prompt,
                cpu=not torch.accelerator.is_available(),
            )
        return write_captions(
            model,
            processor,
            [load_image(row["image"]) for row in rows],
            samples=self.samples,
            temperature=1.0,
            seed=seed,
            max_new_tokens=self.max_new_tokens,
            prompt=self.prompt,
        )
