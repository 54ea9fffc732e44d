"""Copies of GGUF files without their vocabulary, which the ``gguf`` package takes apart number by
number: 20 seconds for 262,144 tokens, each time that a configuration or weights are read.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
from pathlib import Path

#: Kinds of values.
_UINT32 = 4
_TEXT = 8
_ARRAY = 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by kind
_ALIGNMENT = 32  # bytes, where a file says nothing else
_TOKENS = b"tokenizer.ggml.tokens"
_LEFT_OUT = (b"tokenizer.ggml.scores", b"tokenizer.ggml.token_type", b"tokenizer.ggml.merges")
# of which transformers does not read how many tokens there are, but counts them
_COUNTED = (b"gpt2", b"starcoder2")


class _Reader:
    """Takes values from a file, one after the other. A text that is cut short raises
    ``struct.error`` at what would follow.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.place = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return value

    def text(self) -> bytes:
        length = self.number("<Q")
        self.place += length
        return self.data[self.place - length : self.place]

    def skip(self, kind: int) -> None:
        if kind == _TEXT:
            self.text()
        elif kind == _ARRAY:
            self._skip_array(self.number("<I"), self.number("<Q"))
        else:
            self.place += _WIDTHS[kind]

    def _skip_array(self, kind: int, count: int) -> None:
        if kind in _WIDTHS:
            self.place += count * _WIDTHS[kind]
            return
        for _ in range(count):
            self.skip(kind)


def copy_without_vocabulary(file: Path, copy: Path, *, weights: bool) -> None:
    """Write the copy: in place of the tokens stands their number. Without ``weights`` it has the
    same size, and holds zeros, which take no room on most disks.

    Raises ``struct.error``, ``LookupError``, ``ValueError`` or ``OverflowError`` for a file that is
    damaged.
    """
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        copy.open("wb") as written,
    ):
        reader = _Reader(data)
        reader.place = 8  # behind the magic bytes and the version
        tensors = reader.number("<Q")
        count = reader.number("<Q")
        pairs = _read_pairs(reader, count)
        alignment = _ALIGNMENT
        if b"general.alignment" in pairs:
            (alignment,) = struct.unpack_from("<I", pairs[b"general.alignment"], 4)
        table = _read_table(reader, tensors)
        _leave_out_vocabulary(pairs)
        written.write(data[:8] + struct.pack("<QQ", tensors, len(pairs)))
        for key, value in pairs.items():
            written.write(struct.pack("<Q", len(key)) + key + value)
        written.write(table)
        written.write(bytes(-written.tell() % alignment))
        opened.seek(reader.place + -reader.place % alignment)
        if weights:
            shutil.copyfileobj(opened, written, 2**24)
        else:
            rest = os.fstat(opened.fileno()).st_size - opened.tell()
            written.truncate(written.tell() + max(rest, 0))


def _read_pairs(reader: _Reader, count: int) -> dict[bytes, bytes]:
    """By key the kind of a value, as 4 bytes, and the value."""
    pairs = {}
    for _ in range(count):
        key = reader.text()
        began = reader.place
        reader.skip(reader.number("<I"))
        pairs[key] = reader.data[began : reader.place]
    return pairs


def _read_table(reader: _Reader, tensors: int) -> bytes:
    """Names, shapes, kinds and places of the tensors."""
    began = reader.place
    for _ in range(tensors):
        reader.text()
        dimensions = reader.number("<I")
        reader.place += 8 * dimensions + 4 + 8  # kind, and place among the weights
    return reader.data[began : reader.place]


def _leave_out_vocabulary(pairs: dict[bytes, bytes]) -> None:
    architecture = pairs[b"general.architecture"][4 + 8 :]
    if architecture in _COUNTED:
        return
    (count,) = struct.unpack_from("<Q", pairs[_TOKENS], 4 + 4)
    pairs[_TOKENS] = struct.pack("<II", _UINT32, count)
    pairs.setdefault(architecture + b".vocab_size", pairs[_TOKENS])
    for key in _LEFT_OUT:
        pairs.pop(key, None)
