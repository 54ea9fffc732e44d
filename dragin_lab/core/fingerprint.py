"""What a custom definition is, as sixteen digits: its source, and every value that it reads,
wherever it lies.

Runs and traces are known by it, so it is the same in another process and on another machine, and
another one after any change of what the definition computes with. A built-in definition has none:
its package has a version.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterable, Mapping, Set
from hashlib import sha256
from pathlib import PurePath
from types import CodeType
from typing import Any

import numpy as np

_INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
# of a class, what neither the interpreter nor ``dataclass`` writes
_WRITTEN = ("__call__", "__post_init__")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint_class(part: type) -> str:
    """Sixteen hexadecimal digits over a custom class; "" for one that comes with the package.

    Your own functions, classes and modules are followed wherever they are used; comments,
    docstrings and layout do not count. Of data the content counts: sets in any order, arrays,
    tensors and frames by their values.
    """
    own = [base for base in part.__mro__ if base is not object and not is_built_in(base)]
    seen: dict[int, Any] = {}
    return (
        sha256(repr([_describe(base, seen) for base in own]).encode()).hexdigest()[:16]
        if own
        else ""
    )


def is_built_in(thing: Any) -> bool:
    """Whether a class or a function comes with the package."""
    return (getattr(thing, "__module__", "") or "").startswith("dragin_lab.")


def _is_own(thing: Any) -> bool:
    """Whether a class, function or module is the user's, and not an installed package's."""
    name = (
        thing.__name__
        if inspect.ismodule(thing)
        else getattr(thing, "__module__", "") or "__main__"
    )
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    package = name.partition(".")[0] == "dragin_lab"
    return name == "__main__" or not (
        name in sys.builtin_module_names or package or file.startswith(_INSTALLED)
    )


def _describe(value: Any, seen: dict[int, Any]) -> Any:
    """What a value holds, as plain data; ``seen`` has what was described before, as a function
    may call itself.
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | PurePath):
        return type(value).__name__, value
    value = getattr(value, "__wrapped__", value)  # of functools.cache and its like
    value = (
        getattr(value, "fget", getattr(value, "__func__", value))
        if _is_descriptor(value)
        else value
    )
    if id(value) in seen:
        return f"<{list(seen).index(id(value))}>"
    # before it is counted: in no order
    if isinstance(value, Set) and not hasattr(value, "mapping"):
        return type(value).__name__, sorted(repr(_describe(one, dict(seen))) for one in value)
    seen[id(value)] = value  # and so kept: nothing else gets its id
    return type(value).__name__, [_describe(one, seen) for one in _list_parts(value)]


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, staticmethod | classmethod | property)


def _list_parts(value: Any) -> Iterable[Any]:
    """What decides what a value that is no plain one does."""
    if isinstance(value, Mapping):
        return [part for key in sorted(value, key=repr) for part in (key, value[key])]
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, re.Pattern):
        return value.pattern, value.flags
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if inspect.ismethod(value):
        return value.__func__, value.__self__
    if inspect.ismodule(value) or isinstance(value, type) or inspect.isfunction(value):
        return (
            _list_code(value)
            if _is_own(value)
            else [f"{getattr(value, '__module__', '')}.{value.__name__}"]
        )
    if (data := _read_data(value)) is not None:
        return data
    if hasattr(value, "__dict__") and not is_built_in(type(value)):
        return type(value), vars(value)
    plain = type(value).__repr__ is object.__repr__
    return [type(value).__qualname__ if plain else _ADDRESS.sub("", repr(value))]


def _list_code(value: Any) -> Iterable[Any]:
    """Of a module what is written in it, of a class its members, of a function its source and
    what it reads outside.
    """
    if inspect.ismodule(value):
        return [one for name, one in sorted(vars(value).items()) if not name.startswith("__")]
    if isinstance(value, type):
        settings = getattr(value, "__dataclass_fields__", {})  # which are recorded by themselves
        members = {name: member for name, member in vars(value).items() if name not in settings}
        return [
            {
                name: one
                for name, one in members.items()
                if not name.startswith("__") or name in _WRITTEN
            }
        ]
    source, names, attributes = _read_source(value)
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    outside = {name: getattr(cell, "cell_contents", None) for name, cell in cells}
    outside |= {name: value.__globals__[name] for name in names if name in value.__globals__}
    for name, one in list(outside.items()):
        read = attributes.get(name)
        # of a module, what is read of it
        if inspect.ismodule(one) and _is_own(one) and read is not None:
            outside[name] = {attribute: getattr(one, attribute, None) for attribute in read}
    return source, value.__defaults__, value.__kwdefaults__, outside


def _read_source(function: Any) -> tuple[str, set[str], dict[str, set[str] | None]]:
    """The source without comments, docstrings and layout, the names that it reads, and what it
    reads of each by a dot.

    The last is None for a name that stands without one. Without a source, as of code that was
    executed from a text, the compiled code stands in for it: another version of Python then gives
    another fingerprint.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # SyntaxError: a lambda in the middle of a statement
        codes = _list_codes(function.__code__)
        constants = [
            one for code in codes for one in code.co_consts if not isinstance(one, CodeType)
        ]
        described = [_describe(one, {}) for one in constants]
        return (
            repr(([code.co_code for code in codes], described)),
            {n for code in codes for n in code.co_names},
            {},
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []  # what they decide are attributes of the class that they make
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    dotted = [
        n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    ]
    read: dict[str, set[str] | None] = {name: set() for name in names}
    for name in read:
        attributes = [
            node.attr
            for node in dotted
            if isinstance(node.value, ast.Name) and node.value.id == name
        ]
        read[name] = set(attributes) if len(attributes) == names.count(name) else None
    return ast.unparse(tree), set(names), read


def _list_codes(code: CodeType) -> list[CodeType]:
    inner = [
        one for const in code.co_consts if isinstance(const, CodeType) for one in _list_codes(const)
    ]
    return [code, *inner]


def _read_data(value: Any) -> Iterable[Any] | None:
    """Of arrays, tensors, frames and models what they hold; None for anything else. No library
    is imported for it.
    """
    pandas, torch = sys.modules.get("pandas"), sys.modules.get("torch")
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return (
            [array.tolist()]
            if array.dtype.hasobject
            else [array.dtype.str, array.shape, _digest(array)]
        )
    if pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        frame = value if isinstance(value, pandas.DataFrame) else value.to_frame()
        try:
            hashed = pandas.util.hash_pandas_object(frame, index=True).to_numpy()  # (rows,) uint64
        except TypeError:  # cells that cannot be hashed, such as lists
            return [frame.to_dict("split"), list(map(str, frame.dtypes))]
        return [list(frame.columns), list(map(str, frame.dtypes)), _digest(hashed)]
    if torch is not None and isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        return [
            str(value.dtype),
            tuple(value.shape),
            _digest(dense.cpu().contiguous().reshape(-1).view(torch.uint8)),
        ]
    if torch is not None and isinstance(value, torch.nn.Module):
        return type(value), value.training, dict(value.state_dict())
    return None


def _digest(values: Any) -> str:
    return sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
