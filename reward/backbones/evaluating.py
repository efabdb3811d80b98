"""A model that is being trained, as it is when it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[bool]:
    """Puts a model into eval mode with gradient checkpointing off, and every part back as it was, also after an error.

    A trainer leaves its model in training mode. With gradient checkpointing, layers then work without the cache of
    `generate`: each token is written as if it were the first.

    Args:
        model: any network, also one with adapters. One thread at a time: another that uses the model meanwhile sees
            it change.

    Yields:
        Whether a part was in training mode.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout().eval())
        >>> with evaluating(model) as was_training:
        ...     was_training, model.training
        (True, False)
        >>> model[0].training, model[1].training
        (True, False)
    """
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    # Modules of transformers have this flag; the function that checkpoints stays where it is.
    # Read from the class, because a module that lacks an attribute is slow to say so.
    flag = "gradient_checkpointing"
    checkpointed = [module for module in modules if vars(module).get(flag, getattr(type(module), flag, None)) is True]
    try:
        if training:
            model.eval()
        for module in checkpointed:
            module.gradient_checkpointing = False  # type: ignore[assignment]  # nn.Module types it as a module
        yield bool(training)
    finally:
        for module in training:
            module.training = True
        for module in checkpointed:
            module.gradient_checkpointing = True  # type: ignore[assignment]
