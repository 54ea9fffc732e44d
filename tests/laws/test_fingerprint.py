"""A fingerprint is the same for equal definitions, in another process too, and another one after
any change.
"""

from __future__ import annotations

import copy
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from given import some
from hypothesis import assume, given
from hypothesis import strategies as st

import dragin_lab as dl

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


@some(20)
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
