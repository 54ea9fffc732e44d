"""Settings: declared once, as the fields of a frozen dataclass; checked, written, and made from a
function.

The written form is ``name(setting=value, ...)@threshold``: ``rind@0.25``, ``margin(beta=2.0)@0.6``,
``qfs(top_n=25)``. Settings that have their default are left out, and ``registry.read_form`` reads
it back.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from typing import Any, ClassVar, TypeVar

from dragin_lab.checks import choice, count, flag, number, shown
from dragin_lab.core.fingerprint import Node, describe_class, digest, is_built_in
from dragin_lab.errors import SettingError

P = TypeVar("P", bound="MethodPart")

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


@dataclass(frozen=True)
class Declaration:
    """What one setting may be, and how it is shown; its default is the field's."""

    kind: type = object  # bool, int, float, str; object: anything
    ge: float = 0.0  # the least that a number may be
    choices: tuple[str, ...] = ()
    optional: bool = False  # whether None is a value
    label: str = ""  # what the number is: "RIND score"
    unit: str = ""  # what it counts: "words"
    # the largest value that makes a difference, where there is one: 1 of a probability
    top: float | None = None

    @staticmethod
    def of(f: Field[Any]) -> Declaration:
        """What ``setting`` says of a field, and the rest by its default. Without it θ and flags
        alone are checked.

        The least whole number is 1, the least other number 0, or any where the default is below 0.
        """
        kind = float if f.name == "threshold" else bool if isinstance(f.default, bool) else object
        stated = f.metadata.get("declared", {})  # a field's other metadata is its owner's
        kind = stated.get("kind", kind)
        below = isinstance(f.default, int | float) and f.default < 0
        least = 1 if kind is int else -math.inf if below else 0.0
        return Declaration(**{"kind": kind, "ge": least, "optional": f.default is None} | stated)

    def check(self, name: str, value: Any) -> Any:
        """The value in the setting's own type. Raises ``SettingError`` for any other."""
        if value is None and self.optional:
            return None
        if self.choices:
            return choice(name, value, self.choices)
        if self.kind is bool:
            return flag(name, value)
        if self.kind is int:
            return count(name, value, int(self.ge))
        return number(name, value, self.ge) if self.kind is float else value


def setting(default: Any = None, **declared: Any) -> Any:
    """A field of a ``MethodPart``: its default, and what it may be (``Declaration``); None only if
    that is the default.

    ``kind`` is the default's own type where it is not given.
    """
    kind = object if default is None else type(default)
    return field(default=default, metadata={"declared": {"kind": kind} | declared})


def title_setting(name: str) -> str:
    """What a setting is called for people: ``θ``, ``top n``."""
    return "θ" if name == "threshold" else name.replace("_", " ")


@dataclass(frozen=True)
class MethodPart:
    """A trigger or a formulator: a frozen dataclass whose fields are its settings. Comparable
    and hashable.
    """

    name = ""  # how it is called everywhere
    source = ""  # where it is from: a paper's section or equation
    # the settings that the function takes, of a part that is made from one
    parameters: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, declared in self.declared().items():
            object.__setattr__(self, name, declared.check(name, getattr(self, name)))

    @classmethod
    def declared(cls) -> dict[str, Declaration]:
        """Setting -> what it may be and what it is called."""
        return {f.name: Declaration.of(f) for f in fields(cls)}

    @property
    def settings(self) -> dict[str, Any]:
        """Setting -> value."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Setting -> default; a required setting is left out."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that do not have their default."""
        return {
            f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default
        }

    @property
    def built_in(self) -> bool:
        """Whether it comes with the package."""
        return is_built_in(type(self))

    @property
    def described(self) -> Node:
        """What a custom class is: ``fingerprint.describe_class``; "" for what is built in."""
        return describe_class(type(self))

    @property
    def fingerprint(self) -> str:
        """The digest of that; "" for what is built in."""
        return digest(self.described)

    def _call(self, given: Any) -> Any:
        """What the function gives that it was made from."""
        function = getattr(self, "function", None)
        if function is None:
            raise SettingError(
                f"{self.name!r} says nothing; write score(self, draft) or text(self, gap) in its"
                " class"
            )
        return function(given, **{key: getattr(self, key) for key in self.parameters})

    def __str__(self) -> str:
        changed = self.changed
        theta = (
            f"@{self.settings['threshold']:.12g}"
            if self.settings.get("threshold") is not None
            else ""
        )
        inside = ", ".join(
            f"{key}={value!r}" for key, value in changed.items() if key != "threshold"
        )
        return self.name + (f"({inside})" if inside else "") + theta


def part_of_function(
    function: Callable[..., Any],
    base: type[P],
    name: str,
    *,
    settings: dict[str, Field[Any]] | None = None,
    **attributes: Any,
) -> type[P]:
    """A subclass of ``base`` around a function: its parameters after the first become settings
    beside ``settings``.

    Raises ``SettingError`` for a parameter without a default and one that is called like a setting
    of ``settings``.
    """
    settings = settings or {}
    where = f"{getattr(function, '__name__', function)!r}"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise SettingError(f"{name!r} is made from {function!r}, which is not a function") from None
    if not parameters:
        raise SettingError(
            f"the function {where} takes no argument; its first one is what it looks at"
        )
    for parameter in parameters[1:]:
        if parameter.default is inspect.Parameter.empty:
            raise SettingError(
                f"the parameter {str(parameter)!r} of {where} has no default; write each as"
                " name=value"
            )
        if parameter.name in settings:
            raise SettingError(
                f"the parameter {parameter.name!r} of {where} is called like a setting; rename it"
            )
        check_setting(
            f"the parameter {parameter.name!r} of {where}", parameter.name, parameter.default, base
        )
    of_function = {parameter.name: field(default=parameter.default) for parameter in parameters[1:]}
    part = make_dataclass(
        "".join(word.capitalize() for word in re.findall(r"[a-zA-Z0-9]+", name)) or "Own",
        [(key, Any, declared) for key, declared in (settings | of_function).items()],
        bases=(base,),
        frozen=True,
        namespace={
            "function": staticmethod(function),
            "parameters": tuple(of_function),
            "name": name,
            **attributes,
        },
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
