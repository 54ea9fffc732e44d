"""``Trace``, the record of one episode, with its tables, files and pictures; ``Branches``, a
tree of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import instance
from dragin_lab.drawn import Drawn
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.file import load_trace, save_trace
from dragin_lab.trace.frames import retrieval_table, token_table, trace_diff
from dragin_lab.trace.records import (
    Attributed,
    Decision,
    OtherWay,
    Parting,
    Passage,
    Prompt,
    Query,
    Question,
    Step,
    Words,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Decision",
    "Draft",
    "Parting",
    "Passage",
    "Prompt",
    "Query",
    "Question",
    "Step",
    "Trace",
    "Words",
]


@dataclass
class Trace:
    """The record of one episode; valid at every moment of it."""

    question: Question
    method: dict[str, Any]  # name, variant, when, what and every setting
    steps: list[Step] = field(default_factory=list)
    text: str = ""  # the whole answer text
    answer: str = ""  # extracted from it (reference-behaviour §6)
    readable: bool = True  # whether there was an answer to extract (``answers.is_readable``)
    # em, f1, precision, recall, where there is a gold answer
    scores: dict[str, float] = field(default_factory=dict)
    ended: str = "running"  # or "answered", "length", "stalled", "cancelled", "error"
    error: str = ""  # what went wrong, where it ended with "error"
    # the extra tokens after "So the answer is", where they were needed
    extraction: Draft | None = None
    extraction_prompt: Prompt | None = None
    # model, weights hash, dtype, versions, retriever, seed
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # where it parts from another trace, of a branch (``Lab.branch``)
    parting: Parting | None = None
    # what its retrievals gave, once ``Lab.attribute`` has measured it
    attributed: Attributed | None = None
    # what else it could have decided, once ``Lab.fan`` has asked
    other_ways: tuple[OtherWay, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over what was asked, by which method, what was written and
        what was found.

        A file gives it back, a slim one too; how long things took and what was measured do not
        count.
        """
        content = [
            (self.question.id, self.question.text, self.question.golds),
            self.method,
            [continuation.ids.tolist() for continuation in self.continuations],
            [
                (step.query and step.query.sent, [passage.id for passage in step.passages])
                for step in self.steps
            ],
            self.parting and astuple(self.parting),
        ]
        return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @property
    def continuations(self) -> list[Draft]:
        """Everything the model wrote in this episode, in order."""
        written = [text for step in self.steps for _, text, _ in step.texts]
        return written if self.extraction is None else [*written, self.extraction]

    @property
    def queries(self) -> list[str]:
        """The queries as formulated, in order."""
        return [s.query.text for s in self.steps if s.query is not None]

    @property
    def retrievals_count(self) -> int:
        """How many times passages were fetched."""
        return len(self.queries)

    @property
    def counters(self) -> dict[str, int]:
        """retrievals, drafts, tokens generated (or served from a store), discarded, and prompt
        tokens reused.
        """
        written = self.continuations
        return {
            "retrievals": self.retrievals_count,
            "drafts": len(written),
            "generated": sum(len(c) + c.cut_tokens for c in written),
            "discarded": sum(step.discarded_tokens for step in self.steps),
            "reused": sum(c.reused for c in written),
        }

    @property
    def stored(self) -> dict[str, int]:
        """What a store served of all this: drafts, and tokens."""
        served = [len(c) for c in self.continuations if c.stored]
        return {"drafts": len(served), "tokens": sum(served)}

    @property
    def lost(self) -> dict[str, int]:
        """What the model's context window cost, as far as it is not 0.

        ``beyond``: prompts that outgrew it, with what was written after them; ``passages`` and
        ``exemplars``: dropped from prompts to fit it.
        """
        window = self.provenance.get("context_window")
        lost = Counter(beyond=0, passages=0, exemplars=0)
        for written in self.continuations:
            lost["beyond"] += window is not None and len(written.prompt_ids) + len(written) > window
        prompts = [self.extraction_prompt]
        for step in self.steps:
            prompts += [step.prompt, step.passages_prompt]
        for prompt in prompts:
            lost.update(prompt.dropped if prompt else {})
        return {name: count for name, count in lost.items() if count}

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per token of every draft and continuation (pandas.DataFrame); see
        ``frames.token_table``.
        """
        return token_table(self.steps, self.extraction, self.method)

    @property
    def retrievals(self) -> pd.DataFrame:
        """One row per retrieved passage: step, query, rank, id, title, text, score
        (pandas.DataFrame).
        """
        return retrieval_table(self.steps)

    def diff(self, other: Trace) -> str:
        """Where two traces differ, as lines of text; "" where they do not; see
        ``frames.trace_diff``.
        """
        return trace_diff(
            self, instance("trace", other, Trace, "give a Trace; Trace.load reads one")
        )

    def save(self, path: str | Path, *, hidden: bool = False) -> Path:
        """Write the trace to one safetensors file (``trace.file``); the old file stays if writing
        fails.

        Hidden states are left out unless ``hidden`` asks for them.
        """
        return save_trace(self, path, hidden=hidden)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace back; ``TraceFileError`` names what is wrong with a file that is not one."""
        return load_trace(Trace, path)

    # Figures of plotly and the page, which the views draw.
    heatmap = Drawn()
    selections = Drawn()
    attention = Drawn()
    overview = Drawn()
    fan = Drawn()
    _repr_mimebundle_ = Drawn()

    def __repr__(self) -> str:
        count = self.counters
        name = self.method.get("label") or self.method.get("name", "?")
        return (
            f"Trace({name}/{self.method.get('variant', '?')}, {self.question.text[:60]!r},"
            f" answer={self.answer[:40]!r}, retrievals={count['retrievals']},"
            f" tokens={count['generated']}, {self.ended})"
        )

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


@dataclass
class Branches:
    """A trace and what ``Lab.branch`` made of it, each after the one it parts from. ``traces[0]``
    is the root.

    Two branches may part from the same trace, and a branch from another branch.
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
                f"{trace!r} parts from none of the {len(self)} traces; add the one that it was"
                " branched from first"
            )
        self.traces.append(trace)
        return trace

    def find(self, fingerprint: str) -> int | None:
        """The number of the trace with that fingerprint."""
        return next(
            (i for i, trace in enumerate(self.traces) if trace.fingerprint == fingerprint), None
        )

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
        return f"Branches({len(self)} traces of {self[0].question.text[:60]!r})"

    def __str__(self) -> str:
        """The tree as lines of text, one a trace, indented by how deep it lies."""
        lines = []
        for number, trace in enumerate(self.traces):
            place = str(trace.parting) if number and trace.parting else trace.question.text
            right = {1.0: " ✓", 0.0: " ✗"}.get(trace.scores.get("em", -1.0), "")
            lines.append(
                f"{'  ' * (len(self.path(number)) - 1)}{number}  {place}: {trace.answer!r}{right}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def save(self, path: str | Path) -> Path:
        """Write all to one safetensors file, without hidden states.

        Raises ``TraceFileError`` as ``Trace.save``.
        """
        return save_trace(self, path, hidden=False)

    @staticmethod
    def load(path: str | Path) -> Branches:
        """Read a tree back. Raises ``TraceFileError`` for a file that is not one, and says why."""
        tree = load_trace(Branches, path)
        for number in range(1, len(tree)):
            parent = tree.parent(number)
            if parent is None or parent >= number:
                raise TraceFileError(
                    f"{path}: trace {number} parts from none of those before it; it is damaged"
                )
        return tree
