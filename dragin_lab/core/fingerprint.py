"""What is given is known by what it is: its source, and every value that it reads, wherever it
lies.

A description is plain data: texts, and dictionaries of them by name. It is the same in another
process and on another machine, and another one after any change of what the given part computes
with. What a part writes itself, loggers, locks and files are left out; what cannot be read, or
moves whenever it is used, is said, and never equal. What is built in has no description: its
package has a version.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import io
import itertools
import json
import random
import re
import sys
import sysconfig
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import sha256
from types import CodeType, MappingProxyType, SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np

from dragin_lab.checks import is_built_in
from dragin_lab.core.written import KEY, NAME, Source, read_source
from dragin_lab.errors import describe_error

Nodes = dict[str, Any]  # by name
Node = str | Nodes
_Described = dict[int, tuple[Node, Any]]

UNKNOWN = "not known: "
_LEFT_OUT = "left out, as it is written while it runs"
_INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event)
_FILES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_ASIDE = (*_LOCKS, threading.Semaphore, threading.Thread, Executor, *_FILES)
_DRAWING = (random.Random, np.random.Generator, np.random.BitGenerator, np.random.RandomState)
_CHANGING = (MutableMapping, MutableSequence, MutableSet, Iterator)
#: Where what decides lies, of descriptors and of the caches of ``functools``.
_BEHIND = {property: "fget", functools.cached_property: "func", classmethod: "__func__"}
_BEHIND |= {staticmethod: "__func__", type(functools.cache(len)): "__wrapped__"}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MARK = re.compile(r" #[0-9a-f]{16,}$")
_LONGEST = 60  # characters of a value that are written out
_MOST = 40  # values of a list that are written out
_LARGEST = 20_000  # characters of a description within another
_PROCESS = uuid4().hex
#: What makes an object: it may write what it likes.
_MAKING = ("__init__", "__new__", "__post_init__", "__setstate__")
#: Methods that the package and its libraries call.
_CALLED = ("search", "search_many", "similarity_search", "invoke", "retrieve", "run", "pipe")


def describe(value: Any) -> Node:
    """What a given part is: what it says of itself, by name.

    Your own functions, classes and modules are followed wherever they are used; comments,
    docstrings and layout do not count. Of data the content counts: sets in any order, arrays,
    tensors and frames by their values.
    """
    look = _Look()
    look.read(value)  # finds what is written
    look.nodes = look.data
    return look.read(value)


def digest(node: Node) -> str:
    """A description as sixteen hexadecimal digits; none of nothing."""
    return _mark("", _write(node).encode()).removeprefix(" #") if node else ""


def say_unknown(given: Mapping[str, Any]) -> list[str]:
    """What could not be read of what was given, a line each: its path, and why."""
    flat = _flatten(given)
    return [_say(path, text) for path, text in flat.items() if text.startswith(UNKNOWN)]


def list_changes(before: Node, now: Node, path: str) -> list[str]:
    """What differs in two descriptions, a line each: the path, and both values, short."""
    old = _flatten(before, path)
    new = _flatten(now, path)
    lines = []
    for at in {**old, **new}:
        then = old.get(at, "nothing")
        later = new.get(at, "nothing")
        not_known = then.startswith(UNKNOWN) and later.startswith(UNKNOWN)
        if then != later and not not_known:
            lines.append(_say(at, _say_change(then, later)))
    return lines


def _flatten(node: Node | Mapping[str, Any], path: str = "") -> dict[str, str]:
    """The texts of a description by their paths."""
    if isinstance(node, str):
        return {path: node}
    flat: dict[str, str] = {}
    for key, inner in node.items():
        flat |= _flatten(inner, f"{path}.{key}")
    return flat


def _say(path: str, text: str) -> str:
    """A path and what is there; what stands in brackets is no name of its user's."""
    names = [name for name in path.split(".") if name and not name.startswith("(")]
    return f"{'.'.join(names)}: {_MARK.sub('', text)}"


def _say_change(before: str, now: str) -> str:
    """The first line that differs in two texts that do."""
    number = 0
    for old, new in itertools.zip_longest(before.splitlines(), now.splitlines()):
        number += 1
        if old != new:
            break
    old, new = (_MARK.sub("", (line or "nothing").strip()) for line in (old, new))
    change = f"{old[:_LONGEST]} → {new[:_LONGEST]}"
    if "\n" in before + now:
        return f"source changed, line {number}: {change}"
    return change if old != new else f"other values in {old}"


