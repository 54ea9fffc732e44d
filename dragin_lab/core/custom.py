"""Triggers and query formulators of a user's own: made from a function, and checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, make_dataclass
from typing import Any, TypeVar

from dragin_lab.checks import several, shown
from dragin_lab.errors import SettingError

T = TypeVar("T")

#: Names that methods and their records use themselves, beside the attributes of a part's base.
_RESERVED = (
    "variant",
    "when",
    "what",
    "max_new_tokens",
    "top_k",
    "nlp",
    "label",
    "measure",
    "unit",
    "defined",
    "pipeline",
)
_NEED = re.compile(r"attention|received|entropy|entities|thoughts|hidden(:-?\d+)?")
_REMEDY = (
    "give a tuple of 'attention', 'received', 'entropy', 'entities', 'thoughts', 'hidden' or"
    " 'hidden:12'"
)


def part_of_function(
    function: Callable[..., Any],
    base: type[T],
    name: str,
    *,
    settings: dict[str, Field[Any]] | None = None,
    **attributes: Any,
) -> type[T]:
    """A subclass of ``base`` around a function: its parameters after the first become settings
    beside ``settings``.

    Raises ``SettingError`` for a parameter without a default and one that is called like a setting
    of ``settings``.
    """
    settings = settings or {}
    where = repr(getattr(function, "__name__", function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise SettingError(f"{name!r} is made from {function!r}, which is not a function") from None
    if not parameters:
        raise SettingError(
            f"the function {where} takes no argument; its first one is what it looks at"
        )
    of_function = {}
    for parameter in parameters[1:]:
        key = parameter.name
        default = parameter.default
        if default is parameter.empty:
            raise SettingError(
                f"the parameter {str(parameter)!r} of {where} has no default; write each as"
                " name=value"
            )
        what = f"the parameter {key!r} of {where}"
        if key in settings:
            raise SettingError(f"{what} is called like a setting; rename it")
        check_setting(what, key, default, base)
        of_function[key] = field(default=default)
    part = make_dataclass(
        "".join(word.capitalize() for word in re.findall(r"[a-zA-Z0-9]+", name)) or "Own",
        [(key, Any, declared) for key, declared in (settings | of_function).items()],
        bases=(base,),
        frozen=True,
        namespace=attributes
        | {"function": staticmethod(function), "parameters": tuple(of_function), "name": name},
    )
    inner = getattr(function, "func", function)  # of a partial function
    # None where code was executed without a module
    part.__module__ = inner.__module__ or "__main__"
    part.__doc__ = inner.__doc__
    own_name = getattr(inner, "__name__", "")
    # under which the built-in ones are found again when they are unpickled
    if own_name.isidentifier():
        part.__name__ = part.__qualname__ = own_name
    return part


def check_setting(what: str, name: str, default: Any, base: type) -> None:
    """Raise ``SettingError`` for a name that is taken, and for a default that can change or
    cannot be saved.
    """
    if name in _RESERVED or hasattr(base, name):
        raise SettingError(
            f"{what} would take the place of an attribute that every {base.__name__} has; rename it"
        )
    if default is not MISSING and not _is_savable(default):
        raise SettingError(
            f"{what} has {shown(default)} as its default, which can change or cannot be saved; give"
            " a number, a text, True, False, None or a tuple of these"
        )


def _is_savable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_savable, value))
    return value is None or type(value) in (bool, int, float, str)


def read_needs(name: str, needs: Sequence[str]) -> tuple[str, ...]:
    """The needs of the trigger ``name``. Raises ``SettingError`` for what cannot be captured."""
    read = several(f"trigger {name!r}: needs", needs, str, _REMEDY)
    if wrong := [need for need in read if not _NEED.fullmatch(need)]:
        raise SettingError(f"needs={wrong!r} of trigger {name!r}: {_REMEDY}")
    return tuple(read)
