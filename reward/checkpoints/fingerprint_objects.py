"""Fingerprints of objects: of scorers and judges that are loaded, by their code and all that they hold."""

from __future__ import annotations

import hashlib
import re
import sys
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any

from reward.checkpoints.fingerprints import fingerprint_code, fingerprint_network, tensor_sums

# whose networks are known by config and weights
_LIBRARIES = ("torch", "transformers", "sentence_transformers", "open_clip", "peft", "timm")
_UNTOLD = "without a fingerprint"


def fingerprint_scorer(scorer: Any) -> str:
    """What names a scorer, or a judge, that is loaded: its own `fingerprint`, else that of the object."""
    own = getattr(scorer, "fingerprint", None)
    return str(own) if own is not None else fingerprint_object(scorer)


def is_told(fingerprint: str) -> bool:
    """Whether a fingerprint of `fingerprint_object` stands for all that the object holds."""
    return _UNTOLD not in fingerprint


def fingerprint_object(value: Any, *, leave_out: Iterable[str] = ()) -> str:
    """Names an object by its class, the source of the module (and of the folder) of that class, and all it holds.

    Equal objects have equal names in every process. An object that holds what cannot be told, such as an open
    connection, has a new name each time, so that nothing is taken for its own; give it a property `fingerprint`.

    Args:
        value: a scorer, or any other.
        leave_out: attributes that change no score.

    Example:
        >>> fingerprint_object([1, {"a": 2.0}]) == fingerprint_object([1, {"a": 2.0}])
        True
    """
    kind = type(value)
    digest = hashlib.sha256(fingerprint_code(*(each.__module__ for each in kind.__mro__)).encode())
    try:
        if not hasattr(sys.modules.get(kind.__module__), "__file__"):  # written in a notebook
            _feed(digest, [each for each in vars(kind).values() if isinstance(each, types.FunctionType)], ())
        state: Any = value
        if hasattr(value, "__dict__") and not isinstance(value, types.FunctionType):
            state = {name: each for name, each in vars(value).items() if name not in leave_out}
        _feed(digest, state, ())
    except Exception:  # whatever an object raises when it is looked into
        return f"{kind.__qualname__} {_UNTOLD} {uuid.uuid4().hex}"
    return f"{kind.__qualname__} {digest.hexdigest()[:16]}"


def names_in_code(code: types.CodeType) -> Iterator[str]:
    """Names that compiled code uses, and the texts in it, with those of the functions inside it."""
    yield from (*code.co_names, *code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in_code(constant)
        elif isinstance(constant, str):
            yield constant


def _feed(digest: Any, value: Any, above: tuple[int, ...]) -> None:
    """Adds a value to a digest, and all that it holds."""
    kind = type(value)
    digest.update(f"<{kind.__module__}.{kind.__qualname__}>".encode())
    if id(value) in above:
        return
    feed, torch = partial(_feed, digest, above=(*above, id(value))), sys.modules.get("torch")
    if value is None or isinstance(value, (str, bytes, int, float, complex)):
        digest.update(repr(value).encode("utf-8", "surrogatepass"))
    elif kind.__name__ == "Pattern" and hasattr(value, "pattern"):  # compiled by `re`, whose repr is cut, or by `regex`
        feed([value.pattern, value.flags])
    elif torch is not None and isinstance(value, torch.nn.Module):
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).encode() + fingerprint_network(value).encode())
        for module in value.modules():
            feed(_settings(getattr(module, "config", None)))
            if type(module).__module__.partition(".")[0] not in _LIBRARIES:
                held = {name: each for name, each in vars(module).items() if not name.startswith("_")}
                feed({name: each for name, each in held.items() if name not in ("training", "config")})
    elif torch is not None and isinstance(value, torch.Tensor):
        digest.update(tensor_sums(value).encode())
    elif isinstance(value, Mapping):
        for name in sorted(value, key=repr):
            feed(name)
            feed(value[name])
    elif isinstance(value, (list, tuple)):
        for each in value:
            feed(each)
        digest.update(b"|")
    elif isinstance(value, Set):
        digest.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, types.CodeType):
        for each in (value.co_code, value.co_consts, value.co_names):
            feed(each)
    elif isinstance(value, types.FunctionType):
        feed([value.__code__, value.__defaults__, [cell.cell_contents for cell in value.__closure__ or ()]])
        if not hasattr(sys.modules.get(value.__module__), "__file__"):  # of a notebook, where no file holds the rest
            known = sorted(set(names_in_code(value.__code__)) & set(value.__globals__))
            feed({name: value.__globals__[name] for name in known})
    elif isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
        digest.update(f"{getattr(value, '__module__', '')}.{value.__name__}".encode())
    elif hasattr(value, "get_vocab"):  # a tokenizer, whose state changes with its use
        feed([value.get_vocab(), getattr(value, "chat_template", None), getattr(value, "special_tokens_map", None)])
    elif kind.__module__.partition(".")[0] in _LIBRARIES and hasattr(value, "to_dict"):
        feed(_settings(value))
    else:
        reduced = value.__reduce_ex__(4)  # as it would be pickled
        feed(reduced if isinstance(reduced, str) else [*reduced[:3], *(list(each) for each in reduced[3:5] if each)])


def _settings(config: Any) -> Any:
    """What a configuration of transformers says of a network, and not where it came from."""
    values = config.to_dict() if hasattr(config, "to_dict") else {}
    return {name: each for name, each in values.items() if name not in ("_name_or_path", "transformers_version")}
