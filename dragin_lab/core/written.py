"""The source of a function: its text without layout, what it reads outside, and what it writes."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import re
import textwrap
from types import CodeType
from typing import Any, NamedTuple

#: The name at which attributes and keys begin, and these.
Path = tuple[Any, ...]

#: Stand for a key that is no constant, and after a name or an attribute that is set itself.
KEY = "(items)"
NAME = "(name)"
#: Methods of containers that change what they hold.
_CHANGES = re.compile(
    "add|append(left)?|clear|discard|extend|insert|pop(item|left)?|remove|reverse|setdefault|sort|subtract|update"
)
_READING = ("LOAD_GLOBAL", "LOAD_NAME")
_LOCAL: Path = ("",)


class Source(NamedTuple):
    """What is known of a function by its code."""

    text: str  # without comments, docstrings, decorators and layout
    names: set[str]  # that it may read outside
    attributes: set[str]  # that it names
    writes: list[Path]  # a name alone: changed where that is a container or an iterator


def read_source(code: CodeType) -> Source:
    """The source of a function; without text where there is compiled code alone, as of what was
    executed from a text.
    """
    return _read_source(code, code.co_filename)  # which equal codes need not share


@functools.lru_cache(maxsize=4096)
def _read_source(code: CodeType, _file: str) -> Source:
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(code)))
        if code.co_name == "<lambda>":
            [tree] = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    except (OSError, TypeError, SyntaxError, ValueError):  # two in a line; a part of a statement
        tree = ast.Module([], [])
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.decorator_list = []  # they are what stands under the function's name
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return Source(ast.unparse(tree), _read_names(code), attributes, _find_writes(tree))


def _read_names(code: CodeType) -> set[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _READING}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _read_names(inner)
    return names


# -- what is written -------------------------------------------------------------------------------


def _find_writes(tree: ast.AST) -> list[Path]:
    aliases = _find_aliases(tree)
    writes: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            writes += [(name, NAME) for name in node.names]
        elif isinstance(node, ast.Attribute | ast.Subscript):
            itself = (NAME,) if isinstance(node, ast.Attribute) else ()
            if not isinstance(node.ctx, ast.Load):
                writes.append(_find_path(node, aliases) + itself)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and _CHANGES.fullmatch(called.attr):
                writes.append(_find_path(called.value, aliases))
            elif getattr(called, "id", "") == "next" and node.args:
                writes.append(_find_path(node.args[0], aliases))
    return writes


def _find_aliases(tree: ast.AST) -> dict[str, Path]:
    """What local names stand for, where they are set once."""
    aliases: dict[str, Path] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        names = getattr(target, "elts", [target])
        values = getattr(node.value, "elts", [node.value])
        for name, value in zip(names, values, strict=False):
            if isinstance(name, ast.Name):
                again = name.id in aliases
                aliases[name.id] = _LOCAL if again else _find_path(value, aliases)
    return aliases


def _find_path(node: Any, aliases: dict[str, Path]) -> Path:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, (node.id,))
    if isinstance(node, ast.Attribute):
        return *_find_path(node.value, aliases), node.attr
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else KEY
        return *_find_path(node.value, aliases), key
    return _LOCAL
