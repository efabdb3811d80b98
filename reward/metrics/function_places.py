"""Where functions stand: `file.py:function` and `module:function`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
import types
import zlib
from pathlib import Path
from typing import Any

from reward.data.image_files import file_stamp
from reward.errors import ConfigError, did_you_mean
from reward.metrics.base import Scorer, installed_specs

_FILE = re.compile(r".*?\.py(?=$|[:=])")
_PLACE = re.compile(r"(?P<module>.+\.py|[A-Za-z_][\w.]*):(?P<function>[A-Za-z_][\w.]*)")


def names_function(text: Any) -> bool:
    """Whether a text is the place of a function, `file.py:function` or `module:function`, or is meant to be one.

    Example:
        >>> [names_function(text) for text in ("my metric.py:length", "math:sqrt", "RN50:openai", "vela:flu")]
        [True, True, False, False]
    """
    if not isinstance(text, str) or "://" in text:
        return False
    match = _PLACE.fullmatch(text)
    if match is None:
        return _FILE.match(text) is not None
    module = match["module"]
    if module in installed_specs():  # `vela:fluency` is meant for an aspect, whatever package is called vela
        return False
    if module.endswith(".py"):
        return True
    # `RN50:openai` names a CLIP, and no module is called RN50.
    package = module.partition(".")[0]
    is_here = Path(f"{package}.py").is_file() or Path(package, "__init__.py").is_file()
    return is_here or package in sys.modules or importlib.util.find_spec(package) is not None


def load_function(place: str, name: str | None = None, **options: Any) -> Scorer:
    """The scorer of a function by its place; a scorer that stands there is given itself.

    The file runs once in a process, and again once it was edited. Its folder is put on Python's path, as for a script.

    Args:
        place: `file.py:function`, from the current folder, or `module:function`.
        name: of the metric; None is that of the function.
        options: further arguments of the function.

    Raises:
        ConfigError: no such file, module or function, or the file cannot be run.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        file = _FILE.match(place)[0]  # type: ignore[index]
        functions = [*_functions_of(_run_file(file)), "length"]
        raise ConfigError(f"{place!r} names no function: write {file}:{functions[0]}")
    home, path = match["module"], match["function"]
    is_file = home.endswith(".py")
    module = _run_file(home) if is_file else _import(home)
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            functions = _functions_of(module)
            names = ", ".join(functions) or "none"
            raise ConfigError(f"{home} has no function {part!r}.{did_you_mean(part, functions)} It has: {names}")
        value = getattr(value, part)
    # A scorer has the name and the settings that its file gave it.
    if hasattr(value, "spec") and hasattr(value, "score") and not isinstance(value, type):
        return value
    from reward.metrics.function import PlacedFunction  # on use: most metrics are no functions

    if is_file:
        place = f"{Path(home).expanduser().absolute()}:{path}"
    return PlacedFunction(place, value, name or path.rpartition(".")[2], options)


def _functions_of(module: types.ModuleType) -> list[str]:
    """Names of the functions and classes that a module defines."""
    names = []
    for name, value in vars(module).items():
        is_defined_here = getattr(value, "__module__", None) == module.__name__
        if callable(value) and is_defined_here and not name.startswith("_"):
            names.append(name)
    return names


def _run_file(home: str) -> types.ModuleType:
    path = Path(home).expanduser().absolute()
    if not path.is_file():
        files = [file.name for file in path.parent.glob("*.py")]
        raise ConfigError(f"there is no file {home} (from {Path.cwd()}).{did_you_mean(path.name, files)}")
    return _run(path, file_stamp(path.stat()))


@functools.lru_cache(maxsize=32)
def _run(path: Path, stamp: str) -> types.ModuleType:
    name = f"capreward_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{zlib.crc32(os.fsencode(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _put_on_path(path.parent)
    try:
        # not `exec_module`: compiled code is kept by the second, and an edit within one would not be seen
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module


def _import(home: str) -> types.ModuleType:
    _put_on_path(Path.cwd())
    try:
        return importlib.import_module(home)
    except Exception as error:
        raise ConfigError(f"the module {home} cannot be imported: {type(error).__name__}: {error}") from error


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
