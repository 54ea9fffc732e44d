"""A fingerprint is the same for equal definitions, in another process too, and another one after any change."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import dragin_lab as dl

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), words, st.binary(max_size=6))
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
    st.lists(words, min_size=1, max_size=30).map(lambda some: re.compile("|".join(map(re.escape, some)))),
)
values = st.recursive(data, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))

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


@given(values)
def test_equal_values_have_one_fingerprint(value: Any) -> None:
    assert fingerprint(value) == fingerprint(copy.deepcopy(value))


@given(values, values)
def test_other_values_have_another_fingerprint(one: Any, other: Any) -> None:
    assume(not same(one, other))
    assert fingerprint(one) != fingerprint(other)


@given(numbers, st.data())
def test_one_changed_number_is_seen(some: list[float], draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(some) - 1))
    changed = [*some[:at], some[at] + max(1.0, abs(some[at])), *some[at + 1 :]]
    for make in (list, np.array, torch.tensor, pd.Series, lambda n: pd.DataFrame({"n": n})):
        assert fingerprint(make(some)) != fingerprint(make(changed))


def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    script = (
        "import mine, dragin_lab as dl\n"
        f"for kind in {KINDS!r}:\n"
        "    value = mine.FOUND.get(kind, mine)\n"
        "    @dl.when('mine', threshold=0.5)\n"
        "    def trigger(draft):\n"
        "        return mine.score(draft) * (value is None)\n"
        "    print(kind, dl.method(when='mine').trigger.fingerprint)\n"
    )
    (tmp_path / "script.py").write_text(script)

    def run(seed: str) -> list[str]:
        paths = os.pathsep.join([str(Path(dl.__file__).parents[1]), str(tmp_path)])
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        command = [sys.executable, str(tmp_path / "script.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    first = run("1")
    assert len(set(first[1::2])) == len(KINDS)
    assert run("2") == first
    (tmp_path / "mine.py").write_text(MODULE.replace("* len", "+ len"))
    assert not set(run("1")[1::2]) & set(first[1::2])
