"""Drafts written side by side, in waves: one ``generate`` for several, until half of them have ended.

Those that have not go on in the next wave, from their own caches, beside the drafts that were waiting. Prompts are read
one by one, after what is kept of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Batch
from dragin_lab.engines.generating import write_texts
from dragin_lab.engines.kept import MOST
from dragin_lab.engines.writing import Writing
from dragin_lab.trace.trace import Draft

#: What torch says where it has no error class for a lack of memory.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")

#: The key of a draft, and what was written or what went wrong.
Ended = tuple[Any, Draft | Exception]
_Job = tuple[Any, Write, int | None]


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on a GPU or beside one."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)


class Waves(Batch):
    """Drafts of one model written side by side: ``ask`` for drafts, then ``step`` until none is left.

    A draft is the one that ``write`` gives, except that forwards of several sum in another order: where two tokens
    are equally likely to rounding, either may be chosen. Where memory is short the waves are halved and their drafts
    begin again; where drafts cannot be written side by side they are written one at a time. ``describe`` says so.

    Attributes:
        size: drafts written at once, at most.
        notes: why it is less than was asked for, one line each time.
    """

    def __init__(self, lm: Any, size: int) -> None:
        super().__init__(lm, size)
        self.lm, self.size, self.notes = lm, size, []
        if size > 1 and lm.alone:
            self._write_alone(lm.alone)
        self._writing: list[tuple[_Job, Writing]] = []
        self._kept_before = lm.kept.most
        lm.kept.most = max(lm.kept.most, MOST * self.size)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    def close(self) -> None:
        """Drop what is under way, and keep no more beginnings of prompts than before."""
        self._waiting.clear()
        self._writing = []
        self.lm.kept.most = self._kept_before

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """``TransformersModel.attend``; where memory is short the drafts under way make room and begin again."""
        try:
            return self.lm.attend(ids)
        except Exception as error:
            if not out_of_memory(error):
                raise
        n = self._restart()
        attention = self.lm.attend(ids)
        self._halve(n)
        return attention

    def step(self) -> list[Ended]:
        """Write a wave; the drafts that ended, each with its ``Draft`` or with what it failed with."""
        if self.size == 1:
            return [self._alone(self._waiting.pop(0))] if self._waiting else []
        ended: list[Ended] = []
        with self.lm.in_use():
            try:
                while self._waiting and len(self._writing) < self.size:
                    self._begin(self._waiting[0], ended)
                    self._waiting.pop(0)
                self._write(ended)
            except Exception as error:  # noqa: BLE001 - whatever a shared forward fails with, each draft goes on alone
                why = "" if out_of_memory(error) else f"{type(error).__name__}: {error}"
            else:
                return ended
            return ended + self._retreat(why)

    def _begin(self, job: _Job, ended: list[Ended]) -> None:
        """Read the prompt of a draft."""
        try:
            writing = self.lm.begin(*job[1:])
            self.lm.read(writing, whole=True)
        except Exception as error:
            if out_of_memory(error):
                raise
            ended.append((job[0], error))
            return
        self._writing.append((job, writing))

    def _write(self, ended: list[Ended]) -> None:
        """Write the drafts under way, those that capture the same layer's states together."""
        if not self._writing:
            return
        hidden = self._writing[0][1].request.hidden
        beside = [writing for _, writing in self._writing if writing.request.hidden == hidden]
        write_texts(self.lm, beside, enough=(len(beside) + 1) // 2)
        for job, writing in [pair for pair in self._writing if pair[1].complete]:
            ended.append((job[0], writing.error or writing.finish()))
        self._writing = [pair for pair in self._writing if not pair[1].complete]

    # -- where it does not work ---------------------------------------------------------------------------------------

    def _alone(self, job: _Job) -> Ended:
        """Write one draft by itself; where memory is short, once more without the kept beginnings."""
        for _ in range(2):
            try:
                return job[0], self.lm.write(*job[1:])
            except Exception as error:  # noqa: BLE001 - handed to the episode that asked
                failed = error
            if not out_of_memory(failed):
                break
            failed.__traceback__ = None  # it holds on to the tensors of its frames
            self.lm.forget()
        return job[0], failed

    def _retreat(self, why: str) -> list[Ended]:
        """Begin again after a forward failed: with half as many, or one at a time where ``why`` is not memory.

        The draft whose prompt was read when memory ran out is first tried alone: if it fails there too, the size was
        not the reason.
        """
        suspects = [self._waiting.pop(0)] if self._waiting and len(self._writing) < self.size else []
        n = self._restart() + len(suspects)
        if why:
            self._waiting[:0] = suspects
            self._write_alone(f"because a batch of {n} met {why}")
            return []
        ended = [self._alone(job) for job in suspects or [self._waiting.pop(0) for _ in range(n == 1)]]
        if not (ended and isinstance(ended[0][1], Exception)):
            self._halve(n)
        return ended

    def _write_alone(self, why: str) -> None:
        self.size = 1
        self.notes.append(f"written one at a time{',' if why.startswith('because') else ':'} {why}")

    def _halve(self, n: int) -> None:
        if n > 1:
            self.size = n // 2
            self.notes.append(f"a batch of {n} did not fit into memory; went on with {self.size}")

    def _restart(self) -> int:
        """Free all memory; what was under way, so many drafts, waits to begin again, before the others."""
        n = len(self._writing)
        self._waiting[:0] = [job for job, _ in self._writing]
        self._writing = []
        self.lm.forget()
        return n
