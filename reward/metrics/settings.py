"""Settings: base of the dataclasses that a checkpoint's config.json holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from reward.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _are_names(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        return False
    return 0 < len(value) == len(set(value))


def _are_three_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 3 and all(map(_is_number, value))


# By the type of a field, what its value must be, for the message, and the check.
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number of at least 1", lambda value: type(value) is int and value >= 1),
    "float": ("a number in [0, 1)", lambda value: _is_number(value) and 0 <= value < 1),
    "str": ("a text", lambda value: isinstance(value, str)),
    "str | None": ("a text or null", lambda value: value is None or (isinstance(value, str) and value != "")),
    "dict[str, Any] | None": ("a table or null", lambda value: value is None or isinstance(value, Mapping)),
    "tuple[str, ...]": ("a list of different names, at least one", _are_names),
    "tuple[float, float, float]": ("three numbers", _are_three_numbers),
}


class Settings:
    """Derive a frozen dataclass: each field is checked by its type, and lists become tuples.

    Attributes:
        place: what stands before the names of the fields in messages.
        tables: {field: the Settings that it holds, or None}.
        states_all: whether a file must state all of them.

    Raises:
        ConfigError: a value has another type, or is out of range.
    """

    place: ClassVar[str] = ""
    tables: ClassVar[Mapping[str, type[Settings]]] = {}
    states_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            kind = str(field.type)
            if kind not in _KINDS:  # a table, which checks itself
                continue
            value = getattr(self, field.name)
            meaning, fits = _KINDS[kind]
            if not fits(value):
                raise ConfigError(f"{self.place}{field.name} must be {meaning}, got {value!r:.200}")
            if kind.startswith("tuple"):
                object.__setattr__(self, field.name, tuple(value))

    @classmethod
    def of(cls, plain: Any) -> Self:
        """Settings from plain values.

        Raises:
            ConfigError: it is no table, or a setting is unknown, missing or invalid.
        """
        if not isinstance(plain, Mapping):
            raise ConfigError(f"{cls.place.rstrip('.')} must be a table, got {plain!r:.200}")
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        unknown = [str(name) for name in plain if name not in names]
        missing = [name for name in names if name not in plain]
        if unknown:
            raise ConfigError(f"{cls.place}{', '.join(unknown)} unknown")
        if missing and cls.states_all:
            raise ConfigError(f"{cls.place}{', '.join(missing)} not stated")
        values = dict(plain)
        for name, table in cls.tables.items():
            if values.get(name) is not None:
                values[name] = table.of(values[name])
        return cls(**values)
