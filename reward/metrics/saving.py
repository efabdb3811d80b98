"""How scorers are saved and loaded: those that are trained with this library, and formulas without weights."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reward.checkpoints import check_revision, read_config, resolve_checkpoint, save_checkpoint
from reward.metrics.scorer import CaptionScorer, NetworkScorer
from reward.publishing import HUB_ID, push_checkpoint

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

__all__ = ["TrainedScorer", "WeightlessScorer"]


class TrainedScorer(NetworkScorer):
    """Base of the metrics that are trained with this library, whose checkpoints hold weights.

    `model` also has a `config` with the method `to_dict`.
    """

    @abstractmethod
    def _tensors(self) -> Mapping[str, torch.Tensor]:
        """The weights that belong in a checkpoint."""

    @abstractmethod
    def _save_tokenizer(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tokenizer into a folder, which is made if absent."""

    @abstractmethod
    def _description(self) -> str:
        """Title and text of the model card."""

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None, card: str | None = None
    ) -> None:
        """Writes a checkpoint folder that `from_pretrained` reads.

        Args:
            folder: made if absent.
            dtype: of the stored weights, such as `torch.float16` to halve the file; as they are by default.
            card: text of the model card; a short one is written otherwise.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        tensors = dict(self._tensors())
        if dtype is not None:
            tensors = {key: value.to(dtype) if value.is_floating_point() else value for key, value in tensors.items()}
        config, card = self.model.config.to_dict(), card or self._card()
        save_checkpoint(folder, config=config, tensors=tensors, card=card, write_tokenizer=self._save_tokenizer)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Uploads the checkpoint to the Hub and returns the address of the commit."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_checkpoint(folder, repo_id, private=private, revision=revision)

    def _card(self) -> str:
        """A model card that says what the checkpoint is made of; whoever trained it adds data and figures."""
        return f"""---
library_name: capreward
license: apache-2.0
tags: [image-captioning, metric, reward-model]
---

# {self._description()}

```python
from reward import load_scorer

load_scorer("{self.spec.name}", "{HUB_ID}")
```
"""


class WeightlessScorer(CaptionScorer):
    """Base of the metrics that are a formula over texts; their checkpoints hold only the name of the metric."""

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Self:
        """Gives the scorer. A folder or Hub id is only checked to name this metric; device and dtype have no effect.

        Raises:
            CheckpointError: the source is missing or belongs to another metric.
        """
        check_revision(source, revision)
        if os.fspath(source) != "embedded":
            read_config(resolve_checkpoint(source, metric=cls.spec.name, revision=revision), metric=cls.spec.name)
        return cls()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a checkpoint folder without tensors, which `from_pretrained` reads."""
        card = f"# {self.spec.name}\n\nA formula without weights. Source: {self.spec.paper}.\n"
        save_checkpoint(folder, config={"metric": self.spec.name}, tensors={}, card=card)
