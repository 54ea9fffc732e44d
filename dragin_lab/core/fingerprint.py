"""What is given is known by what it is: its source, and every value that it reads, wherever it
lies.

A description is plain data: texts, and dictionaries of them by name. It is the same in another
process and on another machine, and another one after any change of what the given part computes
with. What a part writes itself, loggers, locks and files are left out; what cannot be read is
said, and never equal. What is built in has no description: its package has a version.
"""

from __future__ import annotations

import ast
import copyreg
import dis
import functools
import inspect
import io
import json
import re
import sys
import sysconfig
import textwrap
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from concurrent.futures import Executor
from contextlib import suppress
from hashlib import sha256
from pathlib import PurePath
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from dragin_lab.checks import is_built_in
from dragin_lab.errors import describe_error

Node = str | dict[str, Any]

SOURCE = "(source)"
UNKNOWN = "not known: "
_LEFT_OUT = "left out, as it is written while it runs"
_INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event)
_ASIDE = (*_LOCKS, threading.Semaphore, threading.Thread, Executor, io.IOBase)
_CHANGING = (MutableMapping, MutableSequence, MutableSet, Iterator)
#: Methods of containers that change what they hold.
_CHANGES = re.compile(
    "add|append(left)?|clear|discard|extend|insert|pop(item|left)?|remove|reverse|setdefault|sort|subtract|update"
)
#: Where what decides lies, of descriptors and of the caches of ``functools``.
_BEHIND = {property: "fget", functools.cached_property: "func", classmethod: "__func__"}
_BEHIND |= {staticmethod: "__func__", type(functools.cache(len)): "__wrapped__"}
_ADDRESS, _MARK = re.compile(r" at 0x[0-9a-fA-F]+"), re.compile(r" #[0-9a-f]{16,}$")
_LONGEST, _MOST = 60, 40  # characters of a value, and values of a list, that are written out
_LARGEST = 20_000  # characters of a description within another
_LARGE = 2**20  # bytes
_PROCESS = uuid4().hex
_READING = ("LOAD_GLOBAL", "LOAD_NAME")
#: What makes an object: it may write what it likes.
_MAKING = ("__init__", "__new__", "__post_init__", "__setstate__")


def describe(value: Any) -> Node:
    """What a given part is: what it says of itself, by name.

    Your own functions, classes and modules are followed wherever they are used; comments,
    docstrings and layout do not count. Of data the content counts: sets in any order, arrays,
    tensors and frames by their values.
    """
    look = _Look()
    look.read(value)  # finds what is written
    look.nodes.clear()
    return look.read(value)


def digest(node: Node) -> str:
    """A description as sixteen hexadecimal digits; none of nothing."""
    return _hash(json.dumps(node, sort_keys=True).encode()) if node else ""


def describe_class(part: type) -> Node:
    """The description of a custom class; "" for one that comes with the package."""
    own = [base for base in part.__mro__ if base is not object and not is_built_in(base)]
    return describe(own[0]) if own else ""


def list_unknown(node: Node, path: str = "") -> dict[str, str]:
    """What could not be read, by its path, and why."""
    if isinstance(node, str):
        return {path: node} if node.startswith(UNKNOWN) else {}
    unknown: dict[str, str] = {}
    for key, inner in node.items():
        unknown |= list_unknown(inner, _join(path, key))
    return unknown


def say_unknown(given: Mapping[str, Node]) -> list[str]:
    """What could not be read of what was given, a line each."""
    lines = []
    for label, node in given.items():
        lines += [_MARK.sub("", f"{at}: {why}") for at, why in list_unknown(node, label).items()]
    return lines


def list_changes(before: Node, now: Node, path: str) -> Iterator[str]:
    """What differs in two descriptions, a line each: the path, and both values, short."""
    if isinstance(before, str) or isinstance(now, str):
        texts = [one if isinstance(one, str) else "another kind of value" for one in (before, now)]
        if before != now and not all(text.startswith(UNKNOWN) for text in texts):
            yield f"{path}: {_say_change(*texts)}"
        return
    for key in {**before, **now}:
        then, later = before.get(key, "nothing"), now.get(key, "nothing")
        if key == SOURCE and then != later:
            yield f"{path}: {_say_source(then, later)}"
        else:
            yield from list_changes(then, later, _join(path, key))


def _say_change(before: str, now: str) -> str:
    shorts = [_MARK.sub("", text) for text in (before, now)]
    if shorts[0] == shorts[1]:
        return f"other values in {shorts[0]}"
    return " → ".join(shorts)


