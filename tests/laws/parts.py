"""Given parts as texts of Python, which any process can execute: every kind of part, every way in
which it reads a value, every kind of value.

``python parts.py FILE`` executes the texts of a file, uses each part, and writes what it is.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab.core.fingerprint import Node

#: What all texts begin with; VALUE is what the part reads, whatever its kind.
HEAD = """
import asyncio, collections, datetime, decimal, enum, fractions, functools, io, itertools, json
import logging, operator, random, re, threading, types, typing, weakref
from dataclasses import dataclass, field
from pathlib import PurePosixPath
import numpy as np, pandas as pd, spacy, torch
import dragin_lab as dl
from dragin_lab.core.fingerprint import describe

@dataclass(frozen=True)
class Point:
    name: str
    among: frozenset = frozenset()

class Slots:
    __slots__ = ("weight", "names")
    def __init__(self, weight):
        self.weight, self.names = weight, {"a", "b", weight}
    def times(self, draft):
        return draft, self.weight

class Words(set):
    pass

class Kept(dict):
    pass

class Colour(enum.Enum):
    RED = "red"
    BLUE = "w%n%"

class Keys(enum.Flag):
    ONE = 1
    TWO = 2

Row = collections.namedtuple("Row", "name number")

def pipeline(mark):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer", config={"punct_chars": [".", "?", "!", mark]})
    return nlp

