"""Traces as files: what comes back, what is refused, and what stays when writing fails."""

from __future__ import annotations

import errno
import json
import math
import os
import tracemalloc
import zlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from factories import make_trace
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dragin_lab.errors import TraceFileError
from dragin_lab.trace import file as tracefile
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.trace import Branches, Question, Trace


def assert_same(a: Any, b: Any, where: str = "trace") -> None:
    """Equal in type and value; arrays bit by bit, NaN as NaN."""
    assert type(a) is type(b), where
    if is_dataclass(a):
        for part in fields(a):
            assert_same(getattr(a, part.name), getattr(b, part.name), f"{where}.{part.name}")
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{where}[{i}]")
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b), where
    else:
        assert a == b, where


def rewrite(path: Path, change: Any) -> None:
    """Apply ``change(tensors, metadata, stored)`` to a trace file; ``stored`` is its decoded
    JSON.
    """
    with safetensors.safe_open(path, framework="np") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    stored = json.loads(metadata["trace"])
    change(tensors, metadata, stored)
    if "trace" in metadata:
        metadata["trace"] = json.dumps(stored)
    path.write_bytes(safetensors.numpy.save(tensors, metadata))


# -- what comes back -------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", [True, False])
def test_a_trace_comes_back_as_it_was(tmp_path: Path, attention: bool) -> None:
    trace = make_trace(attention=attention, hidden=True)
    path = trace.save(tmp_path / "trace with spaces ż.safetensors", hidden=True)
    assert path == tmp_path / "trace with spaces ż.safetensors"
    assert_same(trace, Trace.load(str(path)))
    assert os.listdir(tmp_path) == [path.name]
    with safetensors.safe_open(path, "numpy") as file:  # files of earlier versions are known by it
        assert file.metadata()["format"] == "dragin_lab.trace"


def test_arrays_of_any_layout_come_back(tmp_path: Path) -> None:
    trace = make_trace()
    draft = trace.steps[0].draft
    expected = draft.rows.copy()
    draft.rows = np.asfortranarray(draft.rows).astype(">f2", order="K")
    draft.entropy = np.repeat(draft.entropy, 2)[::2]
    loaded = Trace.load(trace.save(tmp_path / "t")).steps[0].draft
    assert_same(loaded.rows, expected)
    assert_same(loaded.entropy, np.ascontiguousarray(draft.entropy))
    loaded.entropy[0] = 1.0  # a loaded trace can be worked on


def test_numpy_scalars_come_back_as_numbers(tmp_path: Path) -> None:
    trace = make_trace()
    trace.seconds = np.float32(0.5)
    trace.steps[1].index = np.int64(1)
    trace.scores = {"em": 1}
    loaded = Trace.load(trace.save(tmp_path / "t"))
    assert (loaded.seconds, type(loaded.seconds), type(loaded.steps[1].index)) == (0.5, float, int)
    assert_same(loaded.scores, {"em": 1.0})


texts = st.text(max_size=8)
numbers = hnp.arrays(
    st.sampled_from(["bool", "int8", "int64", "uint16", "float16", "float32", "float64"]), (2, 1)
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(texts.filter(lambda key: not key.startswith("$")), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    settings=st.dictionaries(st.sampled_from(["name", "θ"]), plain), text=texts, number=st.floats()
)
def test_any_settings_and_texts_come_back(
    settings: dict[str, Any], text: str, number: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = make_trace(attention=False)
    trace.method, trace.provenance = settings, {"é": [settings]}
    trace.text, trace.seconds, trace.steps[0].notes = text, number, [text, ""]
    trace.steps[0].prompt.spans[text.replace("$", "")] = (-1, 2**40)
    assert_same(trace, Trace.load(trace.save(tmp_path_factory.mktemp("t") / "t")))


# -- what cannot be saved --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda t: t.method.update(nlp=object()), "trace.method.nlp: <object .* cannot be saved"),
        (lambda t: t.method.update(a={1: 2}), "trace.method.a: {1: 2} cannot be saved"),
        (
            lambda t: t.method.update(a={"$array": 2}),
            "trace.method.a: .* cannot be saved; .* texts as keys",
        ),
        (lambda t: setattr(t, "text", None), "Expected `str`, got `null` - at `trace.text`"),
        (
            lambda t: setattr(t.steps[0].draft, "entropy", [1.0]),
            r"Expected `ndarray`, got \[1.0\] - .*draft.entropy",
        ),
        (
            lambda t: setattr(t.steps[0].draft, "ids", np.array(["a"])),
            r"trace.steps.0.draft.ids: array\(\['a'\]",
        ),
    ],
)
def test_refuses_to_save_what_is_not_data(tmp_path: Path, change: Any, where: str) -> None:
    trace = make_trace()
    change(trace)
    with pytest.raises(TraceFileError, match=where):
        trace.save(tmp_path / "t")
    assert os.listdir(tmp_path) == []


