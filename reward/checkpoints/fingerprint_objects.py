"""Fingerprints of objects: scorers, judges and functions, by their code, their settings and their weights."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import sys
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
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

    Equal objects have equal names in every process. A function counts by its source, its defaults and the arguments of
    a `partial`; the file of a function counts as a whole, since it may call what stands beside it. Lists and dicts in
    a function's closure may be filled by each call, and an object of a user's class may hold anything: what holds one,
    or an open connection, has a new name each time, which `is_told` tells. An attribute `fingerprint` stands for all.

    Args:
        value: a scorer, or any other.
        leave_out: attributes that change no score.

    Example:
        >>> fingerprint_object([1, {"a": 2.0}]) == fingerprint_object([1, {"a": 2.0}])
        True
    """
    kind = type(value)
    try:
        code = fingerprint_code(*(base.__module__ for base in kind.__mro__))
        if _is_library(kind.__module__) or isinstance(value, (Mapping, list, tuple, Set)):
            facts = _facts(value, is_users=False, above=())
        else:
            attributes = {name: held for name, held in vars(value).items() if name not in leave_out}
            facts = [_class_facts(kind), _facts(attributes, is_users=False, above=(id(value),))]
    except Exception as error:  # whatever an object raises when it is looked into
        return f"{kind.__qualname__}{_UNTOLD}{error}) {uuid.uuid4().hex}"
    text = f"{code} {facts}".encode("utf-8", "backslashreplace")
    return f"{kind.__qualname__} {hashlib.sha256(text).hexdigest()[:16]}"


