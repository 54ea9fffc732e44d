"""Parse and check user input; errors name the value and what would be accepted."""

from __future__ import annotations

import difflib
import math
import numbers
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.text import hide_secrets, split_credentials

EMBEDDED = "almanac"  # the name of the model and the passages that come with the package

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 3
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: Any) -> str:
    """A value for a message: in one line and cut, however large or deeply nested it is."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except ValueError:  # a whole number of more digits than Python writes
        return f"a {type(value).__name__} too long to show"


def refuse_password(name: str, given: Any, error: type[DraginLabError] = SettingError) -> None:
    """Raise ``error`` for an address that holds a password or a key; the message holds neither."""
    if not isinstance(given, str):
        return
    address = hide_secrets(split_credentials(given)[1])
    if address != given:
        raise error(
            f"{name} {address[:60]!r} was given with a password or a key, and takes no password;"
            " set DRAGIN_LAB_API_KEY for a model server, write ~/.netrc for a download"
        )


def is_embedded(source: Any) -> bool:
    """Whether a source names the embedded model or passages: None, or "almanac", as tables and
    runs write it.
    """
    return source is None or (isinstance(source, str) and source == EMBEDDED)


def is_built_in(definition: Any) -> bool:
    """Whether a class or a function comes with the package."""
    return (getattr(definition, "__module__", "") or "").startswith("dragin_lab.")


def choice(kind: str, value: Any, choices: Iterable[str]) -> str:
    """``value`` if it is one of the choices; else a ``SettingError`` that names the nearest."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise SettingError(f"{kind} {shown(value)} does not exist; {hint}one of {', '.join(choices)}")


def plain(value: Any) -> Any:
    """A single number of numpy or torch as one of Python's; anything else as it is."""
    single = math.prod(getattr(value, "shape", (0,))) == 1
    return value.item() if single and hasattr(value, "item") else value


def number(name: str, value: Any, low: float = 0.0, high: float = math.inf) -> float:
    """``value`` as a finite number from ``low`` to ``high``; digits in a text count, booleans
    are rejected.
    """
    try:
        as_number = (
            float(value)
            if isinstance(value, str | numbers.Real) and not isinstance(value, bool)
            else None
        )
    except (ValueError, OverflowError):
        as_number = None
    if as_number is None:
        raise SettingError(f"{name}={shown(value)} is not a number; give one such as {name}=1.2")
    if not math.isfinite(as_number) or not low <= as_number <= high:
        limit = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        limit = limit if math.isfinite(low) else "finite"
        raise SettingError(f"{name}={shown(value)} is out of range; it must be {limit}")
    return as_number


def count(name: str, value: Any, low: int = 1) -> int:
    """``value`` as a whole number that is at least ``low``; one of Python's or numpy's may be of
    any size.
    """
    whole = number(name, value, low)
    if isinstance(value, numbers.Integral):
        return int(value)  # a float has only 53 bits
    if whole != int(whole):
        raise SettingError(f"{name}={shown(value)} must be a whole number")
    return int(whole)


def position(
    name: str, value: Any, size: int, whose: str, *, things: str = "", first: int = 1
) -> int:
    """The position, from 0, of one of ``size`` things that people count from ``first``; any
    other number is refused.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and 0 <= int(value) - first < size):
        things = things or f"{name}s"
        has = f"no {things}"
        if size:
            has = f"{things} {first} to {first + size - 1}"
        raise SettingError(f"{name}={shown(value)}: {whose} has {has}; give one of them")
    return int(value) - first


def flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False; words and numbers for them are for the command line to
    read.
    """
    if not isinstance(value, bool):
        raise SettingError(f"{name}={shown(value)} is {type(value).__name__}; give True or False")
    return value


def check_text(name: str, value: Any) -> str:
    """``value`` if it is a text that can be written in UTF-8."""
    if not isinstance(value, str):
        raise SettingError(f"{name}={shown(value)} is {type(value).__name__}; give a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SettingError(
            f"{name}={shown(value)} holds half a character at {error.start}; write it again"
        ) from None
    return value


def instance(name: str, value: Any, kind: Any, remedy: str) -> Any:
    """``value`` if it is of a kind, a class or several."""
    if not isinstance(value, kind):
        raise SettingError(f"{name} {shown(value)} is {type(value).__name__}; {remedy}")
    return value


def several(name: str, values: Any, kind: Any, remedy: str, *, alone: bool = False) -> list[Any]:
    """``values`` as a list of things of a kind; with ``alone`` a single one is a list of itself.

    A text, a mapping or a table would iterate into something else, so none of them is a list.
    """
    if alone and isinstance(values, kind):
        return [values]
    if (
        isinstance(values, str | bytes | Mapping)
        or hasattr(values, "columns")
        or not isinstance(values, Iterable)
    ):
        raise SettingError(f"{name} {shown(values)} is {type(values).__name__}; {remedy}")
    return [
        instance(f"number {i} of {name},", value, kind, remedy) for i, value in enumerate(values, 1)
    ]
