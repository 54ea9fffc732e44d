"""Drafts written side by side, in waves: one ``generate`` for several, until half of them have
ended.

The others go on in the next wave, from their own caches, beside drafts that were waiting, whose
prompts are read first.
"""

from __future__ import annotations

from typing import Any

import torch

from dragin_lab.engines.engine import Batch, DraftResult
from dragin_lab.engines.generating import read_prompts, write_texts
from dragin_lab.engines.writing import Writing

#: Messages of torch for a lack of memory that has no error class.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means a lack of memory, on a GPU or a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)


class Waves(Batch):
    """Drafts of one model written side by side: ``ask`` for drafts, then ``step`` until none is
    left.

    A draft is the one that ``write`` gives, except that forwards of several sum in another order. A
    wave that fails begins again, half as large where memory was short, else one draft at a time, so
    that each meets its own error. ``notes`` say so.
    """

    def __init__(self, engine: Any, size: int) -> None:
        super().__init__(engine, size)
        self.size = size
        self.notes = []
        if size > 1 and engine.no_batch:
            self._shrink(1, f"written one at a time: {engine.no_batch}")

    def step(self) -> list[DraftResult]:
        """Write a wave; the drafts that ended, or their errors."""
        if self.size == 1:
            return self._step_alone()
        ended = list[DraftResult]()
        with self.engine.in_use():
            try:
                self._begin(ended)
                if self._writing:
                    self._write(ended)
                return ended
            except Exception as error:  # noqa: BLE001 - whatever a shared forward fails with, each draft begins again
                # it holds tensors of its frames
                n = self._restart()
                failed = error.with_traceback(None)
        if not out_of_memory(failed):
            why = f"because a batch of {n} met {type(failed).__name__}: {failed}"
            self._shrink(1, f"written one at a time, {why}")
        elif n > 1:
            self._shrink(n // 2, f"a batch of {n} did not fit into memory; went on with {n // 2}")
        else:
            ended += self._step_alone()
        return ended

    def _step_alone(self) -> list[DraftResult]:
        """Write one draft by itself; where memory is short, once more without the kept prefixes."""
        waiting = self._waiting[:1]
        ended = super().step()
        if ended and isinstance(ended[0][1], Exception) and out_of_memory(ended[0][1]):
            ended[0][1].__traceback__ = None  # it holds on to the tensors of its frames
            self.engine.prefixes.clear()
            self._waiting[:0] = waiting
            return super().step()
        return ended

    def _begin(self, ended: list[DraftResult]) -> None:
        """Read the prompts of the next drafts, side by side. What a draft's own prompt is
        refused for ends it alone.
        """
        beginning = []
        while self._waiting and len(self._writing) < self.size:
            job = self._waiting.pop(0)
            try:
                writing = Writing(self.engine, *job[1:])
            except Exception as error:
                if out_of_memory(error):
                    self._waiting.insert(0, job)
                    raise
                ended.append((job[0], error))
            else:
                self._writing[writing] = job
                beginning.append(writing)
        read_prompts(self.engine, beginning, whole=True)

    def _write(self, ended: list[DraftResult]) -> None:
        """Write the drafts in progress that can share forwards with the first."""
        first = next(iter(self._writing))
        beside = [one for one in self._writing if self._key(one) == self._key(first)]
        write_texts(self.engine, beside, enough=(len(beside) + 1) // 2)
        for writing in [writing for writing in self._writing if writing.complete]:
            key, *_ = self._writing.pop(writing)
            ended.append((key, writing.error or writing.finish()))

    def _key(self, one: Writing) -> Any:
        """What drafts side by side have in common: the layer of their states. One that may be
        rotated stands alone.
        """
        return (
            one
            if self.engine.is_rotated(len(one.prompt_ids) + one.request.max_new_tokens)
            else one.request.hidden
        )

    def _restart(self) -> int:
        """Free all memory, and put the drafts in progress back in front of the queue; how many
        they are.
        """
        n = len(self._writing)
        self._waiting[:0] = self._writing.values()
        self._writing.clear()
        self.engine.prefixes.clear()
        return n

    def _shrink(self, size: int, note: str) -> None:
        self.size = size
        self.notes.append(note)
