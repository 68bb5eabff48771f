"""A method's settings with the caller's changes, checked by the types of the settings' fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pirate.errors import UsageError

Constants = TypeVar("Constants")


def changed(settings: Constants, options: Mapping[str, Any], where: str) -> Constants:
    """A copy of a settings dataclass with `options`; an unknown name or a wrong type is refused with a sentence.

    Args:
        settings: a frozen dataclass.
        options: name to value; a whole number may stand for a float, a list or one value for a tuple.
        where: what messages call the method.
    """
    hints = get_type_hints(type(settings))
    clean: dict[str, Any] = {}
    for name, value in options.items():
        if name not in hints:
            raise UsageError(f"{where}: there is no setting {name!r}; the settings are {', '.join(hints)}.")
        clean[name] = _checked(f"{where}: {name}", value, hints[name])
    return dataclasses.replace(settings, **clean)  # type: ignore[type-var]


def _checked(where: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(_checked(where, item, get_args(kind)[0]) for item in values)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UsageError(f"{where} is {value!r}; expected one of {', '.join(map(str, get_args(kind)))}.")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UsageError(f"{where} is {value!r}; expected a value of type {kind.__name__}.")
    return value