def _is_own(thing: Any) -> bool:
    """Whether a class, function or module is the user's, and not an installed package's."""
    name = thing.__name__ if inspect.ismodule(thing) else thing.__module__ or "__main__"
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = name in sys.builtin_module_names or file.startswith(_INSTALLED)
    return name == "__main__" or not (installed or f"{name}.".startswith("dragin_lab."))


class _Look:
    """A look at a value and at all that it reads."""

    def __init__(self) -> None:
        #: By id: what was described, kept so that nothing else gets its id.
        self.nodes: _Described = {}
        self.data: _Described = {}  # of these, arrays and their like
        #: What is written while it runs: the id of an object or a scope, and which part of it
        #: (None: all).
        self.written: set[tuple[int, Any]] = set()
        self.instances: dict[type, Any] = {}  # what stands for all objects of a class there
        self.used = {*_CALLED}  # names of attributes in what runs

    def read(self, value: Any) -> Node:
        """What a value holds."""
        if type(value) in _PLAIN:
            return _shorten(repr(value))
        if (id(value), None) in self.written:
            return _LEFT_OUT
        if id(value) not in self.nodes:
            self.nodes[id(value)] = "itself", value  # as a function may call itself
            self.nodes[id(value)] = self._try(value), value
        return self.nodes[id(value)][0]

    def _try(self, value: Any) -> Node:
        try:
            return _fold(self._read_parts(value))
        except Exception as error:  # noqa: BLE001 - whatever reading a user's object raises
            why = _ADDRESS.sub("", describe_error(error))
            return f"{UNKNOWN}{type(value).__name__} ({why}) #{_PROCESS}{id(value):x}"

    def _read_parts(self, value: Any) -> Node:
        kind = type(value)
        if kind in _BEHIND:
            return self.read(_unwrap(value))
        if isinstance(value, _ASIDE) or _logs(value):
            return f"{kind.__name__}, left out"
        if inspect.isfunction(value):
            return self._read_function(value)
        if inspect.ismethod(value):
            self.used.add(value.__name__)
        if isinstance(value, CodeType):
            return self.read([value.co_code, value.co_consts, value.co_names, value.co_varnames])
        if isinstance(value, type):
            return self._read_class(value)
        if inspect.ismodule(value):
            own = {key: one for key, one in vars(value).items() if not key.startswith("__")}
            return self._read_named(own, vars(value)) if _is_own(value) else value.__name__
        if kind in (list, tuple) and len(value) > _MOST and {*map(type, value)} <= {*_PLAIN}:
            return _shorten(repr(value))
        if kind in (dict, MappingProxyType, list, tuple):
            named = value if isinstance(value, Mapping) else dict(enumerate(value))
            inside = self._read_named(named, value, name=lambda key: _write(self.read(key)))
            return {"(is)": kind.__name__} | inside
        if kind in (set, frozenset):
            texts = sorted(_write(self.read(one)) for one in value)
            return _shorten(f"{kind.__name__} {{{', '.join(texts)}}}")
        data = self._read_data(value)
        if data is None:
            return self._read_object(value)
        self.data[id(value)] = data, value
        return data

    def _read_named(
        self, named: Mapping[Any, Any], *owners: Any, name: Callable[[Any], str] = str
    ) -> Nodes:
        """Values by name, without those of their owners that are written."""
        nodes: Nodes = {}
        for key, one in named.items():
            left_out = any((id(owner), key) in self.written for owner in owners)
            if inspect.isfunction(one) or not left_out:
                nodes[name(key)] = self.read(one)
        return nodes

    # -- code --------------------------------------------------------------------------------------

    def _read_function(self, function: Any) -> Node:
        """Of a function its source and all that it reads; of an installed one its name."""
        name = f"{function.__module__}.{function.__qualname__}"
        own = _is_own(function)
        if not own and "<locals>" not in name:
            return name
        source = read_source(function.__code__)
        outside = _find_outside(function, source.names if own else set())
        self._find_written(source, outside)
        if self._runs(function):
            self.used |= source.attributes
        # of compiled code, another version of Python gives another description
        known_by = source.text or self.read(function.__code__)
        node: Nodes = {"(source)": known_by if own else name}
        for key, (scope, one) in outside.items():
            dotted = re.findall(rf"\b{key}\b\.?(\w*)", source.text)
            if (scope, key) in self.written:
                continue
            if inspect.ismodule(one) and all(dotted) and dotted and _is_own(one):
                read = {at: getattr(one, at, None) for at in dotted}
                node[key] = self._read_named(read, vars(one))
            else:
                node[key] = self.read(one)
        named = {"(defaults)": function.__defaults__, "(by name)": function.__kwdefaults__}
        return node | self._read_named(named | vars(function), function)

    def _find_written(self, source: Source, outside: dict[str, tuple[int, Any]]) -> None:
        for name, *steps in source.writes:
            scope, one = outside.get(name, (0, None))
            if steps == [NAME]:
                self.written.add((scope, name))
            elif steps or isinstance(one, _CHANGING):
                step = steps[0] if steps else KEY
                self.written.add(_choose_part(one, step))

    def _runs(self, function: Any) -> bool:
        """Whether a run calls it: a function, or a method that is named in what runs."""
        name = function.__name__
        place = function.__qualname__.rpartition("<locals>.")[2]
        called = "." not in place or name.startswith("__") or name in self.used
        return called and name not in _MAKING

    def _read_class(self, value: type) -> Node:
        """Of a class the members that its user wrote, with those of its bases; of an installed
        one its name.
        """
        names = [f"{base.__module__}.{base.__qualname__}" for base in value.__mro__]
        if not _is_own(value):
            return names[0]
        nodes: Nodes = {"(is)": value.__name__, "(bases)": repr(names[1:])}
        for base in filter(_is_own, value.__mro__):
            objects = self.instances.setdefault(base, SimpleNamespace())
            members = _list_members(base)
            for member in members.values():
                if inspect.isfunction(member) and self._runs(member):
                    source = read_source(member.__code__)
                    self._find_written(source, {"self": (0, objects), "cls": (0, base)})
                    shared = [path for path in source.writes if path[-1] != NAME]
                    self._find_written(source._replace(writes=shared), {"self": (0, base)})
            for name, node in self._read_named(members, base).items():
                nodes[f"{base.__name__}.{name}" if name in nodes else name] = node
        return nodes

    # -- data --------------------------------------------------------------------------------------

    def _read_object(self, value: Any) -> Node:
        """An object by what it says of itself to be copied."""
        kind = type(value)
        if callable(getattr(value, "provenance", None)) and not hasattr(value, "own"):
            return self.read(value.provenance())
        mark = getattr(value, "fingerprint", "") if is_built_in(kind) else ""
        if isinstance(mark, str) and mark:
            return f"{kind.__name__} {mark}"
        of_spacy = kind.__module__.startswith("spacy.") and hasattr(value, "to_bytes")
        if of_spacy and not hasattr(value, "punct_chars"):  # whose bytes have them in any order
            return self._read_spacy(value)
        reduce = copyreg.dispatch_table.get(kind)
        parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(parts, str):
            return f"{getattr(value, '__module__', '')}.{parts}"
        maker, arguments, state, items, pairs = [*parts, None, None, None][:5]
        if isinstance(value, set | frozenset):
            arguments = ()
            items = [frozenset(value)]
        construction = [one for one in (maker, *arguments) if one is not kind]
        named: dict[Any, Any] = {"(is)": kind, "(made)": construction}
        if items is not None:
            named[KEY] = list(items)
        if pairs is not None:
            named[KEY] = list(pairs) if kind is OrderedDict else dict(pairs)
        with_slots = isinstance(state, tuple) and [*map(type, state[1:])] == [dict]
        for one in state if with_slots else [state]:
            if one is not None:
                named |= one if isinstance(one, dict) else {"(state)": one}
        for name in [*named]:
            if isinstance(inspect.getattr_static(kind, str(name), None), functools.cached_property):
                del named[name]
        return self._read_named(named, value, *map(self.instances.get, kind.__mro__))

    def _read_spacy(self, value: Any) -> Node:
        """What is of spaCy by its bytes, a pipeline by its parts; also by the words that it was
        told to be stop words, or none, and by its vectors. What was met in use does not count.
        """
        if not hasattr(value, "pipeline"):
            return self.read(value.to_bytes(exclude=["vocab"]))
        vocab = value.vocab
        getters = vocab.lex_attr_getters
        is_stop = getters[sys.modules["spacy"].attrs.IS_STOP]
        stops = {word.text for word in vocab if word.is_stop != is_stop(word.text)}
        named = {"words": getters, "stop words": stops}
        named |= {"vectors": vocab.vectors.data, "lookups": vocab.lookups.to_bytes()}
        named |= {"tokenizer": value.tokenizer, **dict(value.pipeline)}
        return self._read_named(named)

    def _read_data(self, value: Any) -> Node | None:
        """Of arrays, tensors, frames and buffers what they hold; None for anything else. No
        library is imported for it.
        """
        pandas, torch = map(sys.modules.get, ("pandas", "torch"))
        drawing = _DRAWING if torch is None else (*_DRAWING, torch.Generator)
        iterates = isinstance(value, Iterator) and not _is_own(type(value))
        if iterates or isinstance(value, drawing):
            raise TypeError("it moves at each use")
        if type(value) is np.ndarray or isinstance(value, np.generic):
            return self._read_array(np.asarray(value))
        if torch is not None and isinstance(value, torch.Tensor):
            return self._read_tensor(value, torch.uint8)
        if isinstance(value, memoryview):
            return self.read([value.format, value.shape, value.tobytes()])
        if pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series):
            return self._read_frame(value if value.ndim > 1 else value.to_frame())
        return None

    def _read_frame(self, frame: Any) -> Node:
        named = {"(index)": frame.index}
        for at, name in enumerate(frame):
            named[f"{at} {name!r}"] = frame.iloc[:, at].array
        return self._read_named(named)

    def _read_tensor(self, tensor: Any, byte: Any) -> Node:
        flat = tensor.detach().to_dense().cpu().reshape(-1)
        about = f"{tensor.dtype} {tuple(tensor.shape)} {flat[:3].tolist()}"
        return _mark(about, flat.contiguous().view(byte).numpy())

    def _read_array(self, array: np.ndarray) -> Node:
        about = f"{array.dtype.str} {array.shape}"
        if array.dtype.hasobject or array.dtype.names:  # what lies between fields is nobody's
            return {"(is)": f"{about} {array.dtype.names}", "(values)": self.read(array.tolist())}
        flat = np.ascontiguousarray(array).reshape(-1)
        return _mark(f"{about} {flat[:3].tolist()}", flat.view(np.uint8))


