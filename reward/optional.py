"""The one place that imports optional packages, and says how to install them when they are absent."""

from __future__ import annotations

import importlib
from types import ModuleType

from reward.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str = "this") -> ModuleType:
    """Imports `module`, or raises an error that names the extra to install.

    Args:
        module: dotted name, such as `"pycocoevalcap.cider.cider"`.
        extra: the extra of this distribution that brings it, such as `"ngrams"`.
        purpose: what needs it, for the message.

    Raises:
        MissingExtraError: the module cannot be imported.

    Example:
        >>> require("json", extra="report").loads("[1]")
        [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'{purpose} needs the package {module.split(".")[0]!r}: pip install "capreward[{extra}]" ({error})'
        ) from error
