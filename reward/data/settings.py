"""Base of settings that pydantic checks: its errors become ours, with the setting's place."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, ClassVar

from pydantic import ConfigDict, ValidationError

from reward.errors import ConfigError

# Only values of a field's type are taken: pydantic alone would make 1 of true, and 4 of "4".
STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


class _SettingsClass(type):
    # pydantic raises in `__init__`, which it writes itself, and takes our errors there for its own.
    def __call__(cls, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise _config_error(error, cls) from None


class Settings(metaclass=_SettingsClass):
    """Derive a frozen dataclass of `pydantic.dataclasses` with `config=STRICT`.

    Attributes:
        place: what stands before the name of a setting in messages.

    Raises:
        ConfigError: a setting is unknown, of another type or out of range.

    Example:
        >>> from pydantic.dataclasses import dataclass
        >>> @dataclass(frozen=True, config=STRICT)
        ... class Pace(Settings):
        ...     place = "pace: "
        ...     steps: int = 1
        >>> Pace(steps="many")
        Traceback (most recent call last):
        ...
        reward.errors.ConfigError: pace: steps must be a valid integer, got 'many'
    """

    place: ClassVar[str] = ""


def _config_error(error: ValidationError, settings: Any) -> ConfigError:
    """The first of pydantic's errors in a sentence of ours."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "unexpected_keyword_argument":
        names = ", ".join(sorted(field.name for field in fields(settings)))
        return ConfigError(f"{settings.place}unknown setting {name}; known: {names}")
    value = first["input"]
    rule = re.sub(r"^(\w+ should|Value error,)", "must", first["msg"])
    hint = ""
    if first["type"] == "float_type" and isinstance(value, str):
        hint = "; YAML reads 1e-4 as text, write 1.0e-4"
    return ConfigError(f"{settings.place}{name} {rule}, got {value!r:.200}{hint}")