def _choose_part(value: Any, step: Any) -> tuple[int, Any]:
    """What a write is of: the id of a value and which part, None where parts are not told apart."""
    place = vars(value) if inspect.ismodule(value) else value
    by_key = isinstance(place, dict | list) and step != KEY
    return id(place), step if by_key or hasattr(place, "__dict__") else None


def _unwrap(value: Any) -> Any:
    """What stands behind a descriptor and a cache of ``functools``."""
    name = _BEHIND.get(type(value))
    return value if name is None else _unwrap(getattr(value, name))


def _logs(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("debug", "info", "warning"))


def _write(node: Node) -> str:
    return node if isinstance(node, str) else json.dumps(node, sort_keys=True)


def _shorten(text: str) -> str:
    """A text; of a long one its beginning and a hash."""
    if len(text) <= _LONGEST:
        return text
    return _mark(f"{text[:_LONGEST]}…", text.encode(errors="surrogatepass"))


def _mark(about: str, data: Any) -> str:
    """Some words, and a hash of bytes in hexadecimal digits."""
    return f"{about} #{sha256(data).hexdigest()[:16]}"


def _fold(node: Node) -> Node:
    """A long description by a hash, where all is known in it."""
    text = _write(node)
    if len(text) <= _LARGEST or UNKNOWN in text:
        return node
    return _mark(f"{len(node)} parts", text.encode())


def _list_members(owner: type) -> dict[str, Any]:
    """The members of a class without its settings, which are recorded by themselves, and
    without what the interpreter or ``dataclass`` writes.
    """
    generated = is_dataclass(owner)
    settings = [setting.name for setting in fields(owner)] if generated else []
    members = {}
    for name, member in vars(owner).items():
        member = _unwrap(member)
        if name in (*settings, "_abc_impl", "__repr__") or inspect.isdatadescriptor(member):
            continue
        code = getattr(member, "__code__", None)
        by_hand = code is not None and not (generated and code.co_filename == "<string>")
        if by_hand or not name.startswith("__"):
            members[name] = member
    return members


def _find_outside(function: Any, names: set[str]) -> dict[str, tuple[int, Any]]:
    """Name -> the id of its scope, and what it is there, of what a function reads outside."""
    known = function.__globals__
    outside = {name: (id(known), known[name]) for name in sorted(names & known.keys())}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing is there yet
            outside[name] = id(cell), cell.cell_contents
    return outside
