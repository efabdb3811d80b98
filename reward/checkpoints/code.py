"""What code computes, told by its syntax: a comment, a docstring or a blank line changes nothing."""

from __future__ import annotations

import ast
import hashlib
import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import reward
from reward.data.image_files import file_stamp

# Rooms of this package whose code takes part in scores. How scores are read, written and shown does not.
_ROOMS = ("reward.metrics", "reward.data", "reward.backbones", "reward.judges")
_CODE_FILES = (".py", ".json", ".yaml")
_INSTALLED = {*sys.stdlib_module_names, "torch", "numpy"}  # their code counts nothing
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class UntoldError(Exception):
    """What an object holds, or the source of a function, cannot be told."""


def fingerprint_code(*modules: str) -> str:
    """Hash of the code that takes part in a metric's scores.

    Args:
        modules: names such as `"reward.metrics.vela.scorer"`. They count with the files beside them, and with what
            these import from the rooms of this package that compute. A module of somebody else counts with all of
            these rooms, since it may reach them by other ways; the standard library counts nothing. Python files count
            by their syntax trees without docstrings, JSON and YAML by their content.

    Returns:
        16 hexadecimal digits.
    """
    waiting = list(modules)
    if any(module.partition(".")[0] not in (*_INSTALLED, "reward") for module in modules):
        waiting.extend(_ROOMS)
    seen: set[str] = set()
    files: set[Path] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for path in _files_of_module(module):
            files.add(path)
            _, imports = _read(path, file_stamp(path.stat()))
            waiting.extend(name for name in imports if _is_in_rooms(name))
    lines = sorted(f"{path.name} {file_code(path)}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def file_of_module(module: str) -> Path | None:
    """The file of a module; None for those without one, such as a notebook's."""
    name = None
    if module in sys.modules:
        name = getattr(sys.modules[module], "__file__", None)
    else:
        with suppress(ImportError, ValueError):
            name = getattr(find_spec(module), "origin", None)
    if name is None or not os.path.isfile(name):
        return None
    return Path(name)


def file_code(path: Path) -> str:
    """Hash of what a file of code says."""
    digest, _ = _read(path, file_stamp(path.stat()))
    return digest


def function_tree(function: types.FunctionType) -> ast.AST:
    """The syntax tree of a function without docstrings, from its file or the notebook's cell.

    Raises:
        UntoldError: there is no source, or several functions of that name begin in the same line, as lambdas may.
    """
    code = function.__code__
    # Notebooks put the source of each cell where tracebacks look for it.
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UntoldError(f"the source of {function.__qualname__} cannot be read: {error}") from error
    nodes = [node for node in ast.walk(tree) if _starts_as(node, code)]
    if len(nodes) != 1:
        reason = "is one of several functions in a line" if nodes else "has no source"
        raise UntoldError(f"{function.__qualname__} {reason}")
    return _without_docstrings(nodes[0])


def _starts_as(node: ast.AST, code: types.CodeType) -> bool:
    """Whether compiled code may be that of a node; it begins with the first decorator."""
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or code.co_name != node.name:
        return False
    lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
    return min(lines) == code.co_firstlineno


def _is_in_rooms(module: str) -> bool:
    """Whether a module is one that computes."""
    return ".".join(module.split(".")[:2]) in _ROOMS


def _files_of_module(module: str) -> Iterator[Path]:
    """The file of a module with its data, or all files of its package where that is a metric or somebody else's."""
    if module.partition(".")[0] in _INSTALLED:
        return
    beside: Iterable[Path]
    if _is_in_rooms(module):
        # The place follows from the name: `find_spec` would import the packages above the module.
        place = Path(reward.__file__).parent.joinpath(*module.split(".")[1:3])
        beside = place.iterdir() if place.is_dir() else place.parent.glob(f"{place.name}.*")
    else:
        file = file_of_module(module)
        if file is None:
            return
        beside = file.parent.iterdir() if "." in module else [file]
    yield from (path for path in beside if path.suffix in _CODE_FILES)


@cache
def _read(path: Path, stamp: str) -> tuple[str, set[str]]:
    """The hash of what a file says, and the modules that it imports.

    `stamp` is for the cache alone, see `file_stamp`: parsing a room takes a tenth of a second.
    """
    data = path.read_bytes()
    imports = set[str]()
    if path.suffix == ".py":
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError):  # a template, or of another Python
            return hashlib.sha256(data).hexdigest(), imports
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                imports.add(node.module)
        # `ast.dump` leaves out line numbers, so moved code counts the same.
        data = ast.dump(_without_docstrings(tree)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest(), imports


def _without_docstrings(tree: ast.AST) -> ast.AST:
    """The same tree, from which the docstrings are taken."""
    for node in ast.walk(tree):
        if isinstance(node, _HAS_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree
