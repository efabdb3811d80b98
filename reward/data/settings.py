"""Base of settings that pydantic checks: its errors become ours, with the setting's place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from reward.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

# Only values of a field's type are taken: pydantic alone would make 1 of true, and 4 of "4".
STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("be a list of different names")
    return names


# Types of fields.
AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)  # YAML and JSON have lists
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AS_TUPLE, AfterValidator(_different)]
AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]


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

    @classmethod
    def of_file(cls, values: Mapping[str, Any]) -> Self:
        """Settings of a checkpoint's file, which must state all of them, so that a new default changes no checkpoint.

        Raises:
            ConfigError: a setting is missing, unknown or invalid.
        """
        missing = [field.name for field in fields(cls) if field.name not in values]  # type: ignore[arg-type]
        if missing:
            raise ConfigError(f"{cls.place}{', '.join(missing)} not stated")
        return cls(**values)


def settings_or_table(settings: type[Settings]) -> BeforeValidator:
    """Lets a field, annotated with it, take its settings also as the table of a file."""
    return BeforeValidator(lambda value: settings(**value) if isinstance(value, Mapping) else value)


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
