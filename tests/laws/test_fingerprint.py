"""A fingerprint is the same for equal definitions, in another process too, and another one after
any change.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import json
import logging
import os
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import parts
import pytest
import torch
from given import some
from hypothesis import assume, given
from hypothesis import strategies as st
from parts import Given, describe_all

import dragin_lab as dl
from dragin_lab.core.fingerprint import Node, describe, list_changes, say_unknown

words = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6
)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    words,
    st.binary(max_size=6),
)
numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=400)
data = st.one_of(
    plain,
    st.sets(words, max_size=6),
    st.frozensets(st.integers(), max_size=6),
    numbers.map(np.array),
    st.lists(words, min_size=1, max_size=5).map(lambda some: np.array(some, dtype=object)),
    numbers.map(torch.tensor),
    numbers.map(lambda some: pd.DataFrame({"n": some, "at": [f"w{i}" for i in range(len(some))]})),
    numbers.map(pd.Series),
    st.lists(words, min_size=1, max_size=30).map(
        lambda some: re.compile("|".join(map(re.escape, some)))
    ),
)
values = st.recursive(
    data, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
)

KINDS = ("set", "array", "tensor", "frame", "series", "pattern", "nested", "module")
MODULE = """
import re, numpy as np, pandas as pd, torch
import dragin_lab as dl
FOUND = {
    "set": {"the", "of", "and", "a", "in", frozenset({1, 2, "x"})},
    "array": np.arange(9) / 7,
    "tensor": torch.arange(9) / 7,
    "frame": pd.DataFrame({"a": ["x", "y"], "b": [1.5, 2.5]}),
    "series": pd.Series([1, 2, 3], index=["a", "b", "c"]),
    "pattern": re.compile("a|b", re.I),
    "nested": {"b": [{1, 2}, ("c", None)], "a": {"d": {"e"}}},
}
def score(draft):
    return draft.entropy * len(FOUND)
"""


def fingerprint(value: Any) -> str:
    """That of a trigger that reads a value."""

    @dl.when("reads", threshold=0.5)
    def reads(draft: dl.Draft) -> Any:
        return draft.entropy * (value is None)

    return dl.method(when="reads").trigger.fingerprint


def same(a: Any, b: Any) -> bool:
    """Whether two values hold the same, by the comparison of their kind."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | torch.Tensor):
        return a.shape == b.shape and bool((a == b).all())
    if isinstance(a, pd.DataFrame | pd.Series):
        return a.equals(b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return repr(a) == repr(b)
    return bool(a == b)


@some(12)
@given(values)
def test_equal_values_have_one_fingerprint(value: Any) -> None:
    assert fingerprint(value) == fingerprint(copy.deepcopy(value))


@some(200)
@given(values, values)
def test_other_values_have_another_fingerprint(one: Any, other: Any) -> None:
    assume(not same(one, other))
    assert fingerprint(one) != fingerprint(other)


@some(10)
@given(numbers, st.data())
def test_one_changed_number_is_seen(some: list[float], draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(some) - 1))
    changed = [*some[:at], some[at] + max(1.0, abs(some[at])), *some[at + 1 :]]
    for make in (list, np.array, torch.tensor, pd.Series, lambda n: pd.DataFrame({"n": n})):
        assert fingerprint(make(some)) != fingerprint(make(changed))


SCRIPT = f"""
import sys
sys.path.insert(0, sys.argv[1])
sys.modules.pop("mine", None)
import mine, dragin_lab as dl
for kind in {KINDS!r}:
    value = mine.FOUND.get(kind, mine)
    @dl.when("mine", threshold=0.5)
    def trigger(draft):
        return mine.score(draft) * (value is None)
    print(kind, dl.method(when="mine").trigger.fingerprint)
sys.path.pop(0)
from scripted import Parrot, ScriptedRetriever
lab = dl.Lab(Parrot(), retriever=ScriptedRetriever())
lab.ask("Who made it?", "dragin").save(sys.argv[1] + "/one.trace")
"""


