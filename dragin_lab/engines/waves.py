"""Drafts written side by side, in waves: one ``generate`` for several, until half of them have ended.

Those that have not go on in the next wave, from their own caches, beside the drafts that were waiting. Prompts are read
one by one, after what is kept of them.
"""

from __future__ import annotations

from typing import Any

import torch

from dragin_lab.engines.engine import Batch, DraftResult
from dragin_lab.engines.generating import write_texts
from dragin_lab.engines.writing import Writing

#: What torch says where it has no error class for a lack of memory.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on a GPU or beside one."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)


class Waves(Batch):
    """Drafts of one model written side by side: ``ask`` for drafts, then ``step`` until none is left.

    A draft is the one that ``write`` gives, except that forwards of several sum in another order. A wave that fails
    begins again, half as large where memory was short, else one draft at a time, so that each meets its own error.
    ``notes`` say so.
    """

    def __init__(self, engine: Any, size: int) -> None:
        super().__init__(engine, size)
        self.lm, self.size, self.notes = engine, size, []
        if size > 1 and engine.no_batch:
            self._shrink(1, f"written one at a time: {engine.no_batch}")

    def step(self) -> list[DraftResult]:
        """Write a wave; the drafts that ended, each with its ``Draft`` or with what it failed with."""
        if self.size == 1:
            return self._step_alone()
        ended, beginning = list[DraftResult](), True
        with self.lm.in_use():
            try:
                while self._waiting and len(self._writing) < self.size:
                    self._begin(ended)
                beginning = False
                if self._writing:
                    self._write(ended)
            except Exception as error:  # noqa: BLE001 - whatever a shared forward fails with, each draft begins again
                n = self._restart() + beginning
                if out_of_memory(error) and n > 1:
                    self._shrink(n // 2, f"a batch of {n} did not fit into memory; went on with {n // 2}")
                elif out_of_memory(error):
                    ended += self._step_alone()
                else:
                    why = f"because a batch of {n} met {type(error).__name__}: {error}"
                    self._shrink(1, f"written one at a time, {why}")
        return ended

    def _step_alone(self) -> list[DraftResult]:
        """Write one draft by itself; where memory is short, once more without the kept prefixes."""
        waiting, ended = self._waiting[:1], super().step()
        if ended and isinstance(ended[0][1], Exception) and out_of_memory(ended[0][1]):
            ended[0][1].__traceback__ = None  # it holds on to the tensors of its frames
            self.lm.prefixes.clear()
            self._waiting[:0] = waiting
            return super().step()
        return ended

    def _begin(self, ended: list[DraftResult]) -> None:
        """Read the prompt of the next draft; what is wrong with it is its own. Raises where memory is short."""
        job = self._waiting.pop(0)
        try:
            writing = Writing(self.lm, *job[1:])
            self.lm.read(writing, whole=True)
        except Exception as error:
            if out_of_memory(error):
                self._waiting.insert(0, job)
                if self._writing or len(self.lm.prefixes):
                    raise
                self._waiting.pop(0)
            ended.append((job[0], error))
        else:
            self._writing[writing] = job

    def _write(self, ended: list[DraftResult]) -> None:
        """Write the drafts under way, those that capture the same layer's states together."""
        hidden = next(iter(self._writing)).request.hidden
        beside = [writing for writing in self._writing if writing.request.hidden == hidden]
        write_texts(self.lm, beside, enough=(len(beside) + 1) // 2)
        for writing in [writing for writing in self._writing if writing.complete]:
            key, *_ = self._writing.pop(writing)
            ended.append((key, writing.error or writing.finish()))

    def _restart(self) -> int:
        """Free all memory; what was under way, so many drafts, waits to begin again, before the others."""
        n = len(self._writing)
        self._waiting[:0] = self._writing.values()
        self._writing.clear()
        self.lm.prefixes.clear()
        return n

    def _shrink(self, size: int, note: str) -> None:
        self.size = size
        self.notes.append(note)
