"""Whens and whats as objects: settings of their own, a written form, and tables in which they are found by name.

The written form is ``name(setting=value, ...)@threshold``: ``rind@1.2``, ``margin(first=20)@0.6``, ``qfs(top_n=25)``.
Settings that have their default are left out, and reading the form back gives an equal object.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from dragin_lab.checks import choice, flag, number, shown, text
from dragin_lab.errors import SettingError

P = TypeVar("P", bound="Part")

_FORM = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*(?:@\s*(\S+))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A trigger or a formulator: a frozen dataclass whose fields are its settings. Comparable and hashable."""

    name = ""  # how it is called everywhere
    source = ""  # where it is from: a paper's section or equation
    shorthand = ""  # the setting that the written form may call ``n``

    def __post_init__(self) -> None:
        for f in fields(self):
            if isinstance(f.default, bool):
                flag(f.name, getattr(self, f.name))

    @property
    def settings(self) -> dict[str, Any]:
        """Setting -> value."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Setting -> default; one that must be given is missing."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that do not have their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def shipped(self) -> bool:
        """Whether the package brings it."""
        return type(self).__module__.startswith("dragin_lab.")

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over the source of a custom definition; "" for what the package ships."""
        return "" if self.shipped else _fingerprint(getattr(type(self), "function", type(self)))

    def resolved(self, variant: str) -> Any:
        """The same with what depends on the variant filled in. Raises ``SettingError`` for what it does not know."""
        return self

    def __str__(self) -> str:
        given = {key: value for key, value in self.changed.items() if key != "threshold"}
        inside = ", ".join(f"{key}={value!r}" for key, value in given.items())
        threshold = getattr(self, "threshold", None)
        at = "" if threshold is None else f"@{threshold:.12g}"
        return self.name + (f"({inside})" if inside else "") + at


@dataclass(frozen=True)
class Entry:
    """One row of a table of whens, whats or methods."""

    name: str
    settings: dict[str, Any]  # setting -> default
    source: str  # a paper's section or equation
    line: str  # what it does

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings}): {self.line}" + (f" [{self.source}]" if self.source else "")


