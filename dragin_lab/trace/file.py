"""Traces as files: one safetensors file, arrays as tensors, everything else as JSON in its
metadata. No pickle.

The JSON has the fields of ``records.py`` and ``trace.py`` and is held to their type hints, so a new
field is saved without a word here. An array is ``{"$array": name of its tensor}``, a tuple
``{"$tuple": [...]}``. A slim trace, as runs keep them, is ``SLIM`` and such a file compressed by
zlib.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.checks import shown
from dragin_lab.errors import TraceFileError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.trace.draft import Draft, saved_fields

_FORMATS = {
    "dragin_lab.trace": "holds one trace, which Trace.load reads",
    "dragin_lab.branches": "holds a tree of branches, which Branches.load reads",
}
VERSION = "4"
ALTERNATIVES = 3  # of each token in a slim trace
SLIM = b"dragin_lab slim trace\n"  # what its file begins with
LARGEST = 4 * 2**30  # bytes of a file
# bytes of a slim one, unpacked; one of the embedded model takes 800 a token
LARGEST_SLIM = 64 * 2**20

T = TypeVar("T")


def save_trace(trace: Any, path: str | Path, *, hidden: bool = False, slim: bool = False) -> Path:
    """Write a trace to ``path`` and return that path. A file that was there is replaced whole or
    not at all.

    Without ``hidden`` the hidden states of its drafts are left out. ``slim`` leaves out attention
    maps, hidden states and all but the ``ALTERNATIVES`` likeliest tokens, and compresses the rest:
    about a sixth of the size. It still replays exactly (``study.whatif``), unless a trigger reads
    attention or hidden states themselves.

    Raises ``TraceFileError`` where the trace holds something that is not data (naming the field) or
    where the file cannot be written (naming path and remedy); an old file then stays as it was.
    """
    path = _as_regular(path)
    arrays: dict[str, np.ndarray] = {}
    cut = partial(_cut_draft, hidden=hidden and not slim, slim=slim)
    # ASCII only, so that even half a surrogate pair survives
    text = json.dumps(_encode_value(trace, "trace", arrays, cut), separators=(",", ":"))
    try:
        _decode_record(type(trace), text, arrays)
    except msgspec.ValidationError as error:
        raise TraceFileError(
            f"{path}: not saved, as it could not be read back: {_name_fault(error)}"
        ) from None
    data = safetensors.numpy.save(
        arrays, {"format": _format_of(type(trace)), "version": VERSION, "trace": text}
    )
    if len(data) > (most := LARGEST_SLIM if slim else LARGEST):
        raise TraceFileError(
            f"{path}: not saved; the trace has {len(data):,} bytes, and a file at most {most:,}"
        )
    try:
        write_whole(path, SLIM + zlib.compress(data) if slim else data)
    except OSError as error:
        raise TraceFileError(not_saved(path, error)) from error
    return path


def _as_regular(path: str | Path) -> Path:
    """``TraceFileError`` for what is there and no regular file: a pipe would block, and a device
    has no end.
    """
    path = as_path(path, TraceFileError, local=True)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise TraceFileError(f"{path}: is not a regular file; give the name of a file")
    return path


def load_trace(kind: type[T], path: str | Path) -> T:
    """Read a trace, an object of ``kind``; ``TraceFileError`` names a file that is not one, or
    that was damaged.
    """
    return read_trace(kind, _as_regular(path))


def read_trace(kind: type[T], path: Path | zipfile.Path) -> T:
    """``load_trace`` of a file on a disk, or in a zip whose size is known."""
    try:
        if isinstance(path, Path) and (size := path.stat().st_size) > LARGEST:
            raise TraceFileError(
                f"{path}: has {size:,} bytes, and a trace at most {LARGEST:,}; it was not read"
            )
        packed = path.read_bytes()
        data = _unpack_slim(packed[len(SLIM) :]) if packed.startswith(SLIM) else packed
        metadata = (
            json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
        )
        if (form := metadata.get("format")) != _format_of(kind):
            raise TraceFileError(
                f"{path}: {_FORMATS.get(str(form), 'not a trace (the weights of a model?)')}"
            )
        if (version := metadata.get("version")) != VERSION:
            raise TraceFileError(
                f"{path}: is of another edition of dragin_lab (format {str(version)[:20]}, this one"
                f" has {VERSION}); open it with the dragin_lab that wrote it"
            )
        return _decode_record(kind, metadata["trace"], safetensors.numpy.load(data))
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (
        safetensors.SafetensorError,
        zlib.error,
        RecursionError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise TraceFileError(
            f"{path}: not a trace, or a damaged one ({_name_fault(error)}); give a file that"
            " trace.save wrote"
        ) from error


def _unpack_slim(packed: bytes) -> bytes:
    """What a slim trace unpacks to. Raises ``ValueError`` for one that is cut, or larger than
    ``LARGEST_SLIM``.
    """
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, LARGEST_SLIM + 1)
    if len(data) > LARGEST_SLIM:
        raise ValueError(f"it unpacks to more than {LARGEST_SLIM:,} bytes")
    if not unpacker.eof:
        raise ValueError("it is cut short")
    return data


def _format_of(kind: type) -> str:
    return f"dragin_lab.{kind.__name__.lower()}"


def _name_fault(error: Exception) -> str:
    return str(error).replace("`$", "`trace")


# -- to JSON and tensors, and back -----------------------------------------------------------------


def _cut_draft(draft: Draft, hidden: bool, slim: bool) -> Draft:
    """A draft without hidden states; if ``slim``, attention maps and most alternatives go too."""
    if slim:
        draft = replace(
            draft,
            rows=None,
            alternative_ids=draft.alternative_ids[:, :ALTERNATIVES],
            alternative_probs=draft.alternative_probs[:, :ALTERNATIVES],
            alternative_tokens=tuple(few[:ALTERNATIVES] for few in draft.alternative_tokens),
        )
    return draft if hidden else replace(draft, states=None)


def _encode_value(
    value: Any, where: str, arrays: dict[str, np.ndarray], cut: Callable[[Draft], Draft]
) -> Any:
    """``value`` as JSON, its drafts as ``cut`` leaves them; its arrays go to ``arrays`` under
    their path.
    """

    def encode(inner: Any, name: object) -> Any:
        return _encode_value(inner, f"{where}.{name}", arrays, cut)

    if is_dataclass(value):
        value = cut(value) if isinstance(value, Draft) else value
        return {name: encode(getattr(value, name), name) for name in saved_fields(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        # Of safetensors' numpy writer only C order and this machine's byte order come back as they
        # were.
        arrays[where] = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
        return {"$array": where}
    if isinstance(value, list | tuple):
        items = [encode(item, i) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(
        isinstance(key, str) and not key.startswith("$") for key in value
    ):
        return {key: encode(item, key) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    raise TraceFileError(
        f"{where}: {shown(value)} cannot be saved; a trace holds plain data, with texts as keys"
    )


def _decode_record(kind: type[T], text: str, arrays: Mapping[str, np.ndarray]) -> T:
    """The record that ``_encode_value`` made JSON of, with every field of its type."""

    def revive(entry: dict[str, Any]) -> Any:
        if "$array" in entry:
            return arrays[entry["$array"]]
        return tuple(entry["$tuple"]) if "$tuple" in entry else entry

    def check_array(hint: type, value: Any) -> Any:
        if not isinstance(value, hint):
            raise ValueError(f"Expected `ndarray`, got {value!r:.40}")
        return value

    return msgspec.convert(json.loads(text, object_hook=revive), kind, dec_hook=check_array)