def _say_source(before: str, now: str) -> str:
    if before.startswith("compiled") or now.startswith("compiled"):
        return "source changed"
    lines = [[*text.splitlines(), "nothing"] for text in (before, now)]
    pairs = list(zip(*lines, strict=False))
    number = next(n for n, (one, other) in enumerate(pairs, 1) if one != other)
    old, new = (line.strip()[:_LONGEST] for line in pairs[number - 1])
    return f"source changed, line {number}: {old} → {new}"


def _join(path: str, key: str) -> str:
    """The path of a part; what stands in brackets is no name of its user's."""
    return path if key.startswith("(") else f"{path}.{key}".lstrip(".")


def _is_own(thing: Any) -> bool:
    """Whether a class, function or module is the user's, and not an installed package's."""
    name = getattr(thing, "__module__", "") or "__main__"
    if inspect.ismodule(thing):
        name = thing.__name__
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    package = name.partition(".")[0] == "dragin_lab"
    return name == "__main__" or not (
        name in sys.builtin_module_names or package or file.startswith(_INSTALLED)
    )


class _Look:
    """A look at a value and at all that it reads."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}  # by id, what was described
        self.data: dict[int, Node] = {}  # of these, arrays and their like
        self.kept: list[Any] = []  # so that nothing else gets their ids
        #: What is written while it runs: the id of an object or a scope, and which part of it
        #: (None: all).
        self.written: set[tuple[int, Any]] = set()

    def read(self, value: Any) -> Node:
        """What a value holds."""
        value = _unwrap(value)
        if type(value) in _PLAIN or isinstance(value, PurePath):
            return _shorten(value)
        aside = isinstance(value, _ASIDE) and not isinstance(value, io.BytesIO | io.StringIO)
        if aside or _logs(value):
            return f"{type(value).__name__}, left out"
        if (id(value), None) in self.written:
            return _LEFT_OUT
        if id(value) not in self.nodes:
            self.kept.append(value)
            self.nodes[id(value)] = "itself"  # as a function may call itself
            self.nodes[id(value)] = self._try(value)
        return self.nodes[id(value)]

    def _try(self, value: Any) -> Node:
        try:
            return _fold(self._read_parts(value))
        except Exception as error:  # noqa: BLE001 - whatever reading a user's object raises
            why = _ADDRESS.sub("", describe_error(error))
            return f"{UNKNOWN}{type(value).__name__} ({why}) #{_PROCESS}{id(value):x}"

    def _read_parts(self, value: Any) -> Node:
        if inspect.isfunction(value):
            return self._read_function(value)
        if isinstance(value, type):
            return self._read_class(value)
        if inspect.ismodule(value):
            own = {key: one for key, one in vars(value).items() if not key.startswith("__")}
            return self._read_named(own, value) if _is_own(value) else value.__name__
        if type(value) in (dict, MappingProxyType, list, tuple, set, frozenset):
            return self._read_container(value)
        if inspect.isgenerator(value):
            at = value.gi_frame and value.gi_frame.f_lasti
            source, inside = _read_source(value.gi_code).text, inspect.getgeneratorlocals(value)
            return {SOURCE: source, "(at)": str(at)} | self._read_named(inside, value)
        if id(value) not in self.data:
            data = self._read_data(value)
            if data is None:
                return self._read_object(value)
            self.data[id(value)] = data
        return self.data[id(value)]

    def _read_named(self, named: dict[str, Any], *owners: Any) -> dict[str, Any]:
        """Values by name, without those of their owners that are written."""
        places = [id(vars(one)) if inspect.ismodule(one) else id(one) for one in owners]
        nodes: dict[str, Any] = {}
        for name, one in named.items():
            left_out = any((place, name) in self.written for place in places)
            nodes[name] = _LEFT_OUT if left_out else self.read(one)
        return nodes

    def _read_container(self, value: Any) -> Node:
        kind = type(value)
        if kind in (set, frozenset):
            parts = [self.read(one) for one in value]
            texts = sorted(one if isinstance(one, str) else json.dumps(one) for one in parts)
            return _shorten("{" + ", ".join(texts) + "}", kind.__name__)
        nodes: dict[str, Any] = {"(is)": kind.__name__}
        if kind in (list, tuple):
            plain = all(type(one) in _PLAIN for one in value)
            if plain and len(value) > _MOST:
                return _shorten(value)
            pairs = list(enumerate(value))
        else:
            pairs = list(value.items())
        for key, one in pairs:
            name = repr(key) if type(key) in _PLAIN else json.dumps(self.read(key))
            left_out = (id(value), key) in self.written
            nodes[name] = _LEFT_OUT if left_out else self.read(one)
        return nodes

    # -- code --------------------------------------------------------------------------------------

    def _read_function(self, function: Any) -> Node:
        """Of a function its source and all that it reads; of an installed one its name."""
        name = f"{function.__module__}.{function.__qualname__}"
        own = _is_own(function)
        if not own and "<locals>" not in name:
            return name
        source = _read_source(function.__code__)
        outside = _find_outside(function, source, own)
        self._find_written(source, outside)
        node: dict[str, Any] = {SOURCE: source.text if own else name}
        for given in ("__defaults__", "__kwdefaults__"):
            if getattr(function, given):
                node[f"({given.strip('_')})"] = self.read(getattr(function, given))
        for key, (scope, one) in outside.items():
            read = _attributes_of(source.tree, key) if inspect.ismodule(one) else None
            if (scope, key) in self.written:
                node[key] = _LEFT_OUT
            elif read is not None and _is_own(one):  # of a module, what is read of it
                node[key] = self._read_named({at: getattr(one, at, None) for at in read}, one)
            else:
                node[key] = self.read(one)
        attributes = {key: one for key, one in vars(function).items() if key != "__wrapped__"}
        return node | self._read_named(attributes, function)

    def _find_written(self, source: _Source, outside: dict[str, tuple[int, Any]]) -> None:
        for root, step, surely in _find_writes(source.tree):
            scope, one = outside.get(root, (0, None))
            if step is ...:
                self.written.add((scope, root))
            elif surely or isinstance(one, _CHANGING):
                place = vars(one) if inspect.ismodule(one) else one
                whole = not isinstance(one, dict | list) and not hasattr(one, "__dict__")
                self.written.add((id(place), None if whole else step))

    def _read_class(self, value: type) -> Node:
        """Of a class the members that its user wrote, with those of its bases; of an installed
        one its name.
        """
        bases = [base for base in value.__mro__ if _is_own(base) and base is not object]
        names = [f"{base.__module__}.{base.__qualname__}" for base in value.__mro__]
        if value not in bases:
            return names[0]
        nodes: dict[str, Any] = {"(is)": value.__name__, "(bases)": repr(names[1:])}
        for base in bases:
            members = _list_members(base)
            for name, member in members.items():
                if name not in _MAKING and inspect.isfunction(member):
                    self._find_written_parts(base, _read_source(member.__code__))
            inside = self._read_named(members, base)
            nodes |= {f"{base.__name__}.{k}" if k in nodes else k: v for k, v in inside.items()}
        return nodes

    def _find_written_parts(self, owner: type, source: _Source) -> None:
        for root, step, _ in _find_writes(source.tree):
            if root in ("self", "cls", owner.__name__):
                self.written.add((id(owner), step))

    # -- data --------------------------------------------------------------------------------------

    def _read_object(self, value: Any) -> Node:
        """An object by what it says of itself to be copied."""
        kind = type(value)
        if is_built_in(kind) and getattr(value, "own", None) is None:
            if callable(getattr(value, "provenance", None)):
                return self.read(value.provenance())
            if isinstance(mark := getattr(value, "fingerprint", None), str) and mark:
                return f"{kind.__name__} {mark}"
        reduce = copyreg.dispatch_table.get(kind)
        parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(parts, str):
            return f"{getattr(value, '__module__', '')}.{parts}"
        maker, arguments, state, items, pairs = [*parts, None, None, None][:5]
        node: dict[str, Any] = {"(is)": self.read(kind)}
        made = [one for one in (maker, *arguments) if one is not kind]
        node |= {f"(made {at})": self.read(one) for at, one in enumerate(made)}
        if items is not None:
            node["(items)"] = self.read(list(items))
        if pairs is not None:
            node["(pairs)"] = self.read(list(pairs) if kind is OrderedDict else dict(pairs))
        with_slots = isinstance(state, tuple) and len(state) == 2
        for one in state if with_slots else [state]:
            if isinstance(one, dict):
                node |= self._read_named(_drop_cached(kind, one), value, *kind.__mro__)
            elif one is not None:
                node["(state)"] = self.read(one)
        return node

    def _read_data(self, value: Any) -> Node | None:
        """Of arrays, tensors, frames and buffers what they hold; None for anything else. No
        library is imported for it.
        """
        pandas, torch, arrow = map(sys.modules.get, ("pandas", "torch", "pyarrow"))
        if isinstance(value, np.ma.MaskedArray):
            parts = [value.data, np.ma.getmaskarray(value), value.fill_value]
            return {"(is)": "masked array", "(parts)": self.read(parts)}
        if isinstance(value, np.ndarray | np.generic):
            return self._read_array(np.asarray(value), type(value).__name__)
        if pandas is not None:
            if isinstance(value, pandas.Series | pandas.Index):
                return {"(is)": type(value).__name__} | self._read_columns(value.to_frame())
            if isinstance(value, pandas.DataFrame):
                index = self._read_columns(value.index.to_frame(index=False))
                return {"(is)": "DataFrame", "(index)": index} | self._read_columns(value)
        if torch is not None and isinstance(value, torch.Tensor):
            dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            numbers = dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            first = dense.reshape(-1)[:3].tolist()
            return _mark(f"{value.dtype} {tuple(value.shape)} {first}", numbers)
        if arrow is not None and isinstance(value, arrow.Table | arrow.RecordBatch):
            return _mark_table(arrow, value)
        if arrow is not None and isinstance(value, arrow.Array | arrow.ChunkedArray):
            return _mark_table(arrow, arrow.table({"": value}))
        try:
            view = memoryview(value)
        except TypeError:
            return None
        return _mark(f"{type(value).__name__} {view.format} {view.shape}", view.tobytes())

    def _read_array(self, array: np.ndarray, kind: str) -> Node:
        about = f"{kind} {array.dtype.str} {array.shape}"
        if array.dtype.hasobject:
            return {"(is)": about, "(values)": self.read(array.tolist())}
        if array.dtype.names:  # what lies between its fields is nobody's
            fields = {name: array[name] for name in array.dtype.names}
            return {"(is)": about} | self._read_named(fields, array)
        numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return _mark(f"{about} {array.reshape(-1)[:3].tolist()}", numbers)

    def _read_columns(self, frame: Any) -> dict[str, Any]:
        nodes: dict[str, Any] = {}
        hashed = sys.modules["pandas"].util.hash_pandas_object
        for at, name in enumerate(frame.columns):
            column = frame.iloc[:, at]
            if column.dtype == object:
                nodes[f"{at} {name!r}"] = self.read(column.tolist())
            else:
                numbers = hashed(column, index=False).to_numpy()  # (rows,) uint64
                about = f"{column.dtype} ({len(column)},) {column[:3].tolist()}"
                nodes[f"{at} {name!r}"] = _mark(about, numbers)
        return nodes


def _unwrap(value: Any) -> Any:
    """What stands behind a descriptor and a cache of ``functools``."""
    name = _BEHIND.get(type(value))
    return value if name is None else _unwrap(getattr(value, name))


def _logs(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("debug", "info", "warning"))


def _shorten(value: Any, kind: str = "") -> str:
    """A value as it is written; a long one by its beginning and a hash."""
    if isinstance(value, bytes) and len(value) > _LONGEST:
        return _mark(f"bytes ({len(value)},) {value[:20]!r}", value)
    text = f"{kind} {value}" if kind else repr(value)
    if len(text) <= _LONGEST:
        return text
    return _mark(f"{text[:_LONGEST]}…", text.encode(errors="surrogatepass"))


def _mark(about: str, data: Any) -> str:
    return f"{about} #{_hash(data)}"


def _hash(data: Any) -> str:
    """Sixteen hexadecimal digits of bytes; of many by a quicker function."""
    view = memoryview(data).cast("B")
    if len(view) > _LARGE:
        return f"{zlib.crc32(view):016x}"
    return sha256(view).hexdigest()[:16]


def _mark_table(arrow: Any, table: Any) -> str:
    """Of an Arrow table its columns, and a hash of what is sent of it elsewhere."""
    whole = arrow.Table.from_batches([table]) if isinstance(table, arrow.RecordBatch) else table
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_table(whole.combine_chunks())
    return _mark(f"table {whole.shape} {whole.column_names}", sink.getvalue())


def _fold(node: Node) -> Node:
    """A long description by a hash, and what is not known in it."""
    text = json.dumps(node)
    if isinstance(node, str) or len(text) <= _LARGEST:
        return node
    same = re.sub(f"{_PROCESS}[0-9a-f]+", "", text)
    return {"(all)": _mark(f"{len(node)} parts", same.encode())} | list_unknown(node)


def _drop_cached(kind: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes without those that ``functools.cached_property`` keeps."""
    kept = {}
    for name, one in attributes.items():
        if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property):
            kept[str(name)] = one
    return kept


