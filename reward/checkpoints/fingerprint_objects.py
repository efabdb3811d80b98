"""Fingerprints of objects: scorers, judges and functions, by their code, their settings and their weights."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sys
import threading
import types
import uuid
from collections.abc import Iterable, Mapping, Set
from typing import Any

from reward.checkpoints.code import UntoldError, file_code, file_of_module, fingerprint_code, function_tree
from reward.checkpoints.fingerprints import fingerprint_network, tensor_sums

# Networks, tokenizers and values of these libraries are told by their settings and content, and never by their code.
_NETWORKS = ("torch", "transformers", "sentence_transformers", "open_clip", "peft", "timm")
_LIBRARIES = {*_NETWORKS, "torchvision", "tokenizers", "regex", "numpy", "PIL", "datasets", *sys.stdlib_module_names}
_LIBRARIES -= {"__main__"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CACHED_CALLS = type(functools.lru_cache(maxsize=1)(len))
_UNTOLD = " without a fingerprint ("
_local = threading.local()


def fingerprint_scorer(scorer: Any) -> str:
    """What names a scorer, or a judge, that is loaded: its attribute `fingerprint`, else `fingerprint_object`."""
    fingerprint = getattr(scorer, "fingerprint", None)
    if fingerprint is None:
        return fingerprint_object(scorer)
    return str(fingerprint)


def untold_reason(fingerprint: str) -> str | None:
    """Why a fingerprint does not stand for all that the object holds, so that no score is kept under it; else None."""
    _, is_untold, reason = fingerprint.partition(_UNTOLD)
    if not is_untold:
        return None
    return reason.rpartition(")")[0]


def is_told(fingerprint: str) -> bool:
    """Whether a fingerprint stands for all that the object holds."""
    return untold_reason(fingerprint) is None


def fingerprint_object(value: Any, *, leave_out: Iterable[str] = ()) -> str:
    """Names an object by its class, the code of that class, its settings, and the weights of its networks.

    Equal objects have equal names in every process. A function counts by its source, its defaults, the arguments of a
    `partial`, and its file, since it may call what stands beside it. What holds an object of a user's class, an open
    connection, or a list or dict in a closure, which calls may fill, has a new name each time, which `is_told` tells.
    An attribute `fingerprint` stands for all.

    Args:
        value: a scorer, or any other.
        leave_out: attributes that change no score.

    Example:
        >>> fingerprint_object([1, {"a": 2.0}]) == fingerprint_object([1, {"a": 2.0}])
        True
    """
    kind = type(value)
    # What it holds may ask for its fingerprint in turn, as the function of a judge that uses the judge's scorer.
    objects = _objects_in_progress()
    if id(value) in objects:
        return f"{kind.__qualname__}{_UNTOLD}it holds itself) {uuid.uuid4().hex}"
    objects.append(id(value))
    try:
        code = fingerprint_code(*(base.__module__ for base in kind.__mro__))
        if _is_library(kind.__module__) or isinstance(value, (Mapping, list, tuple, Set)):
            facts = _facts(value)
        else:
            attributes = {name: attribute for name, attribute in vars(value).items() if name not in leave_out}
            facts = [_class_facts(kind), _facts(attributes, (id(value),))]
    except Exception as error:  # whatever an object raises when it is looked into
        return f"{kind.__qualname__}{_UNTOLD}{error}) {uuid.uuid4().hex}"
    finally:
        objects.pop()
    text = f"{code} {facts}".encode("utf-8", "backslashreplace")
    return f"{kind.__qualname__} {hashlib.sha256(text).hexdigest()[:16]}"


def _objects_in_progress() -> list[int]:
    """`id` of the objects that this thread is naming, each inside the one before."""
    if not hasattr(_local, "objects"):
        _local.objects = []
    objects: list[int] = _local.objects
    return objects


def _facts(value: Any, above: tuple[int, ...] = (), *, is_users: bool = False) -> Any:
    """Lists and texts that stand for a value and all that it holds, or an UntoldError.

    Args:
        above: `id` of the values that hold it, since a value may hold itself.
        is_users: whether a user's function holds it, in which lists and dicts may be memories of calls.
    """
    if _is_plain(value):
        return repr(value)
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if id(value) in above:
        return name
    above = (*above, id(value))
    torch = sys.modules.get("torch")
    if isinstance(value, tuple):
        facts: Any = [_facts(item, above, is_users=is_users) for item in value]
    elif isinstance(value, type):
        facts = [value.__module__, value.__qualname__, _class_facts(value)]
    # Code of libraries is told by its name: an update of a library ends no run.
    elif isinstance(value, (types.BuiltinFunctionType, types.ModuleType)):
        facts = [getattr(value, "__module__", ""), value.__name__]
    elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, _CACHED_CALLS)):
        facts = _callable_facts(value, above)
    elif hasattr(value, "pattern") and hasattr(value, "flags"):  # a regular expression, whose repr is cut
        facts = [value.pattern, value.flags]
    elif torch is not None and isinstance(value, torch.nn.Module):
        facts = _network_facts(value, above)
    elif torch is not None and isinstance(value, torch.Tensor):
        facts = tensor_sums(value)
    elif hasattr(value, "get_vocab"):  # a tokenizer, whose state changes with its use
        settings = [getattr(value, "chat_template", None), getattr(value, "special_tokens_map", None)]
        facts = [sorted(value.get_vocab().items()), _facts(settings, above)]
    elif isinstance(value, (Mapping, list, Set)):
        if is_users:
            raise UntoldError(f"it holds a {kind.__name__}, which calls may fill")
        facts = _container_facts(value, above)
    else:
        facts = _object_facts(value, above)
    return [name, facts]


def _is_plain(value: Any) -> bool:
    """Whether it is a number, a text or a tuple of such."""
    return isinstance(value, _PLAIN) or (type(value) is tuple and all(map(_is_plain, value)))


def _container_facts(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        items = [(key, value[key]) for key in sorted(value, key=repr)]
    elif isinstance(value, Set):
        items = sorted(value, key=repr)
    else:
        items = list(value)
    if _is_plain(tuple(items)):  # a vocabulary has 50,000 of them
        return repr(items)
    return [_facts(item, above) for item in items]


def _callable_facts(function: Any, above: tuple[int, ...]) -> Any:
    """What a function computes with: its source, and what it was made with."""
    if isinstance(function, functools.partial):
        return [_facts(function.func, above), _facts([function.args, function.keywords], above)]
    if isinstance(function, types.MethodType):
        return [function.__func__.__qualname__, _facts(function.__self__, above, is_users=True)]
    if isinstance(function, _CACHED_CALLS):
        return _facts(function.__wrapped__, above)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    variables = {name: cell.cell_contents for name, cell in cells}
    if _is_library(function.__module__):
        return [function.__module__, function.__qualname__, _variable_facts(variables, above)]
    tree: Any = function_tree(function)
    defaults = list(zip(tree.args.defaults, function.__defaults__ or (), strict=True))
    for argument, node in zip(tree.args.kwonlyargs, tree.args.kw_defaults, strict=True):
        if node is not None:
            defaults.append((node, function.__kwdefaults__[argument.arg]))
    for node, value in defaults:
        try:
            ast.literal_eval(node)  # such as `memo={}`, of which the source tells all that no call leaves in it
        except ValueError:
            variables[f"{ast.unparse(node)} by default"] = value
    file = file_of_module(function.__module__ or "")
    if file is not None:
        return [file_code(file), ast.dump(tree), _variable_facts(variables, above)]
    # Of a notebook no file holds what a function uses beside itself, so that globals count as a closure does.
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in function.__globals__:
            variables[node.id] = function.__globals__[node.id]
    return [ast.dump(tree), _variable_facts(variables, above)]


def _variable_facts(variables: dict[str, Any], above: tuple[int, ...]) -> list[Any]:
    """What a user's function can see beside its arguments; what cannot be told is named in the error."""
    facts = []
    for name in sorted(variables):
        try:
            facts.append([name, _facts(variables[name], above, is_users=True)])
        except UntoldError as error:
            raise UntoldError(f"{name!r}: {error}") from error
    return facts


