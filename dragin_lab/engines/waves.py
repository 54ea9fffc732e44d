"""Drafts written side by side, in waves: one ``generate`` for several, until half of them have ended.

Those that have not go on in the next wave, from their own caches, beside the drafts that were waiting. Prompts are read
one by one, after what is kept of them.
"""

from __future__ import annotations

from typing import Any

import torch

from dragin_lab.engines.engine import Batch, Ended, Job
from dragin_lab.engines.generating import write_texts
from dragin_lab.engines.kept import MOST
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

    A draft is the one that ``write`` gives, except that forwards of several sum in another order. Where memory is short
    the waves are halved and their drafts begin again; where drafts cannot be written side by side they are written one
    at a time. ``notes`` say so.
    """

    def __init__(self, engine: Any, size: int) -> None:
        super().__init__(engine, size)
        self.lm, self.size, self.notes = engine, size, []
        if size > 1 and self.lm.alone:
            self._write_alone(f": {self.lm.alone}")
        self._kept_before = self.lm.kept.most
        self.lm.kept.most = max(self._kept_before, MOST * self.size)

    def close(self) -> None:
        """Drop what is under way, and keep no more beginnings of prompts than before."""
        super().close()
        self.lm.kept.most = self._kept_before

    def step(self) -> list[Ended]:
        """Write a wave; the drafts that ended, each with its ``Draft`` or with what it failed with."""
        if self.size == 1:
            return self._step_alone()
        ended: list[Ended] = []
        with self.lm.in_use():
            while self._waiting and len(self._writing) < self.size:
                self._begin(self._waiting.pop(0), ended)
            try:
                self._write(ended)
            except Exception as error:  # noqa: BLE001 - whatever a shared forward fails with, each draft goes on alone
                why = "" if out_of_memory(error) else f"{type(error).__name__}: {error}"
            else:
                return ended
            n = self._restart()
            if why:
                self._write_alone(f", because a batch of {n} met {why}")
            elif n > 1:
                self._halve(n)
            else:
                ended += self._step_alone()
        return ended

    def _step_alone(self) -> list[Ended]:
        """Write one draft by itself; where memory is short, once more without the kept beginnings."""
        waiting, ended = self._waiting[:1], super().step()
        if not (ended and isinstance(ended[0][1], Exception) and out_of_memory(ended[0][1])):
            return ended
        ended[0][1].__traceback__ = None
        self.lm.kept.clear()
        self._waiting[:0] = waiting
        return super().step()

    def _begin(self, job: Job, ended: list[Ended]) -> None:
        """Read the prompt of a draft; where memory is short the others make room, and begin again beside fewer."""
        restarted = 0
        while True:
            try:
                writing = Writing(self.lm, *job[1:])
                self.lm.read(writing, whole=True)
            except Exception as error:  # noqa: BLE001 - handed to the episode that asked
                failed = error
            else:
                if restarted:
                    self._halve(restarted + 1)
                self._writing[writing] = job
                return
            if not out_of_memory(failed) or not (self._writing or len(self.lm.kept)):
                ended.append((job[0], failed))
                return
            failed.__traceback__ = None  # it holds on to the tensors of its frames
            restarted += self._restart()

    def _write(self, ended: list[Ended]) -> None:
        """Write the drafts under way, those that capture the same layer's states together."""
        if not self._writing:
            return
        hidden = next(iter(self._writing)).request.hidden
        beside = [writing for writing in self._writing if writing.request.hidden == hidden]
        write_texts(self.lm, beside, enough=(len(beside) + 1) // 2)
        for writing in [writing for writing in self._writing if writing.complete]:
            key, *_ = self._writing.pop(writing)
            ended.append((key, writing.error or writing.finish()))

    # -- where it does not work ---------------------------------------------------------------------------------------

    def _restart(self) -> int:
        """Free all memory; what was under way, so many drafts, waits to begin again, before the others."""
        n = len(self._writing)
        self._waiting[:0] = self._writing.values()
        self._writing.clear()
        self.lm.kept.clear()
        return n

    def _halve(self, n: int) -> None:
        self.size = max(n // 2, 1)
        self.notes.append(f"a batch of {n} did not fit into memory; went on with {self.size}")

    def _write_alone(self, why: str) -> None:
        self.size = 1
        self.notes.append(f"written one at a time{why}")
