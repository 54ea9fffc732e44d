"""Traces as files: one safetensors file, arrays as tensors, everything else as JSON in its metadata. No pickle.

The JSON has the fields of ``records.py`` and ``trace.py`` and is held to their type hints, so a new field is saved
without a word here. An array is ``{"$array": name of its tensor}``, a tuple ``{"$tuple": [...]}``, a float that is no
JSON ``{"$float": "nan"}``. A slim trace, as runs keep them, is ``SLIM`` and such a file compressed by zlib.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.errors import TraceFileError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.trace.records import Continuation, Step

#: What a file holds, by its format.
FORMATS = {"dragin_lab.trace": "one trace, which Trace", "dragin_lab.branches": "a tree of branches, which Branches"}
VERSION = 3
ALTERNATIVES = 3  # of each token in a slim trace
SLIM = b"dragin_lab slim trace\n"  # what its file begins with
#: safetensors refuses to read a longer header.
LONGEST_HEADER = 100_000_000
LARGEST = 4 * 2**30  # bytes of a file
LARGEST_ARRAY = 2**30  # bytes of one array
LARGEST_SLIM = 2**29  # bytes of a slim trace, unpressed: without attention a trace is small
#: How long the arrays and lists of a record are, by letters that stand for the same number throughout it.
#: What stands for its own length alone has a letter of its own.
_SHAPES = {
    "Continuation": {
        "ids": "n", "tokens": "n", "prompt_ids": "p", "prompt_offsets": "p 2", "offsets": "n 2", "entropy": "n",
        "logprob": "n", "alternative_ids": "n k", "alternative_probs": "n k", "received": "n",
        "entropy_processed": "n", "entropy_width": "n", "attention": "h n+1 p+n", "among": "triangle", "hidden": "n d",
        "alternative_tokens": "n",
    },
    "Words": {
        "text": "w", "spans": "w 2", "sentence": "w", "attention": "w", "entropy": "w", "stop": "w", "score": "w",
        "hit": "w", "judged": "w",
    },
    "Query": {"words": "w", "weights": "w", "chosen": "w"},
}  # fmt: skip
_MAYBE_EMPTY = ("alternative_tokens", "judged")

T = TypeVar("T")


def save_trace(trace: Any, path: str | Path, *, hidden: bool = True, slim: bool = False) -> Path:
    """Write a trace to ``path`` and return that path. A file that was there is replaced whole or not at all.

    Without ``hidden`` the hidden states of its drafts are left out. ``slim`` leaves out attention maps, hidden states
    and all but the ``ALTERNATIVES`` likeliest tokens, and compresses the rest: about a sixth of the size. It still
    replays exactly (``study.whatif``), unless a trigger reads attention or hidden states themselves.

    Raises ``TraceFileError`` where the trace holds something that is not data (naming the field) or where the file
    cannot be written (naming path and remedy); an old file then stays as it was.
    """
    path = as_path(path, TraceFileError)
    tensors: dict[str, np.ndarray] = {}
    trace = trace if hidden and not slim else _drop_arrays(trace, slim)
    # ASCII only, so that even half a surrogate pair survives.
    text = json.dumps(_encode_value(trace, "trace", tensors), separators=(",", ":"), allow_nan=False)
    try:
        _decode_trace(type(trace), text, _Arrays(tensors, tensors.__getitem__, lambda name: tensors[name].nbytes))
    except TraceFileError as error:
        raise TraceFileError(f"{path}: not saved, as it could not be read back: {error}") from None
    size = len(text) + sum(array.nbytes for array in tensors.values())
    most = LARGEST_SLIM if slim else LARGEST
    for what, takes, holds in (("trace's text", len(text), LONGEST_HEADER), ("trace", size, most)):
        if takes > holds * 0.9:
            raise TraceFileError(f"{path}: not saved; the {what} takes {takes:,} bytes and one file holds {holds:,}")
    metadata = {
        "format": _format_of(type(trace)), "version": str(VERSION), "trace": text, "sum": checksum(text, tensors)
    }  # fmt: skip
    data = safetensors.numpy.save(tensors, metadata)
    data = SLIM + zlib.compress(data) if slim else data
    if os.path.exists(path) and not os.path.isfile(path):  # unlike Path's methods, these never raise
        raise TraceFileError(f"{path}: not saved; this is not a regular file; give the name of a file")
    try:
        write_whole(path, data)
    except OSError as error:
        raise TraceFileError(not_saved(path, error)) from error
    return path


def load_trace(kind: type[T], path: str | Path) -> T:
    """Read a trace, an object of ``kind``; ``TraceFileError`` says what is wrong with a file that is not one.

    No array is read before its name, its shape and type, and the size of the file are known to be right.
    """
    path = as_path(path, TraceFileError)
    if not os.path.isfile(path):
        raise TraceFileError(f"{path}: " + ("is not a regular file" if os.path.exists(path) else "no such file"))
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise TraceFileError(f"{path}: has {size:,} bytes, and a trace at most {LARGEST:,}; it was not read")
        with path.open("rb") as raw:
            slim = raw.read(len(SLIM)) == SLIM
            data = _decompress_slim(path, raw.read()) if slim else b""
        if slim:
            arrays = safetensors.numpy.load(data)
            metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
            return _read_trace(
                kind, path, metadata, _Arrays(arrays, arrays.__getitem__, lambda name: arrays[name].nbytes)
            )
        with safetensors.safe_open(path, framework="np") as file:
            arrays_of_file = _Arrays(file.keys(), file.get_tensor, partial(_array_bytes, file))
            return _read_trace(kind, path, file.metadata() or {}, arrays_of_file)
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, zlib.error, KeyError) as error:  # KeyError: an unknown type of array
        raise TraceFileError(
            f"{path}: not a trace, or only a part of one; give a file that trace.save wrote"
        ) from error


def _format_of(kind: type) -> str:
    return f"dragin_lab.{kind.__name__.lower()}"


def _decompress_slim(path: Path, data: bytes) -> bytes:
    """The data of a slim trace; no more of it than one may have."""
    reading = zlib.decompressobj()
    unpacked = reading.decompress(data, LARGEST_SLIM)
    if len(unpacked) == LARGEST_SLIM:
        raise TraceFileError(
            f"{path}: a slim trace has fewer than {LARGEST_SLIM:,} bytes unpressed; it was not read on"
        )
    if not reading.eof or reading.unused_data:
        raise zlib.error("its end is missing, or something follows it")
    return unpacked


def _read_trace(kind: type[T], path: Path, metadata: Mapping[str, str], tensors: _Arrays) -> T:
    form = metadata.get("format")
    if form != _format_of(kind):
        if form in FORMATS:
            raise TraceFileError(f"{path}: holds {FORMATS[form]}.load reads")
        raise TraceFileError(f"{path}: a safetensors file, but not a trace (the weights of a model?)")
    version = metadata.get("version", "")
    if not version.isdecimal():
        raise TraceFileError(f"{path}: says no format version ({version[:20]!r}); it was not written by Trace.save")
    if version != str(VERSION):
        edition = "an older" if version in ("1", "2") else "another"
        raise TraceFileError(
            f"{path}: is of {edition} edition of dragin_lab (format {version[:20]}, this one has {VERSION}); "
            "open it with the dragin_lab that wrote it"
        )
    try:
        text = metadata.get("trace", "")
        trace = _decode_trace(kind, text, tensors)
        if unread := tensors.names - tensors.read.keys():
            raise TraceFileError(f"the trace does not name the array {min(unread)[:60]!r}")
    except TraceFileError as error:
        raise TraceFileError(f"{path}: {error}; it is damaged, or a newer dragin_lab wrote it: upgrade") from None
    except RecursionError:
        raise TraceFileError(f"{path}: the trace in it is nested too deeply; the file is damaged") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise TraceFileError(f"{path}: the trace in it is not sound JSON ({error})") from error
    if metadata.get("sum") != checksum(text, tensors.read):
        raise TraceFileError(f"{path}: was changed or damaged after it was written (its checksum does not fit)")
    return trace


def _drop_arrays(trace: Any, slim: bool) -> Any:
    """A trace, or a tree of them, without hidden states; if ``slim``, attention maps and most alternatives go too."""
    if not hasattr(trace, "steps"):
        return replace(trace, traces=[_drop_arrays(one, slim) for one in trace.traces])

    def cut(continuation: Continuation | None) -> Continuation | None:
        if continuation is None:
            return None
        if not slim:
            return replace(continuation, hidden=None)
        names = ("alternative_ids", "alternative_probs")
        fewer = {name: getattr(continuation, name)[:, :ALTERNATIVES] for name in names}
        shown = tuple(tokens[:ALTERNATIVES] for tokens in continuation.alternative_tokens)
        among = None if continuation.among is None else _keep_raising(continuation.among, len(continuation))
        bare = replace(continuation, attention=None, hidden=None)
        return replace(bare, among=among, alternative_tokens=shown, **fewer)

    def lean(step: Step) -> Step:
        return replace(step, draft=cut(step.draft), continuation=cut(step.continuation))

    return replace(trace, steps=[lean(step) for step in trace.steps], extraction=cut(trace.extraction))


def _keep_raising(among: np.ndarray, n: int) -> np.ndarray:
    """``Continuation.among`` with 0 where a token paid another one no more than those before it had: small when packed.

    What each token has received after any number of tokens, which decides where a trigger fires, stays as it was.
    """
    rows = np.zeros((n + 1, n), np.float32)
    rows[np.tril_indices(n + 1, -1, n)] = among
    grown = np.maximum.accumulate(np.tril(rows, -2), axis=0)
    rows[1:] = np.where(grown[1:] > grown[:-1], grown[1:], 0)
    kept: np.ndarray = rows[np.tril_indices(n + 1, -1, n)]
    return kept


class _Arrays:
    """The arrays of an open file, each read when it is asked for, once."""

    def __init__(self, names: Iterable[str], get: Callable[[str], np.ndarray], size: Callable[[str], int]) -> None:
        self.names, self._get, self._size = set(names), get, size
        self.read: dict[str, np.ndarray] = {}

    def take(self, name: Any) -> np.ndarray:
        if not isinstance(name, str) or name not in self.names:
            raise TraceFileError(f"the array {str(name)[:60]!r} is missing from the file")
        if name in self.read:
            raise TraceFileError(f"the array {name!r} stands at two places")
        if (size := self._size(name)) > LARGEST_ARRAY:
            raise TraceFileError(f"the array {name!r} has {size:,} bytes, and one has at most {LARGEST_ARRAY:,}")
        self.read[name] = array = self._get(name)
        return array


def _array_bytes(file: Any, name: str) -> int:
    """What an array of an open file takes, by its shape and the bits in its type's name ("F32"; "BOOL" has 8)."""
    header = file.get_slice(name)
    return math.prod(header.get_shape()) * int(re.sub(r"\D", "", header.get_dtype()) or 8) // 8


