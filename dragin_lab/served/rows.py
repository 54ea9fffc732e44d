"""Attention rows of a model that llama.cpp serves in this process, from a second model without the last block.

The second one gives what the last block reads, and the block itself is computed here (``block``). It is opened when
attention is first asked for, and checked against what the served model writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from dragin_lab.model.check import Check
from dragin_lab.served.block import Block, GgufFile, cut_file
from dragin_lab.served.bounds import Token
from dragin_lab.served.local import LocalServer
from dragin_lab.served.protocols import Asked, Interface
from dragin_lab.served.server import Server
from dragin_lab.text import printable

ELSEWHERE = "a server gives no attention; where the model is a GGUF file, open that with engine='llama.cpp'"
_SHORTEST = 512  # positions that the second model has room for; doubled where a text is longer
#: Texts whose next token depends on what stands before it.
_TEXTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "Question: Who wrote the novel Dracula, and in which year was it published?\nAnswer: It was written by",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "The film was directed by Anna Petrova in 1964. She was born in Riga. When was the film made? It was made in",
    "Peter has a red car and Mary has a blue bicycle. The colour of Mary's bicycle is",
)
_LIKELIEST = 50  # tokens whose probabilities are compared
#: A share of how far off even attention is. Where llama.cpp rounds activations (SmolLM2, Q4_1) it is about a sixth, and
#: without RoPE nearly half; in float32 it is near 0.
_LIMIT = 1 / 3


class AttentionRows:
    """What positions pay each other in the last block of a GGUF file that is being served.

    Attributes:
        block: the last block.
        heads: its heads.
        checked: the check that it passed.

    Raises:
        ModelError: the file without that block cannot be written or served.
    """

    def __init__(self, file: GgufFile, serving: LocalServer, timeout: float) -> None:
        self.file, self.block = file, Block.read(file)
        self.heads = self.block.heads
        self._serving, self._timeout, self._cut = serving, timeout, cut_file(file)
        self.checked: Check | None = None
        self._room = 0
        self._second: tuple[LocalServer, Server] | None = None
        line = f"{file.path.name}: a second model without its last block gives attention"
        print(printable(line), file=sys.stderr, flush=True)

    def inputs(self, ids: Sequence[int]) -> np.ndarray:
        """What the last block reads of a text, normed: (n, d) float32."""
        if len(ids) > self._room:
            self._open(max(_SHORTEST, 1 << (len(ids) - 1).bit_length()))
        assert self._second is not None
        answer = self._second[1].ask("/embeddings", {"content": list(ids), "embd_normalize": -1})
        return np.array(answer[0]["embedding"], np.float32)

    def rows(self, ids: Sequence[int], first: int = 0) -> np.ndarray:
        """What the positions from ``first`` on pay to all n: (h, n - first, n) float32."""
        return self.block.rows(self.inputs(ids), first)

    def _open(self, room: int) -> None:
        """Open the second model with room for a text of so many positions, all in one batch."""
        self.close()
        serving = self._serving
        second = LocalServer(self._cut, dtype=serving.dtype, threads=serving.threads, context=room, inputs=True)
        self._second, self._room = (second, Server(second.address, self._timeout, key=second.key)), room

    def close(self) -> None:
        """Close the second model; it is opened again where attention is asked for."""
        if self._second is not None:
            for one in reversed(self._second):
                one.close()
        self._second, self._room = None, 0

    # -- is it the served model's? ------------------------------------------------------------------------------------

    def check(self, interface: Interface, encode: Callable[[str], list[int]]) -> Check:
        """Whether the last block with its attention, computed here, gives the distributions that are served.

        How far off the likeliest tokens' probabilities are (total variation, the mean of a few texts), as a share of
        how far they are off where the last position pays all others alike. RMSNorm drops the length of the hidden
        state, so the length that fits best is taken.
        """
        off = np.array([self._distances(interface, encode(text)) for text in _TEXTS]).mean(0)  # (2,)
        share = float(off[0] / off[1])
        return Check("the last block's attention gives the served distributions", share <= _LIMIT, share, _LIMIT)

    def _distances(self, interface: Interface, ids: list[int]) -> list[float]:
        """How far off the next token's distribution is with the last block's attention, and with an even one."""
        k = min(_LIKELIEST, interface.vocabulary)
        (token,) = interface.tokens(interface.answer(Asked(ids, 1, k)), k)
        tensors = self.file.tensors()
        head = self.file.read(tensors.get("output.weight", tensors["token_embd.weight"]), token.ids)  # (k, d)
        x = self.inputs(ids)  # (n, d)
        row = self.block.rows(x, len(x) - 1)  # (h, 1, n)
        return [self._distance(token, head, x, one) for one in (row, np.full_like(row, 1 / len(x)))]

    def _distance(self, token: Token, head: np.ndarray, x: np.ndarray, row: np.ndarray) -> float:
        served, lengths = _softmax(token.logprobs), np.geomspace(1e-3, 1e5, 400)  # (k,), (m,)
        for _ in range(4):
            here = _softmax(self.block.output(x, row, lengths) @ head.T)  # (m, k)
            distances = np.abs(here - served).sum(-1) / 2  # (m,)
            best = int(distances.argmin())
            lengths = np.geomspace(lengths[max(best - 1, 0)], lengths[min(best + 1, len(lengths) - 1)], 40)
        return float(distances[best])


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def open_rows(
    serving: LocalServer | None, interface: Interface, encode: Callable[[str], list[int]]
) -> AttentionRows | str:
    """What gives attention, or why nothing does: no file, another architecture, a failed check."""
    if serving is None:
        return ELSEWHERE
    file = GgufFile.open(serving.file)
    if why := file.obstacle():
        return f"{why}; load it in transformers"
    rows = AttentionRows(file, serving, interface.server.timeout)
    rows.checked = rows.check(interface, encode)
    if rows.checked.passed:
        return rows
    rows.close()
    return f"{rows.checked}; load it in transformers"