VALUE = %value%
"""

VALUES = {
    "a number": "%n% / 7",
    "a text": "'w%n%'",
    "a long text": "'x' * 100 + 'w%n%'",
    "bytes": "b'%n%'",
    "a set": "{'the', 'of', 'and', 'w%n%'}",
    "a set of tuples": "{('a', 1), ('w%n%', 2), ('c', 3)}",
    "a set of frozen sets": "{frozenset({'a', 'b', 'w%n%'}), frozenset({'c', 'd', 'e'})}",
    "a set of objects": "{Point('a', frozenset({'x', 'y', 'z'})), Point('w%n%'), Point('c')}",
    "a set in a list": "[1, {'a': {'x', 'y', 'z', 'w%n%'}}]",
    "a large set": "{f'w{i}' for i in range(%n%, %n% + 3000)}",
    "a set of one's own": "Words(['a', 'b', 'w%n%', 'c'])",
    "a dictionary by sets": "{frozenset({'a', 'b', 'w%n%'}): 1}",
    "a dictionary of one's own": "Kept(a={'x', 'y', 'w%n%'})",
    "a large dictionary": "{f'w{i}': {i, 'x', 'y'} for i in range(%n%, %n% + 3000)}",
    "a long list of sets": "[{'x', 'y', 'z', 'w%n%'}] * 3 + [{i, 'x'} for i in range(99)]",
    "an empty class's object": "types.SimpleNamespace(names={'x', 'y', 'w%n%'})",
    "slots": "Slots('w%n%')",
    "an enumeration": "Colour.BLUE",
    "flags": "Keys(%n% % 4), %n%",
    "a named tuple": "Row('w%n%', {'x', 'y', 'z'})",
    "a date": "datetime.datetime(2024, 1, 1) + datetime.timedelta(%n% % 99999, %n%)",
    "a decimal": "decimal.Decimal('%n%.1')",
    "a fraction": "fractions.Fraction(%n%, 7)",
    "a range": "range(%n%)",
    "a slice": "slice(0, %n%)",
    "a path": "PurePosixPath('w%n%')",
    "a pattern": "re.compile('w%n%|b', re.I)",
    "a deque": "collections.deque([{'x', 'y'}, %n%], maxlen=9)",
    "a counter": "collections.Counter(['a', 'w%n%', 'a'])",
    "an ordered dictionary": "collections.OrderedDict(a={'x', 'y', 'w%n%'})",
    "a factory": "collections.defaultdict(set, a={'x', 'y', 'w%n%'})",
    "a chain": "collections.ChainMap({'a': {'x', 'y', 'w%n%'}}, {})",
    "a read-only view": "types.MappingProxyType({'a': {'x', 'y', 'w%n%'}})",
    "an array": "np.arange(9) + %n%",
    "an array of texts": "np.array(['a', 'w%n%'])",
    "an array of sets": "np.array([{'x', 'y', 'w%n%'}, None], dtype=object)",
    "a record array": "np.array([(1, %n%)], dtype=[('a', 'i1'), ('b', 'i8')])",
    "a number of numpy": "np.float64(%n%)",
    "a tensor": "torch.arange(9) + %n%",
    "a module of torch": "torch.nn.Embedding(1, 2, _weight=torch.full((1, 2), float(%n%)))",
    "a frame": "pd.DataFrame({'a': ['x', 'w%n%'], 'b': [1.5, 2]})",
    "a frame of sets": "pd.DataFrame({'a': [{'x', 'y', 'z', 'w%n%'}]})",
    "a frame of categories": "pd.DataFrame({'a': pd.Categorical(['x', 'w%n%'])})",
    "a series": "pd.Series([1, 2], index=['a', 'w%n%'])",
    "a buffer": "bytearray(b'%n%')",
    "a file in memory": "io.StringIO('w%n%')",
    "a getter": "operator.itemgetter('w%n%')",
    "a type of words": "typing.Literal['a', 'w%n%']",
    "an iterator": "iter(['a', 'w%n%'])",
    "a partial": "functools.partial(max, 'w%n%', key=len)",
    "a cached function": "functools.lru_cache(lambda text: (text, 'w%n%'))",
    "a bound method": "Slots('w%n%').times",
    "a method of an installed class": "'w%n%'.startswith",
    "an exemplar": "dl.Exemplar('Who?', 'It was w%n%.', 'w%n%')",
    "passages": "dl.BM25(dl.Corpus.load([{'id': '1', 'text': 'Film w%n%.'}]))",
    "a pipeline": "pipeline('w%n%')",
    "a tokenizer": "pipeline('').tokenizer; VALUE.add_special_case('w%n%', [{65: 'w%n%'}])",
    "what refers to itself": "[1, 'w%n%']; VALUE.append(VALUE)",
    "an exception": "ValueError('w%n%', {'x', 'y', 'z'})",
    "a random generator": "random.Random(%n%)",
    "a generator of numpy": "np.random.default_rng(%n%)",
    "a generator of torch": "torch.Generator().manual_seed(%n%)",
    "a weak reference": "weakref.ref(Colour)",
    "keys": "{'w%n%': 1}.keys()",
    "a local of a thread": "threading.local()",
}
#: What is not known is said, and never equal; what moves at each use is not known.
NOT_KNOWN = ("a weak reference", "keys", "a local of a thread", "a file in memory", "an iterator")
NOT_KNOWN += ("a random generator", "a generator of numpy", "a generator of torch")
NOT_KNOWN += ("drawn numbers",)

#: Kinds of parts, after ### each. ``%op%`` is what may change in the source; ``use`` is what a run
#: does with a part, where that is not a call. Those from "a limit of a class" on write something.
_KINDS = """
### a global
def part(x): return x %op% 1, VALUE
### a helper
def helper(x): return x %op% 1, VALUE
def part(x): return helper(x)
### a closure
def make(value):
    def part(x): return x %op% 1, value
    return part
part = make(VALUE)
### a default
def part(x, value=VALUE): return x %op% 1, value
### a default by name
def part(x, *, value=VALUE): return x %op% 1, value
### a lambda
part = lambda x: (x %op% 1, VALUE)
### a lambda beside another
part, other = lambda x: (x %op% 1, VALUE), lambda x: x
### a lambda's default
part = (lambda x, value=VALUE: (x %op% 1, value))
### a partial
def inner(x, value): return x %op% 1, value
part = functools.partial(inner, value=VALUE)
### a partial's argument
part = functools.partial(lambda value, x: (x %op% 1, value), VALUE)
### an inner function
def part(x):
    def inner(): return x %op% 1, VALUE
    return inner()
### a comprehension
def part(x): return [y %op% 1 for y in (x,) if VALUE is not None]
### a generator function
def part(x):
    yield x %op% 1, VALUE
