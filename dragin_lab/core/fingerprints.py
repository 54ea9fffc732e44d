"""What a custom trigger or formulator is, beside its settings: a trace is replayed by the definition that made it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})


def is_built_in(thing: Any) -> bool:
    """Whether a class or a function comes with the package."""
    return (thing.__module__ or "").startswith("dragin_lab.")


def fingerprint_class(own: type) -> str:
    """Sixteen hexadecimal digits over a custom class: its source, and the values that it closes over or reads outside.

    Your own functions and classes are followed wherever they are used. Of any other object its ``repr`` counts, or its
    class where that does not say what it holds. Comments, docstrings and layout do not count.
    """
    seen: dict[int, str] = {}
    bases = [_describe(base, seen) for base in own.__mro__ if base is not object and not is_built_in(base)]
    return sha256(repr(bases).encode()).hexdigest()[:16]


def _describe(value: Any, seen: dict[int, str]) -> Any:
    """What a value holds, as plain data; ``seen`` names what was described before, as a function may call itself."""
    value = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    value = value.fget if isinstance(value, property) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = f"<{len(seen)}>"
    if isinstance(value, Mapping):
        return [(str(key), _describe(one, seen)) for key, one in sorted(value.items(), key=str)]
    if isinstance(value, list | tuple):
        return [_describe(one, seen) for one in value]
    if inspect.ismethod(value):
        return _describe([value.__func__, value.__self__], seen)
    if hasattr(value, "func") and hasattr(value, "keywords"):  # functools.partial
        return _describe([value.func, value.args, value.keywords], seen)
    if inspect.ismodule(value) or ((isinstance(value, type) or inspect.isfunction(value)) and not _is_own(value)):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    if isinstance(value, type):
        settings = getattr(value, "__dataclass_fields__", {})  # which are recorded by themselves
        members = {name: member for name, member in vars(value).items() if name not in settings}
        return _describe({n: m for n, m in members.items() if not n.startswith("__") or n in _WRITTEN}, seen)
    if inspect.isfunction(value):
        return _describe_function(value, seen)
    if hasattr(value, "tobytes"):  # an array
        return sha256(value.tobytes()).hexdigest()
    if _is_own(type(value)) and hasattr(value, "__dict__"):
        return _describe([type(value), vars(value)], seen)
    text = type(value).__qualname__ if type(value).__repr__ is object.__repr__ else repr(value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


_WRITTEN = ("__call__", "__post_init__")  # of a class, what neither the interpreter nor ``dataclass`` writes


def _is_own(thing: Any) -> bool:
    """Whether a class or a function is the user's, and not an installed package's."""
    name = thing.__module__ or "__main__"
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name == "__main__" or not (
        name in sys.builtin_module_names or is_built_in(thing) or file.startswith(_INSTALLED)
    )


def _describe_function(function: Any, seen: dict[int, str]) -> list[Any]:
    source, names = _read_source(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    outside = {name: getattr(cell, "cell_contents", None) for name, cell in cells}
    outside |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    return [source, _describe([function.__defaults__, function.__kwdefaults__, outside], seen)]


def _read_source(function: Any) -> tuple[str, set[str]]:
    """The source without comments, docstrings and layout, and the names that it reads.

    Without a source, as of code that was executed from a text, the compiled code stands in for it: another version of
    Python then gives another fingerprint.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # SyntaxError: a lambda in the middle of a statement
        code = function.__code__
        constants = [one for one in code.co_consts if isinstance(one, bool | int | float | str | None)]
        return repr((code.co_code, constants)), set(code.co_names)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []  # what they decide are attributes of the class that they make
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree), {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