# -- when writing fails ----------------------------------------------------------------------------


def test_an_old_file_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_trace()
    path = old.save(tmp_path / "t")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(
                TraceFileError, match=r"t: not saved: No space left on device; free .* is unchanged"
            ):
                Trace(Question("", "other"), {}).save(path)
        assert os.listdir(tmp_path) == ["t"]
        assert_same(old, Trace.load(path))


def test_saves_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "t")
    make_trace().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(make_trace(), Trace.load(tmp_path / "folder" / "t"))


# -- what is not a trace ---------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return make_trace().save(tmp_path / "t.safetensors")


def refusal(path: Path, *parts: str) -> None:
    with pytest.raises(TraceFileError) as caught:
        Trace.load(path)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(path), *parts):
        assert part in message


def test_refuses_files_that_are_not_traces(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere", "No such file")
    refusal(tmp_path, "Is a directory")
    model = tmp_path / "model.safetensors"
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file({"weight": np.zeros(3)}, model, metadata)
        refusal(model, "not a trace (the weights of a model?)")
    for content in (b"", b"not a tensor in sight, but some text", b"\0" * 64):
        model.write_bytes(content)
        refusal(model, "not a trace")


@pytest.mark.parametrize("version", ["1", "99", "1" * 5000, "one"])
def test_refuses_another_format_version(saved: Path, version: str) -> None:
    rewrite(saved, lambda tensors, metadata, stored: metadata.update(version=version))
    refusal(
        saved,
        f"is of another edition of dragin_lab (format {version[:20]}, this one has"
        f" {tracefile.VERSION})",
    )


def draft_of(stored: dict[str, Any]) -> dict[str, Any]:
    return stored["steps"][0]["draft"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m, s: s.pop("question"), "required field `question`"),
        (lambda t, m, s: s.update(text=3), "Expected `str`, got `int` - at `trace.text`"),
        (lambda t, m, s: s["method"].update(nlp={"$tuple": 5}), "not iterable"),
        (lambda t, m, s: draft_of(s).update(ids={"$array": "gone"}), "gone"),
        (lambda t, m, s: t.pop("trace.steps.0.draft.entropy"), "trace.steps.0.draft.entropy"),
    ],
)
def test_a_file_that_says_nonsense_is_refused_by_name(
    saved: Path, change: Any, message: str
) -> None:
    rewrite(saved, change)
    refusal(saved, message)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "1" * 5000, "NaN"])
def test_json_that_is_not_a_trace_is_refused(saved: Path, text: str) -> None:
    with safetensors.safe_open(saved, framework="np") as file:
        metadata = dict(file.metadata())
    saved.write_bytes(safetensors.numpy.save({}, metadata | {"trace": text}))
    refusal(saved, "trace")


def test_a_large_file_is_not_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracefile, "LARGEST", 1000)
    refusal(saved, "and a trace at most 1,000; it was not read")


def test_a_slim_trace_keeps_what_was_decided_in_a_fraction_of_the_size(tmp_path: Path) -> None:
    trace = make_trace(hidden=True)
    whole, slim = (
        trace.save(tmp_path / "whole", hidden=True),
        save_trace(trace, tmp_path / "slim", slim=True),
    )
    assert slim.stat().st_size < whole.stat().st_size / 2
    loaded = Trace.load(slim)
    assert loaded.fingerprint == trace.fingerprint
    for draft, kept in zip(trace.continuations, loaded.continuations, strict=True):
        assert kept.rows is kept.states is None
        assert kept.alternative_probs.shape[1] <= 3
        assert_same(kept.received, draft.received)
    slim.write_bytes(slim.read_bytes()[:-1])
    refusal(slim, "a damaged one")


def test_a_saved_tree_has_no_hidden_states(tmp_path: Path) -> None:
    trace = make_trace(hidden=True)
    assert trace.steps[0].draft.states is not None
    tree = Branches.load(Branches.of(trace).save(tmp_path / "tree"))
    assert tree[0].steps[0].draft.states is None
    assert tree[0].fingerprint == trace.fingerprint


def test_a_slim_trace_is_unpacked_up_to_a_size(tmp_path: Path) -> None:
    bomb, pack = tmp_path / "bomb", zlib.compressobj(9)
    mebibytes = 2 * tracefile.LARGEST_SLIM >> 20
    body = b"".join([*(pack.compress(bytes(1 << 20)) for _ in range(mebibytes)), pack.flush()])
    bomb.write_bytes(tracefile.SLIM + body)
    tracemalloc.start()
    try:
        refusal(bomb, "it unpacks to more than 67,108,864 bytes")
        assert tracemalloc.get_traced_memory()[1] < 2.5 * tracefile.LARGEST_SLIM
    finally:
        tracemalloc.stop()
