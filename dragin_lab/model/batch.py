"""Drafts written side by side: one forward makes a token for each, and one that ends gives its place to the next.

Prompts are read one by one, after what the cached prefixes already hold of them; then a draft's cache joins the others
(``caches.Slots``). What is measured and how a draft ends is ``writing.Writing``, as for a draft by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.episode import Write
from dragin_lab.errors import SettingError
from dragin_lab.model.caches import MOST, Prefix, Slots
from dragin_lab.model.decode import ROWS_AT_ONCE, finish_stream, look_back, read_prompt, stream
from dragin_lab.model.measure import measure_distributions
from dragin_lab.model.tap import Pending, hidden_states
from dragin_lab.model.tapped import TappedModel
from dragin_lab.model.writing import Keep, Writing
from dragin_lab.trace.trace import Continuation

#: What torch says where it has no error class for a lack of memory.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")

#: The key of a draft, and what was written or what went wrong.
Ended = tuple[Any, Continuation | Exception]


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on a GPU or beside one."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)


@dataclass(frozen=True)
class _Job:
    key: Any
    draft: Write
    seed: int | None
    keep: Keep | None = None


@dataclass(eq=False)
class _Row:
    job: _Job
    writing: Writing
    logits: Tensor  # (V,) of the position after the tokens so far
    reused: int
    prefix: Prefix | None  # the cache of its prompt, until it joins the others


@torch.inference_mode()
def feed_batch(lm: TappedModel, slots: Slots, tokens: Sequence[Tensor], pending: Pending | None) -> Tensor:
    """Feed one token (1,) to every text; returns their logits (n, V) and puts their rows into ``pending``."""
    inputs = {name: value for name, value in slots.inputs(tokens).items() if name in lm.takes}
    with lm.lock:
        if pending is None:
            output, _ = lm.tap.forward(0, **inputs, **lm.only_last)
        else:
            output = lm.tap.step(pending, **inputs, **lm.only_last)
    logits: Tensor = output.logits[:, -1]
    return logits


class Batch:
    """Drafts of one model written side by side.

    ``ask`` for drafts, then ``step`` until none is left. A draft is the one that ``LanguageModel.generate`` writes,
    except that a batch sums in another order: where two tokens are equally likely to rounding, either may be chosen.

    Where a forward runs out of memory the batch is halved and its drafts begin again; where drafts cannot be written
    side by side (a sliding window, an error in the shared forward) they are written one at a time. ``describe`` says
    so. ``capture=False`` leaves the attention out, as for ``decode.stream``.

    Attributes:
        size: drafts written at once, at most.
        notes: why it is less than was asked for, one line each time.
    """

    def __init__(self, lm: TappedModel, size: int, *, capture: bool = True) -> None:
        if size < 1:
            raise SettingError(f"a batch of {size} drafts writes none; give at least 1")
        self.lm = lm
        self.capture = capture
        self.asked = self.size = size
        self.notes: list[str] = []
        if size > 1 and lm.alone:
            self.size = 1
            self.notes.append(f"written one at a time: {lm.alone}")
        self._waiting: deque[_Job] = deque()
        self._rows: list[_Row] = []
        self._slots = Slots(lm.model.config)
        self._pending = Pending()
        self._kept_before = lm.prefixes.most
        lm.prefixes.most = max(lm.prefixes.most, MOST * self.size)

    def __len__(self) -> int:
        """Drafts asked for and not yet answered."""
        return len(self._waiting) + len(self._rows)

    def close(self) -> None:
        """Drop what is under way, and cache no more prefixes than before."""
        self._waiting.clear()
        self._clear()
        self.lm.prefixes.most = self._kept_before

    def describe(self) -> dict[str, Any]:
        """Size asked for, size now and why they differ; values fit into JSON."""
        return {"asked": self.asked, "size": self.size, "notes": list(self.notes)}

    def ask(self, key: Any, draft: Write, seed: int | None = None, *, keep: Keep | None = None) -> None:
        """Ask for a draft; ``step`` answers under ``key``. The draft begins as soon as there is room for it.

        ``keep`` as for ``decode.stream``.
        """
        self._waiting.append(_Job(key, draft, seed, keep))

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """``TappedModel.attend``; where memory is short the drafts under way make room and begin again."""
        try:
            return self.lm.attend(ids)
        except Exception as error:
            if not out_of_memory(error):
                raise
        n = len(self._rows)
        self._restart()
        attention = self.lm.attend(ids)
        self._halve(n)
        return attention

    @torch.inference_mode()
    def step(self) -> list[Ended]:
        """One more token for every draft under way, after waiting drafts took the free places.

        Returns the drafts that ended, each with its ``Continuation`` or with what it failed with. A draft that
        fails does not disturb the others.
        """
        if self.size == 1:
            return [self._alone(self._waiting.popleft())] if self._waiting else []
        ended: list[Ended] = []
        suspect: _Job | None = None
        try:
            while self._waiting and len(self._rows) < self.size:
                suspect = self._waiting.popleft()
                self._read_prompt(suspect, ended)
                suspect = None
            self._join()
            if self._rows:
                self._choose(ended)
            if self._rows:
                self._feed(ended)
        except Exception as error:  # noqa: BLE001 - whatever a shared forward fails with, each draft goes on alone
            why = "" if out_of_memory(error) else f"{type(error).__name__}: {error}"
        else:
            return ended
        return self._retreat(why, suspect, ended)

    # -- the parts of a step --------------------------------------------------------------------------------------

    def _read_prompt(self, job: _Job, ended: list[Ended]) -> None:
        """Read the prompt of one draft."""
        lm, pending = self.lm, Pending()
        try:
            writing = Writing(
                lm, job.draft, job.seed, self._look_back, capture=self.capture, keep=job.keep, beside=True
            )
            tapped = pending if self.capture else None
            prefix, logits, reused = read_prompt(lm, writing.prompt_ids, writing.prompt_ends, tapped, writing)
            look_back(lm, writing.recorder, pending)
        except Exception as error:
            if out_of_memory(error):
                raise
            ended.append((job.key, error))
            return
        self._rows.append(_Row(job, writing, logits, reused, prefix))

    def _join(self) -> None:
        """Put the caches of the prompts just read beside the others."""
        prefixes = [row.prefix for row in self._rows if row.prefix is not None]
        if prefixes:
            self._look_back()
            self._slots.add(prefixes)
            for row in self._rows:
                row.prefix = None

    def _choose(self, ended: list[Ended]) -> None:
        """Choose the next token of every draft, measure it and ask the draft's ``Stop``."""
        logits = torch.stack([row.logits for row in self._rows])  # (n, V)
        tokens = logits.argmax(-1)  # (n,)
        failed: dict[int, Exception] = {}
        processed: dict[int, Tensor | None] = {}
        for i, row in enumerate(self._rows):
            if not row.writing.chooser.plain:
                try:
                    tokens[i], processed[i] = row.writing.chooser(logits[i])
                except Exception as error:  # noqa: BLE001 - the draft's own failure
                    failed[i] = error
        measured = measure_distributions(logits, tokens, self.lm.alternatives)
        values, received = self._fetch(tokens, *measured[:2])
        for i, row in enumerate(self._rows):
            own = slice(i, i + 1)
            token, *scores = values[i]
            try:
                row.writing.chose(
                    int(token),
                    measured.of(i),
                    processed.get(i),
                    last=tokens[own],
                    fetched=(scores[0], scores[1], received.get(i)),
                )
                row.writing.check()
            except Exception as error:  # noqa: BLE001 - the draft's own failure
                failed.setdefault(i, error)
        for i in sorted(failed, reverse=True):
            ended.append((self._rows[i].job.key, failed[i]))
            self._drop(i)

    def _fetch(
        self, tokens: Tensor, entropy: Tensor, logprob: Tensor
    ) -> tuple[list[list[float]], dict[int, np.ndarray]]:
        """Each row's token, entropy and log-probability, and what its tokens received where its ``Stop`` looks at that.

        In one transfer, since each waits for the device; ids are exact in float32 below 2**24.
        """
        looking = [i for i, row in enumerate(self._rows) if row.writing.looked]
        if looking:
            self._look_back()
        recorders = [self._rows[i].writing.recorder for i in looking]
        lengths = [len(recorder.ids) + 1 for recorder in recorders]
        heard = [recorder.placed_received(n) for recorder, n in zip(recorders, lengths, strict=True)]
        values = torch.cat([tokens.float(), entropy, logprob, *heard]).cpu().numpy()
        n = 3 * len(tokens)
        parts = np.split(values[n:], np.cumsum(lengths)[:-1]) if looking else []
        return values[:n].reshape(3, -1).T.tolist(), dict(zip(looking, parts, strict=True))

    def _feed(self, ended: list[Ended]) -> None:
        """Feed the chosen tokens, all in one forward, and hand over the drafts that have ended."""
        lm = self.lm
        if self._slots.full:
            self._look_back()
            self._slots.make_room()
        tokens = [row.writing.last for row in self._rows if row.writing.last is not None]
        hidden = {layer for row in self._rows for layer in row.writing.hidden}
        with lm.lock, hidden_states(lm.model, hidden) as states:
            every = feed_batch(lm, self._slots, tokens, self._pending if self.capture else None)  # (n, V)
        if len(self._pending) >= ROWS_AT_ONCE:
            self._look_back()
        for i, (row, logits) in enumerate(zip(self._rows, every, strict=True)):
            row.logits = logits  # (V,)
            row.writing.state(states, i)
            row.writing.fed()
        for i in [i for i, row in reversed(list(enumerate(self._rows))) if row.writing.stopped]:
            row = self._rows[i]
            self._look_back()
            self._drop(i)
            ended.append((row.job.key, row.writing.continuation(row.reused)))

    @torch.inference_mode()
    def _look_back(self) -> None:
        """Hand the attention rows so far to the drafts, without the columns that are padding."""
        if not len(self._pending):
            return
        starts = self._slots.starts
        with self.lm.lock:
            rows = self.lm.tap.flush(self._pending, self._slots.mask(self._slots.width))
        for weights in rows:  # (n, h, c, k)
            for i, start in enumerate(starts):
                self._rows[i].writing.recorder.looked_back(weights[i : i + 1, :, :, start:])

    def _drop(self, i: int) -> None:
        """Take a draft out; the last one takes its row."""
        self._look_back()
        self._slots.drop(i)
        self._rows[i] = self._rows[-1]
        self._rows.pop()

    # -- where it does not work -----------------------------------------------------------------------------------

    def _alone(self, job: _Job) -> Ended:
        """Write one draft by itself; where memory is short, once more without the cached prefixes."""
        try:
            return job.key, self._write(job)
        except Exception as error:  # noqa: BLE001 - handed to the episode that asked
            if not out_of_memory(error):
                return job.key, error
        self.lm.forget()  # after the handler, whose error holds on to the tensors of its frames
        try:
            return job.key, self._write(job)
        except Exception as error:  # noqa: BLE001 - likewise
            return job.key, error

    def _write(self, job: _Job) -> Continuation:
        keep = job.keep if self.capture else None
        return finish_stream(stream(self.lm, job.draft, job.seed, every=False, capture=self.capture, keep=keep))

    def _retreat(self, why: str, suspect: _Job | None, ended: list[Ended]) -> list[Ended]:
        """Begin again after a forward failed: with half as many, or one at a time where ``why`` is not memory.

        A draft that met the failure while its prompt was read, or that was the only one, is first tried alone: if
        it fails there too the size was not the reason.
        """
        n = len(self._rows) + (suspect is not None)
        if n == 1 and suspect is None:
            suspect = self._rows.pop().job
        self._restart()
        if why:
            self.size = 1
            self.notes.append(f"written one at a time, because a batch of {n} met {why}")
        if suspect is not None:
            ended.append(self._alone(suspect))
            if isinstance(ended[-1][1], Exception):
                return ended
        if not why:
            self._halve(n)
        return ended

    def _halve(self, n: int) -> None:
        if n > 1:
            self.size = n // 2
            self.notes.append(f"a batch of {n} did not fit into memory; went on with {self.size}")

    def _restart(self) -> None:
        """Free all memory; what was under way waits to begin again, before the others."""
        self._waiting.extendleft(row.job for row in reversed(self._rows))
        self._clear()
        self.lm.forget()

    def _clear(self) -> None:
        self._rows = []
        self._slots = Slots(self.lm.model.config)
        self._pending = Pending()
