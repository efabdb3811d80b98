"""Imports optional packages, or says how to install them; versions of installed packages."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from reward.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str = "this") -> ModuleType:
    """Imports a module, or raises an error that names the extra to install.

    Args:
        module: dotted name, such as `"pycocoevalcap.cider.cider"`.
        extra: the extra of this distribution that installs it, such as `"ngrams"`.
        purpose: what needs the module, for the message.

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


def require_major(module: str, major: int, *, extra: str, purpose: str) -> ModuleType:
    """Imports a module as `require` does, and raises the same error if its version is older than the first of `major`.

    Example:
        >>> require_major("numpy", 1, extra="report", purpose="a report").__name__
        'numpy'
    """
    library = require(module, extra=extra, purpose=purpose)
    if int(library.__version__.partition(".")[0]) < major:
        package = module.replace("_", "-")
        raise MissingExtraError(
            f"{purpose} needs {package} {major} or newer, and {library.__version__} is installed: "
            f'pip install "capreward[{extra}]"'
        )
    return library


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of those of the packages that are installed.

    Example:
        >>> list(installed_versions(["numpy", "not-a-package"]))
        ['python', 'numpy']
    """
    installed = {"python": platform.python_version()}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
