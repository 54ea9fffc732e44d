"""Settings: declared once, checked, written and read back; and the tables in which triggers and formulators are named.

The written form is ``name(setting=value, ...)@threshold``: ``rind@0.25``, ``margin(beta=2.0)@0.6``, ``qfs(top_n=25)``.
Settings that have their default are left out, and reading the form back gives an equal object.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from dragin_lab.checks import choice, count, flag, instance, number, shown
from dragin_lab.core.fingerprints import fingerprint_class, is_built_in
from dragin_lab.core.needs import hidden_in
from dragin_lab.errors import SettingError

P = TypeVar("P", bound="Part")

#: What a method and its record call something of their own, beside the attributes of a part's base.
_RESERVED = ("variant", "when", "what", "max_new_tokens", "top_k", "nlp", "calibration", "label", "measure", "unit",
             "defined", "pipeline", "calibrated")  # fmt: skip

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
    top: float | None = None  # the largest value that makes a difference, where there is one: 1 of a probability
    help: str = ""

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


def setting(
    default: Any = None, *, kind: type | None = None, ge: float | None = None, choices: tuple[str, ...] = (),
    label: str = "", unit: str = "", top: float | None = None, help: str = "",
) -> Any:  # fmt: skip
    """A field of a ``Part``: its default, and what it may be (``Declaration``). None is a value where it is default.

    ``kind`` is the default's own type where it is not given. The least whole number is 1, the least other number 0,
    or any where the default is below 0.
    """
    kind = (object if default is None else type(default)) if kind is None else kind
    least = _find_least(kind, default) if ge is None else ge
    return field(
        default=default,
        metadata={"declaration": Declaration(kind, least, choices, default is None, label, unit, top, help)},
    )


def _find_least(kind: type, default: Any) -> float:
    if kind is int:
        return 1
    return -math.inf if isinstance(default, int | float) and default < 0 else 0.0


def title_setting(name: str) -> str:
    """What a setting is called for people: ``θ``, ``top n``."""
    return "θ" if name == "threshold" else name.replace("_", " ")


def _declaration_of(f: Field[Any]) -> Declaration:
    """The declaration of a field; of a custom class's plain one, θ and flags alone are checked."""
    kind = float if f.name == "threshold" else bool if isinstance(f.default, bool) else object
    own = Declaration(kind, _find_least(kind, f.default), optional=f.default is None)
    declared: Declaration = f.metadata.get("declaration", own)
    return declared


@dataclass(frozen=True)
class Part:
    """A trigger or a formulator: a frozen dataclass whose fields are its settings. Comparable and hashable."""

    name = ""  # how it is called everywhere
    source = ""  # where it is from: a paper's section or equation
    shorthand = ""  # the setting that the written form may call ``n``

    def __post_init__(self) -> None:
        for name, declared in self.declared().items():
            object.__setattr__(self, name, declared.check(name, getattr(self, name)))

    @classmethod
    def declared(cls) -> dict[str, Declaration]:
        """Setting -> what it may be and what it is called."""
        return {f.name: _declaration_of(f) for f in fields(cls)}

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
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def built_in(self) -> bool:
        """Whether it comes with the package."""
        return is_built_in(type(self))

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over a custom definition and what it closes over; "" for what is built in."""
        return "" if self.built_in else fingerprint_class(type(self))

    def __str__(self) -> str:
        changed = {key: value for key, value in self.changed.items() if key != "threshold"}
        inside = ", ".join(f"{key}={value!r}" for key, value in changed.items())
        threshold = getattr(self, "threshold", None)
        at = "" if threshold is None else f"@{threshold:.12g}"
        return self.name + (f"({inside})" if inside else "") + at


@dataclass(frozen=True)
class Rule(Part):
    """When to retrieve, in any variant: the base of ``Trigger`` and of the released code's rules."""

    unit = "word"  # what is compared with θ: each word, each sentence, or the draft as a whole
    needs: ClassVar[tuple[str, ...]] = ()  # what it reads beside probabilities (``core.needs``)
    form = "reasoning"  # how the model is to write its answer (``forms.FORMS``)
    length = 64  # tokens of a draft and of the answer, by default

    @property
    def theta(self) -> float | None:
        """The threshold; None for a rule without one."""
        threshold: float | None = getattr(self, "threshold", None)
        return threshold

    @property
    def measure(self) -> str:
        """What the scores are called in views."""
        declared = self.declared().get("threshold")
        return (declared.label if declared is not None else "") or "score"

    @property
    def hidden(self) -> int | str | None:
        """The layer whose hidden states it needs, "last" or an index; None where it needs none."""
        return hidden_in(self.needs)

    @property
    def retrieves(self) -> bool:
        """Whether it ever retrieves."""
        return True

    @classmethod
    def judges_drafts(cls) -> bool:
        """Whether it reads what was written, and so can be asked about a stored draft."""
        return False

    @classmethod
    def serves(cls) -> frozenset[str]:
        """What a query formulator can be given: "text" that was written, and "nothing" where a search comes first."""
        return frozenset({"text"})