### a coroutine
async def part(x): return x %op% 1, VALUE
use = lambda: asyncio.run(part(1))
### an attribute
def part(x): return x %op% 1, part.value
part.value = VALUE
### a decorator
def scaled(value):
    def wrap(f):
        @functools.wraps(f)
        def wrapper(*args): return value, f(*args)
        return wrapper
    return wrap
@scaled(VALUE)
def part(x): return x %op% 1
### a cache
@functools.lru_cache
def part(x): return x %op% 1, VALUE
### a bound method
class Holder:
    def __init__(self, value): self.value = value
    def part(self, x): return x %op% 1, self.value
part = Holder(VALUE).part
### a class method
class Holder:
    value = VALUE
    @classmethod
    def part(cls, x): return x %op% 1, cls.value
part = Holder.part
### a static method
class Holder:
    @staticmethod
    def part(x): return x %op% 1, VALUE
part = Holder.part
### an object
class Holder:
    def __init__(self, value): self.value = value
    def __call__(self, x): return x %op% 1, self.value
part = Holder(VALUE)
### an object of a dataclass
@dataclass
class Holder:
    value: object
    def __call__(self, x): return x %op% 1, self.value
part = Holder(VALUE)
### a property
class Holder:
    @property
    def value(self): return VALUE
    def __call__(self, x): return x %op% 1, self.value
part = Holder()
### a base class
class Base:
    def __call__(self, x): return x %op% 1, VALUE
class Holder(Base): pass
part = Holder()
### a cell run again
def part(x): return x * 2, VALUE
def part(x): return x %op% 1, VALUE
### a trigger by a class
@dataclass(frozen=True)
class Own(dl.Trigger):
    name = 'own'
    def score(self, draft): return draft.entropy %op% len(repr(VALUE))
NODE = lambda: dl.method(when=Own).described
### a trigger
@dl.when('own', threshold=0.5)
def part(draft): return draft.entropy %op% len(repr(VALUE))
NODE = lambda: dl.method(when='own').described
### a formulator
@dl.what('own')
def part(gap): return 'who' %op% repr(VALUE)
NODE = lambda: dl.method(what='own').described
### a loop
class Own(dl.Loop):
    def run(self):
        yield len(repr(VALUE)) %op% 1
@dl.when('own', threshold=0.5, loop=Own)
def part(draft): return draft.entropy
NODE = lambda: dl.method(when='own').described
### a metric
def hits(answer, golds): return (answer in golds) %op% 1, VALUE
NODE = lambda: dl.PromptTemplate((), metrics=(hits,)).described
### an answer rule
def rule(text): return text %op% repr(VALUE)
NODE = lambda: dl.PromptTemplate((), answer_rule=rule).described
### a layout
def layout(*args): return args %op% repr(VALUE)
NODE = lambda: dl.PromptTemplate((), layout=layout).described
### a retriever
def search(query, k): return [query %op% repr(VALUE)]
NODE = lambda: dl.Lab(retriever=search).retriever.described
### a retriever that is an object
class Index:
    def __init__(self, value): self.value = value
    def search(self, query, k): return [query %op% repr(self.value)]
NODE = lambda: dl.Lab(retriever=Index(VALUE)).retriever.described
### a fitted object
class Holder:
    def fit(self, value):
        self.value = value
        return self._keep([value])
    def _keep(self, kept):
        self.kept = kept
        return self
    def score(self, x): return x %op% 1, self.value
held = Holder().fit(VALUE)
def part(x): return held.score(x)
### a limit of a class
class Holder:
    limit = VALUE
    def __call__(self, x):
        self.limit = x %op% 1
        return self.limit
part = Holder()
### a counter of a class
class Holder:
    calls, memo = 0, {}
    def __call__(self, x):
        Holder.calls += 1
        self.memo[x] = x %op% 1
        return self.memo[x], VALUE
part = Holder()
### a counter
CALLS = 0
def part(x):
    global CALLS
    CALLS += 1
    return x %op% 1, VALUE
### a memo
MEMO = {}
def part(x):
    MEMO[x] = x %op% 1
    return MEMO[x], VALUE
### a memo by another name
MEMO = {}
def part(x):
    memo = MEMO
    memo.setdefault(x, x %op% 1)
    return memo[x], VALUE
