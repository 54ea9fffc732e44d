"""``Branches``: a trace and what was made of it by ``Lab.branch``, as one tree and one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dragin_lab.checks import instance
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.file import load_trace, save_trace
from dragin_lab.trace.trace import Trace


@dataclass
class Branches:
    """A trace and its branches, each after the one it parts from.

    ``traces[0]`` is the root. Two branches may part from the same trace, and a branch from another branch.
    """

    traces: list[Trace] = field(default_factory=list)

    @classmethod
    def of(cls, traces: Trace | Iterable[Trace]) -> Branches:
        """A tree of a root and its branches. Raises ``SettingError`` as ``add``."""
        tree = cls()
        for trace in [traces] if isinstance(traces, Trace) else traces:
            tree.add(trace)
        return tree

    def add(self, trace: Trace) -> Trace:
        """Add a branch of one that is there, and return it; the same branch is added once.

        Raises ``SettingError`` for a trace that parts from none of them.
        """
        instance("branch", trace, Trace, "give a Trace of lab.branch")
        if (same := self.find(trace.fingerprint)) is not None:
            return self.traces[same]
        if self.traces and (trace.parting is None or self.find(trace.parting.parent) is None):
            raise SettingError(
                f"{trace!r} parts from none of the {len(self)} traces; add the one that it was branched from first"
            )
        self.traces.append(trace)
        return trace

    def find(self, fingerprint: str) -> int | None:
        """The number of the trace with that fingerprint."""
        return next((i for i, trace in enumerate(self.traces) if trace.fingerprint == fingerprint), None)

    def parent(self, number: int) -> int | None:
        """The number of the trace that a branch parts from; None of the root."""
        parting = self.traces[number].parting
        return None if parting is None else self.find(parting.parent)

    def path(self, number: int) -> list[int]:
        """The numbers from the root to a branch, both included."""
        parent = self.parent(number)
        return [*([] if parent is None else self.path(parent)), number]

    def __len__(self) -> int:
        return len(self.traces)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.traces)

    def __getitem__(self, number: int) -> Trace:
        return self.traces[number]

    def __repr__(self) -> str:
        """The tree as lines of text, one a trace, indented by how deep it lies."""
        lines = []
        for number, trace in enumerate(self.traces):
            place = str(trace.parting) if number and trace.parting else trace.question.text
            right = {1.0: " ✓", 0.0: " ✗"}.get(trace.scores.get("em", -1.0), "")
            lines.append(f"{'  ' * (len(self.path(number)) - 1)}{number}  {place}: {trace.answer!r}{right}")
        return "\n".join(lines)

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write all to one safetensors file; steps that a branch shares with its parent are written once.

        Hidden states are left out. Raises ``TraceFileError`` as ``Trace.save``.
        """
        own = []
        for number, trace in enumerate(self.traces):
            parent = self.parent(number)
            shared = 0 if parent is None else _count_shared(trace, self.traces[parent])
            own.append(replace(trace, steps=trace.steps[min(shared, len(trace.steps) - 1) :]))
        return save_trace(Branches(own), path, hidden=False)

    @staticmethod
    def load(path: str | Path) -> Branches:
        """Read a tree back; ``TraceFileError`` names what is wrong with a file that is none."""
        whole = Branches()
        for trace in load_trace(Branches, path):
            parent = None if trace.parting is None else whole.find(trace.parting.parent)
            if len(whole) and parent is None:
                raise TraceFileError(f"{path}: trace {len(whole)} parts from none of those before it; it is damaged")
            if parent is not None and trace.steps:
                trace.steps[:0] = whole[parent].steps[: trace.steps[0].index]
            whole.traces.append(trace)
        return whole


def _count_shared(trace: Trace, parent: Trace) -> int:
    """How many steps a branch begins with that are the very steps of its parent."""
    pairs = zip(trace.steps, parent.steps, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a is not b), min(len(trace.steps), len(parent.steps)))