@pytest.mark.slow
def test_it_and_a_trace_are_the_same_in_another_process_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another locale, time zone, encoding and hash seed."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def folder(name: str, text: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(text)
        return str(tmp_path / name)

    def here(path: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["", path])
        runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
        return capsys.readouterr().out.split()

    elsewhere = {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0"}
    paths = os.pathsep.join([str(Path(dl.__file__).parents[1]), str(Path(__file__).parents[1])])
    command = [sys.executable, str(tmp_path / "script.py"), folder("there", MODULE)]
    environment = os.environ | elsewhere | {"PYTHONPATH": paths}
    there = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    first = here(folder("here", MODULE))
    assert len(set(first[1::2])) == len(KINDS)
    assert there == first
    assert not set(here(folder("changed", MODULE.replace("* len", "+ len")))[1::2]) & set(
        first[1::2]
    )
    one, other = (dl.Trace.load(tmp_path / name / "one.trace") for name in ("here", "there"))
    assert one.diff(other) == ""
    assert one.fingerprint == other.fingerprint


# -- given parts of every kind ---------------------------------------------------------------------

givens = st.builds(
    Given,
    st.sampled_from([*parts.KINDS]),
    st.sampled_from([*parts.VALUES]),
    st.sampled_from(parts.WAYS),
    st.integers(0, 9999),
    st.just("+"),
)
changes_of_parts = st.sampled_from([{"number": 10_000}, {"operator": "-"}])


def describe_elsewhere(these: list[Given], folder: Path) -> list[Node]:
    """What parts are in a process of another hash seed, after a use of each."""
    folder.mkdir()
    file = folder / "parts.json"
    file.write_text(json.dumps(these), "utf-8")
    paths = os.pathsep.join([str(Path(dl.__file__).parents[1]), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": paths}
    subprocess.run([sys.executable, parts.__file__, str(file)], env=environment, check=True)
    nodes: list[Node] = json.loads(file.with_suffix(".nodes.json").read_text("utf-8"))
    return nodes


def check_parts(pairs: list[tuple[Given, Given]], folder: Path) -> None:
    """A part is what it is after a use in another process too, and another one once changed."""
    elsewhere = describe_elsewhere([one for one, _ in pairs], folder / "elsewhere")
    for (one, changed), there in zip(pairs, elsewhere, strict=True):
        [here, other] = describe_all([one, changed], folder)
        [not_known, said_there] = (say_unknown({"it": node}) for node in (here, there))
        assert (not_known == []) == one.known, (one, not_known)
        assert not_known == said_there, one
        assert list_changes(here, there, "it") == [], one
        assert here != other, (one, changed)
        if one.known:
            assert here == there, one
            assert list_changes(here, other, "it"), (one, changed)


def test_a_given_part_is_the_same_in_another_process_and_another_once_changed(
    tmp_path: Path,
) -> None:
    pairs = []

    @some(40)
    @given(givens, changes_of_parts)
    def draw(one: Given, change: dict[str, Any]) -> None:
        pairs.append((one, one._replace(**change)))

    draw()
    check_parts(pairs, tmp_path)


@pytest.mark.slow
def test_so_are_parts_of_every_kind_and_with_every_value(tmp_path: Path) -> None:
    of_kinds = [Given(kind, "a set", way, 1) for kind in parts.KINDS for way in parts.WAYS]
    of_values = [Given("a global", value, "module", 1) for value in parts.VALUES]
    pairs = [(one, one._replace(number=2)) for one in (*of_kinds, *of_values)]
    pairs += [(one, one._replace(operator="-")) for one in of_kinds]
    check_parts(pairs, tmp_path)


# -- values that lie elsewhere ---------------------------------------------------------------------


class Probe(torch.nn.Module):
    def __init__(self, scale: float, direction: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("direction", torch.full((3,), direction), persistent=False)


class Slots:
    __slots__ = ("weight",)

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def times(self, number: float) -> float:
        return number * self.weight


def numbers_below(n: int) -> Any:
    yield from range(n)


def scaled(by: float) -> Any:
    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(answer: str, golds: Any) -> float:
            return by * float(function(answer, golds))

        return wrapper

    return wrap(lambda answer, golds: 1.0)


def arrow(*numbers: int) -> Any:
    return pytest.importorskip("pyarrow").table({"w": numbers})


def index(number: float) -> Any:
    made = pytest.importorskip("faiss").IndexFlatIP(2)
    made.add(np.full((3, 2), number, np.float32))
    return made


def forest(seed: int) -> Any:
    ensemble = pytest.importorskip("sklearn.ensemble")
    rows = np.random.default_rng(0).normal(size=(20, 2))
    return ensemble.RandomForestClassifier(2, random_state=seed).fit(rows, rows[:, 0] > 0)


PAIRS: dict[str, Any] = {
    "an attribute of a module": lambda: (Probe(1.0), Probe(2.0)),
    "a buffer that is not persistent": lambda: (Probe(1.0, 1.0), Probe(1.0, 2.0)),
    "slots": lambda: (Slots(1.0), Slots(2.0)),
    "a bound method": lambda: (Slots(1.0).times, Slots(2.0).times),
    "an Arrow table": lambda: (arrow(1, 1, 1), arrow(1, 2, 1)),
    "masks": lambda: (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "a memoryview": lambda: (memoryview(b"ab"), memoryview(b"cd")),
    "an index": lambda: (index(1.0), index(2.0)),
    "a forest": lambda: (forest(0), forest(1)),
    "a decorator": lambda: (scaled(2.0), scaled(3.0)),
    "lambdas in one line": lambda: (lambda d: d.entropy, lambda d: d.logprob),
    "a factory": lambda: (collections.defaultdict(int), collections.defaultdict(list)),
    "texts and numbers": lambda: (pd.DataFrame({"a": [1, "x"]}), pd.DataFrame({"a": ["1", "x"]})),
    "many": lambda: ([*range(1000)], [*range(999), 0]),
    "large": lambda: (np.zeros(2**18), np.append(np.zeros(2**18 - 1), 1e-9)),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_values_that_lie_elsewhere_are_seen_and_named(kind: str) -> None:
    one, other = PAIRS[kind]()
    assert describe(one) == describe(one)
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    changes = list(list_changes(describe(one), describe(other), "it"))
    assert changes
    assert all(change.startswith("it") for change in changes)
    assert say_unknown({"it": describe(one)}) == []


def test_what_cannot_be_read_is_said_and_never_equal() -> None:
    class Closed:
        def __reduce_ex__(self, version: Any) -> Any:
            raise RuntimeError("no copies")

    one, other = Closed(), Closed()
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    assert list_changes(describe(one), describe(other), "it") == []  # so that a run can go on
    said = say_unknown({"trigger it": describe({"a": one})})
    assert said == ["trigger it.'a': not known: Closed (RuntimeError: no copies)"]


class Hostile:
    """Whatever is asked of it raises, at each place where that is possible."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"no {name}")

    def __hash__(self) -> int:
        raise ValueError("no hash")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    def __len__(self) -> int:
        raise ValueError("no length")


def test_an_object_whose_reading_raises_is_named_with_its_error() -> None:
    def reads(draft: Any) -> Any:
        return draft, held

    held = Hostile()
    assert say_unknown({"trigger it": describe(reads)}) == [
        "trigger it.held: not known: Hostile (ValueError: no debug)"
    ]


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: numbers_below(9), next),
        (lambda: random.Random(1), random.Random.random),
        (lambda: np.random.default_rng(1), np.random.Generator.random),
        (lambda: np.random.RandomState(1), np.random.RandomState.random),
        (torch.Generator, lambda generator: torch.rand(1, generator=generator)),
    ],
)
def test_what_moves_at_each_use_is_said_and_stays_what_it_is(make: Any, draw: Any) -> None:
    one, other = make(), make()
    before = describe({"a": one})
    draw(one)
    assert describe({"a": one}) == before != describe({"a": other})
    kind = type(one).__name__
    assert say_unknown({"it": before}) == [
        f"it.'a': not known: {kind} (TypeError: it moves at each use)"
    ]


# -- what a part writes itself ---------------------------------------------------------------------

CALLS, STATE, MEMO = 0, {"calls": 0, "scale": 2.0}, {}  # type: ignore[var-annotated]
NUMBERS = itertools.count()
LOG = logging.getLogger("mine")


def note(word: str) -> None:
    global CALLS
    CALLS += 1
    MEMO.setdefault(word, len(MEMO))
    STATE["calls"] += 1
    LOG.debug("%s", word)
    next(NUMBERS)


class Counting:
    def __init__(self, scale: float) -> None:
        self.scale, self.calls = scale, 0
        self.memo: dict[str, int] = {}

    @functools.cached_property
    def doubled(self) -> float:
        return 2 * self.scale

    def __call__(self, answer: str, golds: Any) -> float:
        self.calls += 1
        self.memo[answer] = self.calls
        note(answer)
        return self.doubled


def test_what_a_part_writes_itself_does_not_count_and_the_rest_does() -> None:
    metric = Counting(1.0)
    before = describe(metric)
    metric("Li", ())
    logging.getLogger("another")
    assert describe(metric) == before
    assert describe(Counting(2.0)) != before
    STATE["scale"] = 3.0
    changes = list(list_changes(before, describe(metric), "metric Counting"))
    STATE["scale"] = 2.0
    assert changes == ["metric Counting.__call__.note.STATE.'scale': 2.0 → 3.0"]


def test_a_changed_source_is_named_by_its_line() -> None:
    def one(answer: str) -> float:
        return 0.5

    def other(answer: str) -> float:
        return 1.5

    changes = list(list_changes(describe(one), describe(other), "metric hits"))
    assert changes == [
        "metric hits: source changed, line 1: def one(answer: str) -> float: → "
        "def other(answer: str) -> float:"
    ]
