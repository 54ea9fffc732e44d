"""Forwards of llama.cpp by the C bindings of llama-cpp-python, from ids to logits, attention rows
and hidden states.

llama.cpp calls ``cb_eval`` for each node of a forward. ``kq_soft_max-<layer>`` is the attention of
a layer, which there is only without flash attention; ``l_out-<layer>`` and ``result_norm`` are
hidden states.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dragin_lab.checks import choice
from dragin_lab.errors import MissingPackageError, ModelError
from dragin_lab.trace.draft import count_common

DTYPES = {"float16": "GGML_TYPE_F16", "float32": "GGML_TYPE_F32"}  # of keys and values
ROWS = "kq_soft_max"  # the node of a layer's attention, without the layer's number
_UBATCH = 512  # tokens of a prompt that are computed at once
_ERROR = 4  # the level of llama.cpp's log
#: Ids that one forward reads. A text is always read in the same pieces, so that reusing some of
#: them changes no bit.
Piece = tuple[int, ...]


@dataclass
class Computed:
    """What was computed at the last token of a text."""

    logits: torch.Tensor  # (V,) float32, raw
    # (h, keys) float32, its attention to itself and all before it, if asked for
    rows: np.ndarray | None
    states: dict[str, np.ndarray]  # (d,) float32 by node
    kept: int  # tokens of the text that were not read again


class _NodeListener:
    """Answers ``cb_eval``, and copies the nodes that are asked for."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.names: set[str] = set()  # of all nodes, listed while ``learning``
        self.learning = True
        self.wanted = frozenset[bytes]()  # the names of ``groups`` in bytes
        # the nodes to copy, with their rows a token: heads of a softmax, 1 for states
        self.groups: dict[str, int] = {}
        self.last = True  # copies only the last row of each group
        # (rows, width) float32 of each part of a forward
        self.copied: dict[str, list[np.ndarray]] = {}
        for name, result, arguments in (
            ("ggml_get_name", ctypes.c_char_p, [ctypes.c_void_p]),
            ("ggml_nbytes", ctypes.c_size_t, [ctypes.c_void_p]),
            ("ggml_nrows", ctypes.c_int64, [ctypes.c_void_p]),
            ("ggml_backend_tensor_get", None, [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2),
        ):
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments

    def __call__(self, tensor: int, asked: bool, _: Any) -> bool:
        raw = self.library.ggml_get_name(tensor)
        if asked:
            if self.learning:
                self.names.add(raw.decode())
            return raw in self.wanted
        name = raw.decode()
        rows = self.library.ggml_nrows(tensor)
        width = self.library.ggml_nbytes(tensor) // rows  # bytes
        step = rows // self.groups[name] if self.last else rows
        size = width if self.last else rows * width
        array = np.empty((rows // step, size // 4), np.float32)
        for i in range(rows // step):
            place = (i * step + step) * width - size
            self.library.ggml_backend_tensor_get(tensor, array.ctypes.data + i * size, place, size)
        self.copied.setdefault(name, []).append(array.reshape(-1, width // 4))
        return True


class LlamaContext:
    """A GGUF file opened by llama.cpp, and its sequences, each with a text of at most ``window``
    tokens.

    Forwards run in a separate thread, so that Ctrl-C can end one between two of its nodes.
    ``close`` frees it all, as does the end of this object. ``vocabulary`` is V, the tokens of a
    distribution, and ``names`` are those of the nodes of a forward.

    Raises ``MissingPackageError`` without llama-cpp-python, and ``ModelError`` for a file that
    llama.cpp does not open, or where memory is short.
    """

    def __init__(
        self,
        file: Path,
        *,
        threads: int,
        window: int | None,
        dtype: str,
        sequences: int,
        rows: bool = True,
    ) -> None:
        self.bindings = C = load_bindings()
        self.file = file
        self.threads = threads
        self.dtype = choice("dtype", dtype, DTYPES)
        self.rows = rows
        _ERRORS.clear()
        parameters = C.llama_model_default_params()
        # A build by some compilers ends the process where weights are laid out for AMX
        # (ggml-org/llama.cpp#20824).
        self.system: str = C.llama_print_system_info().decode()
        self.without_amx = "AMX_INT8 = 1" in self.system
        parameters.use_extra_bufts = not self.without_amx
        model = C.llama_model_load_from_file(os.fsencode(file), parameters)
        if not model:
            raise ModelError(
                f"{file.name} cannot be opened by llama.cpp"
                f" ({'; '.join(_ERRORS[:1]) or 'it does not say why'}); it may be cut short or of"
                " an architecture that it does not know: compare its size, or upgrade"
                " llama-cpp-python"
            )
        self._listener = _NodeListener(C._lib)
        self._callback = C.ggml_backend_sched_eval_callback(self._listener)
        # llama.cpp asks after each of a thousand nodes whether to stop. C's own ``strlen`` answers:
        # yes where ``_stop`` holds a byte.
        self._stop = ctypes.create_string_buffer(2)
        self._abort = ctypes.cast(ctypes.CDLL(None).strlen, C.ggml_abort_callback)
        self._open: list[Any] = []  # the context, where there is one
        self.close = weakref.finalize(
            self, _free, C, model, self._open, (self._callback, self._abort, self._stop)
        )
        self.vocab = C.llama_model_get_vocab(model)
        self.vocabulary = C.llama_vocab_n_tokens(self.vocab)
        self.heads = C.llama_model_n_head(model)
        self.layers = C.llama_model_n_layer(model)
        value = ctypes.create_string_buffer(64)
        C.llama_model_meta_val_str(model, b"general.architecture", value, len(value))
        self.architecture = value.value.decode()
        if C.llama_model_has_encoder(model):
            raise ModelError(
                f"{file.name} ({self.architecture}) has an encoder; give a causal language model"
            )
        self.window = window or min(4096, C.llama_model_n_ctx_train(model))
        self._model = model
        self._process = os.getpid()
        self._worker = ThreadPoolExecutor(1, "dragin-lab-llama")
        self._held: list[list[Piece]] = []  # what each sequence has read
        if not self.make_room(sequences):
            raise ModelError(
                f"{file.name}: keys and values of {self.window:,} tokens do not fit into memory;"
                " give a smaller context"
            )
        self.read({0: [(0,)]})
        self.names = frozenset(self._listener.names)
        self._listener.learning = False

    def make_room(self, sequences: int) -> int:
        """Open so many sequences, or fewer where memory is short, and forget what they held; how
        many there are.
        """
        sequences = min(sequences, self.bindings.llama_max_parallel_sequences())
        while sequences > len(self._held) and not self._open_context(sequences):
            self._held = []
            sequences = sequences // 2
        return len(self._held)

    def _open_context(self, sequences: int) -> bool:
        C = self.bindings
        parameters = C.llama_context_default_params()
        parameters.n_ctx = self.window * sequences
        parameters.n_seq_max = sequences
        parameters.n_batch = max(self.window, sequences)
        parameters.n_ubatch = min(_UBATCH, self.window)
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.type_k = parameters.type_v = getattr(C, DTYPES[self.dtype])
        # where llama.cpp chooses it, there are no rows
        parameters.flash_attn_type = 0 if self.rows else -1
        # so that a row's columns are its text's positions
        parameters.kv_unified = False
        parameters.swa_full = True
        parameters.cb_eval = self._callback
        parameters.abort_callback = self._abort
        parameters.abort_callback_data = ctypes.addressof(self._stop)
        while self._open:
            C.llama_free(self._open.pop())
        if context := C.llama_init_from_model(self._model, parameters):
            self._open.append(context)
            self._held = [[] for _ in range(sequences)]
        return bool(context)

    def read(
        self, texts: Mapping[int, list[Piece]], layer: int | None = None, states: Sequence[str] = ()
    ) -> list[Computed]:
        """What is computed at the last token of each text (by sequence), with the attention rows of
        ``layer``.

        What the sequences have of the texts is not read again. Texts that lack one token are read
        side by side.
        """
        rows = f"{ROWS}-{layer}"
        groups = dict.fromkeys(states, 1)
        if layer is not None:
            groups[rows] = self.heads
        kept = {}
        computed = {}
        for sequence, pieces in texts.items():
            here = self._reuse_pieces(sequence, pieces)
            kept[sequence] = sum(map(len, pieces[:here]))
            for piece in pieces[here:-1]:
                self._forward({sequence: piece}, {})
        for last in _list_forwards(texts):
            logits = self._forward(last, groups, last=len(last) == 1)
            parts = {name: self._list_parts(name, len(last)) for name in groups}
            for i, sequence in enumerate(last):
                keys = sum(map(len, texts[sequence]))
                row = None if layer is None else parts[rows][i][:, :keys]
                vectors = {name: parts[name][i][0] for name in states}
                computed[sequence] = Computed(logits[i], row, vectors, kept[sequence])
        return [computed[sequence] for sequence in texts]

    def read_alone(self, ids: Sequence[int]) -> list[torch.Tensor]:
        """The logits (V,) after each of some ids, read one by one by the last sequence."""
        sequence = len(self._held) - 1
        pieces = [(i,) for i in ids]
        return [self.read({sequence: list(pieces[: n + 1])})[0].logits for n in range(len(pieces))]

    def read_map(self, ids: Sequence[int], layer: int) -> np.ndarray:
        """The attention map of some ids in a layer, (h, n, n) float32, read in the last
        sequence.
        """
        node = f"{ROWS}-{layer}"
        sequence = len(self._held) - 1
        piece = tuple(ids)
        n = len(piece)
        self._reuse_pieces(sequence, [piece])
        self._forward({sequence: piece}, {node: self.heads}, last=False)
        attention = np.zeros((self.heads, n, n), np.float32)
        place = 0
        for copied in self._listener.copied[node]:  # of some queries; keys are padded
            rows = copied.reshape(self.heads, -1, copied.shape[1])
            rows = rows[:, :, :n]
            _, queries, keys = rows.shape
            end = place + queries
            attention[:, place:end, :keys] = rows
            place = end
        return attention

    def _list_parts(self, name: str, count: int) -> list[np.ndarray]:
        """What was copied of a node, (groups, width) for each of the last ``count`` texts."""
        groups = self._listener.groups[name]
        parts: list[np.ndarray] = []
        for copied in self._listener.copied[name]:
            parts += [*copied.reshape(-1, groups, copied.shape[1])]
        return parts[-count:]

    def _reuse_pieces(self, sequence: int, pieces: list[Piece]) -> int:
        """Cut a sequence to the pieces that it shares with a text, without the last; how many they
        are.

        Where another sequence shares more, that one is copied.
        """
        held = self._held[sequence]
        if held == pieces[:-1]:
            return len(held)
        C = self.bindings
        memory = C.llama_get_memory(self._require_context())
        shared = [count_common(other, pieces) for other in self._held]
        best = sequence
        if shared[sequence] < max(shared):
            best = shared.index(max(shared))
            C.llama_memory_seq_cp(memory, best, sequence, 0, -1)
        here = min(shared[best], len(pieces) - 1)
        begin = sum(map(len, pieces[:here]))
        if not C.llama_memory_seq_rm(memory, sequence, begin, -1):
            # a recurrent state has no earlier one
            C.llama_memory_seq_rm(memory, sequence, -1, -1)
            here = 0
        self._held[sequence] = pieces[:here]
        return here

    def _forward(
        self, pieces: Mapping[int, Piece], groups: dict[str, int], last: bool = True
    ) -> list[torch.Tensor]:
        """Read a piece in each of some sequences, and copy nodes; the logits (V,) after each."""
        C = self.bindings
        context = self._require_context()
        listener = self._listener
        lengths = [len(piece) for piece in pieces.values()]
        ids = np.fromiter(chain(*pieces.values()), np.int32)
        begins = [sum(map(len, self._held[s])) for s in pieces]
        within = [*map(range, begins, np.add(begins, lengths))]
        positions = np.fromiter(chain(*within), np.int32)
        sequences = np.repeat(np.fromiter(pieces, np.int32), lengths)
        pointers = (sequences.ctypes.data + 4 * np.arange(len(ids))).astype(np.uintp)
        ends = np.cumsum(lengths) - 1
        ones = np.ones(len(ids), np.int32)
        asked = np.zeros(len(ids), np.int8)
        asked[ends] = 1
        arrays: dict[str, np.ndarray] = {
            "token": ids,
            "pos": positions,
            "n_seq_id": ones,
            "seq_id": pointers,
            "logits": asked,
        }
        kinds = dict(C.llama_batch._fields_)
        batch = C.llama_batch(n_tokens=len(ids))
        for field, array in arrays.items():
            setattr(batch, field, array.ctypes.data_as(kinds[field]))
        held = {s: self._held[s] for s in pieces}
        listener.groups = groups
        listener.last = last
        listener.copied = {}
        listener.wanted = frozenset(name.encode() for name in groups)
        for s in pieces:
            self._held[s] = []  # until it is read
        waiting = self._worker.submit(C.llama_decode, context, batch)
        try:
            status = waiting.result()
        except BaseException:
            self._stop.value = b"1"
            wait([waiting])
            self._stop.value = b""
            raise
        if status:
            raise ModelError(
                f"{self.file.name}: llama.cpp failed ({status}: {'; '.join(_ERRORS[-1:])})"
            )
        for s, piece in pieces.items():
            self._held[s] = [*held[s], piece]
        logits = []
        for end in ends:
            values = C.llama_get_logits_ith(context, int(end))
            array = np.ctypeslib.as_array(values, (self.vocabulary,))
            logits.append(torch.from_numpy(array.copy()))
        return logits

    def _require_context(self) -> Any:
        """The context. Raises ``ModelError`` in a forked process and after ``close``."""
        if os.getpid() != self._process:
            raise ModelError(
                f"{self.file.name} was opened by llama.cpp in another process, whose threads a fork"
                ' does not have; open a Lab in this one, or start it by multiprocessing\'s "spawn"'
            )
        if not self._open:
            raise ModelError(f"{self.file.name} is closed; open a new Lab")
        return self._open[0]


def _list_forwards(texts: Mapping[int, list[Piece]]) -> list[dict[int, Piece]]:
    """The last pieces of texts, by forward: those of one token side by side, the others alone."""
    forwards: list[dict[int, Piece]] = []
    beside: dict[int, Piece] = {}
    for sequence, pieces in sorted(texts.items()):
        if len(pieces[-1]) == 1:
            beside[sequence] = pieces[-1]
        else:
            forwards.append({sequence: pieces[-1]})
    return [*forwards, beside] if beside else forwards


_ERRORS: list[str] = []  # what llama.cpp said last
_KEPT: list[Any] = []  # callbacks that llama.cpp calls until the process ends


@cache
def load_bindings() -> Any:
    """The C bindings, quiet. Raises ``MissingPackageError`` where there are none."""
    if find_spec("llama_cpp") is None:
        raise MissingPackageError(
            "engine='llama.cpp' needs llama-cpp-python, which takes some ten minutes to build; run "
            "pip install 'dragin-lab[llama]'"
        )
    from llama_cpp import llama_cpp as bindings

    @bindings.llama_log_callback
    def note(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR:
            _ERRORS[:] = [*_ERRORS[-9:], " ".join(text.decode(errors="replace").split())]

    _KEPT.append(note)
    bindings.llama_log_set(note, None)
    bindings.llama_backend_init()
    return bindings


def _free(bindings: Any, model: Any, contexts: list[Any], callbacks: tuple[Any, ...]) -> None:
    """Free a model and its context; ``callbacks`` keeps those alive until then."""
    while contexts:
        bindings.llama_free(contexts.pop())
    bindings.llama_model_free(model)
