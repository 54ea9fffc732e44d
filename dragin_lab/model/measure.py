"""What is measured on each token while a continuation is written; it stays on the model's device until the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.scores import entropy, received
from dragin_lab.model.tokenizer import HFTokenizer
from dragin_lab.trace.trace import Continuation

_AT_ONCE = 16  # distributions measured together, where they are not needed one by one

_MEASURED = ("entropy", "logprob", "alternative_ids", "alternative_probs")
#: Fields of a continuation that the others follow from.
_KEPT = ("ids", *_MEASURED, "entropy_processed", "attention", "hidden", "among")

#: Entropy and log-probability of a token and, where the ``Stop`` reads it, what all n tokens received so far (n,).
Fetched = tuple[float, float, np.ndarray | None]


class Measured(NamedTuple):
    """What is kept of c distributions."""

    entropy: Tensor  # (c,)
    logprob: Tensor  # (c,)
    which: Tensor  # (c, k) the likeliest ids
    best: Tensor  # (c, k) their probabilities

    def of(self, i: int) -> Measured:
        """That of one of them."""
        return Measured(*(part[i : i + 1] for part in self))


def measure_distributions(logits: Tensor, chosen: Tensor, k: int) -> Measured:
    """What is kept of the raw distributions (c, V) that the tokens ``chosen`` (c,) were chosen from."""
    logs = torch.log_softmax(logits.float(), -1)  # (c, V)
    probs = logs.exp()
    best, which = probs.topk(min(k, probs.shape[-1]), -1)  # (c, k)
    return Measured(entropy(probs, logs), logs.gather(1, chosen[:, None])[:, 0], which, best)


class KeptRows:
    """The attention rows of a draft in full, of one layer.

    Args:
        p: tokens of the prompt.
        room: tokens to make room for; more may come.
        stored: (h, m + 1, p + m) float16 where a cache served them, of a draft of m tokens.

    Attributes:
        count: rows so far.
    """

    def __init__(self, p: int, room: int, stored: np.ndarray | None = None) -> None:
        self.count = 0
        self._p, self._room = p, room
        self._stored = stored
        self._rows: Tensor | None = None  # (h, room + 1, p + room) float16, on the device

    def put(self, rows: Tensor) -> None:
        """Keep the next rows (h, c, k); the keys end at the last query itself. Where all are stored they only count."""
        h, c, k = rows.shape
        first, self.count = self.count, self.count + c
        if self._stored is not None:
            return
        end = self._p + self.count - 1
        if self._rows is None:
            shape = (h, self._room + 1, self._p + self._room)
            self._rows = torch.zeros(shape, dtype=torch.float16, device=rows.device)
        self._make_room(self.count - 1)
        self._rows[:, first : self.count, end - k : end] = rows  # a sliding window has the last keys only

    def read(self, n: int) -> np.ndarray | None:
        """(h, n + 1, p + n) float16, 0 where a row is still to come; None where there is none. It may be a view."""
        if self._stored is not None:
            stored: np.ndarray = self._stored[:, : n + 1, : self._p + n].copy()
            stored[:, self.count :] = 0
            return stored
        if self._rows is None:
            return None
        self._make_room(n)
        return self._rows[:, : n + 1, : self._p + n].cpu().numpy()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept on the device."""
        return 0 if self._rows is None else self._rows.nbytes

    def _make_room(self, n: int) -> None:
        assert self._rows is not None
        while n > self._room:
            self._rows = torch.nn.functional.pad(self._rows, (0, self._room, 0, self._room))
            self._room *= 2