@dataclass(frozen=True)
class Entry:
    """One row of the list of triggers, formulators or methods."""

    name: str
    settings: dict[str, Any]  # setting -> default
    source: str  # a paper's section or equation
    line: str  # what it does

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings}): {self.line}" + (f" [{self.source}]" if self.source else "")


class Registry(Generic[P]):
    """The table of triggers or of formulators. Names that are not in it are looked up in installed packages.

    ``kind`` is the argument that names one ("when", "what"), ``noun`` what messages call it, ``group`` the entry points
    of installed packages ("": none). A ``closed`` table takes no custom ones, and says why.
    """

    def __init__(self, kind: str, base: type[P], group: str = "", closed: str = "") -> None:
        self.kind, self.base, self.group, self.closed = kind, base, group, closed
        self.noun = {"when": "trigger", "what": "query formulator"}[kind]
        self._parts: dict[str, type[P]] = {}

    def add(self, part: type[P]) -> type[P]:
        """Enter a class under its name. It replaces your own of that name; built-in names cannot be replaced."""
        self._check_class(part)
        known = self._parts.get(part.name)
        if not is_built_in(part) and known is not None and is_built_in(known):
            raise SettingError(f"{part.name!r} is a built-in {self.noun}; choose another name")
        self._parts[part.name] = part
        return part

    def _check_class(self, part: type[P]) -> None:
        """Raise ``SettingError`` for a custom class that cannot be named, written down or told from another one."""
        where = f"the {self.noun} {part.__name__}"
        if not part.name:
            raise SettingError(f"{where} has no name; write one in its class, such as name = 'margin'")
        if not re.fullmatch(r"[A-Za-z][\w-]*", part.name):
            raise SettingError(f"{part.name!r} cannot name a {self.noun}; use letters, digits and -, such as 'margin'")
        if is_built_in(part):
            return
        own = {name for name, hint in inspect.get_annotations(part).items() if "ClassVar" not in str(hint)}
        if own and "__dataclass_fields__" not in vars(part):
            raise SettingError(f"{where} has settings; write @dataclass(frozen=True) above its class")
        for f in fields(part):
            if f.name in own:
                _check_setting(f"the setting {f.name!r} of {where}", f.name, f.default, self.base)

    def define(
        self, base: type[P], name: str, *, settings: dict[str, Field[Any]] | None = None, **attributes: Any
    ) -> Callable[[Callable[..., Any]], type[P]]:
        """Enter what a function makes: a subclass of ``base`` (``part_of_function``)."""
        instance("name", name, str, f"write @dl.{self.kind}('margin') above the function, with a name of your own")
        return lambda function: self.add(part_of_function(function, base, name, settings=settings or {}, **attributes))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """Every name, in the order of definition, those of installed packages last."""
        return (*self._parts, *(name for name in self._installed() if name not in self._parts))

    def named(self, name: str) -> type[P]:
        """The class of that name. Raises ``SettingError`` with the nearest name where there is none."""
        if name in self._parts:  # entry points are found by reading what every installed package says of itself
            return self._parts[name]
        if (point := self._installed().get(name)) is not None:
            try:
                loaded = point.load()
            except Exception as error:  # whatever an installed package raises
                package = point.dist.name if point.dist else point.value
                raise SettingError(
                    f"{self.noun} {name!r} of the package {package} cannot be loaded ({type(error).__name__}: "
                    f"{error}); repair or uninstall the package"
                ) from error
            if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
                raise SettingError(f"the entry point {self.group}: {name} gives {loaded!r}, which is not a {self.noun}")
            self._parts.setdefault(name, loaded)
        choice(self.kind, name, self.names())
        return self._parts[name]

    def _installed(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=self.group)} if self.group else {}

    def read(self, given: str | P | type[P]) -> tuple[type[P], dict[str, Any]]:
        """The class of a written form, a class or a part, and the settings that it states."""
        if isinstance(given, str):
            name, own = read_form(given)
            if self.closed and name not in self.names():
                raise SettingError(f"{self.kind}={given!r}: {self.closed}; it has {', '.join(self.names())}")
            part = self.named(name)
            if "n" in own and part.shorthand:
                own[part.shorthand] = own.pop("n")
            return part, own
        own_class = given if isinstance(given, type) else type(given)
        if self.closed and issubclass(own_class, Part) and own_class not in self._parts.values():
            raise SettingError(f"{self.kind}={own_class.name!r}: {self.closed}")
        if issubclass(own_class, self.base):
            self._check_class(own_class)
            return own_class, given.settings if isinstance(given, self.base) else {}
        raise SettingError(
            f"{self.kind}={shown(given)} is not a {self.noun}; pass a name such as {next(iter(self._parts))!r}, "
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
        declared = part.declared()
        settings = {
            key: value for key, value in settings.items()
            if value is not None or key not in declared or declared[key].optional or declared[key].kind is bool
        }  # fmt: skip
        every = fields(part)
        known = [f.name for f in every]
        for name in settings:
            if name not in known:
                has = f"its settings are {', '.join(known)}" if known else "it has no settings"
                raise SettingError(f"{name} has no meaning for {self.noun} {part.name!r}: {has}")
        for f in every:
            if f.default is MISSING and f.default_factory is MISSING and f.name not in settings:
                raise SettingError(f"{self.noun} {part.name!r} needs {f.name}; write {part.name}({f.name}=…)")
        return part(**settings)

    def listing(self) -> list[Entry]:
        """One entry per part, in the order of ``names``."""
        parts = {name: self.named(name) for name in self.names()}
        line = {name: (inspect.getdoc(part) or "").partition("\n")[0] for name, part in parts.items()}
        return [Entry(name, part.defaults(), part.source, line[name]) for name, part in parts.items()]

    def any_has(self, setting: str) -> bool:
        """Whether some part has a setting of that name."""
        return any(setting in {f.name for f in fields(part)} for part in self._parts.values())

    def has_shorthand(self, setting: str) -> bool:
        """Whether a setting is ``n``, or what ``n`` is short for in some part."""
        return setting in {"n", *(part.shorthand for part in self._parts.values())}


def read_form(form: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a written form. Raises ``SettingError`` for a text that is not one."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise SettingError(f"{shown(form)} cannot be read; write it as name, name@0.6 or name(setting=20)@0.6")
    name, inside, at = match.groups()
    settings: dict[str, Any] = {}
    if inside:
        try:
            call = ast.parse(f"f({inside})", mode="eval").body
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                raise ValueError("there is more than one call in it")
            if call.args or any(keyword.arg is None for keyword in call.keywords):
                raise ValueError("settings are given by name")
            settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise SettingError(f"the settings in {form!r} cannot be read ({error}); write them as name=value") from None
    if at is not None:
        # A budget is read with its calibration set.
        settings["threshold"] = at if ":" in at else number("threshold", at, -math.inf)
    return name, settings


def part_of_function(
    function: Callable[..., Any], base: type[P], name: str, *, settings: dict[str, Field[Any]], **attributes: Any
) -> type[P]:
    """A subclass of ``base`` around a function: its parameters after the first become settings beside ``settings``.

    Raises ``SettingError`` for a parameter without a default and one that is called like a setting of ``settings``.
    """
    where = f"{getattr(function, '__name__', function)!r}"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise SettingError(f"{name!r} is made from {function!r}, which is not a function") from None
    if not parameters:
        raise SettingError(f"the function {where} takes no argument; its first one is what it looks at")
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            raise SettingError(f"the parameter {parameter} of {where} cannot be a setting; name each, with a default")
        if parameter.default is inspect.Parameter.empty:
            raise SettingError(
                f"the parameter {parameter.name!r} of {where} has no default; write {parameter.name}=..."
            )
        if parameter.name in settings:
            raise SettingError(f"the parameter {parameter.name!r} of {where} is called like a setting; rename it")
        _check_setting(f"the parameter {parameter.name!r} of {where}", parameter.name, parameter.default, base)
    of_function = {parameter.name: field(default=parameter.default) for parameter in parameters[1:]}
    part = make_dataclass(
        "".join(word.capitalize() for word in re.findall(r"[a-zA-Z0-9]+", name)) or "Own",
        [(key, Any, declared) for key, declared in (settings | of_function).items()],
        bases=(base,),
        frozen=True,
        namespace={"function": staticmethod(function), "parameters": tuple(of_function), "name": name, **attributes},
    )
    inner = getattr(function, "func", function)  # of a partial function
    part.__module__ = inner.__module__ or "__main__"  # None where code was executed without a module
    part.__doc__ = inner.__doc__
    own_name = getattr(inner, "__name__", "")
    if own_name.isidentifier():  # under which the built-in ones are found again when they are unpickled
        part.__name__ = part.__qualname__ = own_name
    return part


def _check_setting(what: str, name: str, default: Any, base: type) -> None:
    """Raise ``SettingError`` for a setting that would stand for something else, or that no file could hold."""
    if name in _RESERVED or hasattr(base, name):
        raise SettingError(f"{what} would take the place of an attribute that every {base.__name__} has; rename it")
    if default is not MISSING and not _is_savable(default):
        raise SettingError(
            f"{what} has {shown(default)} as its default, which can change or cannot be saved; give a number, a text, "
            "True, False, None or a tuple of these"
        )


def _is_savable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_savable, value))
    return value is None or type(value) in (bool, int, float, str)
