"""The tables in which triggers and query formulators are found by name, by class, or by their
written form.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field, dataclass, fields
from typing import Any, Generic

from dragin_lab.checks import choice, instance, number, shown
from dragin_lab.core.settings import MethodPart, P, check_setting, is_built_in, part_of_function
from dragin_lab.errors import SettingError

_FORM = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*(?:@\s*(\S+))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Listed:
    """One row of the list of triggers, formulators or methods."""

    name: str
    settings: dict[str, Any]  # setting -> default
    source: str  # a paper's section or equation
    line: str  # what it does

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings}): {self.line}" + (
            f" [{self.source}]" if self.source else ""
        )


class Registry(Generic[P]):
    """The table of triggers or of formulators.

    ``kind`` is the argument that names one ("when", "what"), ``noun`` what messages call it. A
    ``closed`` table takes no other ``parts``, and says why.
    """

    def __init__(
        self, kind: str, base: type[P], parts: Iterable[type[P]] = (), *, closed: str = ""
    ) -> None:
        self.kind, self.base, self.closed = kind, base, closed
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
        own = {
            name
            for name, hint in inspect.get_annotations(part).items()
            if "ClassVar" not in str(hint)
        }
        if own and "__dataclass_fields__" not in vars(part):
            raise SettingError(
                f"{where} has settings; write @dataclass(frozen=True) above its class"
            )
        for f in fields(part):
            if f.name in own:
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

    def read(self, given: str | P | type[P]) -> tuple[type[P], dict[str, Any]]:
        """The class of a written form, a class or a part, and the settings that it states."""
        if isinstance(given, str):
            name, own = read_form(given)
            if self.closed and name not in self._parts:
                raise SettingError(
                    f"{self.kind}={given!r}: {self.closed}; it has {', '.join(self)}"
                )
            return self.named(name), own
        own_class = given if isinstance(given, type) else type(given)
        if (
            self.closed
            and issubclass(own_class, MethodPart)
            and own_class not in self._parts.values()
        ):
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
        part, own = self.read(given)
        if isinstance(given, str):
            settings = {
                key: value for key, value in settings.items() if value is not None or key not in own
            }
        settings = own | settings
        declared, defaults = part.declared(), part.defaults()
        for name, value in list(settings.items()):
            if name not in declared:
                has = (
                    f"its settings are {', '.join(declared)}" if declared else "it has no settings"
                )
                raise SettingError(f"{name} has no meaning for {self.noun} {part.name!r}: {has}")
            if value is None and not declared[name].optional and declared[name].kind is not bool:
                del settings[name]
        if missing := [name for name in declared if name not in settings and name not in defaults]:
            raise SettingError(
                f"{self.noun} {part.name!r} needs {missing[0]}; write {part.name}({missing[0]}=…)"
            )
        return part(**settings)

    def listing(self) -> list[Listed]:
        """One entry per part, in the order of definition."""
        lines = [
            (part, (inspect.getdoc(part) or "").partition("\n")[0]) for part in self._parts.values()
        ]
        return [Listed(part.name, part.defaults(), part.source, line) for part, line in lines]


def read_form(form: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a written form. Raises ``SettingError`` for a text that is not one."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise SettingError(
            f"{shown(form)} cannot be read; write it as name, name@0.6 or name(setting=20)@0.6"
        )
    name, inside, at = match.groups()
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
    if at is not None:
        settings["threshold"] = number("threshold", at, -math.inf)
    return name, settings
