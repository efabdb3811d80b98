"""How scorers are saved and loaded: trained with this library, on a model of another one, and without weights."""

from __future__ import annotations

import copyreg
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.checkpoints.folders import (
    CONFIG_FILE,
    check_revision,
    named_metric,
    read_config,
    resolve_checkpoint,
    save_checkpoint,
)
from reward.checkpoints.publishing import HUB_ID, push_checkpoint
from reward.errors import CheckpointError, ConfigError
from reward.metrics.scorer import CaptionScorer, NetworkScorer

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


class TrainedScorer(NetworkScorer):
    """Base of the metrics that are trained with this library, whose checkpoints hold weights.

    `model` also has a `config` with the method `to_dict`. Settings are keywords of the class, such as `token_budget`.
    """

    @classmethod
    @abstractmethod
    def _load(cls, checkpoint: str | os.PathLike[str], *, revision: Any, device: Any, dtype: Any) -> tuple[Any, ...]:
        """What the class is made of: the model, and what else a checkpoint holds."""

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        """The weights that belong in a checkpoint."""
        return self.model.state_dict()

    @abstractmethod
    def _save_tokenizer(self, folder: Path) -> None:
        """Writes the tokenizer into a folder that exists."""

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        **settings: Any,
    ) -> Self:
        """Loads a checkpoint. Nothing that its files name is imported or called.

        Args:
            source: `"embedded"` (shipped, trained on synthetic scenes), a checkpoint folder, or a Hub id.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: of the network but for its head, such as `"bfloat16"`; float32 by default.
            settings: keywords of the class.

        Raises:
            CheckpointError: the checkpoint is missing, incomplete, damaged or of another metric, its files do not fit
                each other, or a network that it names cannot be loaded or wants to run code.
            ConfigError: no such device or dtype, or a setting cannot be.
        """
        from reward.backbones.language import check_token_budget

        check_token_budget(settings.get("token_budget"))  # before anything large is read
        return cls(*cls._load(source, revision=revision, device=device, dtype=dtype), **settings)

    def save_pretrained(self, folder: str | os.PathLike[str], *, card: str | None = None) -> None:
        """Writes a checkpoint folder that `from_pretrained` reads.

        Args:
            folder: made if absent.
            card: text of the model card; a short one is written otherwise.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        save_checkpoint(
            folder,
            config=self.model.config.to_dict(),
            tensors=self._tensors(),
            card=card or self._card(),
            write_tokenizer=self._save_tokenizer,
        )

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Uploads the checkpoint to the model repository `ORG/NAME`, made if needed; the web address of the commit."""
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_checkpoint(folder, repo_id, private=private, revision=revision)

    def _card(self) -> str:
        """A model card that says what the checkpoint is; whoever trained it adds data and figures."""
        return f"""---
library_name: capreward
license: apache-2.0
tags: [image-captioning, metric, reward-model]
---

# {self.spec.name}

Scores image captions on {", ".join(self.spec.aspects)}. Source: {self.spec.paper}.

```python
from reward import load_scorer

load_scorer("{self.spec.name}", "{HUB_ID}")
```
"""