class Recorder:
    """Collects the distributions and attention rows of one draft for its ``Continuation``.

    Args:
        p: tokens of the prompt.
        room: tokens to make room for; more may come.
        alternatives: how many of the likeliest tokens to keep.
        keep: keep every row in full, else only ``received``.
        among: keep the rows among the tokens too, as means over the heads (``Continuation.among``).
    """

    def __init__(
        self,
        p: int,
        room: int,
        alternatives: int,
        keep: bool,
        device: torch.device,
        *,
        among: bool = False,
    ) -> None:
        self.p = p
        self.ids: list[int] = []
        self.rows = 0  # attention rows so far
        self.device = device
        self._alternatives = alternatives
        self._room = room
        self.kept = KeptRows(p, room) if keep else None
        self._received = torch.zeros(room, device=device)  # (room,)
        self._waiting: list[tuple[Tensor, Tensor]] = []  # tokens () and logits (V,) not measured yet
        self._among = torch.zeros(room + 1, room, device=device) if among else None  # (room + 1, room)
        self._measured: list[Measured] = []
        self._processed: list[Tensor] = []  # (1,) each
        self.states: list[Tensor] = []  # (d,) the hidden state that gave each token, and the one after them
        self._listed = 0  # measured groups that are listed
        self.entropy: list[float] = []  # filled by `settle`
        self.logprob: list[float] = []
        self._seen: tuple[tuple[int, int], np.ndarray] | None = None  # rows and tokens of the latest `received`

    # -- while generating -----------------------------------------------------------------------------------------

    def chose(
        self, token: int | Tensor, logits: Tensor, processed: Tensor | None = None, *, at_once: bool = False
    ) -> None:
        """One more token, chosen from the raw logits (V,) and, where warpers changed them, ``processed`` (V,).

        ``at_once`` also settles it and fetches ``received``, all in one transfer from the device.
        """
        self._waiting.append((torch.as_tensor(token, device=self.device), logits))
        self._warped(processed)
        if at_once or len(self._waiting) == _AT_ONCE:
            self._measure()
        if at_once:
            self._transfer(torch.as_tensor(token))
        else:
            self.ids.append(int(token))

    def measured(
        self,
        token: int,
        measured: Measured,
        processed: Tensor | None = None,
        *,
        warped: Tensor | None = None,
        fetched: Fetched | None = None,
    ) -> None:
        """One more token, whose distribution (c = 1) was measured already; the rest as for ``chose``.

        ``warped`` (1,) is the entropy of ``processed`` where that is known instead; ``fetched`` what has come from the
        device already.
        """
        self.ids.append(token)
        self._measured.append(measured)
        if fetched is not None:
            entropy, logprob, received = fetched
            self._listed += 1
            self.entropy.append(entropy)
            self.logprob.append(logprob)
            if received is not None:
                self._seen = (self.rows, len(self.ids)), received
        self._warped(processed)
        if warped is not None:
            self._processed.append(warped)

    def _warped(self, processed: Tensor | None) -> None:
        if processed is not None:
            logs = torch.log_softmax(processed[None].float(), -1)  # (1, V)
            self._processed.append(entropy(logs.exp(), logs))

    def looked_back(self, weights: Tensor) -> None:
        """Record the next rows (1, h, c, keys) of query positions in order; the keys end at the last query itself."""
        rows = weights[0].to(self.device)  # (h, c, k); the tapped layer may be on another device
        first = self.rows  # of these rows; row r is query position p - 1 + r
        self.rows += rows.shape[1]
        end = self.p + self.rows - 1
        begin = end - rows.shape[2]  # a sliding window returns its last keys only
        while self.rows > self._room + 1:
            self._grow()
        start = max(self.p, begin)
        if self.rows > 2 or self._among is not None:
            # The heads innermost, so that the order of the sum is the same however many rows come together.
            mean = rows[:, :, start - begin :].permute(1, 2, 0).contiguous().mean(-1)  # (c, end - start)
            if self._among is not None:
                self._among[first : self.rows, start - self.p : end - self.p] = mean
        if self.rows > 2:
            # Row r is token r - 1 looking back at the tokens before it (Eq. 2); the maximum of Eq. 3 runs on.
            highest = received(mean, first - 1 - (start - self.p), torch)
            seen = self._received[start - self.p : start - self.p + len(highest)]
            torch.maximum(seen, highest, out=seen)
        if self.kept is not None:
            self.kept.put(rows)

    def _grow(self) -> None:
        more, self._room = self._room, 2 * self._room
        self._received = torch.nn.functional.pad(self._received, (0, more))
        if self._among is not None:
            self._among = torch.nn.functional.pad(self._among, (0, more, 0, more))

    def settle(self) -> None:
        """Measure what is waiting, so that ``entropy`` and ``logprob`` have an entry for every token."""
        if self._waiting:
            self._measure()
        if self._listed < len(self._measured):
            self._transfer()

    def received(self) -> np.ndarray:
        """(n,) float32, from the rows known so far; NaN where there are none, as of a model without attention."""
        if not self.rows:
            return np.full(len(self.ids), np.nan, np.float32)
        now = self.rows, len(self.ids)
        if self._seen is None or self._seen[0] != now:
            self._seen = now, self.placed_received(len(self.ids)).cpu().numpy()
        return self._seen[1].copy()

    def alternatives(self) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest tokens at each place, best first: ids (n, k) int32 and probabilities (n, k) float32."""
        self.settle()
        if not self._measured:
            return np.zeros((0, self._alternatives), np.int32), np.zeros((0, self._alternatives), np.float32)
        which = torch.cat([m.which for m in self._measured]).cpu().numpy()
        best = torch.cat([m.best for m in self._measured]).cpu().numpy()
        return which.astype(np.int32), best.astype(np.float32)

    def attention(self) -> np.ndarray | None:
        """(h, n + 1, p + n) float16 from the rows known so far, 0 for those to come; None where rows are not kept."""
        return None if self.kept is None else self.kept.read(len(self.ids))

    def among(self) -> np.ndarray | None:
        """``Continuation.among``; None where it is not kept, and of a model without attention."""
        if self._among is None or not self.rows:
            return None
        n = len(self.ids)
        while n > self._room:
            self._grow()
        rows = self._among[: n + 1, :n].cpu().numpy()
        return rows[np.tril_indices(n + 1, -1, n)]

    def hidden(self) -> np.ndarray | None:
        """(n, d) float32 hidden states that gave the tokens; None where they are not captured."""
        return torch.stack(self.states[: len(self.ids)]).float().cpu().numpy() if self.states and self.ids else None

    def placed_received(self, n: int) -> Tensor:
        """``received`` of the first n tokens where it lies, on the device: (n,) float32."""
        while n > self._room:
            self._grow()
        return self._received[:n]

    def _measure(self) -> None:
        tokens, logits = zip(*self._waiting, strict=True)
        chosen = torch.stack(tokens)
        self._measured.append(measure_distributions(torch.stack(logits), chosen, self._alternatives))
        self._waiting = []

    def _transfer(self, *token: Tensor) -> None:
        """Fetch what is measured and not listed, and ``received``: all at once, since each fetch waits for the device.

        A ``token`` () that is not among the ids yet comes along; its id is exact in float32 below 2**24.
        """
        fresh, self._listed = self._measured[self._listed :], len(self._measured)
        n, c = len(self.ids) + len(token), sum(len(m.entropy) for m in fresh)
        parts = [*(one.float()[None] for one in token), *(m.entropy for m in fresh), *(m.logprob for m in fresh)]
        values = torch.cat([*parts, self.placed_received(n)]).cpu().numpy()
        self.ids += [int(one) for one in values[: len(token)]]
        values = values[len(token) :]
        self.entropy += values[:c].tolist()
        self.logprob += values[c : 2 * c].tolist()
        self._seen = (self.rows, n), values[2 * c :]

    # -- at the end -----------------------------------------------------------------------------------------------

    def continuation(
        self,
        tokenizer: HFTokenizer,
        prompt_ids: list[int],
        prompt_offsets: np.ndarray,
        **rest: Any,
    ) -> Continuation:
        """Everything as a ``Continuation``; ``rest`` are its remaining fields, by name."""
        which, best = self.alternatives()  # settles all tokens
        text, spans = tokenizer.spans().all(self.ids)
        attention = self.attention()
        return Continuation(
            prompt_ids=np.asarray(prompt_ids, np.int32),
            prompt_offsets=prompt_offsets,
            ids=np.asarray(self.ids, np.int32),
            tokens=tuple(tokenizer.tokens(self.ids)),
            text=text,
            raw_text=tokenizer.decode(self.ids, special=True),
            offsets=np.asarray(spans, np.int32).reshape(-1, 2),
            entropy=np.asarray(self.entropy, np.float32),
            logprob=np.asarray(self.logprob, np.float32),
            alternative_ids=which,
            alternative_probs=best,
            alternative_tokens=tuple(tuple(tokenizer.show(int(i)) for i in row) for row in which),
            received=self.received(),
            entropy_processed=torch.cat(self._processed).cpu().numpy() if self._processed else None,
            attention=None if attention is None else attention.copy(),  # not a view of the whole buffer
            among=self.among(),
            hidden=self.hidden(),
            **rest,
        )

    def to_keep(self, continuation: Continuation) -> dict[str, np.ndarray]:
        """The arrays that ``continuation`` and each of its beginnings follow from, where it has ``among``."""
        arrays = {name: getattr(continuation, name) for name in _KEPT}
        return {name: array for name, array in arrays.items() if array is not None}

    def restore(self, cached: Mapping[str, np.ndarray], *, attention: bool) -> Measured:
        """Take over the rows and hidden states that ``to_keep`` gave of a draft; returns what it measured."""
        self.kept = KeptRows(self.p, 0, cached["attention"]) if attention else None
        self.states = list(torch.tensor(cached["hidden"])) if "hidden" in cached else []
        return Measured(*(torch.tensor(cached[name]) for name in _MEASURED))