def _list_members(owner: type) -> dict[str, Any]:
    """The members of a class without its settings, which are recorded by themselves, and
    without what the interpreter or ``dataclass`` writes.
    """
    settings = vars(owner).get("__dataclass_fields__", {})
    members = {}
    for name, member in vars(owner).items():
        member = _unwrap(member)
        if (
            name in settings
            or name in ("_abc_impl", "__repr__")
            or inspect.isdatadescriptor(member)
        ):
            continue
        code = getattr(member, "__code__", None)
        made = code is None or (settings and code.co_filename == "<string>")
        if not (name.startswith("__") and made):
            members[name] = member
    return members


class _Source(NamedTuple):
    text: str  # without comments, docstrings and layout
    tree: ast.AST | None  # None where there is compiled code alone
    names: frozenset[str]  # that it may read outside


@functools.lru_cache(maxsize=4096)
def _read_source(code: CodeType) -> _Source:
    """The source of a function.

    Without one, as of code that was executed from a text, the compiled code stands in for it:
    another version of Python then gives another description.
    """
    codes = _list_codes(code)
    steps = [step for one in codes for step in dis.get_instructions(one)]
    names = frozenset(step.argval for step in steps if step.opname in _READING)
    try:
        tree = _find_node(ast.parse(textwrap.dedent(inspect.getsource(code))), code)
    except (OSError, TypeError, SyntaxError):
        return _Source(_shorten([_read_compiled(one) for one in codes], "compiled"), None, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.decorator_list = []  # they are what stands under the function's name
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return _Source(ast.unparse(tree), tree, names)


def _find_node(tree: ast.AST, code: CodeType) -> ast.AST:
    """The lambda that a code is of; ``SyntaxError`` where its line has several."""
    if code.co_name != "<lambda>":
        return tree
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if len(lambdas) != 1:
        raise SyntaxError
    return lambdas[0]


def _read_compiled(code: CodeType) -> tuple[Any, ...]:
    constants = []
    for one in code.co_consts:
        if isinstance(one, frozenset):
            constants.append(repr(sorted(map(repr, one))))
        elif not isinstance(one, CodeType):
            constants.append(repr(one))
    return code.co_code, constants, code.co_names, code.co_varnames


def _list_codes(code: CodeType) -> list[CodeType]:
    codes = [code]
    for one in code.co_consts:
        if isinstance(one, CodeType):
            codes += _list_codes(one)
    return codes


def _find_outside(function: Any, source: _Source, own: bool) -> dict[str, tuple[int, Any]]:
    """Name -> the id of its scope, and what it is there, of what a function reads outside."""
    outside = {}
    known = function.__globals__
    for name in sorted(source.names & known.keys()) if own else ():
        outside[name] = id(known), known[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing is there yet
            outside[name] = id(cell), cell.cell_contents
    return outside


def _attributes_of(tree: ast.AST | None, name: str) -> set[str] | None:
    """What is read of a name by a dot; None where it stands without one."""
    nodes = [] if tree is None else list(ast.walk(tree))
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    dotted = [node for node in nodes if isinstance(node, ast.Attribute) and node.value in uses]
    attributes = {node.attr for node in dotted}
    return attributes if uses and len(dotted) == len(uses) else None


def _find_writes(tree: ast.AST | None) -> Iterator[tuple[str, Any, bool]]:
    """What a function writes: a name, which part of it (None: all of it, ...: the name itself),
    and whether that is sure of any kind of value.
    """
    for node in [] if tree is None else ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from ((name, ..., True) for name in node.names)
        elif isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            if not isinstance(node, ast.Name):
                yield (*_find_root(node), True)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and _CHANGES.fullmatch(called.attr):
                yield (*_find_root(called.value), False)
            elif isinstance(called, ast.Name) and called.id == "next" and node.args:
                yield (*_find_root(node.args[0]), False)


def _find_root(node: ast.AST) -> tuple[str, Any]:
    """The name at which attributes and keys begin, and the first of these; None where it has
    none, or one that changes.
    """
    step: Any = None
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            step = node.attr
        else:
            step = node.slice.value if isinstance(node.slice, ast.Constant) else None
        node = node.value
    return getattr(node, "id", ""), step