class BorrowedScorer(NetworkScorer):
    """Base of the metrics that use a model of another library as it is; their checkpoints name it, without its weights.

    Attributes:
        settings: names of the options that belong in a checkpoint: arguments of `_load`, and attributes.
        needs: which checkpoint to give, for messages.
        subfolders: whether a checkpoint on the Hub has files in folders of its own.
        origin: `{"model", "revision"}` of what `from_pretrained` can load again.

    Derive, and write `_load(folder, name=, device=, dtype=, **settings)`; settings are keywords of the class.
    """

    _load: ClassVar[Callable[..., Any]]
    settings: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[str]
    subfolders: ClassVar[bool] = False
    origin: dict[str, Any] | None = None
    _placed: Mapping[str, Any] = {}  # the device, dtype and cache that were asked for

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        **settings: Any,
    ) -> Self:
        """Loads the model. Nothing that its files name is imported or called.

        Args:
            source: folder or Hub id of a model that the class names, or a folder that `save_pretrained` wrote.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; None leaves it to the class.
            settings: keywords of the class; None is what the checkpoint says, else the class's own.

        Raises:
            CheckpointError: there is no such model, it is incomplete, of another metric, or needs code of its own.
            ConfigError: a setting cannot be.
        """
        from reward.backbones.fit import float32_by_default
        from reward.backbones.pretrained import parse_dtype, usable_device

        name, metric = os.fspath(source), cls.spec.name
        if dtype == "auto":
            dtype = None
        settings = {key: value for key, value in settings.items() if value is not None}
        # What is written in this call wins over what the folder says.
        if named_metric(name) is not None:  # a folder of `save_pretrained`, which names the model
            saved = read_config(name, metric=metric)
            if not isinstance(saved.get("model"), str):
                raise CheckpointError(f"{name!r} names no 'model' in its {CONFIG_FILE}: save it again")
            name, revision = saved["model"], revision or saved.get("revision")
            settings = {key: saved[key] for key in cls.settings if key in saved} | settings
        usable = usable_device(device)
        folder = cls._resolve(name, revision)
        with float32_by_default():
            scorer: Self = cls._load(folder, name=name, device=usable, dtype=parse_dtype(dtype), **settings)
        if Path(name).exists():
            name = str(Path(name).absolute())
        scorer.origin = {"model": name, "revision": revision}
        unsaved = {key: value for key, value in settings.items() if key not in cls.settings}
        scorer._placed = {"device": device, "dtype": dtype, **unsaved}
        return scorer

    @classmethod
    def _resolve(cls, name: str, revision: str | None) -> Path:
        """The folder of a model, which is fetched if it is a Hub id."""
        if name == "embedded":
            metric = cls.spec.name
            raise CheckpointError(
                f"no model for {metric} is shipped with this package: write {metric}=CHECKPOINT with {cls.needs}"
            )
        return resolve_checkpoint(name, model=cls.spec.name, revision=revision, subfolders=cls.subfolders)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that names the model and the settings, without the weights.

        Raises:
            CheckpointError: the scorer was made without `origin`, or the folder cannot be written.
        """
        if self.origin is None:
            raise CheckpointError(f"this {self.spec.name} scorer does not know where its model came from: set .origin")
        card = f"# {self.spec.name}\n\nOn the model {self.origin['model']}. Source: {self.spec.paper}.\n"
        config = {"metric": self.spec.name, **self._settings(), **self.origin}
        save_checkpoint(folder, config=config, tensors={}, card=card)

    @property
    def fingerprint(self) -> str:
        """Names model, settings and code, wherever the model came from; see `CaptionScorer.fingerprint`."""
        return fingerprint_object(self, leave_out=("caches", "token_budget", "origin", "_placed", "reader"))

    def __reduce__(self) -> Any:
        """Pickled as what to load again, since networks that have run carry hooks which cannot be pickled."""
        if self.origin is None:  # made by hand: nobody knows from where to load it
            return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]
        checkpoint, revision = self.origin["model"], self.origin["revision"]
        return partial(
            type(self).from_pretrained, checkpoint, revision=revision, **self._placed, **self._settings()
        ), ()

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settings}


def check_longest(characters: Any) -> None:
    """Checks how many characters of a caption a model may see.

    Raises:
        ConfigError: not a whole number of at least 1.
    """
    if not isinstance(characters, int) or characters < 1:
        raise ConfigError(f"max_characters must be a whole number of at least 1, got {characters!r}")


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
            CheckpointError: the checkpoint is missing or belongs to another metric.
        """
        check_revision(source, revision)
        if os.fspath(source) != "embedded":
            read_config(resolve_checkpoint(source, model=cls.spec.name, revision=revision), metric=cls.spec.name)
        return cls()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a checkpoint folder without tensors, which `from_pretrained` reads."""
        card = f"# {self.spec.name}\n\nA formula without weights. Source: {self.spec.paper}.\n"
        save_checkpoint(folder, config={"metric": self.spec.name}, tensors={}, card=card)
