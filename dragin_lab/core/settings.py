"""Settings: declared once, as the fields of a frozen dataclass; checked and written; and the
tables in which triggers and formulators are found.

The written form is ``name(setting=value, ...)@threshold``: ``rind@0.25``, ``margin(beta=2.0)@0.6``,
``qfs(top_n=25)``. Settings that have their default are left out, and ``read_form`` reads it back.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar

from dragin_lab.checks import choice, count, flag, instance, is_built_in, number, shown
from dragin_lab.core.custom import check_setting, part_of_function
from dragin_lab.core.fingerprint import Node, describe, digest
from dragin_lab.errors import SettingError

P = TypeVar("P", bound="MethodPart")
Settings = dict[str, Any]  # name -> value

#: The written form: a name, its settings, its threshold.
_FORM = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*(?:@\s*(\S+))?\s*", re.DOTALL)


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
        declared: Settings = {"optional": f.default is None}
        if f.name == "threshold":
            declared["kind"] = float
        elif isinstance(f.default, bool):
            declared["kind"] = bool
        declared |= f.metadata.get("declared", {})  # a field's other metadata is its owner's
        if declared.get("kind") is int:
            declared.setdefault("ge", 1)
        elif isinstance(f.default, int | float) and f.default < 0:
            declared.setdefault("ge", -math.inf)
        return Declaration(**declared)

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
    def settings(self) -> Settings:
        """Setting -> value."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def defaults(cls) -> Settings:
        """Setting -> default; a required setting is left out."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @property
    def changed(self) -> Settings:
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
        """What a custom class is: ``fingerprint.describe``; "" for what is built in."""
        return "" if self.built_in else describe(type(self))

    @property
    def fingerprint(self) -> str:
        """The digest of that; "" for what is built in."""
        return digest(self.described)

    def _call_function(self, given: Any) -> Any:
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
        theta = self.settings.get("threshold")
        changed.pop("threshold", None)
        inside = ", ".join(f"{key}={value!r}" for key, value in changed.items())
        form = f"{self.name}({inside})" if inside else self.name
        return form if theta is None else f"{form}@{theta:.12g}"


# -- the tables ------------------------------------------------------------------------------------


class Registry(Generic[P]):
    """The table of triggers or of formulators.

    ``kind`` is the argument that names one ("when", "what"), ``noun`` what messages call it. A
    ``closed`` table takes no other ``parts``, and says why.
    """

    def __init__(
        self, kind: str, base: type[P], parts: Iterable[type[P]] = (), *, closed: str = ""
    ) -> None:
        self.kind = kind
        self.base = base
        self.closed = closed
        self.noun = {"when": "trigger", "what": "query formulator"}[kind]
        self._parts = {part.name: part for part in parts}

    def add(self, part: type[P]) -> type[P]:
        """Enter a class under its name. It replaces your own of that name; built-in names cannot
        be replaced.
        """
        self._check_class(part)
        known = self._parts.get(part.name)
        if not is_built_in(part) and known is not None and is_built_in(known):
            raise SettingError(f"{part.name!r} is a built-in {self.noun}; choose another name")
        self._parts[part.name] = part
        return part

    def _check_class(self, part: type[P]) -> None:
        """Raise ``SettingError`` for a custom class that cannot be named, written down or told
        from another one.
        """
        where = f"the {self.noun} {part.__name__}"
        if not part.name:
            raise SettingError(
                f"{where} has no name; write one in its class, such as name = 'margin'"
            )
        if not re.fullmatch(r"[A-Za-z][\w-]*", part.name):
            raise SettingError(
                f"{part.name!r} cannot name a {self.noun}; use letters, digits and -, such as"
                " 'margin'"
            )
        if is_built_in(part):
            return
        declared = {
            name
            for name, hint in inspect.get_annotations(part).items()
            if "ClassVar" not in str(hint)
        }
        if declared and "__dataclass_fields__" not in vars(part):
            raise SettingError(
                f"{where} has settings; write @dataclass(frozen=True) above its class"
            )
        for f in fields(part):
            if f.name in declared:
                check_setting(f"the setting {f.name!r} of {where}", f.name, f.default, self.base)

    def define(
        self, name: str, *, settings: dict[str, Field[Any]] | None = None, **attributes: Any
    ) -> Callable[[Callable[..., Any]], type[P]]:
        """Enter what a function makes (``part_of_function``)."""
        instance(
            "name",
            name,
            str,
            f"write @dl.{self.kind}('margin') above the function, with a name of your own",
        )
        return lambda function: self.add(
            part_of_function(function, self.base, name, settings=settings, **attributes)
        )

    def __iter__(self) -> Iterator[str]:  # names, in the order of definition
        return iter(self._parts)

    def named(self, name: str) -> type[P]:
        """The class of that name. Raises ``SettingError`` with the nearest name where there is
        none.
        """
        return self._parts[choice(self.kind, name, self._parts)]

    def read(self, given: str | P | type[P]) -> tuple[type[P], Settings]:
        """The class of a written form, a class or a part, and the settings that it states."""
        if isinstance(given, str):
            name, stated = read_form(given)
            if self.closed and name not in self._parts:
                raise SettingError(
                    f"{self.kind}={given!r}: {self.closed}; it has {', '.join(self)}"
                )
            return self.named(name), stated
        own_class = given if isinstance(given, type) else type(given)
        is_foreign = self.closed and own_class not in self._parts.values()
        if is_foreign and issubclass(own_class, MethodPart):
            raise SettingError(f"{self.kind}={own_class.name!r}: {self.closed}")
        if issubclass(own_class, self.base):
            self._check_class(own_class)
            return own_class, given.settings if isinstance(given, self.base) else {}
        raise SettingError(
            f"{self.kind}={shown(given)} is not a {self.noun}; pass a name such as"
            f" {next(iter(self._parts))!r}, or a @dl.{self.kind} function"
        )

    def make(self, given: str | P | type[P], **settings: Any) -> P:
        """A part from its written form, its class or itself, with more settings.

        They replace those that it has; None replaces nothing that a written form states.
        """
        part, stated = self.read(given)
        for key, value in settings.items():
            if value is not None or key not in stated or not isinstance(given, str):
                stated[key] = value
        declared = part.declared()
        for key, value in list(stated.items()):
            if key not in declared:
                has = (
                    f"its settings are {', '.join(declared)}" if declared else "it has no settings"
                )
                raise SettingError(f"{key} has no meaning for {self.noun} {part.name!r}: {has}")
            if value is None and not declared[key].optional and declared[key].kind is not bool:
                del stated[key]
        for key in declared:
            if key not in stated and key not in part.defaults():
                raise SettingError(
                    f"{self.noun} {part.name!r} needs {key}; write {part.name}({key}=…)"
                )
        return part(**stated)


def read_form(form: str) -> tuple[str, Settings]:
    """Name and settings of a written form. Raises ``SettingError`` for a text that is not one."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise SettingError(
            f"{shown(form)} cannot be read; write it as name, name@0.6 or name(setting=20)@0.6"
        )
    name, inside, theta = match.groups()
    try:
        call = ast.parse(f"f({inside or ''})", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("there is more than one call in it")
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("settings are given by name")
        settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise SettingError(
            f"the settings in {form!r} cannot be read ({error}); write them as name=value"
        ) from None
    if theta is not None:
        settings["threshold"] = number("threshold", theta, -math.inf)
    return name, settings