def _class_facts(kind: type) -> list[Any]:
    """The code of a class and its bases where they are a user's: of their file, else of what stands in them."""
    facts: list[Any] = []
    for base in kind.__mro__:
        if _is_library(base.__module__) or base.__module__.startswith("reward."):
            continue
        file = file_of_module(base.__module__)
        if file is not None:
            facts.append(file_code(file))
            continue
        for name, member in vars(base).items():
            member = getattr(member, "__func__", getattr(member, "fget", member))  # of class methods and properties
            if isinstance(member, types.FunctionType) or not name.startswith("__"):
                facts.append([name, _facts(member, (id(kind),), is_users=True)])
    return facts


def _network_facts(network: Any, above: tuple[int, ...]) -> list[Any]:
    """Layers, weights and configurations of a network, and what modules of other libraries hold beside."""
    facts: list[Any] = [re.sub(r" at 0x[0-9a-f]+", "", repr(network)), fingerprint_network(network)]
    for module in network.modules():
        facts.append(_facts(_configuration(getattr(module, "config", None)), above))
        if type(module).__module__.partition(".")[0] not in _NETWORKS:
            facts.append(_class_facts(type(module)))
            names = [name for name in vars(module) if not name.startswith("_") and name not in ("training", "config")]
            facts.append(_facts({name: vars(module)[name] for name in names}, above))
    return facts


def _object_facts(value: Any, above: tuple[int, ...]) -> Any:
    """The attribute `fingerprint` of an object; else what one of a library, or of this package, would be pickled as."""
    fingerprint = getattr(value, "fingerprint", None)  # of scorers, judges and a user's objects
    if isinstance(fingerprint, str):
        if not is_told(fingerprint):
            raise UntoldError(f"it holds a {fingerprint}")
        return fingerprint
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package in _NETWORKS and hasattr(value, "to_dict"):
        return _facts(_configuration(value), above)
    if package not in _LIBRARIES and package != "reward":
        raise UntoldError(f"it holds a {kind.__qualname__}, which has no attribute fingerprint")
    # Attributes alone would miss what is written in C or Rust, such as tokenizers.
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return reduced
    constructor, arguments, state = (*reduced, None)[:3]
    items = [list(part) for part in reduced[3:5] if part is not None]
    return _facts([constructor, arguments, state, items], above)


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def _configuration(config: Any) -> dict[str, Any]:
    """What a configuration of transformers says of a network, and not where it came from."""
    values = config.to_dict() if hasattr(config, "to_dict") else {}
    return {name: value for name, value in values.items() if name not in ("_name_or_path", "transformers_version")}