### a memo of an object
class Holder:
    def __init__(self): self.memo, self.lock, self.seen = {}, threading.Lock(), []
    def __call__(self, x):
        memo, seen = self.memo, self.seen
        with self.lock:
            memo[x] = x %op% 1
            seen.append(x)
        return memo[x], VALUE
part = Holder()
### a memo in a closure
def make():
    memo, calls = {}, 0
    def part(x):
        nonlocal calls
        calls += 1
        if (known := memo) is not None: known[x] = x %op% 1
        return known[x], VALUE
    return part
part = make()
### a cached property
class Holder:
    @functools.cached_property
    def value(self): return repr(VALUE)
    def __call__(self, x): return x %op% 1, self.value
part = Holder()
### numbers in turn
NUMBERS = itertools.count()
def part(x): return next(NUMBERS) %op% 1, VALUE
### drawn numbers
class Holder:
    def __init__(self):
        self.a, self.b = random.Random(1), np.random.default_rng(1)
        self.c, self.d = torch.Generator(), np.random.RandomState(1)
    def __call__(self, x):
        drawn = self.a.random(), self.b.random(), self.d.random()
        return drawn, torch.rand(1, generator=self.c), x %op% 1, VALUE
part = Holder()
### a logger
LOG = logging.getLogger('mine')
def part(x):
    LOG.debug('%s', x)
    return x %op% 1, VALUE
"""
KINDS = dict(re.findall(r"### (.*)\n((?:(?!###).*\n)*)", _KINDS))
TAIL = """
NODE = globals().get("NODE") or (lambda: describe(part))
use = globals().get("use") or (lambda: (part(1), part(2)))
"""
#: A part of a library's own kind is made by what is around it, and not called by itself.
UNUSED = ("trigger", "formulator", "loop", "metric", "rule", "layout", "retriever")


class Given(NamedTuple):
    """A part as a text: its kind, what it reads, and how it comes in."""

    kind: str
    value: str
    way: str
    number: int
    operator: str = "+"

    @property
    def text(self) -> str:
        whole = HEAD + KINDS[self.kind] + TAIL
        filled = whole.replace("%value%", VALUES[self.value])
        return filled.replace("%n%", str(self.number)).replace("%op%", self.operator)

    @property
    def used(self) -> bool:
        """Whether it can be called as it stands; what it writes is seen in its source alone."""
        return self.way != "text" and not any(word in self.kind for word in UNUSED)

    @property
    def known(self) -> bool:
        """Whether all that it reads can be known; without a source, not what moves either."""
        moves = self.way == "text" and self.kind == "numbers in turn"
        return not moves and self.value not in NOT_KNOWN and self.kind not in NOT_KNOWN


WAYS = ("module", "cell", "text")  # a module, a cell of a notebook, a text without a file


def execute(given: Given, folder: Path) -> dict[str, Any]:
    """The names that a text defines."""
    if given.way == "module":
        name, file = "mine", str(folder / "mine.py")
        Path(file).write_text(given.text, "utf-8")
        linecache.checkcache(file)
    else:
        name, file = "__main__", f"<{given.way}>"
        linecache.cache.pop(file, None)
    if given.way == "cell":
        lines = given.text.splitlines(keepends=True)
        linecache.cache[file] = (len(given.text), None, lines, file)
    module = types.ModuleType(name)
    if given.way == "module":
        sys.modules[name] = module
    exec(compile(given.text, file, "exec"), vars(module))
    linecache.getlines(file)  # now, as the next text may lie there
    return vars(module)


def describe_all(parts: Iterable[Given], folder: Path, *, used: bool = False) -> list[Node]:
    """What each part is; where they are ``used``, after a use."""
    nodes = []
    for given in parts:
        scope = execute(given, folder)
        if used and given.used:
            scope["use"]()
        nodes.append(scope["NODE"]())
    return nodes


if __name__ == "__main__":
    here = Path(sys.argv[1])
    written = json.loads(here.read_text("utf-8"))
    nodes = describe_all([Given(*one) for one in written], here.parent, used=True)
    here.with_suffix(".nodes.json").write_text(json.dumps(nodes), "utf-8")