def checksum(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """CRC-32 over the trace's JSON and its arrays, 8 hexadecimal digits."""
    crc = zlib.crc32(text.encode())
    for name, array in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"", crc)  # no copy
    return f"{crc:08x}"


def _check_shapes(value: Any, where: str) -> None:
    """Raise ``TraceFileError`` where the arrays and lists of a record are not as long as one another."""
    n = len(value) if isinstance(value, Continuation) else 0
    sizes = {"triangle": n * (n + 1) // 2}
    for name, wanted in _SHAPES.get(type(value).__name__, {}).items():
        held = getattr(value, name)
        if held is not None and (name not in _MAYBE_EMPTY or len(held)):
            _check_shape(held, wanted, sizes, f"{where}.{name}")


def _check_shape(held: Any, wanted: str, sizes: dict[str, int], where: str) -> None:
    """Raise ``TraceFileError`` where something is not as long as ``sizes`` say; a new letter gets its length."""
    shape = held.shape if isinstance(held, np.ndarray) else (len(held),)
    dims = wanted.split()
    fits = len(shape) == len(dims)
    for dim, size in zip(dims, shape, strict=False):
        parts = dim.split("+")
        fits &= size == sum(int(part) if part.isdecimal() else sizes.setdefault(part, size) for part in parts)
    if not fits:
        raise TraceFileError(f"{where}: has shape {shape} where ({', '.join(dims)}) belongs")


# -- to JSON and tensors, and back ------------------------------------------------------------------------------------


def _encode_value(value: Any, where: str, tensors: dict[str, np.ndarray]) -> Any:
    """``value`` as JSON; its arrays go to ``tensors`` under their path."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(value):
        names = [part.name for part in fields(value)]
        return {name: _encode_value(getattr(value, name), f"{where}.{name}", tensors) for name in names}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TraceFileError(f"{where}: an array of {value.dtype} cannot be saved; use numbers or booleans")
        # Of safetensors' numpy writer only C order and this machine's byte order come back as they were.
        tensors[where] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
        return {"$array": where}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, list | tuple):
        items = [_encode_value(item, f"{where}.{i}", tensors) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TraceFileError(f"{where}: the key {key!r} cannot be saved; keys are texts that start with no $")
        return {key: _encode_value(item, f"{where}.{key}", tensors) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TraceFileError(f"{where}: a {type(value).__name__} cannot be saved; a trace holds plain data")


def _decode_trace(kind: type[T], text: str, arrays: _Arrays) -> T:
    """The trace that ``_encode_value`` made JSON of, with every field of its type and arrays as long as one another."""

    def revive(entry: dict[str, Any]) -> Any:
        if "$array" in entry:
            return arrays.take(entry["$array"])
        if "$float" in entry:
            return float(entry["$float"])
        return tuple(entry["$tuple"]) if "$tuple" in entry else entry

    def check_array(hint: type, value: Any) -> Any:
        if not isinstance(value, hint):
            raise ValueError(f"Expected `ndarray`, got {value!r:.40}")
        return value

    try:
        trace: T = msgspec.convert(json.loads(text, object_hook=revive), kind, dec_hook=check_array)
    except msgspec.ValidationError as error:
        raise TraceFileError(str(error).replace("`$", "`trace")) from None
    for where, record in _list_records(trace):
        _check_shapes(record, where)
    return trace


def _list_records(trace: Any, where: str = "trace") -> Iterator[tuple[str, Any]]:
    """Every record of a trace, or of a tree of them, that holds arrays, after its path."""
    if not hasattr(trace, "steps"):
        for number, one in enumerate(trace.traces):
            yield from _list_records(one, f"{where}.traces.{number}")
        return
    yield f"{where}.extraction", trace.extraction
    for number, step in enumerate(trace.steps):
        for name in ("draft", "continuation", "words", "query"):
            yield f"{where}.steps.{number}.{name}", getattr(step, name)