def names_in_code(code: types.CodeType) -> Iterator[str]:
    """Names that compiled code uses, and the texts in it, with those of the functions inside it."""
    yield from (*code.co_names, *code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in_code(constant)
        elif isinstance(constant, str):
            yield constant


def _facts(value: Any, *, is_users: bool, above: tuple[int, ...]) -> Any:
    """Lists and texts that stand for a value and all that it holds.

    Args:
        value: anything.
        is_users: whether a user's function holds it, in which lists and dicts may be memories of calls.
        above: `id` of the values that hold it, since a value may hold itself.

    Raises:
        UntoldError: it cannot be told.
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _is_plain(value):
        return repr(value)
    if id(value) in above:
        return [name, "above"]
    torch = sys.modules.get("torch")
    facts = partial(_facts, is_users=is_users, above=(*above, id(value)))
    if isinstance(value, tuple):
        return [name, [facts(item) for item in value]]
    if isinstance(value, (Mapping, list, Set)) and not hasattr(value, "fingerprint"):
        if is_users:
            raise UntoldError(f"it holds a {kind.__name__}, which calls may fill")
        return [name, _container_facts(value, facts)]
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial, _CACHED_CALLS)):
        return [name, _callable_facts(value, above=(*above, id(value)))]
    if isinstance(value, type):
        return [f"{value.__module__}.{value.__qualname__}", _class_facts(value)]
    if isinstance(value, (types.BuiltinFunctionType, types.ModuleType)):
        return [getattr(value, "__module__", ""), value.__name__]
    if hasattr(value, "pattern") and hasattr(value, "flags"):  # a regular expression, whose repr is cut
        return [name, value.pattern, value.flags]
    if torch is not None and isinstance(value, torch.nn.Module):
        return [name, _network_facts(value, above=(*above, id(value)))]
    if torch is not None and isinstance(value, torch.Tensor):
        return [name, tensor_sums(value)]
    if hasattr(value, "get_vocab"):  # a tokenizer, whose state changes with its use
        settings = [getattr(value, "chat_template", None), getattr(value, "special_tokens_map", None)]
        return [name, sorted(value.get_vocab().items()), _facts(settings, is_users=False, above=above)]
    if isinstance(getattr(value, "fingerprint", None), str):
        if not is_told(value.fingerprint):
            raise UntoldError(f"it holds a {value.fingerprint}")
        return [name, value.fingerprint]
    return [name, _object_facts(value, above=(*above, id(value)))]


def _is_plain(value: Any) -> bool:
    """Whether it is a number, a text or a tuple of such."""
    return isinstance(value, _PLAIN) or (type(value) is tuple and all(map(_is_plain, value)))


def _container_facts(value: Any, facts: Any) -> Any:
    if isinstance(value, Mapping):
        items = [(key, value[key]) for key in sorted(value, key=repr)]
    elif isinstance(value, Set):
        items = sorted(value, key=repr)
    else:
        items = list(value)
    if _is_plain(tuple(items)):  # a vocabulary has 50,000 of them
        return repr(items)
    return [facts(item) for item in items]


def _callable_facts(function: Any, above: tuple[int, ...]) -> Any:
    """What a function computes with: its source, and what it was made with."""
    facts = partial(_facts, is_users=True, above=above)
    if isinstance(function, functools.partial):
        arguments = [function.args, function.keywords]
        return [facts(function.func), _facts(arguments, is_users=False, above=above)]
    if isinstance(function, types.MethodType):
        return [function.__func__.__qualname__, facts(function.__self__)]
    if isinstance(function, _CACHED_CALLS):
        return facts(function.__wrapped__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = [[name, _named_facts(name, cell.cell_contents, facts)] for name, cell in cells]
    if _is_library(function.__module__):
        return [function.__module__, function.__qualname__, closure]
    tree = function_tree(function)
    held = [closure, [_named_facts(name, value, facts) for name, value in _defaults(function, tree)]]
    file = file_of_module(function.__module__ or "")
    if file is not None:
        return [file_code(file), ast.dump(tree), held]
    # Of a notebook no file holds what it uses beside itself.
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = sorted(names & function.__globals__.keys())
    return [ast.dump(tree), held, [_named_facts(name, function.__globals__[name], facts) for name in used]]


def _named_facts(name: str, value: Any, facts: Any) -> Any:
    try:
        return [name, facts(value)]
    except UntoldError as error:
        raise UntoldError(f"{name!r}: {error}") from error


def _defaults(function: types.FunctionType, tree: Any) -> Iterator[tuple[str, Any]]:
    """Defaults of a function by parameter, without those that its source tells whole, such as `memo={}`."""
    arguments = tree.args
    positional = [*arguments.posonlyargs, *arguments.args]
    nodes = dict(zip([argument.arg for argument in positional][::-1], arguments.defaults[::-1], strict=False))
    nodes |= {argument.arg: node for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if parameter.default is parameter.empty:
            continue
        try:
            ast.literal_eval(nodes[name])
        except ValueError:
            yield name, parameter.default


def _class_facts(kind: type) -> list[Any]:
    """The code of a class and its bases where they are a user's: of their file, else of what stands in them."""
    told: list[Any] = []
    for base in kind.__mro__:
        if _is_library(base.__module__) or base.__module__.startswith("reward."):
            continue
        file = file_of_module(base.__module__)
        if file is not None:
            told.append(file_code(file))
            continue
        for name, member in vars(base).items():
            member = getattr(member, "__func__", getattr(member, "fget", member))  # of class methods and properties
            if isinstance(member, types.FunctionType) or not name.startswith("__"):
                told.append([name, _facts(member, is_users=True, above=(id(kind),))])
    return told


def _network_facts(network: Any, above: tuple[int, ...]) -> list[Any]:
    """Layers, weights and configurations of a network, and what modules of other libraries hold beside."""
    facts = partial(_facts, is_users=False, above=above)
    told: list[Any] = [re.sub(r" at 0x[0-9a-f]+", "", repr(network)), fingerprint_network(network)]
    for module in network.modules():
        told.append(facts(_configuration(getattr(module, "config", None))))
        if type(module).__module__.partition(".")[0] not in _NETWORKS:
            told.append(_class_facts(type(module)))
            names = [name for name in vars(module) if not name.startswith("_") and name not in ("training", "config")]
            told.append(facts({name: vars(module)[name] for name in names}))
    return told


def _object_facts(value: Any, above: tuple[int, ...]) -> Any:
    """What an object of a library, or of this package, would be pickled as."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package in _NETWORKS and hasattr(value, "to_dict"):
        return _facts(_configuration(value), is_users=False, above=above)
    if package not in _LIBRARIES and package != "reward":
        raise UntoldError(f"it holds a {kind.__qualname__}, which has no attribute fingerprint")
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return reduced
    constructor, arguments, state = (*reduced, None)[:3]
    items = [list(part) for part in reduced[3:5] if part is not None]
    return _facts([constructor, arguments, state, items], is_users=False, above=above)


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def _configuration(config: Any) -> dict[str, Any]:
    """What a configuration of transformers says of a network, and not where it came from."""
    values = config.to_dict() if hasattr(config, "to_dict") else {}
    return {name: value for name, value in values.items() if name not in ("_name_or_path", "transformers_version")}