class Registry(Generic[P]):
    """The table of triggers or of formulators. Names that are not in it are looked up in installed packages.

    ``kind`` is the argument that names one ("when", "what"), ``noun`` what messages call it.
    """

    def __init__(self, kind: str, base: type[P], group: str, shipped: tuple[str, ...]) -> None:
        self.kind, self.base, self.group, self.shipped = kind, base, group, shipped
        self.noun = {"when": "trigger", "what": "query formulator"}[kind]
        self._found: dict[str, type[P]] = {}

    def add(self, part: type[P]) -> type[P]:
        """Enter a class under its name. Defining your own again replaces it; the package's names are taken."""
        if not re.fullmatch(r"[A-Za-z][\w-]*", part.name):
            raise SettingError(f"{part.name!r} cannot name a {self.noun}; use letters, digits and -, such as 'margin'")
        own = not part.__module__.startswith("dragin_lab.")
        if own:
            self._load()
        taken = self._found.get(part.name)
        if own and taken is not None and taken.__module__.startswith("dragin_lab."):
            raise SettingError(f"{part.name!r} is a built-in {self.noun}; choose another name")
        self._found[part.name] = part
        return part

    def _load(self) -> None:
        """Have the package's own parts in the table, before anything else is looked at."""
        for module in self.shipped:
            import_module(module)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """Every name, in the order of definition, those of installed packages last."""
        self._load()
        return (*self._found, *(name for name in self._installed() if name not in self._found))

    def named(self, name: str) -> type[P]:
        """The class of that name. Raises ``SettingError`` with the nearest name where there is none."""
        self._load()
        if name in self._found:  # entry points are found by reading what every installed package says of itself
            return self._found[name]
        if (point := self._installed().get(name)) is not None:
            try:
                loaded = point.load()
            except Exception as error:  # whatever an installed package raises
                package = point.dist.name if point.dist else point.value
                raise SettingError(
                    f"{self.kind} {name!r} of the package {package} cannot be loaded ({type(error).__name__}: "
                    f"{error}); repair or uninstall the package"
                ) from error
            if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
                raise SettingError(f"the entry point {self.group}: {name} gives {loaded!r}, which is not a {self.noun}")
            self._found.setdefault(name, loaded)
        choice(self.kind, name, self.names())
        return self._found[name]

    def _installed(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=self.group)}

    def read(self, given: str | P | type[P]) -> tuple[type[P], dict[str, Any]]:
        """The class of a written form, a class or a part, and the settings that it states."""
        if isinstance(given, str):
            name, own = read_form(given)
            part = self.named(name)
            if "n" in own and part.shorthand:
                own[part.shorthand] = own.pop("n")
            return part, own
        if isinstance(given, self.base):
            return type(given), given.settings
        if isinstance(given, type) and issubclass(given, self.base):
            return given, {}
        raise SettingError(
            f"{self.kind}={shown(given)} is not a {self.noun}; pass a name such as {next(iter(self._found))!r}, "
            f"or a @dl.{self.kind} function"
        )

    def make(self, given: str | P | type[P], **settings: Any) -> P:
        """A part from its written form, its class or itself, with more settings.

        They replace those of a part. Raises ``SettingError`` where they contradict a written form, which None does not.
        """
        part, own = self.read(given)
        if isinstance(given, str):
            for key, value in own.items():
                if settings.get(key) not in (None, value):
                    raise SettingError(
                        f"{key}={shown(settings[key])} contradicts {self.kind}={given!r}, which has {key}={value!r}; "
                        "give one of the two"
                    )
            settings = settings | own
        else:
            settings = own | settings
        every = fields(part)
        known = [f.name for f in every]
        for name in settings:
            if name not in known:
                has = f"its settings are {', '.join(known)}" if known else "it has no settings"
                raise SettingError(f"{name} has no meaning for {self.kind} {part.name!r}: {has}")
        for f in every:
            if f.default is MISSING and f.default_factory is MISSING and f.name not in settings:
                raise SettingError(f"{self.kind} {part.name!r} needs {f.name}; write {part.name}({f.name}=…)")
        return part(**settings)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Setting -> default of the part of that name."""
        return self.named(name).defaults()

    def listing(self) -> list[Entry]:
        """One entry per part, in the order of ``names``."""
        found = {name: self.named(name) for name in self.names()}
        line = {name: (inspect.getdoc(part) or "").partition("\n")[0] for name, part in found.items()}
        return [Entry(name, self.settings_of(name), part.source, line[name]) for name, part in found.items()]

    def any_has(self, setting: str) -> bool:
        """Whether some part has a setting of that name."""
        return any(setting in {f.name for f in fields(part)} for part in self._found.values())


def read_form(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a written form. Raises ``SettingError`` for a text that is not one."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise SettingError(f"{shown(text)} cannot be read; write it as name, name@0.6 or name(setting=20)@0.6")
    name, inside, at = found.groups()
    settings: dict[str, Any] = {}
    if inside:
        try:
            call = ast.parse(f"f({inside})", mode="eval").body
            assert isinstance(call, ast.Call)
            if call.args:
                raise ValueError("settings are given by name")
            settings = {str(given.arg): ast.literal_eval(given.value) for given in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise SettingError(f"the settings in {text!r} cannot be read ({error}); write them as name=value") from None
    if at is not None:
        # A budget is read with its calibration set.
        settings["threshold"] = at if ":" in at else number("threshold", at)
    return name, settings


def part_of_function(
    function: Callable[..., Any], base: type[P], name: str, *, settings: dict[str, Any], **attributes: Any
) -> type[P]:
    """A subclass of ``base`` around a function: its parameters after the first become settings.

    Raises ``SettingError`` for a parameter without a default and one that is called like a setting of ``settings``.
    """
    if not text("name", name).strip() or "\0" in name:
        raise SettingError(f"name={name!r}: give a name, such as 'margin'")
    where = f"{getattr(function, '__name__', function)!r}"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise SettingError(f"{name!r} is made from {function!r}, which is not a function") from None
    if not parameters:
        raise SettingError(f"the function {where} takes no argument; its first one is what it looks at")
    for one in parameters[1:]:
        if one.default is inspect.Parameter.empty:
            raise SettingError(f"the parameter {one.name!r} of {where} has no default; write {one.name}=...")
        if one.name in settings:
            raise SettingError(f"the parameter {one.name!r} of {where} is called like a setting; rename it")
    given = {one.name: one.default for one in parameters[1:]}
    made = make_dataclass(
        "".join(part.capitalize() for part in re.split(r"[-_]", name)) or "Own",
        [(key, Any, field(default=value)) for key, value in (settings | given).items()],
        bases=(base,),
        frozen=True,
        namespace={"function": staticmethod(function), "parameters": tuple(given), "name": name, **attributes},
    )
    made.__module__ = function.__module__ or "__main__"  # None where code was executed without a module
    made.__doc__ = function.__doc__
    if function.__name__.isidentifier():  # under which the shipped ones are found again when they are unpickled
        made.__name__ = made.__qualname__ = function.__name__
    return made


def _fingerprint(thing: Any) -> str:
    if (code := getattr(thing, "__code__", None)) is not None:
        text = repr((code.co_code, code.co_names, _constants(code), thing.__defaults__))
    else:
        try:
            text = inspect.getsource(thing)
        except (OSError, TypeError):
            text = repr(sorted(vars(thing)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _constants(code: Any) -> list[Any]:
    """The constants of a function's code, its inner functions' too, without the docstring's and addresses."""
    return [[*_constants(one), one.co_code] if hasattr(one, "co_code") else one for one in code.co_consts[1:]]
